"""`read_data` and `load_data`: from a path to TextData, and to its training and test parts."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from longtail.data.collect import Collected, collect, our_errors, size_of
from longtail.data.documents import PARTS, ReadOptions, ReadReport
from longtail.data.sources import Source, part_files, refuse_hidden_parts, resolve
from longtail.data.splits import split
from longtail.data.textdata import TextData
from longtail.errors import DataError
from longtail.progress import OnProgress, Progress, ignore

SHARES = (0.7, 0.1, 0.2)


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
        files = part_files(source, format, total)
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
            refuse_hidden_parts(source)
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
        files = part_files(source, format)
        return bool(files) or any(entry.has_parts for _, entry in resolve(source, format))


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
