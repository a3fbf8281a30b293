"""Files to TextData: one pass, bounded memory, error handling in one place."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from longtail.data.documents import (
    Document,
    FieldNames,
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
from longtail.errors import (
    BadRecordError,
    DataError,
    InputError,
    LongtailError,
    did_you_mean,
    shown,
)
from longtail.labels import LabelEncoder
from longtail.progress import OnProgress, Progress, ignore

Files = list[tuple[Path | str, Format]]


@contextmanager
def our_errors(source: object) -> Iterator[None]:
    """Convert errors around the reading, such as missing permissions, to DataError."""
    try:
        yield
    except MemoryError as error:
        raise DataError(
            f"{source}: the documents need more memory than available. Read fewer files, or drop "
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
    """Yield documents and label names; raise or count problems, depending on `on_error`."""
    with closing(_records(path, entry, options, tick)) as records:
        for record in records:
            if isinstance(record, Document):
                record = check(record)
            if isinstance(record, RecordError):
                at = f"line {record.at}" if isinstance(record.at, int) else record.at
                if options.on_error == "raise":
                    raise BadRecordError(f"{path}, {at}: {record}")
                report.skip(f"{path}, {at}", str(record))
            elif isinstance(record, FieldNames):
                report.fields |= dict.fromkeys(record.names)
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
    """Return the documents of the files in order, and the part of each ("" for none).

    `exact`: keep empty texts, empty labels and repeated ids, to restore a saved copy.
    """
    if not files:
        raise InputError("expected at least one file to read, got none.")
    check_once(files)
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
    data = TextData(
        texts,
        matrix,
        names,
        tuple(ids) if known_ids else None,
        tuple(dates) if any(dates) else None,
        unknown_pairs(known, names),
        None if set(weights) <= {None} else np.array([1 if w is None else w for w in weights]),
    )
    _note(data, report)
    return data, parts


def check_once(files: Files) -> None:
    """Raise if a file is named twice."""
    (path, count), *_ = Counter(str(p).removesuffix(".gz") for p, _ in files).most_common(1)
    if count > 1:
        raise DataError(f"{path} would be read twice. Name it once, with or without .gz.")


def check_fields(
    source: object,
    options: ReadOptions,
    report: ReadReport,
    names: Sequence[str] = ("id_field", "date_field", "known_field", "weight_field"),
) -> None:
    """Raise if no document has a field that these options name; a note for one from a run."""
    for name in names:
        field = getattr(options, name)
        if field == getattr(ReadOptions, name) or field in report.fields:
            continue
        if not report.fields and name in ("id_field", "date_field"):
            continue  # a format whose fields have no names
        problem = f"{source}: no document has the field {shown(field)} (--{name.replace('_', '-')}"
        if name in report.remembered:
            instead = ": the documents are numbered instead" if name == "id_field" else ""
            report.notes.append(f"{problem}, as in the training data){instead}.")
            continue
        hint = did_you_mean(field, report.fields)
        raise DataError(f"{problem}). {hint}The fields are: {shown_names(report.fields)}.")


def _note(data: TextData, report: ReadReport) -> None:
    """Note surprising label names and unknown pairs."""
    if padded := [name for name in data.label_names if name != name.strip()]:
        what = "label names with white space at an end, which are distinct from those without it"
        report.notes.append(f"{what}: {len(padded)} ({shown_names(padded)}).")
    if data.unknown is not None:
        share = data.unknown.nnz / math.prod(data.Y.shape)
        report.notes.append(
            f"{share:.1%} of all pairs of document and label are unknown: they are neither trained "
            "on nor evaluated."
        )


def _checked(document: Document, options: ReadOptions, known_ids: set[str]) -> Record:
    """Return the document, or why it is not kept."""
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
        keep = "Skip such documents with on_error='skip' (--on-error skip), or keep"
        message = (
            f"the document has no labels. {keep if options.on_error == 'raise' else 'Keep'} them "
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
    """Return the bytes on disk of a file or of all files in a folder; 0 if there is none."""
    path = Path(path)
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(file.stat().st_size for file in files if file.is_file())


def _records(path: Path | str, entry: Format, options: ReadOptions, tick: Tick) -> Records:
    """Yield the records of a file, and a problem if the rest of the file cannot be read."""
    n_records = 0
    try:
        with closing(entry.read(path, options, tick)) as records:
            for record in records:
                n_records += not isinstance(record, LabelNames | FieldNames)
                yield record
    except LongtailError:
        raise
    except TooLargeError as error:
        yield RecordError(str(error), f"after {n_records} records")
    except READ_ERRORS as error:
        message = f"cannot be read any further ({reason(error)})."
        yield RecordError(message, f"after {n_records} records")
