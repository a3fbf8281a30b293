"""`read_data` and `load_data`: where documents are, and how they become TextData and its parts."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from longtail.data.collect import (
    Collected,
    Files,
    collect,
    file_records,
    our_errors,
    size_of,
    usable,
)
from longtail.data.documents import PART_NAMES, PARTS, Document, ReadOptions, ReadReport
from longtail.data.files import STANDARD_INPUT
from longtail.data.formats import format_of_file, format_of_folder, get_format, list_formats
from longtail.data.hugging_face import PREFIX
from longtail.data.limits import shown, shown_names
from longtail.data.splits import split
from longtail.data.textdata import TextData
from longtail.errors import DataError, InputError
from longtail.progress import OnProgress, Progress, ignore

SHARES = (0.7, 0.1, 0.2)

# Formats with the suffix of many other files: notes in .txt, settings in .json.
AMBIGUOUS = ("libmultilabel", "bioasq", "nltk")
# Data that longtail does not read: compressed otherwise than by gzip, or of other programs.
UNREAD = (
    *(".bz2", ".xz", ".zst", ".lz4", ".br", ".7z", ".rar", ".parquet.gz", ".sgm.gz", ".sgml"),
    *(".xlsx", ".xls", ".ods", ".arrow", ".feather", ".orc", ".avro", ".pkl", ".pickle"),
    *(".jsonlines", ".jl", ".jsonl.zip", ".json.zip", ".csv.zip", ".tsv.zip"),
)
ABOUT = ("readme", "license", "licence", "changelog", "citation", "notice")
# train, train.csv, train-00001-of-00005.parquet, ...
PART_FILE = re.compile(r"([a-z]+)([-_]\d[^.]*)?(\..*)?", re.DOTALL)
Source = str | Path | Sequence[str | Path]


def read_data(
    source: Source,
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
    with our_errors(source):
        collected = collect_source(source, format, ReadOptions(**options), progress, workers)
        data = collected.data()
    tell(collected.report, report)
    return data


def iter_texts(
    source: Source, format: str | None = None, *, report: ReadReport, **options: Any
) -> Iterator[Document]:
    """Documents one by one in constant memory, their labels not read: what `predict` is for.

    `source` may be "-", the standard input. Arguments as for `read_data`.
    """
    settings = ReadOptions(**{"labels_field": None, **options})
    with our_errors(source):
        files = resolve(source, format, report)

    def documents() -> Iterator[Document]:
        for path, entry in files:
            reading = file_records(path, entry, settings, lambda count: None)
            with our_errors(path), closing(reading) as records:
                for record in usable(records, path, entry.unit, settings, report):
                    if isinstance(record, Document):
                        yield record

    return documents()


def load_data(
    source: str | Path,
    format: str | None = None,
    *,
    split_method: str = "random",
    random_state: int = 0,
    min_count: int = 0,
    report: ReadReport | None = None,
    progress: OnProgress = ignore,
    workers: int | None = None,
    **options: Any,
) -> dict[str, TextData]:
    """Train, validation and test parts from a folder of parts, or from one source that is split.

    A source that itself divides its documents into parts (Reuters, NLTK, Hugging Face) keeps them.
    A missing validation part is split off the training part. Labels that only other parts have are
    kept as columns, so that they count in the evaluation; with `min_count`, only labels with at
    least that many training documents are kept.
    """
    settings, total, parts = ReadOptions(**options), ReadReport(), {}
    with our_errors(source):
        files = _part_files(source, format, total)
        n_bytes = {part: sum(size_of(path) for path, _ in files[part]) for part in files}
        n_before = 0

        def overall(now: Progress) -> None:
            n_all = sum(n_bytes.values())
            progress(replace(now, done=n_before + now.done, total=n_all))

        for part in files:
            collected = collect(files[part], settings, overall, workers)
            n_before += n_bytes[part]
            total.add(collected.report)
            parts[part] = collected.data()
        if not files:
            _refuse_hidden_parts(source)
            collected = collect_source(source, format, settings, progress, workers)
            total.add(collected.report)
            parts = _split_parts(collected, source, split_method, random_state)
    if "validation" not in parts:
        both = split(parts["train"], (0.9, 0.1), split_method, random_state)
        parts["train"], parts["validation"] = both
    if min_count:
        parts = frequent_labels(parts, min_count, total)
    tell(total, report)
    order = [part for part in PARTS if part in parts]
    names = parts["train"].label_names
    if any(parts[part].label_names != names for part in order):
        names = tuple(sorted({name for part in order for name in parts[part].label_names}))
    return {part: parts[part].onto(names)[0] for part in order}


def has_parts(source: str | Path, format: str | None = None) -> bool:
    """Whether the source itself divides its documents into training and test parts."""
    with our_errors(source):
        if _part_files(source, format, ReadReport()):
            return True
        return any(entry.has_parts for _, entry in resolve(source, format, ReadReport()))


def collect_source(
    source: Source,
    format: str | None,
    options: ReadOptions,
    progress: OnProgress = ignore,
    workers: int | None = None,
) -> Collected:
    """Read the files of a source; its report counts the data files beside them as well."""
    beside = ReadReport()
    collected = collect(resolve(source, format, beside), options, progress, workers)
    collected.report.add(beside)
    return collected


def tell(total: ReadReport, report: ReadReport | None) -> None:
    """Add to the caller's report, or warn where there is none."""
    if report is not None:
        report.add(total)
    elif total.skipped or total.left_out:
        # Level 3: the caller of read_data or load_data.
        warnings.warn("\n".join(total.lines()), stacklevel=3)


