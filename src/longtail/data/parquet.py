"""Parquet: columns text, labels (a list), id and date; the label names stand in the metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from longtail.data.documents import LabelNames, Problem, ReadOptions, Records
from longtail.data.fields import (
    check_columns,
    label_columns,
    needed_columns,
    to_document,
)
from longtail.data.files import Tick, Written, replacing
from longtail.data.limits import TooLargeError, shown, too_large
from longtail.data.parquet_pages import bounded_batches, open_parquet
from longtail.data.textdata import TextData
from longtail.labels import LabelEncoder

NAMES_KEY = b"longtail.label_names"
BATCH = 4096


def read_parquet(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """One record per row, a few hundred rows in memory at a time."""
    import pyarrow as pa

    try:
        with open_parquet(path) as file:
            columns = file.schema_arrow.names
            check_columns(columns, options, path)
            if options.label_columns is not None:
                yield LabelNames(tuple(label_columns(dict.fromkeys(columns), options)))
            elif options.labels_field == "labels":
                yield LabelNames(_names_in(file.schema_arrow) or ())
            wanted = needed_columns(columns, options)
            weight = path.stat().st_size / max(1, file.metadata.num_rows)
            number = 0
            for batch in bounded_batches(path, file, wanted, options.max_record):
                for record in _rows(batch, options.max_record):
                    number += 1
                    if isinstance(record, str):
                        yield Problem(number, record)
                    else:
                        yield to_document(record, options, number, cells=True)
                tick(round(weight * batch.num_rows))
    except pa.ArrowException as error:
        raise EOFError(f"not a sound Parquet file: {shown(str(error), 200)[1:-1]}") from error


def _rows(batch: Any, limit: int) -> Iterator[dict[str, Any] | str]:
    """The rows as dictionaries; a row too large or that Python cannot hold, as what is wrong."""
    try:
        rows = None if batch.nbytes > limit else batch.to_pylist()
    except (ValueError, OverflowError):
        rows = None  # Text that is not UTF-8, or a date beyond Python's: find the row.
    if rows is not None:
        yield from rows
        return
    for number in range(batch.num_rows):
        row = batch.slice(number, 1)
        if row.nbytes > limit:
            yield too_large("the row", limit)
            continue
        try:
            yield row.to_pylist()[0]
        except (ValueError, OverflowError) as error:
            yield f"cannot be read ({shown(str(error))})."


def _names_in(schema: Any) -> tuple[str, ...] | None:
    """The label names that `write_parquet` put beside the columns."""
    try:
        names = json.loads((schema.metadata or {}).get(NAMES_KEY, b"null"))
    except (ValueError, RecursionError):
        return None
    sound = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return tuple(names) if sound else None


def load_parquet(path: str | Path) -> TextData | None:
    """What `write_parquet` wrote, exactly; None if the file is of other origin, or damaged."""
    import pyarrow as pa

    try:
        with open_parquet(path) as file:
            names = _names_in(file.schema_arrow)
            given = set(file.schema_arrow.names) - {"text", "labels"}
            if names is None or file.schema_arrow != _schema(names, given):
                return None
            encoder = LabelEncoder(names)
            columns: dict[str, list[str]] = {name: [] for name in ("text", *given)}
            wanted = file.schema_arrow.names
            for batch in bounded_batches(Path(path), file, wanted, ReadOptions().max_record):
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


def _schema(names: tuple[str, ...], given: set[str]) -> Any:
    import pyarrow as pa

    fields = [pa.field("text", pa.large_string()), pa.field("labels", pa.list_(pa.string()))]
    fields += [pa.field(name, pa.string()) for name in ("id", "date") if name in given]
    metadata = {NAMES_KEY: json.dumps(names, ensure_ascii=False).encode()}
    return pa.schema(fields, metadata=metadata)


def write_parquet(data: TextData, path: str | Path, written: Written | None = None) -> None:
    """Write documents and label names; `load_parquet` gives back the very same TextData."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    given = {f for f in ("id", "date") if getattr(data, f + "s") is not None}
    with ExitStack() as stack:
        temporary = stack.enter_context(replacing(path))
        schema = _schema(data.label_names, given)
        label_names = pa.array(data.label_names, pa.string())
        writer = stack.enter_context(pq.ParquetWriter(temporary, schema))
        for start in range(0, len(data), BATCH):
            if written is not None:
                written(min(start + BATCH, len(data)), len(data))
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
