"""Records with lists in their fields, such as predictions, as CSV, TSV, JSON Lines or Parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from longtail.data.arrow import BATCH
from longtail.data.files import text_file
from longtail.data.formats import FORMATS, Format, format_of_file
from longtail.errors import DataError

Record = Mapping[str, Any]
TYPES = {
    str: pa.large_string(),
    list[str]: pa.list_(pa.string()),
    list[float]: pa.list_(pa.float64()),
}


def record_format(path: Path) -> Format:
    """The format that the suffix of a file to write names."""
    entry = format_of_file(path)
    if entry is None or entry.write is None:
        suffixes = ", ".join(s for known in FORMATS.values() if known.write for s in known.suffixes)
        raise DataError(
            f"expected a file to write with one of the suffixes {suffixes}, got {path}."
        )
    return entry


def write_records(
    path: Path, name: Path, columns: Mapping[str, Any], records: Iterable[Record], separator: str
) -> None:
    """Write records to `path` in the format that the suffix of `name` says, in bounded memory.

    Args:
        columns: the names of the fields, and their types: str, list[str] or list[float].
        separator: between the values of a list in a cell of CSV; a value that holds it is quoted.
    """
    kind = record_format(name).name
    if kind == "parquet":
        schema = pa.schema([(column, TYPES[of]) for column, of in columns.items()])
        rows = iter(records)
        with pq.ParquetWriter(path, schema) as writer:
            while batch := list(islice(rows, BATCH)):
                writer.write_table(pa.Table.from_pylist(batch, schema))
        return
    with text_file(path, name) as file:
        if kind == "jsonl":
            file.writelines(json_line(record) for record in records)
        else:
            delimiter = "\t" if kind == "tsv" else ","
            file.writelines(_table_lines(columns, records, delimiter, separator))


def json_line(record: Record) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


def check_separator(path: Path, names: Iterable[str], separator: str) -> None:
    """Raise if the labels of a table could not be told apart."""
    if record_format(path).name in ("csv", "tsv"):
        _join(names, separator)


def _table_lines(
    columns: Iterable[str], records: Iterable[Record], delimiter: str, separator: str
) -> Iterator[str]:
    # csv's writer returns what the file's `write` returns.
    table = csv.writer(SimpleNamespace(write=str), delimiter=delimiter)
    names = list(columns)
    yield table.writerow(names)
    for record in records:
        cells = (record[name] for name in names)
        yield table.writerow(
            [_join(cell, separator) if isinstance(cell, list) else cell for cell in cells]
        )


def _join(values: Iterable[Any], separator: str) -> str:
    """One string, of which `split_labels` makes the same list again."""
    if len(separator) > 1 or separator in '"\r\n':
        names = [str(value) for value in values]
        if odd := [name for name in names if separator in name]:
            raise DataError(
                f"{odd[0]!r} holds the separator {separator!r}. Choose another one with "
                "--label-separator, or write .jsonl or .parquet."
            )
        return separator.join(names)
    row: str = csv.writer(
        SimpleNamespace(write=str), delimiter=separator, lineterminator=""
    ).writerow(values)
    return row
