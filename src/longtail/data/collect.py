"""From files to TextData: one pass, bounded memory, many files in parallel, errors in one place."""

from __future__ import annotations

import csv
import lzma
import os
import re
import struct
import warnings
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longtail.checks import check_integer
from longtail.data.documents import (
    MAX_EXAMPLES,
    Document,
    LabelNames,
    LeftOut,
    PassedOver,
    Problem,
    ReadOptions,
    ReadReport,
    Record,
    Records,
    parse_range,
)
from longtail.data.files import Tick
from longtail.data.formats import Format, get_format
from longtail.data.limits import TooLargeError, shown, shown_names
from longtail.data.textdata import TextData
from longtail.errors import DataError, InputError, LongtailError
from longtail.labels import LabelEncoder
from longtail.progress import OnProgress, Progress, ignore

Files = Sequence[tuple[Path | str, Format]]
Failure = tuple[type[LongtailError], str]
"""Called with the bytes read so far and the bytes in all."""

# Bytes in several files from which starting processes pays, for formats slow and cheap to parse.
SLOW_FROM, CHEAP_FROM = 8 << 20, 64 << 20
# Errors of the libraries below the readers: a damaged file, a disk that fails, UTF-16 without mark,
# a number or a date beyond Python's, an archive with an unsupported compression method.
READ_ERRORS = (
    *(OSError, EOFError, ValueError, LookupError, ArithmeticError, RuntimeError),
    *(csv.Error, struct.error, zlib.error, lzma.LZMAError),
)
# Control characters, of which a line feed in a label would break every table of labels.
CONTROLS = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029]")


def read_data(
    source: str | Path | Sequence[str | Path],
    format: str | None = None,
    *,
    report: ReadReport | None = None,
    progress: OnProgress = ignore,
    workers: int | None = None,
    **options: Any,
) -> TextData:
    """Read documents with labels from a file, several files, or a folder that is one source.

    Args:
        source: a path, several paths of one kind, or `hf:owner/name`.
        format: a name of `list_formats`; default: by the suffix.
        report: filled with what was read, skipped and passed over. Without one, skipped records
            give a warning.
        progress: called with a `longtail.progress.Progress` in bytes.
        workers: processes for several files; default: one per core if the files are large.
        options: the fields of `ReadOptions`, such as on_error="skip".

    Example:
        >>> data = read_data("reviews.csv", label_separator=";", on_error="skip")  # doctest: +SKIP
    """
    from longtail.data.sources import resolve

    total = ReadReport()
    with our_errors(source):
        files = resolve(source, format, total)
        collected = collect(files, ReadOptions(**options), progress, workers)
        total.add(collected.report)
        data = collected.data()
    tell(total, report)
    return data


def tell(total: ReadReport, report: ReadReport | None) -> None:
    """Add to the caller's report, or warn where there is none."""
    if report is not None:
        report.add(total)
    elif total.skipped or total.left_out:
        # Level 3: the caller of read_data or load_data.
        warnings.warn("\n".join(total.lines()), stacklevel=3)


@contextmanager
def our_errors(source: object) -> Iterator[None]:
    """Raise errors around the reading, such as a folder without permission, as DataError."""
    try:
        yield
    except MemoryError as error:
        raise DataError(
            f"{source}: its documents need more memory than there is. Read fewer files, or drop "
            "the longest documents with a smaller max_record_mb (--max-record-mb) and "
            "on_error='skip'."
        ) from error
    except LongtailError:
        raise
    except READ_ERRORS as error:
        raise DataError(f"{shown(str(source), 200)} cannot be read ({_reason(error)}).") from error


