"""From files to documents: one pass, bounded memory, errors in one place."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from longtail.data.documents import (
    Document,
    LabelNames,
    Omitted,
    ReadOptions,
    ReadReport,
    Record,
    RecordError,
    Records,
)
from longtail.data.files import READ_ERRORS, Tick, TooLargeError, reason, shown_names
from longtail.data.formats import Format
from longtail.data.textdata import TextData, unknown_pairs
from longtail.errors import DataError, InputError, LongtailError, shown
from longtail.labels import LabelEncoder
from longtail.progress import OnProgress, Progress, ignore

Files = list[tuple[Path | str, Format]]


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
    path: Path | str,
    entry: Format,
    options: ReadOptions,
    report: ReadReport,
    tick: Tick,
    check: Callable[[Document], Record] = lambda document: document,
) -> Iterator[Document | LabelNames]:
    """Documents and names of labels; a problem is raised or counted, as the options say."""
    with closing(_records(path, entry, options, tick)) as records:
        for record in records:
            if isinstance(record, Document):
                record = check(record)
            if isinstance(record, RecordError):
                at = f"line {record.at}" if isinstance(record.at, int) else record.at
                if options.on_error == "raise":
                    raise DataError(f"{path}, {at}: {record}")
                report.skip(f"{path}, {at}", str(record))
            elif isinstance(record, Omitted):
                getattr(report, record.counter)[record.what] += 1
            else:
                report.documents += isinstance(record, Document)
                yield record


def collect(
    files: Files,
    options: ReadOptions,
    report: ReadReport,
    progress: OnProgress = ignore,
    exact: bool = False,
) -> tuple[TextData, list[str]]:
    """The documents of files in their order, and the part that each is of ("" for none).

    `exact` keeps empty texts, empty labels and repeated ids, as a copy must.
    """
    if not files:
        raise InputError("expected at least one file to read, got none.")
    _check_once(files)
    total = sum(size_of(path) for path, _ in files)
    name = Path(files[0][0]).name if len(files) == 1 else f"{len(files)} files"
    done = 0

    def tick(count: int) -> None:
        nonlocal done
        done += count
        progress(Progress(f"reading {name}", min(done, total), total, "bytes"))

    labels, known_ids = LabelEncoder(), set[str]()
    texts, ids, dates, parts = (list[str]() for _ in range(4))
    known, weights = list[Sequence[str] | None](), list[float | None]()

    def check(document: Document) -> Record:
        return document if exact else _checked(document, options, known_ids)

    for path, entry in files:
        for record in usable(path, entry, options, report, tick, check):
            if isinstance(record, LabelNames):
                labels.declare(record.names)
                continue
            if record.id is not None:
                known_ids.add(record.id)
            labels.add(record.labels)
            ids.append(f"#{len(texts)}" if record.id is None else record.id)
            texts.append(record.text)
            dates.append(record.date or "")
            parts.append(record.part or "")
            known.append(record.known)
            weights.append(record.weight)
    if not texts and not exact:
        raise DataError("\n".join([f"{files[0][0]}: holds no documents.", *report.lines()]))
    tick(total)
    matrix, names = labels.finish()
    # Ids and dates only where the source has them for some.
    some_ids, some_dates = tuple(ids) if known_ids else None, tuple(dates) if any(dates) else None
    unknown = unknown_pairs(known, names)
    each = None if set(weights) <= {None} else [1 if value is None else value for value in weights]
    data = TextData(texts, matrix, names, some_ids, some_dates, unknown, each)  # type: ignore[arg-type]
    _note(data, options, report)
    return data, parts


def _check_once(files: Files) -> None:
    (twice, count), *_ = Counter(str(p).removesuffix(".gz") for p, _ in files).most_common(1)
    if count > 1:
        raise DataError(f"{twice} would be read twice, by one name or with and without .gz.")


def _note(data: TextData, options: ReadOptions, report: ReadReport) -> None:
    """Note what may be surprising about the labels, unknown pairs and weights."""
    if odd := [name for name in data.label_names if name != name.strip()]:
        what = "label names that begin or end with white space, other labels than those without"
        report.notes.append(f"{what}: {len(odd)} ({shown_names(odd)}).")
    if data.unknown is not None:
        share = data.unknown.nnz / math.prod(data.Y.shape)
        report.notes.append(
            f"{share:.1%} of all pairs of document and label are unknown: they are neither trained "
            "on nor evaluated."
        )
    fields = (options.known_field, data.unknown), (options.weight_field, data.weights)
    for field, values in fields:
        if field is not None and values is None:
            report.notes.append(f"the field {field!r} is in no document, or changes nothing.")


def _checked(document: Document, options: ReadOptions, known_ids: set[str]) -> Record:
    """The document, or why it is not kept."""
    if options.year_range is not None:
        first, last = options.year_range
        year = (document.date or "")[:4]
        if not (len(year) == 4 and year.isdecimal()):
            return Omitted("no date")
        if not first <= int(year) <= last:
            return Omitted(f"not of the years {first}-{last}")
    if not document.text.strip():
        message = "the text is empty."
    elif not document.labels and not options.keep_unlabelled:
        skip = "Skip such documents with on_error='skip' (--on-error skip), or keep"
        message = (
            f"the document has no labels. {skip if options.on_error == 'raise' else 'Keep'} them "
            "as examples of no label with keep_unlabelled=True (--keep-unlabelled)."
        )
    elif not all(map(str.strip, document.labels)):
        message = f"a label is empty: {shown(document.labels)}."
    elif document.id in known_ids:
        message = f"the id {shown(document.id)} is already taken by another document."
    else:
        return document
    return RecordError(message, document.at)


def size_of(path: Path | str) -> int:
    """Bytes on disk, of all files in a folder; 0 for what is not on disk."""
    path = Path(path)
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(file.stat().st_size for file in files if file.is_file())


def _records(path: Path | str, entry: Format, options: ReadOptions, tick: Tick) -> Records:
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
