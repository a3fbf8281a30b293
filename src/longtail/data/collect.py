"""From files to TextData: one pass, bounded memory, many files in parallel, problems in one place.

A collector takes records from a reader, checks what every format must keep, and raises or counts
what is wrong.
"""

from __future__ import annotations

import os
import warnings
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longtail.data.documents import (
    MAX_EXAMPLES,
    Document,
    LabelNames,
    PassedOver,
    Problem,
    ReadOptions,
    ReadReport,
    Record,
    parse_range,
)
from longtail.data.files import Tick
from longtail.data.formats import Format
from longtail.data.textdata import TextData
from longtail.errors import DataError, InputError, LongtailError
from longtail.labels import LabelEncoder

Progress = Callable[[int, int], None]
"""Called with the bytes read so far and the bytes in all."""

# Bytes in several files from which starting processes pays, for formats slow and cheap to parse.
SLOW_FROM, CHEAP_FROM = 8 << 20, 64 << 20
# Errors of the machinery below the readers: a damaged file, a disk that fails, UTF-16 without mark.
READ_ERRORS = (OSError, EOFError, zlib.error, UnicodeError)


@dataclass
class Collected:
    """Documents as they come, labels already encoded; `data` makes TextData of them."""

    options: ReadOptions
    texts: list[str] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)
    dates: list[str | None] = field(default_factory=list)
    parts: list[str | None] = field(default_factory=list)
    labels: LabelEncoder = field(default_factory=LabelEncoder)
    report: ReadReport = field(default_factory=ReadReport)
    known_ids: set[str] = field(default_factory=set)
    places: list[int | str] | None = None
    """Where each document stood; kept by a process that reads one of several files."""
    example_rows: list[int] = field(default_factory=list)
    """How many documents came before each of the report's examples."""
    failure: tuple[type[LongtailError], str] | None = None
    """The error that ended the reading in another process."""

    def __post_init__(self) -> None:
        years = self.options.years
        self.years = None if years is None else parse_range(years, "years", "2020-2021")

    def add(self, record: Record, source: str, unit: str) -> None:
        """Take one record; what is wrong with it is raised or counted."""
        if isinstance(record, Document) and self.years is not None:
            record = self._of_these_years(record, *self.years)
        if isinstance(record, Document):
            why = self._wrong(record)
            if why is None:
                if self.places is not None:
                    self.places.append(record.at)
                self._take(record)
                return
            record = Problem(record.at, why)
        if isinstance(record, Problem):
            self._trouble(f"{_place(record.at, source, unit)}: {record.message}")
        elif isinstance(record, PassedOver):
            self.report.passed_over[record.reason] += 1
        elif isinstance(record, LabelNames):
            self.labels.declare(record.names)

    def extend(self, other: Collected, source: str, unit: str) -> None:
        """Take the documents of another file, as if one had read it oneself after one's own."""
        places = other.places or []
        twice = [k for k, name in enumerate(other.ids) if name in self.known_ids]
        found = [
            (k, f"{_place(places[k], source, unit)}: {_duplicate(other.ids[k])}") for k in twice
        ]
        if found and self.options.on_error == "raise":
            raise DataError(found[0][1])
        if other.failure is not None:
            kind, message = other.failure
            # Not kind(message): some errors make their message of several arguments.
            raise kind.__new__(kind, message)
        # Of the same number of documents, an example was met before the document that follows.
        found = [*zip(other.example_rows, other.report.examples, strict=True), *found]
        found.sort(key=lambda row_and_message: row_and_message[0])
        other.report.examples = [message for _, message in found]
        other.report.skipped += len(twice)
        if twice:
            other = other.without(set(twice))
        self.report.add(other.report)
        self.known_ids |= other.known_ids
        self.texts += other.texts
        self.ids += other.ids
        self.dates += other.dates
        self.parts += other.parts
        self.labels.extend(other.labels)

    def without(self, rows: set[int]) -> Collected:
        """The same documents but for some rows."""
        kept = Collected(self.options, report=self.report)
        kept.report.documents = 0
        kept.labels.declare(self.labels.declared)
        names = list(self.labels.index)
        starts, columns = self.labels.row_starts, self.labels.columns
        for row, text in enumerate(self.texts):
            if row not in rows:
                labels = [names[k] for k in columns[starts[row] : starts[row + 1]]]
                kept._take(Document(text, labels, self.ids[row], self.dates[row], self.parts[row]))
        return kept

    def data(self) -> TextData:
        """The documents; ids and dates only where the source has them for some."""
        matrix, names = self.labels.finish()
        ids = dates = None
        if self.known_ids:
            ids = tuple(self._made_up(k) if n is None else n for k, n in enumerate(self.ids))
        if any(date is not None for date in self.dates):
            dates = tuple("" if date is None else date for date in self.dates)
        return TextData(self.texts, matrix, names, ids, dates)

    def _made_up(self, row: int) -> str:
        identity = f"#{row}"
        while identity in self.known_ids:
            identity = f"#{identity}"
        return identity

    def _take(self, document: Document) -> None:
        if document.id is not None:
            self.known_ids.add(document.id)
        self.labels.add(document.labels)
        self.texts.append(document.text)
        self.ids.append(document.id)
        self.dates.append(document.date)
        self.parts.append(document.part)
        self.report.documents += 1

    def _of_these_years(self, document: Document, first: int, last: int) -> Document | PassedOver:
        year = (document.date or "")[:4]
        if not (len(year) == 4 and year.isdecimal()):
            return PassedOver("no date")
        inside = first <= int(year) <= last
        return document if inside else PassedOver(f"not of the years {first}-{last}")

    def _wrong(self, document: Document) -> str | None:
        if not document.text.strip():
            return "the text is empty."
        if not document.labels and not self.options.keep_unlabelled:
            return (
                "the document has no labels. Skip such documents with on_error='skip' (--on-error "
                "skip), or keep them as examples of no label with keep_unlabelled=True "
                "(--keep-unlabelled)."
            )
        if any(not name.strip() for name in document.labels):
            return f"a label is empty: {list(document.labels)!r:.80}."
        if document.id in self.known_ids:
            return _duplicate(document.id)
        return None

    def _trouble(self, message: str) -> None:
        if self.options.on_error == "raise":
            raise DataError(message)
        self.report.skipped += 1
        if len(self.report.examples) < MAX_EXAMPLES:
            self.report.examples.append(message)
            self.example_rows.append(len(self.texts))