def _reason(error: Exception) -> str:
    """The message of an error, or its name where it has none."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error)[:300] or type(error).__name__


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

    def __post_init__(self) -> None:
        years = self.options.years
        self.years = None if years is None else parse_range(years, "years", "2020-2021")

    def add(self, record: Record, source: str, unit: str) -> None:
        """Take one record; a problem is raised or counted, as the options say."""
        if isinstance(record, Document):
            reason = self._other_year(record)
            if reason is not None:
                record = PassedOver(reason)
            elif (message := self._fault(record)) is not None:
                record = Problem(record.at, message)
        if isinstance(record, Document):
            self._append(record)
        elif isinstance(record, Problem):
            at = f"{unit} {record.at}" if isinstance(record.at, int) else record.at
            self._skip(f"{source}, {at}: {record.message}")
        elif isinstance(record, PassedOver):
            self.report.passed_over[record.reason] += 1
        elif isinstance(record, LeftOut):
            self.report.left_out[record.what] += record.times
        else:
            self.labels.declare(record.names)

    def data(self) -> TextData:
        """The documents; ids and dates only where the source has them for some."""
        matrix, names = self.labels.finish()
        ids = dates = None
        if self.known_ids:
            ids = tuple(self._new_id(k) if n is None else n for k, n in enumerate(self.ids))
        if any(date is not None for date in self.dates):
            dates = tuple("" if date is None else date for date in self.dates)
        return TextData(self.texts, matrix, names, ids, dates)

    def _new_id(self, row: int) -> str:
        identity = f"#{row}"
        while identity in self.known_ids:
            identity = f"#{identity}"
        return identity

    def _append(self, document: Document) -> None:
        if document.id is not None:
            self.known_ids.add(document.id)
        self.labels.add(document.labels)
        if document.n_empty_labels:
            self.report.left_out["empty label between separators"] += document.n_empty_labels
        self.texts.append(document.text)
        self.ids.append(document.id)
        self.dates.append(document.date)
        self.parts.append(document.part)
        self.report.documents += 1

    def _other_year(self, document: Document) -> str | None:
        """Why the document is not of the requested years."""
        if self.years is None:
            return None
        year, (first, last) = (document.date or "")[:4], self.years
        if not (len(year) == 4 and year.isdecimal()):
            return "no date"
        return None if first <= int(year) <= last else f"not of the years {first}-{last}"

    def _fault(self, document: Document) -> str | None:
        if not document.text.strip():
            return "the text is empty."
        if not document.labels and not self.options.keep_unlabelled:
            return (
                "the document has no labels. Skip such documents with on_error='skip' (--on-error "
                "skip), or keep them as examples of no label with keep_unlabelled=True "
                "(--keep-unlabelled)."
            )
        if any(not name.strip() for name in document.labels):
            return f"a label is empty: {shown(list(document.labels))}."
        if document.id in self.known_ids:
            return f"the id {shown(document.id)} is already taken by another document."
        return None

    def _skip(self, message: str) -> None:
        if self.options.on_error == "raise":
            raise DataError(message)
        self.report.skipped += 1
        if len(self.report.examples) < MAX_EXAMPLES:
            self.report.examples.append(message)


def collect(
    files: Files,
    options: ReadOptions,
    progress: OnProgress = ignore,
    workers: int | None = None,
) -> Collected:
    """Read files in their order, in parallel if there are several."""
    check_integer("workers", workers, 1, optional=True)
    if not files:
        raise InputError("expected at least one file to read, got none.")
    total = sum(size_of(path) for path, _ in files)
    name = Path(files[0][0]).name if len(files) == 1 else f"{len(files)} files"
    stage = f"reading {name}"
    done = 0

    def tick(count: int) -> None:
        nonlocal done
        done += count
        progress(Progress(stage, min(done, total), total, "bytes"))

    if workers is None:
        workers = _workers(files, total, os.cpu_count() or 1)
    n_workers = min(workers, len(files))
    collected = Collected(options)
    if n_workers == 1:
        for path, entry in files:
            with our_errors(path), closing(_records(path, entry, options, tick)) as records:
                for record in records:
                    collected.add(record, str(path), entry.unit)
    else:
        with closing(_in_processes(files, options, n_workers)) as results:
            for (path, entry), (batch, failure) in zip(files, results, strict=True):
                for record in batch:
                    collected.add(record, str(path), entry.unit)
                if failure is not None:
                    # Not kind(message): some errors build their message from several arguments.
                    raise failure[0].__new__(*failure)
                tick(size_of(path))
    if not collected.texts:
        names = ", ".join(str(path) for path, _ in files[:3])
        lines = " ".join(collected.report.lines())
        raise DataError(f"{names}: holds no documents. {lines}".rstrip())
    collected.report.notes += _odd_labels(collected.labels.index)
    progress(Progress(stage, total, total, "bytes"))
    return collected


def _odd_labels(names: Iterable[str]) -> list[str]:
    """Notes on label names that are easily confused with others."""
    wide = [name for name in names if name != name.strip()]
    controls = [name for name in names if CONTROLS.search(name)]
    kinds = (
        ("begin or end with white space, other labels than those without", wide),
        ("hold a control character such as a line feed", controls),
    )
    return [
        f"label names that {what}: {len(odd)} ({shown_names(odd)})." for what, odd in kinds if odd
    ]


def _workers(files: Files, total: int, n_cores: int) -> int:
    """One process per core where that pays: transferring texts costs as much as cheap parsing."""
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


def _records(path: Path | str, entry: Format, options: ReadOptions, tick: Tick) -> Records:
    """The records of one file; the last one is a problem if the rest cannot be read."""
    n_records = 0
    try:
        with closing(entry.read(path, options, tick)) as records:
            for record in records:
                n_records += not isinstance(record, LabelNames)
                yield record
        return
    except LongtailError:
        raise
    except TooLargeError as error:
        message = str(error)
    except READ_ERRORS as error:
        message = f"cannot be read any further ({_reason(error)})."
    yield Problem(f"after {n_records} records", message)


def _in_processes(
    files: Files, options: ReadOptions, n_workers: int
) -> Generator[tuple[list[Record], Failure | None], None, None]:
    """The files' records in order, while the next ones are being read."""
    # joblib's processes, unlike multiprocessing's, need no `if __name__ == "__main__"` in scripts.
    import joblib

    stopped = False

    def jobs() -> Iterator[Any]:
        for path, entry in files:
            if stopped:
                return
            yield joblib.delayed(_read_file)(path, entry.name, options)

    results = joblib.Parallel(n_jobs=n_workers, return_as="generator", pre_dispatch="n_jobs")(
        jobs()
    )
    try:
        for result in results:  # noqa: UP028  `yield from` would close joblib's generator
            yield result
    finally:
        # Files that are being read are read to their end: closed in the middle, joblib kills its
        # processes, and sometimes one of its threads fails over that with a traceback.
        stopped = True
        for _ in results:
            pass


def _read_file(
    path: Path | str, format: str, options: ReadOptions
) -> tuple[list[Record], Failure | None]:
    """All records of a file, and the error that ended the reading."""
    records: list[Record] = []
    try:
        with our_errors(path):
            for record in _records(path, get_format(format), options, lambda count: None):
                records.append(record)
    except LongtailError as error:
        return records, (type(error), str(error))
    return records, None
