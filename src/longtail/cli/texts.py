"""The texts that `predict` and `explain` read: numbered, in batches, ahead of the model."""

from __future__ import annotations

import queue
import shlex
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail.cli.reading import Source, remembered_options
from longtail.cli.show import print_notes
from longtail.data.documents import Document, ReadOptions, ReadReport
from longtail.data.fields import TAB, USUAL_DELIMITERS
from longtail.errors import DataError, InputError
from longtail.progress import Progress
from longtail.runs.files import files_in
from longtail.runs.model import checksum

if TYPE_CHECKING:
    from longtail.data.collect import Files

STANDARD_INPUT = "-"
SEPARATOR = ";"  # between labels, if the training data had no separator
BATCH = 256
READ_AHEAD = 4 * BATCH  # documents, so that reading overlaps with predicting
PLAIN = (".txt", ".txt.gz")
END_OF_FILE, END = "end of file", "end"


class Texts:
    """The documents of DATA, each with its id or its number, and the progress of reading them.

    `options` override the reading options of the run's training data. Several files are read in
    order, and numbered as one.
    """

    def __init__(
        self,
        names: Sequence[str],
        format: str | None,
        options: dict[str, Any],
        split: str | None,
        run: Path,
    ) -> None:
        from longtail.corpora import list_corpora

        _check_names(names, format, split, list_corpora())
        self.names, data = tuple(names), names[0]
        self.data = data if len(names) == 1 else shlex.join(names)
        self.split, self.is_corpus = split, data in list_corpora()
        self.is_stream = data == STANDARD_INPUT
        is_text = split is None and (self.is_stream or data.endswith(PLAIN))
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
        self.files: Files = []
        """The files of DATA, in order; none for a part of it."""
        self.left_out = Counter[str]()
        """Files of a folder that are not read."""
        self.first: Document | None = None
        """The first document, except of standard input."""
        self.n_bytes = self._total_bytes = 0
        self._total: int | None = None
        self._contents: Callable[[], dict[str, str | None]] = dict
        for name in names:
            if " " in name and not Path(name).exists():
                raise DataError(f"no such file or folder: {name}. {text_hint(run, name)}")
        self._files = self._read() if split is None else iter([self._part(split)])
        if not self.is_stream:
            # A missing column is an error now; standard input would wait for its first line.
            for documents in self._files:
                if first := list(islice(documents, 1)):
                    self._files = chain([chain(first, documents)], self._files)
                    self.first = first[0]
                    break
            else:
                message = f"{self.data}: holds no documents."
                raise DataError("\n".join([message, *self.report.lines()]))

    def _part(self, split: str) -> Iterator[Document]:
        """One part of DATA, read into memory with its labels."""
        options, remembered = asdict(self.options), tuple(self.report.remembered)
        part = Source(self.names[0], self.format, None, {}, options, remembered=remembered).part(
            split
        )
        self._total = len(part)
        self._contents = lambda: {f"the {split} part": part.fingerprint()}
        numbered = enumerate(part, start=1)
        return (one if one.id is not None else one._replace(id=str(n)) for n, one in numbered)

    def _read(self) -> Iterator[Iterator[Document]]:
        """The documents of each file, one by one in bounded memory."""
        from longtail.data.collect import check_once, size_of
        from longtail.data.sources import resolve, text_files

        if self.is_corpus:
            raise InputError(f"{self.data} is a corpus: name one of its parts, as in --split test.")
        source = self.data if len(self.names) == 1 else self.names
        resolved = ReadReport()
        self.files = resolve(source, self.format, resolved)
        self.left_out = resolved.left_out
        check_once(self.files)
        paths = [path for path, _ in self.files]
        self._total_bytes = sum(map(size_of, paths))
        self._contents = lambda: {f"the content of {path}": _digest(Path(path)) for path in paths}

        def tick(count: int) -> None:
            self.n_bytes += count

        options, report = asdict(self.options), self.report

        def numbered(documents: Iterator[Document]) -> Iterator[Document]:
            for one in documents:
                # Skipped records count.
                number = str(report.documents + report.skipped)
                yield one if one.id is not None else one._replace(id=number)

        each = text_files(source, self.format, report=report, tick=tick, **options)
        return map(numbered, each)

    def settings(self) -> dict[str, Any]:
        """The settings that determine the documents, with digests of their content."""
        where = {"data": self.data, "format": self.format, "split": self.split}
        return {**where, **asdict(self.options), **self._contents()}

    def progress(self, n_done: int, documents_per_second: float) -> Progress:
        """The progress of predicting: in bytes if the total is known, else in documents."""
        n_names = len(self.names)
        stage = f"predicting {Path(self.data).name if n_names == 1 else f'{n_names} files'}"
        done, total, unit = n_done, self._total, "documents"
        if self._total_bytes:
            done, total, unit = min(self.n_bytes, self._total_bytes), self._total_bytes, "bytes"
        return Progress(stage, done, total, unit, documents_per_second=documents_per_second)

    def batches(self, n_before: int = 0) -> Iterator[list[Document]]:
        """Batches of all documents but the first `n_before`; a batch ends with its file.

        On standard input a batch is what has arrived: a slow producer is answered line by line.
        """
        arrived: queue.Queue[Document | BaseException | str] = queue.Queue(maxsize=READ_AHEAD)

        def read() -> None:
            n_read = 0
            try:
                for documents in self._files:
                    for document in documents:
                        n_read += 1
                        if n_read > n_before:
                            arrived.put(document)
                    arrived.put(END_OF_FILE)
                arrived.put(END)
            except BaseException as error:
                arrived.put(error)

        threading.Thread(target=read, daemon=True).start()
        batch: list[Document] = []
        is_first = True
        while True:
            item = arrived.get()
            if isinstance(item, Document):
                if is_first:
                    self.check_format(item)
                is_first = False
                batch.append(item)
            is_due = len(batch) == BATCH or (self.is_stream and arrived.empty())
            if batch and (is_due or not isinstance(item, Document)):
                yield batch
                batch = []
            if isinstance(item, BaseException):
                self.error = item
                raise item
            if item == END:
                return

    def check_format(self, first: Document) -> None:
        """Print a note if the first line of a text file looks like another format."""
        if self.format != "text":
            return
        line = first.text
        for delimiter in USUAL_DELIMITERS:
            cells = [cell.strip().strip('"') for cell in line.split(delimiter)]
            if len(cells) > 1 and set(self._trained_on.text_fields) <= set(cells):
                name = {",": "csv", TAB: "tsv"}.get(delimiter, f"csv --delimiter {delimiter!r}")
                note = (
                    f"the first line holds the columns of the training data: pass --format {name}"
                )
                print_notes([f"{note}. Now every line, this one too, is read as a text."])
                return
        looks_like = {"jsonl": line.lstrip()[:1] == "{", "libmultilabel": TAB in line}
        for name, applies in looks_like.items():
            if applies:
                print_notes([f"the first line looks like {name}: is --format {name} missing?"])


def _check_names(
    names: Sequence[str], format: str | None, split: str | None, corpora: Sequence[str]
) -> None:
    """Raise for several names that cannot be read together."""
    if len(names) == 1:
        return
    for name in names:
        if name == STANDARD_INPUT or name in corpora:
            raise InputError(f"{name} can only be read alone. Name files, or one DATA.")
    if split is not None:
        raise InputError("--split is a part of one DATA, got several. Name one.")
    if format is None and 0 < sum(name.endswith(PLAIN) for name in names) < len(names):
        raise InputError("plain text and other files need one call each, or one --format for all.")


def text_hint(run: Path, text: str) -> str:
    """How to predict a text given on the command line."""
    piped = f"echo {shlex.quote(text)} | longtail predict {run}"
    return f"To predict a text, pipe it: {piped}, or use: longtail explain {run} --text TEXT"


def _digest(path: Path) -> str | None:
    """The digest of a file or of all files in a folder; None if there is no such path."""
    if path.is_dir():
        lines = [f"{name} {checksum(path / name)}\n" for name in files_in(path)]
        return sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
    return checksum(path) if path.is_file() else None
