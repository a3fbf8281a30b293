"""Where documents come from: a file, several files, a folder of parts, and the split into parts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from longtail.data.collect import Progress, collect, our_errors, size_of, tell
from longtail.data.collected import Collected
from longtail.data.documents import ReadOptions, ReadReport
from longtail.data.formats import Format, format_of_file, format_of_folder, get_format, list_formats
from longtail.data.hugging_face import PREFIX
from longtail.data.limits import shown, shown_names
from longtail.data.splits import split
from longtail.data.textdata import TextData
from longtail.errors import DataError, InputError

PARTS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test",),
}
SHARES = (0.7, 0.1, 0.2)
# Formats whose suffix many another file has: notes in .txt, settings in .json.
AMBIGUOUS = ("libmultilabel", "bioasq", "nltk")
# Data that longtail does not read: packed otherwise than by gzip, or of other programs.
UNREAD = (
    *(".bz2", ".xz", ".zst", ".lz4", ".br", ".7z", ".rar", ".parquet.gz", ".sgm.gz", ".sgml"),
    *(".xlsx", ".xls", ".ods", ".arrow", ".feather", ".orc", ".avro", ".pkl", ".pickle"),
    *(".jsonlines", ".jl", ".jsonl.zip", ".json.zip", ".csv.zip", ".tsv.zip"),
)
ABOUT = ("readme", "license", "licence", "changelog", "citation", "notice")
Files = list[tuple[Path | str, Format]]


def resolve(
    source: str | Path | Sequence[str | Path],
    format: str | None = None,
    report: ReadReport | None = None,
) -> Files:
    """The files of a source and their formats; a folder of parts is not one source.

    `report` is told of data files in a folder that are not read.
    """
    if not isinstance(source, Iterable | Path) or isinstance(source, bytes):
        raise InputError(f"expected a path or several, got {shown(source)}.")
    if not isinstance(source, (str, Path)):
        files = [file for one in source for file in resolve(one, format, report)]
        _refuse_twice([path for path, _ in files])
        return files
    if str(source).startswith(PREFIX):
        return [(str(source), get_format("huggingface"))]
    path = Path(source)
    if path.is_dir():
        return _resolve_folder(path, format, report)
    if not path.is_file():
        raise DataError(f"no such file or folder: {path}.")
    entry = get_format(format) if format else format_of_file(path)
    if entry is None:
        raise DataError(
            f"the suffix of {shown(path.name)} says no format. Name one with format (--format): "
            f"{', '.join(list_formats())}."
        )
    return [(path, entry)]


def _resolve_folder(path: Path, format: str | None, report: ReadReport | None) -> Files:
    entry = get_format(format) if format else format_of_folder(path)
    if entry is not None and (entry.folder_marks or not entry.suffixes):
        if report is not None and entry.folder_suffix is not None:
            # The archive that the files came from is no other data.
            own = [file for file in path.iterdir() if file.name.lower().endswith(entry.suffixes)]
            _tell_others(path, own, {entry.name}, report)
        return [(path, entry)]
    parts = _named_parts(path, format)
    if len(parts) > 1:
        raise DataError(
            f"{path}: a folder of parts ({', '.join(parts)}) is not one set of documents. Name one "
            "of its files, or read the parts with load_data."
        )
    files = sorted(file for file in path.iterdir() if file.is_file() and file.name[0] != ".")
    if entry is None:
        kinds = {kind.name for file in files if (kind := format_of_file(file)) is not None}
        if len(kinds) != 1:
            there = shown_names(file.name for file in files) if files else "an empty folder"
            raise DataError(
                f"{path}: expected train.jsonl (or .csv, .parquet, ...) and, if you have them, "
                f"validation and test, or files of one format; found {there}. Name a format with "
                "format (--format)."
            )
        entry = get_format(kinds.pop())
    found: Files = [(f, entry) for f in files if f.name.lower().endswith(entry.suffixes)]
    if not found:
        raise DataError(f"{path}: no files of the format {entry.name}.")
    _refuse_twice([file for file, _ in found])
    if report is not None:
        _tell_others(path, {file for file, _ in found}, {entry.name}, report)
    return found


def _tell_others(
    root: Path, read: Iterable[Path | str], formats: set[str], report: ReadReport
) -> None:
    """Count the data files, and folders of them, that stand beside those that are read."""
    known = set(read)
    others: list[str] = []
    parts: list[str] = []
    for entry in sorted(root.iterdir()):
        if entry not in known and _holds_data(entry, formats):
            (parts if _is_unread_part(entry) else others).append(entry.name)
    for what, names in (
        ("file that is called like a part but is of no format that can be read", parts),
        ("data file beside those that were read", others),
    ):
        if names:
            report.left_out[f"{what} ({shown_names(names)})"] += len(names)


def _holds_data(entry: Path, formats: set[str]) -> bool:
    """Whether a file, or one at any depth of a folder, holds data and is no README or the like."""
    if entry.name.startswith((".", "__MACOSX")) or entry.name.lower().startswith(ABOUT):
        return False
    if entry.is_dir():
        # A link may lead back to where it is.
        return not entry.is_symlink() and any(
            _holds_data(file, formats) for file in entry.iterdir()
        )
    kind = format_of_file(entry) if entry.is_file() else None
    if kind is None:
        return entry.is_file() and entry.name.lower().endswith(UNREAD)
    return kind.name in formats or kind.name not in AMBIGUOUS


def _is_unread_part(entry: Path) -> bool:
    """Whether a file such as test.jsonl.zst would be a part if longtail could read it."""
    names = [name for names in PARTS.values() for name in names]
    return entry.is_file() and format_of_file(entry) is None and _has_name(entry, names)


def _refuse_twice(files: Sequence[Path | str]) -> None:
    """Raise if a file is named twice, or stands beside its gzipped self."""
    names = Counter(str(file).removesuffix(".gz") for file in files)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise DataError(
            f"{twice[0]} would be read twice, under one name or with and without .gz. Leave one."
        )


def has_parts(source: str | Path, format: str | None = None) -> bool:
    """Whether the source itself says which documents are for training and which for testing."""
    path = Path(source)
    with our_errors(source):
        if path.is_dir() and not str(source).startswith(PREFIX) and _part_files(path, format):
            return True
        return any(entry.has_parts for _, entry in resolve(source, format))


def load_data(
    source: str | Path,
    format: str | None = None,
    *,
    split_method: str = "random",
    seed: int = 0,
    min_count: int = 0,
    report: ReadReport | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
    **options: Any,
) -> dict[str, TextData]:
    """Train, validation and test parts from a folder of parts, or from one source that is split.

    A source that says itself which documents are for training and testing (Reuters, NLTK, Hugging
    Face) is taken at its word. A missing validation part is split off the training part. Labels
    that only other parts have are kept as columns, so that they count in the evaluation; with
    `min_count`, only labels with so many training documents are kept.
    """
    settings = ReadOptions(**options)
    said = ReadReport()
    with our_errors(source):
        parts = _read_parts(source, format, settings, split_method, seed, said, progress, workers)
    if "validation" not in parts:
        shares = (0.9, 0.1)
        parts["train"], parts["validation"] = split(parts["train"], shares, split_method, seed)
    if min_count:
        parts = frequent_labels(parts, min_count, said)
    tell(said, report)
    order = [part for part in PARTS if part in parts]
    names = parts["train"].label_names
    if any(parts[part].label_names != names for part in order):
        names = tuple(sorted({name for part in order for name in parts[part].label_names}))
    return {part: parts[part].onto(names)[0] for part in order}


def _read_parts(
    source: str | Path,
    format: str | None,
    settings: ReadOptions,
    split_method: str,
    seed: int,
    report: ReadReport,
    progress: Progress | None,
    workers: int | None,
) -> dict[str, TextData]:
    """The parts that a folder or a source itself names, or those that a split makes."""
    path = Path(source)
    found = _part_files(path, format, report) if path.is_dir() else {}
    if not found:
        if path.is_dir():
            _refuse_hidden_parts(path)
        collected = collect(resolve(source, format, report), settings, progress, workers)
        report.add(collected.report)
        return _own_parts(collected, source, split_method, seed)
    parts = {}
    sizes = {part: sum(size_of(file) for file, _ in files) for part, files in found.items()}
    before = 0
    for part, files in found.items():
        own = _within(progress, before, sum(sizes.values()))
        collected = collect(files, settings, own, workers)
        before += sizes[part]
        report.add(collected.report)
        parts[part] = collected.data()
    return parts


def frequent_labels(
    parts: Mapping[str, TextData], min_count: int, report: ReadReport
) -> dict[str, TextData]:
    """The parts on the labels with so many training documents; others, and documents that have no
    other labels, are left out, and the report says how many."""
    names = parts["train"].filter_labels(min_count)[0].label_names
    if not names:
        raise DataError(
            f"no label has {min_count} training documents. Read more files, or lower min_count."
        )
    rare: set[str] = set()
    n_assignments = 0
    found = {}
    for part, documents in parts.items():
        kept, unknown = documents.onto(names)
        # Documents that never had a label stay: whoever read them wants them.
        emptied = (np.diff(kept.Y.indptr) == 0) & (np.diff(documents.Y.indptr) > 0)
        found[part] = kept.select(~emptied)
        rare |= set(unknown)
        n_assignments += sum(unknown.values())
    if rare:
        n_all = sum(documents.Y.nnz for documents in parts.values())
        n_gone = sum(map(len, parts.values())) - sum(map(len, found.values()))
        report.notes.append(
            f"labels with fewer than {min_count} training documents were left out: {len(rare)}, "
            f"with {n_assignments} of {n_all} assignments; and the documents that had no other "
            f"labels: {n_gone}."
        )
    return found


def _within(progress: Progress | None, before: int, total: int) -> Progress | None:
    """The progress of one part as progress of all parts."""
    return progress and (lambda done, _: progress(before + done, total))


def _part_files(
    root: Path, format: str | None, report: ReadReport | None = None
) -> dict[str, Files]:
    """The files of every part: train.csv, or shards such as train-0001.csv, or a folder train."""
    named = _named_parts(root, format)
    if named and "train" not in named:
        there = shown_names(sorted(entry.name for entry in root.iterdir()))
        raise DataError(
            f"no training part in {root}: expected a file such as train.jsonl, found {there}."
        )
    found = {part: resolve(entries, format, report) for part, entries in named.items()}
    if found and report is not None:
        kinds = {entry.name for files in found.values() for _, entry in files}
        _tell_others(root, (entry for own in named.values() for entry in own), kinds, report)
    return found


def _named_parts(root: Path, format: str | None) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    if format_of_folder(root) is not None:
        return found
    for part, names in PARTS.items():
        own = [entry for entry in sorted(root.iterdir()) if _is_part(entry, names, format)]
        sets = {_shard_set(entry) for entry in own}
        if len(own) > 1 and (len(sets) > 1 or None in sets):
            raise DataError(
                f"{root}: it is not clear which is the {part} part: "
                f"{shown_names(entry.name for entry in own)}. Leave one of them."
            )
        if own:
            found[part] = own
    return found


def _is_part(entry: Path, names: Sequence[str], format: str | None) -> bool:
    """Whether a file or folder is called train, train.csv, train-00001-of-00005.parquet, ..."""
    if entry.is_file() and not format and format_of_file(entry) is None:
        return False
    return _has_name(entry, names)


def _has_name(entry: Path, names: Sequence[str]) -> bool:
    name = entry.name.lower()
    return any(re.fullmatch(rf"{part}([-_]\d[^.]*)?(\..*)?", name) for part in names)


def _shard_set(entry: Path) -> tuple[str, str] | None:
    """What the shards of one part have in common: the name before the number, and the suffix."""
    match = re.fullmatch(r"([a-z]+)[-_]\d[^.]*(\..*)", entry.name.lower())
    return (match[1], match[2]) if match else None


def _refuse_hidden_parts(root: Path) -> None:
    """Raise rather than shuffle reviews-train.csv and reviews-test.csv together."""
    known = {name for names in PARTS.values() for name in names}
    hidden = [
        entry.name
        for entry in sorted(root.iterdir())
        if entry.is_file()
        and format_of_file(entry)
        and known.intersection(re.split("[^a-z]+", entry.name.lower()))
    ]
    if hidden:
        raise DataError(
            f"{root}: {hidden[0]} seems to be one part of several, but is not called so. Call the "
            "files train, validation and test, with the suffix of their format."
        )


def _own_parts(
    collected: Collected, source: str | Path, method: str, seed: int
) -> dict[str, TextData]:
    data = collected.data()
    said = np.array([part or "" for part in collected.parts])
    if (said == "").all():
        return dict(zip(PARTS, split(data, SHARES, method, seed), strict=True))
    if not (said != "").all() or not (said == "train").any():
        counts = ", ".join(f"{(said == p).sum()} {p or 'of no part'}" for p in (*PARTS, ""))
        raise DataError(
            f"{source}: expected that every document is of a part, or none, and that some are for "
            f"training; found {counts}. Read it with read_data and divide it with split."
        )
    return {part: data.select(said == part) for part in PARTS if (said == part).any()}
