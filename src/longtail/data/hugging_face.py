"""Hugging Face datasets: `hf:owner/name` from the hub, or a folder of `save_to_disk`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from longtail.data.documents import (
    PART_NAMES,
    LabelNames,
    ReadOptions,
    RecordError,
    Records,
    attempt,
)
from longtail.data.fields import check_columns, label_columns, to_document
from longtail.data.files import Tick
from longtail.errors import DataError, MissingExtraError, shown

PREFIX = "hf:"


def read_hugging_face(source: Path | str, options: ReadOptions, tick: Tick) -> Records:
    """One record per row of every split that is a part; class numbers become their names."""
    for split, table in _splits(source).items():
        part, field = PART_NAMES.get(split), options.labels_field
        if split and part is None:
            raise DataError(
                f"{source}: the split {shown(split)} is none of {', '.join(PART_NAMES)}. Load the "
                "dataset yourself and make TextData.from_lists of the splits that you want."
            )
        used = check_columns(table.column_names, options, source)
        classes = None
        if options.label_columns is None and field is not None:
            classes = _class_names(table.features.get(field))
        yield LabelNames(tuple(classes or label_columns(table.column_names, options)))
        for number, row in enumerate(table.select_columns(used), start=1):
            at = f"{split or 'row'} {number}"
            if classes is not None and field is not None:
                labels = row[field]
                numbers = labels if isinstance(labels, list) else [labels]
                if not all(isinstance(k, int) and 0 <= k < len(classes) for k in numbers):
                    # -1 is Hugging Face's "not labelled"; as an index it would be the last class.
                    expected = f"expected classes from 0 to {len(classes) - 1}"
                    yield RecordError(f"{expected}, got {shown(labels)}.", at)
                    continue
                row[field] = [classes[k] for k in numbers]
            yield attempt(to_document, at, row, options, part)


def _splits(source: Path | str) -> dict[str, Any]:
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError("a Hugging Face dataset", "datasets", "hf") from error
    try:
        if isinstance(source, Path):
            loaded = datasets.load_from_disk(source)
        else:
            name, _, config = source.removeprefix(PREFIX).partition(":")
            loaded = datasets.load_dataset(name, config or None)
    except Exception as error:  # datasets raises what its many parts raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"the Hugging Face dataset {source} cannot be loaded: {reason} Check its name and the "
            "network, or load it where there is a network, call save_to_disk(FOLDER), and pass "
            "that folder."
        ) from error
    return dict(loaded) if isinstance(loaded, datasets.DatasetDict) else {"": loaded}


def _class_names(feature: Any) -> list[str] | None:
    """The names behind class numbers, for one class per row or a list of them."""
    names = getattr(getattr(feature, "feature", feature), "names", None)
    return list(names) if names is not None else None
