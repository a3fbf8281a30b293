"""Parquet: columns text, labels (a list), id and date; the label names are in the metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from longtail.data.documents import LabelNames, ReadOptions, RecordError, Records, attempt
from longtail.data.fields import check_columns, is_strings, label_columns, to_document
from longtail.data.files import Tick, TooLargeError, replacing
from longtail.data.textdata import TextData
from longtail.errors import shown
from longtail.progress import OnProgress, Progress, ignore

NAMES_KEY = b"longtail.label_names"
BATCH, MOST_ROWS = 4096, 256
# DuckDB and fastparquet write many records as one page, so a group of rows may unpack to the
# size of GROUP_RECORDS records, or GROUP_RATIO times that of the file: text packs to a tenth.
GROUP_RECORDS, GROUP_RATIO = 8, 200


def read_parquet(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """One record per row, a few hundred rows in memory at a time."""
    number, size = 0, path.stat().st_size
    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            schema, n_rows = file.schema_arrow, file.metadata.num_rows
            used = check_columns(schema.names, options, path)
            names: tuple[str, ...] = tuple(label_columns(schema.names, options))
            if options.label_columns is None and options.labels_field == "labels":
                names = _names_in(schema) or ()
            yield LabelNames(names)
            for batch in _batches(file, used, size, options.max_record):
                for row in batch.to_pylist():
                    number += 1
                    if _size(row) > options.max_record:
                        yield RecordError(str(TooLargeError("the row", options.max_record)), number)
                    else:
                        yield attempt(to_document, number, row, options)
                tick(round(size / max(1, n_rows) * batch.num_rows))
    except pa.ArrowException as error:
        raise EOFError(f"not a valid Parquet file: {shown(str(error))[1:-1]}") from error


def _batches(file: Any, columns: list[str], size: int, limit: int) -> Iterator[Any]:
    """Batches of these columns; raises TooLargeError if a group of rows unpacks to too much.

    The size of the group, not of its columns: Arrow's view of a damaged column ends the process.
    """
    for group in range(file.metadata.num_row_groups):
        unpacked = file.metadata.row_group(group).total_byte_size
        if unpacked > max(GROUP_RECORDS * limit, GROUP_RATIO * size):
            raise TooLargeError("a group of rows", limit)
        yield from file.iter_batches(MOST_ROWS, [group], columns, use_threads=False)


def _size(row: dict[str, Any]) -> int:
    """Characters of all strings in a row."""
    values = (v if isinstance(v, list) else (v,) for v in row.values())
    return sum(len(item) for value in values for item in value if isinstance(item, str))


def _names_in(schema: Any) -> tuple[str, ...] | None:
    """The label names that `write_parquet` stored in the metadata."""
    try:
        names = json.loads((schema.metadata or {}).get(NAMES_KEY, b"null"))
    except (ValueError, RecursionError):
        return None
    return tuple(names) if is_strings(names) else None


def write_parquet(data: TextData, path: str | Path, progress: OnProgress = ignore) -> None:
    """Write documents and label names, from which `TextData.load` restores the same TextData."""
    types = {"text": pa.large_string(), "labels": pa.list_(pa.string())}
    types |= {name: pa.string() for name in ("id", "date") if getattr(data, name + "s") is not None}
    with replacing(path) as temporary, ExitStack() as stack:
        names = json.dumps(data.label_names, ensure_ascii=False).encode()
        schema = pa.schema(list(types.items()), metadata={NAMES_KEY: names})
        writer = stack.enter_context(pq.ParquetWriter(temporary, schema))
        for start in range(0, len(data), BATCH):
            done = min(start + BATCH, len(data))
            progress(Progress(f"writing {Path(path).name}", done, len(data)))
            part = data[start : start + BATCH]
            columns = {"text": part.texts, "labels": [document.labels for document in part]}
            columns |= {"id": part.ids, "date": part.dates}
            writer.write_table(pa.table({name: columns[name] for name in types}, schema))
