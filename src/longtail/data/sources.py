"""`read_data` and `load_data`: files and folders to TextData and its parts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from inspect import signature
from itertools import chain, compress
from pathlib import Path
from typing import Any

import numpy as np

from longtail.data.arrow import PREFIX
from longtail.data.collect import Files, check_fields, collect, our_errors, usable
from longtail.data.documents import PART_NAMES, PARTS, Document, ReadOptions, ReadReport
from longtail.data.files import STANDARD_INPUT, Tick, shown_names
from longtail.data.formats import FORMATS, Format, format_of_file, format_of_folder, get_format
from longtail.data.splits import DEFAULT_SPLIT, split
from longtail.data.textdata import TextData, label_union
from longtail.errors import DataError, InputError, UnknownNameError, shown, warn
from longtail.progress import OnProgress, ignore
from longtail.runs.model import CONFIG_FILE

SHARES = (0.7, 0.1, 0.2)
# Formats whose suffix other files have too: notes in .txt, settings in .json.
AMBIGUOUS = ("libmultilabel", "bioasq", "nltk")
# Suffixes of data that longtail cannot read.
UNREAD = (".bz2", ".xz", ".zst", ".7z", ".rar", ".sgm.gz", ".xlsx", ".xls", ".arrow", ".pkl")
ABOUT = ("readme", "license", "licence", "changelog", "citation", "notice")
# train, train.csv, train-00001-of-00005.parquet, ...
PART_FILE = re.compile(r"([a-z]+)([-_]\d[^.]*)?(\..*)?", re.DOTALL)
Source = str | Path | Sequence[str | Path]
WITHOUT_LABELS: dict[str, Any] = {
    "labels_field": None, "label_separator": None, "label_columns": None, "keep_unlabelled": True,
    "major_topics": False,
}  # fmt: skip


def read_data(
    source: Source,
    format: str | None = None,
    *,
    report: ReadReport | None = None,
    progress: OnProgress = ignore,
    **options: Any,
) -> TextData:
    """Read documents with labels from a file, several files, or a folder that is one source.

    Args:
        source: a path, several paths, or `hf:owner/name`.
        format: a name in FORMATS; default: by the suffix.
        report: receives the counts of records read, skipped and passed over. Without it, skipped
            records give a warning.
        progress: called with a `longtail.progress.Progress` in bytes.
        options: fields of `ReadOptions`, such as on_error="skip".
    """
    settings, total = _read_options(read_data, options), report or ReadReport()
    with our_errors(source):
        files = resolve(source, format, total)
        data, _ = collect(files, settings, total, progress)
        check_fields(source, settings, total)
    warn_of_omissions(total, report)
    return data


def iter_texts(
    source: Source,
    format: str | None = None,
    *,
    report: ReadReport,
    tick: Tick = lambda count: None,
    **options: Any,
) -> Iterator[Document]:
    """Iterate over documents in constant memory without reading their labels.

    Args:
        source: as for `read_data`, or "-" for the standard input.
        tick: called with the number of bytes just read.
        options: as for `read_data`; those for labels are ignored.
    """
    return chain.from_iterable(text_files(source, format, report=report, tick=tick, **options))


def text_files(
    source: Source,
    format: str | None = None,
    *,
    report: ReadReport,
    tick: Tick = lambda count: None,
    **options: Any,
) -> Iterator[Iterator[Document]]:
    """Iterate over files, and over the documents of each; arguments as for `iter_texts`."""
    settings = ReadOptions(**{**options, **WITHOUT_LABELS})
    where = source if isinstance(source, str | Path) else ", ".join(map(str, source))
    with our_errors(where):  # at once, before the caller loads a model
        files = resolve(source, format, report)
    is_checked = False

    def documents(path: Path | str, entry: Format) -> Iterator[Document]:
        nonlocal is_checked
        for document in documents_of(path, entry, report=report, tick=tick, **options):
            if not is_checked and report.fields and len(files) == 1:
                # The header of a table: raise before the first document.
                check_fields(where, settings, report, ("id_field",))
                is_checked = True
            yield document

    def each() -> Iterator[Iterator[Document]]:
        for path, entry in files:
            yield documents(path, entry)
        if not is_checked:
            check_fields(where, settings, report, ("id_field",))

    return each()


def documents_of(
    path: Path | str,
    entry: Format,
    *,
    report: ReadReport,
    tick: Tick = lambda count: None,
    **options: Any,
) -> Iterator[Document]:
    """Iterate over the documents of one file, without their labels."""
    settings = ReadOptions(**{**options, **WITHOUT_LABELS})
    with our_errors(path):
        for record in usable(path, entry, settings, report, tick):
            if isinstance(record, Document):
                yield record


def load_data(
    source: str | Path,
    format: str | None = None,
    *,
    split_method: str = DEFAULT_SPLIT,
    random_state: int = 0,
    min_count: int = 0,
    parts: Sequence[str] = PARTS,
    report: ReadReport | None = None,
    progress: OnProgress = ignore,
    **options: Any,
) -> dict[str, TextData]:
    """Load train, validation and test parts from a folder of parts, or split a single source.

    A source with its own parts (Reuters, NLTK, Hugging Face) keeps them. A missing validation part
    is split off the training part. All parts have the same label names, including labels without
    training documents, which count in the evaluation.

    Args:
        split_method: a name in SPLITS.
        min_count: keep only labels with at least this many training documents.
        parts: the parts to return, among them train; files of other parts are not opened.
        source, format, report, progress, options: as for `read_data`.
    """
    settings, total = _read_options(load_data, options), report or ReadReport()
    read: dict[str, TextData] = {}
    with our_errors(source):
        files = find_parts(source, format, total)
        for part in files:
            if part and part not in parts:
                continue
            if not part:
                _refuse_hidden_parts(files[part])
            data, part_of = collect(files[part], settings, total, progress)
            if part or not any(part_of):
                read[part] = data
            elif "" in part_of or "train" not in part_of:
                raise DataError(
                    f"{source}: expected every document, or none, to belong to a part, and some to "
                    "the training part. Read it with read_data and divide it with split."
                )
            else:
                rows = np.array(part_of)
                read = {part: data.select(rows == part) for part in PARTS if part in part_of}
    check_fields(source, settings, total)
    try:
        if "" in read:
            divided = split(read[""], SHARES, split_method, random_state)
            read = dict(zip(PARTS, divided, strict=True))
        if "validation" not in read:
            read["train"], read["validation"] = split(
                read["train"], (0.9, 0.1), split_method, random_state
            )
    except DataError as error:
        raise DataError("\n".join([f"{source}: {error}", *total.lines()])) from error
    if min_count:
        read = frequent_labels(read, min_count, total)
    warn_of_omissions(total, report)
    names = label_union(read.values())
    # All labels of a source that was read whole, also those of a part that is not returned.
    return {part: read[part].onto(names)[0] for part in PARTS if part in read and part in parts}


def _read_options(reader: Callable[..., Any], options: Mapping[str, Any]) -> ReadOptions:
    """The options of a reader, checked."""
    known = [field.name for field in fields(ReadOptions)]
    for name in options.keys() - known:
        raise UnknownNameError(
            f"option of {reader.__name__}",
            name,
            {*known, *signature(reader).parameters} - {"options"},
        )
    return ReadOptions(**options)


def has_parts(source: str | Path, format: str | None = None) -> bool:
    """Return whether the source itself has training and test parts."""
    with our_errors(source):
        files = find_parts(source, format, ReadReport())
        return "" not in files or any(entry.marks for _, entry in files[""])


def warn_of_omissions(total: ReadReport, report: ReadReport | None) -> None:
    """Warn of skipped records and files if the user gave no report."""
    if report is None and (total.skipped or total.left_out):
        warn("\n".join(total.lines()))


def frequent_labels(
    parts: Mapping[str, TextData], min_count: int, report: ReadReport
) -> dict[str, TextData]:
    """Keep the labels with at least `min_count` training documents.

    Documents that lose all their labels are dropped; the report counts both.
    """
    train = parts["train"]
    is_frequent = np.bincount(train.Y.indices, minlength=train.Y.shape[1]) >= min_count
    names = list(compress(train.label_names, is_frequent))
    if not names:
        raise DataError(
            f"no label has {min_count} training documents. Read more files, or lower min_count."
        )
    kept, rare, n_dropped = {}, Counter[str](), 0
    for part, documents in parts.items():
        with_frequent, rare_counts = documents.onto(names)
        # Documents that never had a label stay: the user chose to keep them.
        is_emptied = (np.diff(with_frequent.Y.indptr) == 0) & (np.diff(documents.Y.indptr) > 0)
        kept[part] = with_frequent.select(~is_emptied)
        n_dropped += int(is_emptied.sum())
        rare.update(rare_counts)
    if rare:
        n_all = sum(documents.Y.nnz for documents in parts.values())
        report.notes.append(
            f"Left out: {len(rare):,} labels with fewer than {min_count:,} training documents "
            f"({rare.total():,} of {n_all:,} assignments), and {n_dropped:,} documents with no "
            "other label."
        )
    return kept


def resolve(source: Source, format: str | None, report: ReadReport) -> Files:
    """Return the files of a source and their formats; raise for a folder of parts.

    `report` counts data files in a folder that are not read.
    """
    if not isinstance(source, Iterable | Path) or isinstance(source, bytes):
        raise InputError(f"expected a path or several, got {shown(source)}.")
    if not isinstance(source, (str, Path)):
        return [file for one in source for file in resolve(one, format, report)]
    parts = find_parts(source, format, report)
    if len(parts) > 1:
        raise DataError(
            f"{source}: a folder of parts ({', '.join(parts)}) is not one set of documents. "
            "Name one of its files, or one part (--split). If you gave --path, name the folder "
            "instead of the corpus. In Python use load_data."
        )
    return [file for of_part in parts.values() for file in of_part]


def find_parts(source: str | Path, format: str | None, report: ReadReport) -> dict[str, Files]:
    """Return the files by part: train.csv, shards such as train-0001.csv, or a folder train.

    A source without parts has the single part "".
    """
    if str(source).startswith(PREFIX):
        return {"": [(str(source), get_format("huggingface"))]}
    path = Path(source)
    if path == STANDARD_INPUT:
        return {"": [(path, get_format(format or "text"))]}
    if path.is_dir():
        return _find_in_folder(path, format, report)
    if not path.is_file():
        raise DataError(f"no such file or folder: {path}.")
    entry = get_format(format) if format else format_of_file(path)
    if entry is None:
        raise DataError(
            f"the suffix of {shown(path.name)} belongs to no known format. Name one with format "
            f"(--format): {', '.join(FORMATS)}."
        )
    return {"": [(path, entry)]}


def _find_in_folder(root: Path, format: str | None, report: ReadReport) -> dict[str, Files]:
    entry = get_format(format) if format else format_of_folder(root)
    if entry is not None and entry.marks:
        return {"": [(root, entry)]}
    files = sorted(f for f in root.iterdir() if f.is_file() and f.name[0] != ".")
    names = shown_names(file.name for file in files) if files else "an empty folder"
    named = _named_parts(root, format)
    if named and "train" not in named:
        raise DataError(
            f"no training part in {root}: expected a file such as train.jsonl, got {names}."
        )
    parts = {part: resolve(entries, format, report) for part, entries in named.items()}
    if not parts:
        if (root / CONFIG_FILE).is_file():
            raise DataError(
                f"{root} is a model folder, as written by `longtail train`. Expected data: a file, "
                "or a folder with a training part such as train.jsonl."
            )
        kinds = {kind.name for file in files if (kind := format_of_file(file)) is not None}
        if entry is None and len(kinds) != 1:
            raise DataError(
                f"{root}: expected train.jsonl (or .csv, .parquet, ...) and, if you have them, "
                f"validation and test, or files of one format; got {names}. Name a format with "
                "format (--format)."
            )
        entry = entry or get_format(kinds.pop())
        parts = {"": [(f, entry) for f in files if f.name.lower().endswith(entry.suffixes)]}
        if not parts[""]:
            raise DataError(f"{root}: no files of the format {entry.name}.")
    # Count the data files beside those that are read.
    read = {kind.name for of_part in parts.values() for _, kind in of_part}
    known = (f.suffixes for f in FORMATS.values() if f.name in read or f.name not in AMBIGUOUS)
    suffixes = tuple(chain(UNREAD, *known))
    used = {path for of_part in parts.values() for path, _ in of_part}
    unused = [
        file.name
        for file in files
        if file not in used
        and file.name.lower().endswith(suffixes)
        and not file.name.lower().startswith(ABOUT)
    ]
    if unused:
        what = f"data file beside those that were read ({shown_names(unused)})"
        report.left_out[what] += len(unused)
    return parts


def _named_parts(root: Path, format: str | None) -> dict[str, list[Path]]:
    """Return the files and folders named after parts."""
    named: dict[str, list[Path]] = {part: [] for part in PARTS}
    for entry in sorted(root.iterdir()):
        match = PART_FILE.fullmatch(entry.name.lower())
        part = PART_NAMES.get(match[1]) if match else None
        if part and (format or entry.is_dir() or format_of_file(entry)):
            named[part].append(entry)
    for part, entries in named.items():
        # Shards differ only in their number.
        kinds = {re.sub(r"[-_]\d[^.]*", "#", entry.name.lower(), count=1) for entry in entries}
        if len(entries) > 1 and (len(kinds) > 1 or "#" not in kinds.pop()):
            raise DataError(
                f"{root}: several entries may be the {part} part: "
                f"{shown_names(entry.name for entry in entries)}. Keep one of them."
            )
    return {part: entries for part, entries in named.items() if entries}


def _refuse_hidden_parts(files: Files) -> None:
    """Raise rather than shuffle reviews-train.csv and reviews-test.csv together."""
    for name in (Path(path).name for path, _ in files[1:]):
        if PART_NAMES.keys() & re.split("[^a-z]+", name.lower()):
            raise DataError(
                f"{name} looks like one of several parts, but does not have the name of one. Name "
                "the files train, validation and test, with the suffix of their format."
            )
