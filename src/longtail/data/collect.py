"""From files to documents: one pass, bounded memory, several processes, errors in one place."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

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
from longtail.data.files import READ_ERRORS, Tick, TooLargeError, reason, shown_names
from longtail.data.formats import Format, get_format
from longtail.data.textdata import TextData
from longtail.errors import DataError, InputError, LongtailError, shown
from longtail.labels import LabelEncoder
from longtail.progress import OnProgress, Progress, ignore

Files = list[tuple[Path | str, Format]]

# Bytes in several files from which starting processes pays.
PARALLEL_FROM = 32 << 20


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
        raise DataError(f"{shown(str(source))} cannot be read ({reason(error)}).") from error


def usable(
    records: Iterable[Record], source: object, unit: str, options: ReadOptions, report: ReadReport
) -> Iterator[Document | LabelNames]:
    """Documents and names of labels; a problem is raised or counted, as the options say."""
    for record in records:
        if isinstance(record, RecordError):
            at = f"{unit} {record.at}" if isinstance(record.at, int) else record.at
            message = f"{source}, {at}: {record}"
            if options.on_error == "raise":
                raise DataError(message)
            report.skipped += 1
            report.examples = [*report.examples, message][:MAX_EXAMPLES]
        elif isinstance(record, Omitted):
            getattr(report, record.counter)[record.what] += 1
        else:
            report.documents += isinstance(record, Document)
            yield record


@dataclass
class Collected:
    """Documents as they come, labels already encoded; `data` makes TextData of them."""

    options: ReadOptions
    report: ReadReport
    exact: bool = False
    """Whether to keep empty texts and labels, and ids that come again: a copy is a copy."""
    texts: list[str] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)
    dates: list[str | None] = field(default_factory=list)
    parts: list[str | None] = field(default_factory=list)
    labels: LabelEncoder = field(default_factory=LabelEncoder)
    known_ids: set[str] = field(default_factory=set)

    def extend(self, records: Iterable[Record], source: object, unit: str) -> None:
        """Take the records of a file; a problem is raised or counted, as the options say."""
        checked = (self._checked(one) if isinstance(one, Document) else one for one in records)
        for record in usable(checked, source, unit, self.options, self.report):
            if isinstance(record, LabelNames):
                self.labels.declare(record.names)
                continue
            if record.id is not None:
                self.known_ids.add(record.id)
            self.labels.add(record.labels)
            self.texts.append(record.text)
            self.ids.append(record.id)
            self.dates.append(record.date)
            self.parts.append(record.part)

    def _checked(self, document: Document) -> Record:
        """The document, or why it is not kept."""
        if self.options.years is not None:
            first, last = parse_range(self.options.years, "years", "2020-2021")
            year = (document.date or "")[:4]
            if not (len(year) == 4 and year.isdecimal()):
                return Omitted("passed_over", "no date")
            if not first <= int(year) <= last:
                return Omitted("passed_over", f"not of the years {first}-{last}")
        if self.exact:
            return document
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
        ids = tuple(f"#{row}" if i is None else i for row, i in enumerate(self.ids))
        dates = tuple(date or "" for date in self.dates) if any(self.dates) else None
        return TextData(self.texts, matrix, names, ids if self.known_ids else None, dates)


def collect(
    files: Files,
    options: ReadOptions,
    report: ReadReport,
    progress: OnProgress = ignore,
    workers: int | None = None,
    exact: bool = False,
) -> Collected:
    """Read files in their order, in parallel if there are several."""
    check_integer("workers", workers, 1, optional=True)
    if not files:
        raise InputError("expected at least one file to read, got none.")
    (twice, count), *_ = Counter(str(p).removesuffix(".gz") for p, _ in files).most_common(1)
    if count > 1:
        raise DataError(f"{twice} would be read twice, by one name or with and without .gz.")
    total = sum(size_of(path) for path, _ in files)
    name = Path(files[0][0]).name if len(files) == 1 else f"{len(files)} files"
    done = 0

    def tick(count: int) -> None:
        nonlocal done
        done += count
        progress(Progress(f"reading {name}", min(done, total), total, "bytes"))

    if workers is None:
        workers = (os.cpu_count() or 1) if total >= PARALLEL_FROM else 1
    n_workers = min(workers, len(files))
    collected = Collected(options, report, exact)
    if n_workers == 1:
        for path, entry in files:
            with our_errors(path), closing(file_records(path, entry, options, tick)) as records:
                collected.extend(records, path, entry.unit)
    else:
        with closing(_in_processes(files, options, n_workers)) as results:
            for (path, entry), batch in zip(files, results, strict=True):
                if isinstance(batch, LongtailError):
                    raise batch
                collected.extend(batch, path, entry.unit)
                tick(size_of(path))
    if not collected.texts and not exact:
        lines = " ".join(report.lines())
        raise DataError(f"{files[0][0]}: holds no documents. {lines}".rstrip())
    if odd := [name for name in collected.labels.index if name != name.strip()]:
        what = "label names that begin or end with white space, other labels than those without"
        report.notes.append(f"{what}: {len(odd)} ({shown_names(odd)}).")
    tick(total)
    return collected


def size_of(path: Path | str) -> int:
    """Bytes on disk, of all files in a folder; 0 for what is not on disk."""
    path = Path(path)
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(file.stat().st_size for file in files if file.is_file())


def file_records(path: Path | str, entry: Format, options: ReadOptions, tick: Tick) -> Records:
    """The records of one file as they are read; the last is a problem if the rest cannot be."""
    n_records = 0
    try:
        with closing(entry.read(path, options, tick)) as records:
            for record in records:
                n_records += not isinstance(record, LabelNames)
                yield record
    except LongtailError:
        raise
    except TooLargeError as error:
        yield RecordError(str(error), f"after {n_records} records")
    except READ_ERRORS as error:
        message = f"cannot be read any further ({reason(error)})."
        yield RecordError(message, f"after {n_records} records")


def _in_processes(
    files: Files, options: ReadOptions, n_workers: int
) -> Generator[list[Record] | LongtailError, None, None]:
    """The files' records in order, while the next ones are being read."""
    # joblib's processes, unlike multiprocessing's, need no `if __name__ == "__main__"` in scripts.
    import joblib

    # Files that are being read are read to their end, though no others: closed in the middle,
    # joblib's threads sometimes fail with a traceback.
    left = list(reversed(files))
    parallel = joblib.Parallel(n_jobs=n_workers, return_as="generator", pre_dispatch="n_jobs")
    jobs = iter(lambda: left.pop() if left else None, None)
    results = parallel(joblib.delayed(_read_file)(path, f.name, options) for path, f in jobs)
    try:
        for result in results:  # noqa: UP028  `yield from` would close joblib's generator
            yield result
    finally:
        left.clear()
        for _ in results:
            pass


def _read_file(path: Path | str, format: str, options: ReadOptions) -> list[Record] | LongtailError:
    """All records of a file, or the error that ended the reading."""
    try:
        with our_errors(path):
            return list(file_records(path, get_format(format), options, lambda count: None))
    except LongtailError as error:
        return error
