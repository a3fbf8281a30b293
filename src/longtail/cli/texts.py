"""The texts that `longtail predict` reads: numbered, in batches, read ahead of the model."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail.cli.reading import Source, remembered_options
from longtail.cli.show import print_notes
from longtail.data.documents import ReadOptions, ReadReport
from longtail.errors import DataError, InputError
from longtail.progress import Progress
from longtail.runs.files import files_in
from longtail.runs.model import checksum

if TYPE_CHECKING:
    from longtail.data import Document

STANDARD_INPUT = "-"
SEPARATOR = ";"  # between labels, if the run was trained on data without a separator
BATCH = 256
# Documents read ahead of the model, so that reading and computing overlap.
AHEAD = 4 * BATCH


class Texts:
    """The documents of DATA, each with its id or its number, and how much of them has been read."""

    def __init__(
        self, data: str, format: str | None, given: dict[str, Any], split: str | None, run: Path
    ) -> None:
        """`given`: options that override those that the data of the run were read with."""
        from longtail.corpora import list_corpora

        self.data, self.split, self.is_corpus = data, split, data in list_corpora()
        self.report, self.is_stream = ReadReport(), data == STANDARD_INPUT
        is_text = split is None and (self.is_stream or data.endswith((".txt", ".txt.gz")))
        self.format = "text" if format is None and is_text else format
        remembered = remembered_options(run, data) or ReadOptions()
        self.separator = given.get("label_separator") or remembered.label_separator or SEPARATOR
        """Between the labels of one string, in what is written too."""
        if remembered.label_columns is not None:
            given = {name: value for name, value in given.items() if name != "label_separator"}
        # How tables were read says nothing of plain text, nor of a corpus.
        is_other = self.format == "text" or self.is_corpus
        self.options = replace(ReadOptions() if is_other else remembered, **given)
        self._n_bytes = self._total_bytes = 0
        self._total: int | None = None
        self._contents: Callable[[], dict[str, str | None]] = dict
        documents = self._read() if split is None else self._part(split)
        # Reports missing columns early; on standard input this would wait for the first line.
        first = [] if self.is_stream else list(islice(documents, 1))
        if not (first or self.is_stream):
            raise DataError("\n".join([f"{data}: holds no documents.", *self.report.lines()]))
        self._documents = chain(first, documents)

    def _part(self, split: str) -> Iterator[Document]:
        """A part of DATA, which is read whole, with its labels."""
        part = Source(self.data, self.format, None, {}, asdict(self.options)).part(split)
        self._total = len(part)
        self._contents = lambda: {f"the {split} part": part.fingerprint()}
        numbered = enumerate(part, start=1)
        return (one if one.id is not None else one._replace(id=str(n)) for n, one in numbered)

    def _read(self) -> Iterator[Document]:
        """One document after another, in bounded memory."""
        from longtail.data.collect import size_of
        from longtail.data.sources import iter_texts, resolve

        if self.is_corpus:
            raise InputError(f"{self.data} is a corpus: name one of its parts, as in --split test.")
        paths = [path for path, _ in resolve(self.data, self.format, ReadReport())]
        self._total_bytes = sum(map(size_of, paths))
        self._contents = lambda: {f"the content of {path}": _digest(Path(path)) for path in paths}

        def tick(count: int) -> None:
            self._n_bytes += count

        options, report = asdict(self.options), self.report
        documents = iter_texts(self.data, self.format, report=report, tick=tick, **options)
        return (
            # Those that were skipped before it are counted.
            one if one.id is not None else one._replace(id=str(report.documents + report.skipped))
            for one in documents
        )

    def settings(self) -> dict[str, Any]:
        """The settings that determine the documents, with digests of their content."""
        named = {"data": self.data, "format": self.format, "split": self.split}
        return {**named, **asdict(self.options), **self._contents()}

    def progress(self, n_done: int, documents_per_second: float) -> Progress:
        """In bytes where these are known, as documents are not counted beforehand."""
        stage = f"predicting {Path(self.data).name}"
        done, total, unit = n_done, self._total, "documents"
        if self._total_bytes:
            done, total, unit = min(self._n_bytes, self._total_bytes), self._total_bytes, "bytes"
        return Progress(stage, done, total, unit, documents_per_second=documents_per_second)

    def batches(self, n_before: int = 0) -> Iterator[list[Document]]:
        """All but the first `n_before`. A slow producer on the standard input is answered line by
        line: a batch is then what has arrived."""
        arrived: queue.Queue[Document | BaseException | None] = queue.Queue(maxsize=AHEAD)

        def read() -> None:
            try:
                for document in islice(self._documents, n_before, None):
                    arrived.put(document)
                arrived.put(None)
            except BaseException as error:
                arrived.put(error)

        threading.Thread(target=read, daemon=True).start()
        batch: list[Document] = []
        is_first = True
        while True:
            item = arrived.get()
            if isinstance(item, tuple):
                if is_first and self.format == "text":
                    _check_format(item.text)
                is_first = False
                batch.append(item)
            is_due = len(batch) == BATCH or (self.is_stream and arrived.empty())
            if batch and (is_due or not isinstance(item, tuple)):
                yield batch
                batch = []
            if isinstance(item, BaseException):
                raise item
            if item is None:
                return


def _check_format(first: str) -> None:
    """Say so if lines of text look like lines of something else."""
    for kind, looks_like in (
        ("jsonl", first.lstrip()[:1] == "{"),
        ("libmultilabel", "\t" in first),
    ):
        if looks_like:
            print_notes([f"the first line looks like {kind}: is --format {kind} missing?"])


def _digest(path: Path) -> str | None:
    """The digest of a file, or of all files in a folder; None if it is not on this disk."""
    if path.is_dir():
        lines = [f"{name} {checksum(path / name)}\n" for name in files_in(path)]
        return sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
    return checksum(path) if path.is_file() else None