def _place(at: int | str, source: str, unit: str) -> str:
    return f"{source}, {unit} {at}" if isinstance(at, int) else f"{source}, {at}"


def _duplicate(identity: str | None) -> str:
    return f"the id {identity!r} is already taken by another document."


def read_data(
    source: str | Path | Sequence[str | Path],
    format: str | None = None,
    *,
    report: ReadReport | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
    **options: Any,
) -> TextData:
    """Read documents with labels from a file, several files, or a folder that is one source.

    Args:
        source: a path, several paths of one kind, or `hf:owner/name`.
        format: a name of `list_formats`; default: by the suffix.
        report: filled with what was read, skipped and passed over. Without one, skipped records
            are told by a warning.
        progress: called with the bytes read so far and the bytes in all.
        workers: processes for several files; default: one per core if the files are large.
        options: the fields of `ReadOptions`, such as on_error="skip".

    Example:
        >>> data = read_data("reviews.csv", label_separator=";", on_error="skip")  # doctest: +SKIP
    """
    from longtail.data.sources import resolve

    collected = collect(resolve(source, format), ReadOptions(**options), progress, workers)
    tell(collected.report, report)
    return collected.data()


def tell(found: ReadReport, report: ReadReport | None) -> None:
    """Hand over what was found, or warn where nobody asked for it."""
    if report is not None:
        report.add(found)
    elif found.skipped:
        # Level 3: the caller of read_data or load_data.
        warnings.warn("\n".join(found.lines()), stacklevel=3)


def collect(
    files: Sequence[tuple[Path | str, Format]],
    options: ReadOptions,
    progress: Progress | None = None,
    workers: int | None = None,
) -> Collected:
    """Read files in their order, in parallel if there are several."""
    if workers is not None and workers < 1:
        raise InputError(f"workers must be at least 1, got {workers}.")
    if not files:
        raise InputError("expected at least one file to read, got none.")
    total = sum(size_of(path) for path, _ in files)
    done = 0

    def tick(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(min(done, total), total)

    if workers is None:
        workers = _workers(files, total, os.cpu_count() or 1)
    n_workers = min(workers, len(files))
    whole = Collected(options)
    if n_workers == 1:
        for path, entry in files:
            _read_into(whole, path, entry, tick)
    else:
        with closing(_in_processes(files, options, n_workers)) as collected:
            for (path, entry), part in zip(files, collected, strict=True):
                whole.extend(part, str(path), entry.unit)
                tick(size_of(path))
    if not whole.texts:
        shown = ", ".join(str(path) for path, _ in files[:3])
        said = " ".join(whole.report.lines())
        raise DataError(f"{shown}: holds no documents. {said}".rstrip())
    if progress is not None:
        progress(total, total)
    return whole


def _workers(files: Sequence[tuple[Path | str, Format]], total: int, n_cores: int) -> int:
    """One process per core where that pays: handing texts over costs as much as cheap parsing."""
    slow = any(entry.slow for _, entry in files)
    pays = total >= SLOW_FROM if slow else total >= CHEAP_FROM and n_cores >= 4
    return n_cores if pays else 1


def size_of(path: Path | str) -> int:
    """Bytes on disk, of all files in a folder; 0 for what is not on disk."""
    if isinstance(path, str):
        return 0
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size


def _in_processes(
    files: Sequence[tuple[Path | str, Format]], options: ReadOptions, n_workers: int
) -> Generator[Collected, None, None]:
    """The files' documents in order, while the next ones are being read."""
    # joblib's processes, unlike multiprocessing's, need no `if __name__ == "__main__"` in scripts.
    import joblib

    stopped = False

    def jobs() -> Iterator[Any]:
        for path, entry in files:
            if stopped:
                return
            yield joblib.delayed(_read_one)(path, entry.name, options)

    found = joblib.Parallel(n_jobs=n_workers, return_as="generator", pre_dispatch="n_jobs")(jobs())
    try:
        for collected in found:  # noqa: UP028  `yield from` would close joblib's generator
            yield collected
    finally:
        # Files that are being read are read to their end: closed in the middle, joblib kills its
        # processes, and now and then a thread of its own fails over that with a traceback.
        stopped = True
        for _ in found:
            pass


def _read_one(path: Path | str, format: str, options: ReadOptions) -> Collected:
    from longtail.data.formats import get_format

    collected = Collected(options, places=[])
    try:
        _read_into(collected, path, get_format(format), lambda count: None)
    except LongtailError as error:
        # Raised by `extend`, so that of several errors the first file's is told.
        collected.failure = type(error), str(error)
    return collected


def _read_into(collected: Collected, path: Path | str, entry: Format, tick: Tick) -> None:
    n_records = 0
    try:
        with closing(entry.read(path, collected.options, tick)) as records:
            for record in records:
                n_records += not isinstance(record, LabelNames)
                collected.add(record, str(path), entry.unit)
    except READ_ERRORS as error:
        problem = Problem(f"after {n_records} records", f"cannot be read any further ({error}).")
        collected.add(problem, str(path), entry.unit)