def _split_parts(
    collected: Collected, source: str | Path, method: str, random_state: int
) -> dict[str, TextData]:
    """The parts of the source itself, or those of a split."""
    data = collected.data()
    part_of = np.array([part or "" for part in collected.parts])
    if (part_of == "").all():
        return dict(zip(PARTS, split(data, SHARES, method, random_state), strict=True))
    if (part_of == "").any() or not (part_of == "train").any():
        counts = ", ".join(f"{(part_of == p).sum()} {p or 'of no part'}" for p in (*PARTS, ""))
        raise DataError(
            f"{source}: expected that every document is of a part, or none, and that some are for "
            f"training; got {counts}. Read it with read_data and divide it with split."
        )
    return {part: data.select(part_of == part) for part in PARTS if (part_of == part).any()}


def frequent_labels(
    parts: Mapping[str, TextData], min_count: int, report: ReadReport
) -> dict[str, TextData]:
    """The parts on the labels with at least `min_count` training documents.

    Other labels, and documents that have no other labels, are left out and counted in the report.
    """
    names = parts["train"].filter_labels(min_count)[0].label_names
    if not names:
        raise DataError(
            f"no label has {min_count} training documents. Read more files, or lower min_count."
        )
    rare: Counter[str] = Counter()
    kept = {}
    for part, documents in parts.items():
        on_names, unknown = documents.onto(names)
        # Documents that never had a label stay: the caller chose to keep them.
        emptied = (np.diff(on_names.Y.indptr) == 0) & (np.diff(documents.Y.indptr) > 0)
        kept[part] = on_names.select(~emptied)
        rare.update(unknown)
    if rare:
        n_all = sum(documents.Y.nnz for documents in parts.values())
        n_dropped = sum(map(len, parts.values())) - sum(map(len, kept.values()))
        report.notes.append(
            f"labels with fewer than {min_count} training documents were left out: {len(rare)}, "
            f"with {rare.total()} of {n_all} assignments; and the documents that had no other "
            f"labels: {n_dropped}."
        )
    return kept


def resolve(source: Source, format: str | None, report: ReadReport) -> Files:
    """The files of a source and their formats; a folder of parts is not one source.

    `report` counts the data files in a folder that are not read.
    """
    if not isinstance(source, Iterable | Path) or isinstance(source, bytes):
        raise InputError(f"expected a path or several, got {shown(source)}.")
    if not isinstance(source, (str, Path)):
        return _each_once([file for one in source for file in resolve(one, format, report)])
    if str(source).startswith(PREFIX):
        return [(str(source), get_format("huggingface"))]
    path = Path(source)
    if path == STANDARD_INPUT:
        return [(path, get_format(format or "text"))]
    if path.is_dir():
        return _resolve_folder(path, format, report)
    if not path.is_file():
        raise DataError(f"no such file or folder: {path}.")
    entry = get_format(format) if format else format_of_file(path)
    if entry is None:
        raise DataError(
            f"the suffix of {shown(path.name)} is of no known format. Name one with format "
            f"(--format): {', '.join(list_formats())}."
        )
    return [(path, entry)]


def _resolve_folder(path: Path, format: str | None, report: ReadReport) -> Files:
    entry = get_format(format) if format else format_of_folder(path)
    entries = sorted(path.iterdir())
    if entry is not None and entry.marks:
        if entry.name == "reuters":
            # The archive that the files came from is no other data.
            read = [file for file in entries if file.name.lower().endswith(entry.suffixes)]
            _report_others(path, read, {entry.name}, report)
        return [(path, entry)]
    parts = _named_parts(path, format)
    if len(parts) > 1:
        raise DataError(
            f"{path}: a folder of parts ({', '.join(parts)}) is not one set of documents. Name one "
            "of its files, or read the parts with load_data."
        )
    files = [file for file in entries if file.is_file() and file.name[0] != "."]
    if entry is None:
        kinds = {kind.name for file in files if (kind := format_of_file(file)) is not None}
        if len(kinds) != 1:
            names = shown_names(file.name for file in files) if files else "an empty folder"
            raise DataError(
                f"{path}: expected train.jsonl (or .csv, .parquet, ...) and, if you have them, "
                f"validation and test, or files of one format; got {names}. Name a format with "
                "format (--format)."
            )
        entry = get_format(kinds.pop())
    read = [file for file in files if file.name.lower().endswith(entry.suffixes)]
    if not read:
        raise DataError(f"{path}: no files of the format {entry.name}.")
    _report_others(path, read, {entry.name}, report)
    return _each_once([(file, entry) for file in read])


