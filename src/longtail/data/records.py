"""Predictions as records with lists, written as CSV, TSV, JSON Lines or Parquet."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from longtail.data.formats import FORMATS, Format, format_of_file
from longtail.data.writing import Record, write_rows
from longtail.data.writing import json_line as json_line
from longtail.errors import DataError


def record_format(path: Path) -> Format:
    """Return the format of a file to write, by its suffix."""
    entry = format_of_file(path)
    if entry is None or not entry.write:
        suffixes = ", ".join(s for known in FORMATS.values() if known.write for s in known.suffixes)
        raise DataError(
            f"expected a file to write with one of the suffixes {suffixes}, got {path}."
        )
    return entry


def write_records(
    path: Path, name: Path, columns: Mapping[str, Any], records: Iterable[Record], separator: str
) -> None:
    """Write records to `path` in the format of the suffix of `name`, in bounded memory.

    Args:
        columns: names and types of the fields: str, list[str] or list[float].
        separator: of the values of a list in a CSV cell; a value that contains it is quoted.
    """
    cell = partial(_join, separator=separator)
    write_rows(path, name, record_format(name).name, columns, records, cell)


def check_separator(path: Path, names: Iterable[str], separator: str) -> None:
    """Raise if a label contains the separator, in a table whose cells cannot quote it."""
    if record_format(path).name in ("csv", "tsv"):
        _join(names, separator)


def _join(values: Iterable[Any], separator: str) -> str:
    """Join the values to a string, the inverse of `split_labels`."""
    if len(separator) > 1 or separator in '"\r\n':
        names = [str(value) for value in values]
        if ambiguous := [name for name in names if separator in name]:
            raise DataError(
                f"{ambiguous[0]!r} contains the separator {separator!r}. Choose another with "
                "--label-separator, or write .jsonl or .parquet."
            )
        return separator.join(names)
    row: str = csv.writer(
        SimpleNamespace(write=str), delimiter=separator, lineterminator=""
    ).writerow(values)
    return row
