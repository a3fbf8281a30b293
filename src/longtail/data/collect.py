"""From files to documents: one pass, bounded memory, several processes, errors in one place."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longtail.checks import check_integer
from longtail.data.documents import (
    MAX_EXAMPLES,
    Document,
    LabelNames,
    Omitted,
    ReadOptions,
    ReadReport,
    Record,
    RecordError,
    Records,
    parse_range,
)
from longtail.data.files import Tick
from longtail.data.formats import Format, get_format
from longtail.data.limits import READ_ERRORS, TooLargeError, reason, shown, shown_names
from longtail.data.textdata import TextData
from longtail.errors import DataError, InputError, LongtailError
from longtail.labels import LabelEncoder
from longtail.progress import OnProgress, Progress, ignore

Files = list[tuple[Path | str, Format]]

# Bytes in several files from which starting processes pays, for formats slow and cheap to parse.
SLOW_FROM, CHEAP_FROM = 8 << 20, 64 << 20
# Control characters, of which a line feed in a label would break every table of labels.
CONTROLS = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029]")


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
        raise DataError(f"{shown(str(source), 200)} cannot be read ({reason(error)}).") from error


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

    def extend(self, records: Iterable[Record], source: object, unit: str) -> None:
        """Take the records of a file; a problem is raised or counted, as the options say."""
        report = self.report
        for record in records:
            if isinstance(record, Document):
                record = self._checked(record)
            if isinstance(record, Document):
                if record.id is not None:
                    self.known_ids.add(record.id)
                self.labels.add(record.labels)
                if record.n_empty_labels:
                    report.left_out["empty label between separators"] += record.n_empty_labels
                self.texts.append(record.text)
                self.ids.append(record.id)
                self.dates.append(record.date)
                self.parts.append(record.part)
                report.documents += 1
            elif isinstance(record, RecordError):
                at = f"{unit} {record.at}" if isinstance(record.at, int) else record.at
                message = f"{source}, {at}: {record}"
                if self.options.on_error == "raise":
                    raise DataError(message)
                report.skipped += 1
                report.examples = [*report.examples, message][:MAX_EXAMPLES]
            elif isinstance(record, Omitted):
                getattr(report, record.counter)[record.what] += record.times
            else:
                self.labels.declare(record.names)

    def _checked(self, document: Document) -> Record:
        """The document, or why it is not kept."""
        if self.years is not None:
            year, (first, last) = (document.date or "")[:4], self.years
            if not (len(year) == 4 and year.isdecimal()):
                return Omitted("passed_over", "no date")
            if not first <= int(year) <= last:
                return Omitted("passed_over", f"not of the years {first}-{last}")
        if not document.text.strip():
            message = "the text is empty."
        elif not document.labels and not self.options.keep_unlabelled:
            message = (
                "the document has no labels. Skip such documents with on_error='skip' (--on-error "
                "skip), or keep them as examples of no label with keep_unlabelled=True "
                "(--keep-unlabelled)."
            )
        elif not all(map(str.strip, document.labels)):
            message = f"a label is empty: {shown(document.labels)}."
        elif document.id in self.known_ids:
            message = f"the id {shown(document.id)} is already taken by another document."
        else:
            return document
        return RecordError(message, document.at)

    def data(self) -> TextData:
        """The documents; ids and dates only where the source has them for some."""
        matrix, names = self.labels.finish()
        ids, dates = [], [date or "" for date in self.dates]
        for row, identity in enumerate(self.ids):
            new = f"#{row}"
            while identity is None and new in self.known_ids:
                new = f"#{new}"
            ids.append(new if identity is None else identity)
        return TextData(
            self.texts,
            matrix,
            names,
            tuple(ids) if self.known_ids else None,
            tuple(dates) if any(date is not None for date in self.dates) else None,
        )


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
    done = 0

    def tick(count: int) -> None:
        nonlocal done
        done += count
        progress(Progress(f"reading {name}", min(done, total), total, "bytes"))

    if workers is None:
        # Where it pays: transferring texts costs as much as cheap parsing.
        n_cores = os.cpu_count() or 1
        slow = any(entry.slow for _, entry in files)
        pays = total >= SLOW_FROM if slow else total >= CHEAP_FROM and n_cores >= 4
        workers = n_cores if pays else 1
    n_workers = min(workers, len(files))
    collected = Collected(options)
    if n_workers == 1:
        for path, entry in files:
            with our_errors(path), closing(file_records(path, entry, options, tick)) as records:
                collected.extend(records, path, entry.unit)
    else:
        with closing(_in_processes(files, options, n_workers)) as results:
            for (path, entry), (batch, failure) in zip(files, results, strict=True):
                collected.extend(batch, path, entry.unit)
                if failure is not None:
                    raise failure
                tick(size_of(path))
    if not collected.texts:
        names = ", ".join(str(path) for path, _ in files[:3])
        lines = " ".join(collected.report.lines())
        raise DataError(f"{names}: holds no documents. {lines}".rstrip())
    wide = [name for name in collected.labels.index if name != name.strip()]
    controls = [name for name in collected.labels.index if CONTROLS.search(name)]
    for odd, what in (
        (wide, "begin or end with white space, other labels than those without"),
        (controls, "hold a control character such as a line feed"),
    ):
        if odd:
            note = f"label names that {what}: {len(odd)} ({shown_names(odd)})."
            collected.report.notes.append(note)
    tick(total)
    return collected


def size_of(path: Path | str) -> int:
    """Bytes on disk, of all files in a folder; 0 for what is not on disk."""
    if isinstance(path, str):
        return 0
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size


def file_records(path: Path | str, entry: Format, options: ReadOptions, tick: Tick) -> Records:
    """The records of one file as they are read; the last is a problem if the rest cannot be."""
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
        message = f"cannot be read any further ({reason(error)})."
    yield RecordError(message, f"after {n_records} records")


FileResult = tuple[list[Record], LongtailError | None]


def _in_processes(
    files: Files, options: ReadOptions, n_workers: int
) -> Generator[FileResult, None, None]:
    """The files' records in order, while the next ones are being read."""
    # joblib's processes, unlike multiprocessing's, need no `if __name__ == "__main__"` in scripts.
    import joblib

    stopped = False

    def jobs() -> Iterator[Any]:
        for path, entry in files:
            if stopped:
                return
            yield joblib.delayed(_read_file)(path, entry.name, options)

    parallel = joblib.Parallel(n_jobs=n_workers, return_as="generator", pre_dispatch="n_jobs")
    results = parallel(jobs())
    try:
        for result in results:  # noqa: UP028  `yield from` would close joblib's generator
            yield result
    finally:
        # Files that are being read are read to their end: closed in the middle, joblib kills its
        # processes, and sometimes one of its threads fails over that with a traceback.
        stopped = True
        for _ in results:
            pass


def _read_file(path: Path | str, format: str, options: ReadOptions) -> FileResult:
    """All records of a file, and the error that ended the reading."""
    records: list[Record] = []
    try:
        with our_errors(path):
            for record in file_records(path, get_format(format), options, lambda count: None):
                records.append(record)
    except LongtailError as error:
        return records, error
    return records, None
