"""Arrow tables with columns text, labels (a list), id and date: Parquet and Hugging Face datasets.

Parquet's metadata hold the label names. A dataset is `hf:owner/name` on the Hub or a folder
written by `save_to_disk`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from longtail.data.documents import (
    PART_NAMES,
    FieldNames,
    LabelNames,
    ReadOptions,
    RecordError,
    Records,
    attempt,
)
from longtail.data.fields import check_columns, label_columns, to_document
from longtail.data.files import Tick, TooLargeError
from longtail.errors import DataError, MissingExtraError, shown

PREFIX = "hf:"
NAMES_KEY = b"longtail.label_names"
MOST_ROWS = 256
# DuckDB and fastparquet write many records as one page, so a row group may unpack to the size of
# GROUP_RECORDS records or GROUP_RATIO times that of the file; text packs to a tenth.
GROUP_RECORDS, GROUP_RATIO = 8, 200


def read_parquet(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """Read one record per row, with a few hundred rows in memory at a time."""
    number, size = 0, path.stat().st_size
    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            schema, n_rows = file.schema_arrow, file.metadata.num_rows
            used = check_columns(schema.names, options, path)
            names: tuple[str, ...] = tuple(label_columns(schema.names, options))
            if options.label_columns is None and options.labels_field == "labels":
                names = tuple(json.loads((schema.metadata or {}).get(NAMES_KEY, b"[]")))
            yield FieldNames(schema.names)
            yield LabelNames(names)
            for batch in _batches(file, used, size, options.max_record):
                for row in batch.to_pylist():
                    number += 1
                    at = f"row {number}"
                    if _size(row) > options.max_record:
                        yield RecordError(str(TooLargeError("the row", options.max_record)), at)
                    else:
                        yield attempt(to_document, at, row, options)
                tick(round(size / max(1, n_rows) * batch.num_rows))
    except pa.ArrowException as error:
        raise EOFError(f"not a valid Parquet file: {shown(str(error))[1:-1]}") from error


def _batches(file: Any, columns: list[str], size: int, limit: int) -> Iterator[Any]:
    """Yield batches of these columns; raise TooLargeError if a row group unpacks to too much."""
    for group in range(file.metadata.num_row_groups):
        # Of the group, not of its columns: Arrow's view of a damaged column ends the process.
        unpacked = file.metadata.row_group(group).total_byte_size
        if unpacked > max(GROUP_RECORDS * limit, GROUP_RATIO * size):
            raise TooLargeError("a row group", limit)
        yield from file.iter_batches(MOST_ROWS, [group], columns, use_threads=False)


def _size(row: dict[str, Any]) -> int:
    """Return the number of characters of all strings in a row."""
    values = (v if isinstance(v, list) else (v,) for v in row.values())
    return sum(len(item) for value in values for item in value if isinstance(item, str))


def read_hugging_face(source: Path | str, options: ReadOptions, tick: Tick) -> Records:
    """Read one record per row of every split; class numbers become their names."""
    for split, table in _splits(source).items():
        part, field = PART_NAMES.get(split), options.labels_field
        if split and part is None:
            raise DataError(
                f"{source}: the split {shown(split)} is none of {', '.join(PART_NAMES)}. Load the "
                "dataset yourself and pass the splits you want to TextData.from_lists."
            )
        used = check_columns(table.column_names, options, source)
        yield FieldNames(table.column_names)
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
                    # Hugging Face's "not labelled" is -1, which as an index is the last class.
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
    except Exception as error:  # whatever the parts of datasets raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"the Hugging Face dataset {source} cannot be loaded: {reason} Check its name and the "
            "network, or load it on a machine with a network, call save_to_disk(FOLDER), and pass "
            "that folder."
        ) from error
    return dict(loaded) if isinstance(loaded, datasets.DatasetDict) else {"": loaded}


def _class_names(feature: Any) -> list[str] | None:
    """Return the class names of a feature: one class per row, or a list of classes."""
    names = getattr(getattr(feature, "feature", feature), "names", None)
    return list(names) if names is not None else None
