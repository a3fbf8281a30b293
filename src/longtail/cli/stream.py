"""`longtail predict --engine ray`: Ray Data reads files and predicts with a model per worker.

A row of the dataset is a batch of one file, the same that one machine would predict. Rows keep
their order; each has its number, so that none can be lost or doubled unnoticed.
"""

from __future__ import annotations

import logging
import os
import pickle
import platform
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from longtail.data.documents import Document, ReadReport
from longtail.errors import DataError, LongtailError
from longtail.progress import OnProgress

if TYPE_CHECKING:
    from longtail.classifier import LongTailClassifier
    from longtail.cli.predict import Request
    from longtail.cli.texts import Texts
    from longtail.training.engines import RayEngine, WorkerSetting

# Bytes of a block of rows, which is the work of a task: some hundred to thousands of documents.
BLOCK_BYTES = 2_000_000


class Model(NamedTuple):
    """A model, as every worker loads it."""

    run: Path
    device: str | None
    trust_remote_code: bool


class Batch(NamedTuple):
    """Consecutive documents of a file; a worker puts their records in place of the texts."""

    file: int
    """Position of the file among all."""
    number: int
    """Number of batches before it in the file."""
    ids: list[tuple[str | None, int]]
    """Id and number in the file of each document; skipped records count."""
    texts: list[str]
    n_bytes: int
    """Bytes of the file that were read so far."""
    records: Sequence[dict[str, Any]] = ()


class End(NamedTuple):
    """The end of a file, or of what could be read or predicted of it."""

    file: int
    number: int
    report: ReadReport
    error: Exception | None = None
    is_of_reading: bool = True


def stream(
    engine: RayEngine,
    model: Model,
    request: Request,
    texts: Texts,
    classifier: LongTailClassifier,
    progress: OnProgress,
    n_before: int,
) -> Generator[list[dict[str, Any]], None, None]:
    """The records of the documents after the first `n_before`, as `Request.records` yields them."""
    start, n_done = time.monotonic(), n_before
    report = ReadReport(remembered=texts.report.remembered, left_out=texts.left_out)
    position = _Position(texts, report)
    if texts.first is not None and not n_before:
        texts.check_format(texts.first)
    skipped = position.skip(n_before)
    with closing(_items(engine, model, request, texts, classifier, position, skipped)) as items:
        for item in items:
            position.check(item)
            if isinstance(item, End):
                position.end(item)
                continue
            yield _records(item, position.n_before, request.with_text)
            n_done += len(item.ids)
            texts.n_bytes = position.n_bytes + item.n_bytes
            rate = (n_done - n_before) / (time.monotonic() - start)
            progress(texts.progress(n_done, rate))
    position.finish()


def _records(batch: Batch, n_before: int, with_text: bool) -> list[dict[str, Any]]:
    """The records of a batch; documents without an id are numbered after `n_before`."""
    ids = [str(n_before + number) if one is None else one for one, number in batch.ids]
    texts = [{"text": text} for text in batch.texts] if with_text else [{}] * len(ids)
    parts = zip(ids, texts, batch.records, strict=True)
    return [{"id": one} | text | record for one, text, record in parts]


class _Position:
    """The file and batch that come next, and what was read so far."""

    def __init__(self, texts: Texts, report: ReadReport) -> None:
        self.texts, self.report = texts, report
        self.file = self.number = self.n_before = self.n_bytes = 0

    def skip(self, n_documents: int) -> int:
        """Pass over whole files; return the number of documents to skip of the next one."""
        while n_documents:
            report = ReadReport()
            for _ in islice(_documents(self.texts, self.file, report), n_documents + 1):
                pass
            if report.documents > n_documents:
                break
            n_documents -= report.documents
            self.end(End(self.file, 0, report))
        return n_documents

    def check(self, item: Batch | End) -> None:
        """Raise if rows are missing, repeated or in another order."""
        if (item.file, item.number) != (self.file, self.number):
            raise LongtailError(
                f"expected batch {self.number} of file {self.file} from the cluster, got batch "
                f"{item.number} of file {item.file}. What was predicted before is kept."
            )
        self.number += 1

    def end(self, item: End) -> None:
        """Count a file that was read; raise what ended it early."""
        from longtail.data.collect import size_of

        if item.error is not None:
            self.texts.error = item.error if item.is_of_reading else None
            raise item.error
        self.report.add(item.report)
        self.n_before += item.report.documents + item.report.skipped
        self.n_bytes += size_of(self.texts.files[self.file][0])
        self.file, self.number = self.file + 1, 0

    def finish(self) -> None:
        """Check the files as a whole, as `Texts` does."""
        from longtail.data.collect import check_fields

        if self.file != len(self.texts.files):
            raise LongtailError(
                f"the cluster returned {self.file} of {len(self.texts.files)} files. What was "
                "predicted is kept: resume with --resume."
            )
        check_fields(self.texts.data, self.texts.options, self.report, ("id_field",))
        self.texts.report = self.report


