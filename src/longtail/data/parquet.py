"""Parquet: columns text, labels (a list), id and date; the label names are in the metadata."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from longtail.data.documents import LabelNames, ReadOptions, RecordError, Records
from longtail.data.fields import check_columns, is_strings, label_columns, to_document
from longtail.data.files import Tick, replacing
from longtail.data.limits import TooLargeError, shown, too_large
from longtail.data.parquet_pages import bounded_batches, open_parquet
from longtail.data.textdata import TextData
from longtail.labels import LabelEncoder
from longtail.progress import OnProgress, Progress, ignore

NAMES_KEY = b"longtail.label_names"
BATCH = 4096


class _BadValue(str):
    """Why a value cannot be read, in its place."""


def read_parquet(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """One record per row, a few hundred rows in memory at a time."""
    limit, number = options.max_record, 0
    try:
        with open_parquet(path) as file:
            schema, n_rows = file.schema_arrow, file.metadata.num_rows
        used = check_columns(schema.names, options, path)
        names: tuple[str, ...] = tuple(label_columns(schema.names, options))
        if options.label_columns is None and options.labels_field == "labels":
            names = _names_in(schema) or ()
        yield LabelNames(names)
        weight = path.stat().st_size / max(1, n_rows)
        for batch in bounded_batches(path, used, limit):
            columns = [_values(column, limit) for column in batch.columns]
            for row in zip(*columns, strict=True):
                number += 1
                if (fault := _row_fault(row, limit)) is not None:
                    yield RecordError(fault, number)
                else:
                    record = dict(zip(batch.schema.names, row, strict=True))
                    yield to_document(number, record, options, cells=True)
            tick(round(weight * batch.num_rows))
    except pa.ArrowException as error:
        raise EOFError(f"not a valid Parquet file: {shown(str(error), 200)[1:-1]}") from error


def _values(array: Any, limit: int) -> list[Any]:
    """The values of an Arrow array as Python objects; a string that is repeated is one object."""
    if pa.types.is_dictionary(array.type):
        indices = array.indices.to_pylist()
        known = {k: None if k is None else _value(array.dictionary[k], limit) for k in set(indices)}
        return [known[k] for k in indices]
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        offsets = array.offsets.to_pylist()
        first, last = offsets[0], offsets[-1]
        items = _values(array.values.slice(first, last - first), limit)
        bounds = zip(offsets[:-1], offsets[1:], array.is_valid().to_pylist(), strict=True)
        return [items[a - first : b - first] if valid else None for a, b, valid in bounds]
    return [_value(scalar, limit) for scalar in array]


def _value(scalar: Any, limit: int) -> Any:
    if pa.types.is_nested(scalar.type):
        return _BadValue("expected a value or a list of values, got a structure of several.")
    try:
        # Before it is copied: it may be as large as a page.
        if scalar.is_valid and hasattr(scalar, "as_buffer") and scalar.as_buffer().size > limit:
            return _BadValue(too_large("the row", limit))
        return scalar.as_py()
    except (ValueError, OverflowError) as error:
        # Text that is not UTF-8, or a date beyond Python's.
        return _BadValue(f"cannot be read ({shown(str(error))}).")


def _row_fault(row: tuple[Any, ...], limit: int) -> str | None:
    """Why a row cannot be read."""
    size = 0
    for value in row:
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, _BadValue):
                return str(item)
            size += len(item) if isinstance(item, str) else 0
    return too_large("the row", limit) if size > limit else None


def _names_in(schema: Any) -> tuple[str, ...] | None:
    """The label names that `write_parquet` stored in the metadata."""
    try:
        names = json.loads((schema.metadata or {}).get(NAMES_KEY, b"null"))
    except (ValueError, RecursionError):
        return None
    return tuple(names) if is_strings(names) else None


def load_parquet(path: str | Path) -> TextData | None:
    """The exact TextData of `write_parquet`; None if the file is of other origin, or damaged."""
    try:
        with open_parquet(path) as file:
            schema = file.schema_arrow
        names = _names_in(schema)
        extra = set(schema.names) - {"text", "labels"}
        if names is None or schema != _schema(names, extra):
            return None
        encoder = LabelEncoder(names)
        columns: dict[str, list[str]] = {name: [] for name in ("text", *extra)}
        for batch in bounded_batches(Path(path), schema.names, ReadOptions().max_record):
            if any(column.null_count for column in batch.columns):
                return None
            for name, values in columns.items():
                values += batch.column(name).to_pylist()
            for labels in batch.column("labels").to_pylist():
                encoder.add(labels)
    except (OSError, EOFError, ValueError, OverflowError, pa.ArrowException, TooLargeError):
        return None
    ids, dates = (tuple(columns[f]) if f in columns else None for f in ("id", "date"))
    return TextData(columns["text"], encoder.finish()[0], names, ids, dates)


def _schema(names: tuple[str, ...], extra: set[str]) -> Any:
    fields = [pa.field("text", pa.large_string()), pa.field("labels", pa.list_(pa.string()))]
    fields += [pa.field(name, pa.string()) for name in ("id", "date") if name in extra]
    metadata = {NAMES_KEY: json.dumps(names, ensure_ascii=False).encode()}
    return pa.schema(fields, metadata=metadata)


def write_parquet(data: TextData, path: str | Path, progress: OnProgress = ignore) -> None:
    """Write documents and label names; `load_parquet` restores the same TextData."""
    extra = {f for f in ("id", "date") if getattr(data, f + "s") is not None}
    with ExitStack() as stack:
        temporary = stack.enter_context(replacing(path))
        schema = _schema(data.label_names, extra)
        label_names = pa.array(data.label_names, pa.string())
        writer = stack.enter_context(pq.ParquetWriter(temporary, schema))
        for start in range(0, len(data), BATCH):
            done = min(start + BATCH, len(data))
            progress(Progress(f"writing {Path(path).name}", done, len(data)))
            rows = slice(start, start + BATCH)
            matrix = data.Y[rows]
            values = label_names.take(pa.array(matrix.indices.astype(np.int64)))
            offsets = pa.array(matrix.indptr.astype(np.int32))
            arrays = [
                pa.array(data.texts[rows], pa.large_string()),
                pa.ListArray.from_arrays(offsets, values),
            ]
            arrays += [
                pa.array(v[rows], pa.string()) for v in (data.ids, data.dates) if v is not None
            ]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
