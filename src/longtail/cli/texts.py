"""The texts that `predict` and `explain` read: numbered, in batches, ahead of the model."""

from __future__ import annotations

import queue
import shlex
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from typing import Any

from longtail.cli.reading import Source, remembered_options
from longtail.cli.show import print_notes
from longtail.data.documents import Document, ReadOptions, ReadReport
from longtail.data.fields import TAB, USUAL_DELIMITERS
from longtail.errors import DataError, InputError
from longtail.progress import Progress
from longtail.runs.files import files_in
from longtail.runs.model import checksum

STANDARD_INPUT = "-"
SEPARATOR = ";"  # between labels, if the training data had no separator
BATCH = 256
READ_AHEAD = 4 * BATCH  # documents, so that reading overlaps with predicting


class Texts:
    """The documents of DATA, each with its id or its number, and the progress of reading them.

    `options` override the reading options of the run's training data.
    """

    def __init__(
        self, data: str, format: str | None, options: dict[str, Any], split: str | None, run: Path
    ) -> None:
        from longtail.corpora import list_corpora

        self.data, self.split, self.is_corpus = data, split, data in list_corpora()
        self.is_stream = data == STANDARD_INPUT
        is_text = split is None and (self.is_stream or data.endswith((".txt", ".txt.gz")))
        self.format = "text" if format is None and is_text else format
        self._trained_on = remembered = remembered_options(run, data)
        self.separator = options.get("label_separator") or remembered.label_separator or SEPARATOR
        """Between labels in one string, in the output too."""
        if remembered.label_columns is not None:
            options = {name: value for name, value in options.items() if name != "label_separator"}
        # The reading options of a table apply neither to plain text nor to a corpus.
        is_table = self.format != "text" and not self.is_corpus
        self.options = replace(remembered if is_table else ReadOptions(), **options)
        self.report = ReadReport(remembered=tuple(asdict(self.options).keys() - options.keys()))
        self.error: BaseException | None = None
        """What stopped the reading."""
        self._n_bytes = self._total_bytes = 0
        self._total: int | None = None
        self._contents: Callable[[], dict[str, str | None]] = dict
        if " " in data and not Path(data).exists():
            raise DataError(f"no such file or folder: {data}. {text_hint(run, data)}")
        documents = self._read() if split is None else self._part(split)
        # A missing column is an error now; on standard input this would wait for the first line.
        first = [] if self.is_stream else list(islice(documents, 1))
        if not (first or self.is_stream):
            raise DataError("\n".join([f"{data}: holds no documents.", *self.report.lines()]))
        self._documents = chain(first, documents)

    def _part(self, split: str) -> Iterator[Document]:
        """One part of DATA, read into memory with its labels."""
        options, remembered = asdict(self.options), tuple(self.report.remembered)
        part = Source(self.data, self.format, None, {}, options, remembered=remembered).part(split)
        self._total = len(part)
        self._contents = lambda: {f"the {split} part": part.fingerprint()}
        numbered = enumerate(part, start=1)
        return (one if one.id is not None else one._replace(id=str(n)) for n, one in numbered)

    def _read(self) -> Iterator[Document]:
        """All documents, one by one in bounded memory."""
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
            # The number in the file: skipped records count.
            one if one.id is not None else one._replace(id=str(report.documents + report.skipped))
            for one in documents
        )

    def settings(self) -> dict[str, Any]:
        """The settings that determine the documents, with digests of their content."""
        where = {"data": self.data, "format": self.format, "split": self.split}
        return {**where, **asdict(self.options), **self._contents()}

    def progress(self, n_done: int, documents_per_second: float) -> Progress:
        """The progress of predicting: in bytes if the total is known, else in documents."""
        stage = f"predicting {Path(self.data).name}"
        done, total, unit = n_done, self._total, "documents"
        if self._total_bytes:
            done, total, unit = min(self._n_bytes, self._total_bytes), self._total_bytes, "bytes"
        return Progress(stage, done, total, unit, documents_per_second=documents_per_second)

    def batches(self, n_before: int = 0) -> Iterator[list[Document]]:
        """Batches of all documents but the first `n_before`.

        On standard input a batch is what has arrived: a slow producer is answered line by line.
        """
        arrived: queue.Queue[Document | BaseException | None] = queue.Queue(maxsize=READ_AHEAD)

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
            if isinstance(item, Document):
                if is_first and self.format == "text":
                    _check_format(item.text, self._trained_on)
                is_first = False
                batch.append(item)
            is_due = len(batch) == BATCH or (self.is_stream and arrived.empty())
            if batch and (is_due or not isinstance(item, Document)):
                yield batch
                batch = []
            if isinstance(item, BaseException):
                self.error = item
                raise item
            if item is None:
                return


def text_hint(run: Path, text: str) -> str:
    """How to predict a text given on the command line."""
    piped = f"echo {shlex.quote(text)} | longtail predict {run}"
    return f"To predict a text, pipe it: {piped}, or use: longtail explain {run} --text TEXT"


def _check_format(first: str, trained_on: ReadOptions) -> None:
    """Print a note if the first line of a text file looks like another format."""
    for delimiter in USUAL_DELIMITERS:
        cells = [cell.strip().strip('"') for cell in first.split(delimiter)]
        if len(cells) > 1 and set(trained_on.text_fields) <= set(cells):
            flags = {",": "csv", TAB: "tsv"}.get(delimiter, f"csv --delimiter {delimiter!r}")
            note = f"the first line holds the columns of the training data: pass --format {flags}"
            print_notes([f"{note}. Now every line, this one too, is read as a text."])
            return
    looks_like = {"jsonl": first.lstrip()[:1] == "{", "libmultilabel": TAB in first}
    for name, applies in looks_like.items():
        if applies:
            print_notes([f"the first line looks like {name}: is --format {name} missing?"])


def _digest(path: Path) -> str | None:
    """The digest of a file or of all files in a folder; None if there is no such path."""
    if path.is_dir():
        lines = [f"{name} {checksum(path / name)}\n" for name in files_in(path)]
        return sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
    return checksum(path) if path.is_file() else None