def _documents(texts: Texts, file: int, report: ReadReport) -> Iterator[Document]:
    from longtail.data.sources import documents_of

    path, entry = texts.files[file]
    return documents_of(path, entry, report=report, **asdict(texts.options))


def _items(
    engine: RayEngine,
    model: Model,
    request: Request,
    texts: Texts,
    classifier: LongTailClassifier,
    position: _Position,
    skipped: int,
) -> Generator[Batch | End, None, None]:
    """The batches of all files from a position, predicted, and the end of each file, in order."""
    import ray.data

    from longtail.training.engines import READER_CPUS, worker_errors

    files = range(position.file, len(texts.files))
    if not files:
        return
    uses_gpu = model.device != "cpu" and any(
        plan.model.trains_in_steps for plan in classifier.plans_
    )
    resources, n_workers = engine.pool(uses_gpu)
    places = [
        {"file": k, "path": str(texts.files[k][0]), "format": texts.files[k][1].name, "skipped": 0}
        for k in files
    ]
    places[0]["skipped"] = skipped
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current().copy()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    context.target_max_block_size = BLOCK_BYTES
    with ray.data.DataContext.current(context):
        rows = ray.data.from_items(places, override_num_blocks=len(places))
        read = partial(read_file, options=asdict(texts.options), folder=os.getcwd())
        rows = rows.flat_map(read, num_cpus=READER_CPUS)
        rows = rows.map_batches(
            Predict,
            fn_constructor_args=(model, request, engine.setting(resources)),
            batch_size=None,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=n_workers),
            **resources,
        )
        with worker_errors(), closing(iter(rows.iter_rows())) as predicted:
            for row in predicted:
                yield pickle.loads(row["item"])


def read_file(
    place: dict[str, Any], options: dict[str, Any], folder: str
) -> Iterator[dict[str, bytes]]:
    """In a worker: the batches of a file, then its end; `folder`: to which paths are relative."""
    from longtail.cli.texts import BATCH
    from longtail.data.formats import get_format
    from longtail.data.sources import documents_of

    with suppress(OSError):
        os.chdir(folder)
    file, report, n_bytes, number = place["file"], ReadReport(), 0, 0

    def tick(count: int) -> None:
        nonlocal n_bytes
        n_bytes += count

    ids: list[tuple[str | None, int]] = []
    texts: list[str] = []
    error = None
    entry, n_read = get_format(place["format"]), 0
    documents = documents_of(place["path"], entry, report=report, tick=tick, **options)
    while True:
        try:
            document = next(documents, None)
        except Exception as raised:
            document, error = None, raised
        if document is not None:
            n_read += 1
            if n_read <= place["skipped"]:
                continue
            ids.append((document.id, report.documents + report.skipped))
            texts.append(document.text)
        if texts and (document is None or len(texts) == BATCH):
            yield _row(Batch(file, number, ids, texts, n_bytes))
            ids, texts, number = [], [], number + 1
        if document is None:
            yield _row(End(file, number, report, error))
            return


class Predict:
    """In a worker: a model, loaded once, which predicts blocks of rows."""

    def __init__(self, model: Model, request: Request, setting: WorkerSetting) -> None:
        setting.apply()
        from longtail.classifier import LongTailClassifier

        self._request = request
        self._error: LongtailError | None = None
        try:
            if not model.run.is_dir():
                raise DataError(
                    f"{model.run} is not on the machine {platform.node()}. --engine ray needs the "
                    "run and DATA on paths that all machines of the cluster share, such as NFS."
                )
            self._classifier = LongTailClassifier.from_pretrained(
                model.run, device=model.device, trust_remote_code=model.trust_remote_code
            )
        except LongtailError as error:
            # Raised here, Ray would start the worker again and again.
            self._error = error

    def __call__(self, block: Any) -> dict[str, list[bytes]]:
        items = map(pickle.loads, block["item"].to_pylist())
        return {"item": [_row(self._predicted(item))["item"] for item in items]}

    def _predicted(self, item: Batch | End) -> Batch | End:
        if isinstance(item, End):
            return item
        try:
            if self._error is not None:
                raise self._error
            records = self._request.predict(self._classifier, item.texts)
        except LongtailError as error:
            return End(item.file, item.number, ReadReport(), error, is_of_reading=False)
        texts = item.texts if self._request.with_text else []
        return item._replace(texts=texts, records=records)


def _row(item: Batch | End) -> dict[str, bytes]:
    return {"item": pickle.dumps(item)}