def _each_once(files: Files) -> Files:
    """The files; raises if one is named twice, or is beside its gzipped copy."""
    for name, count in Counter(str(file).removesuffix(".gz") for file, _ in files).items():
        if count > 1:
            raise DataError(
                f"{name} would be read twice, under one name or with and without .gz. Keep one."
            )
    return files


def _report_others(root: Path, read: Iterable[Path], formats: set[str], report: ReadReport) -> None:
    """Count the data files, and folders of them, beside those that are read."""
    others = [e for e in sorted({*root.iterdir()}.difference(read)) if _holds_data(e, formats)]
    # A file such as test.jsonl.zst would be a part if longtail could read it.
    parts = [e for e in others if e.is_file() and format_of_file(e) is None and _part_of(e)[0]]
    for what, entries in (
        ("file named like a part, in a format that cannot be read", parts),
        ("data file beside those that were read", [e for e in others if e not in parts]),
    ):
        if entries:
            names = shown_names(entry.name for entry in entries)
            report.left_out[f"{what} ({names})"] += len(entries)


def _holds_data(entry: Path, formats: set[str]) -> bool:
    """Whether a file, or one at any depth of a folder, holds data and is no README or the like."""
    if entry.name.startswith((".", "__MACOSX")) or entry.name.lower().startswith(ABOUT):
        return False
    if entry.is_dir():
        # A link may lead back to its parent.
        return not entry.is_symlink() and any(_holds_data(e, formats) for e in entry.iterdir())
    kind = format_of_file(entry) if entry.is_file() else None
    if kind is None:
        return entry.is_file() and entry.name.lower().endswith(UNREAD)
    return kind.name in formats or kind.name not in AMBIGUOUS


def _part_files(source: str | Path, format: str | None, report: ReadReport) -> dict[str, Files]:
    """The files of every part: train.csv, or shards such as train-0001.csv, or a folder train.

    Nothing if the source is no folder, or one whose files are not called by parts.
    """
    root = Path(source)
    named = _named_parts(root, format) if root.is_dir() else {}
    if named and "train" not in named:
        names = shown_names(sorted(entry.name for entry in root.iterdir()))
        raise DataError(
            f"no training part in {root}: expected a file such as train.jsonl, got {names}."
        )
    files = {part: resolve(entries, format, report) for part, entries in named.items()}
    if files:
        formats = {entry.name for entries in files.values() for _, entry in entries}
        read = [entry for entries in named.values() for entry in entries]
        _report_others(root, read, formats, report)
    return files


def _named_parts(root: Path, format: str | None) -> dict[str, list[Path]]:
    """The files and folders that are called as the parts."""
    named: dict[str, list[Path]] = {}
    if format_of_folder(root) is not None:
        return named
    entries = sorted(root.iterdir())
    for part in PARTS:
        of_part = [
            entry
            for entry in entries
            if _part_of(entry)[0] == part and (format or entry.is_dir() or format_of_file(entry))
        ]
        sets = {_part_of(entry)[1] for entry in of_part}
        if len(of_part) > 1 and (len(sets) > 1 or None in sets):
            raise DataError(
                f"{root}: it is not clear which is the {part} part: "
                f"{shown_names(entry.name for entry in of_part)}. Keep one of them."
            )
        if of_part:
            named[part] = of_part
    return named


def _part_of(entry: Path) -> tuple[str | None, str | None]:
    """The part that a file or folder is called by, and what the name shares with other shards."""
    match = PART_FILE.fullmatch(entry.name.lower())
    if match is None:
        return None, None
    return PART_NAMES.get(match[1]), match[1] + match[3] if match[2] and match[3] else None


def _refuse_hidden_parts(source: str | Path) -> None:
    """Raise rather than shuffle reviews-train.csv and reviews-test.csv together."""
    root = Path(source)
    for entry in sorted(root.iterdir()) if root.is_dir() else ():
        words = PART_NAMES.keys() & re.split("[^a-z]+", entry.name.lower())
        if words and entry.is_file() and format_of_file(entry):
            raise DataError(
                f"{root}: {entry.name} looks like one of several parts, but is not named as one. "
                "Name the files train, validation and test, with the suffix of their format."
            )
