"""From a record with named fields to a document: one set of rules for JSON, CSV, Parquet ..."""

from __future__ import annotations

import ast
import csv
import datetime
import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from longtail.data.documents import Document, Problem, ReadOptions
from longtail.data.files import undecodable
from longtail.errors import DataError

USUAL_SEPARATORS = ",;|\t\n"
# What repr gives for a list of strings; numpy's "['a' 'b']", which Python reads as 'ab', is not it.
_ESCAPE = r"\\(?:[\\'\"nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U00(?:0[0-9a-f]|10)[0-9a-f]{4})"
_QUOTED = rf"'(?:[^'\\\x00-\x1f]|{_ESCAPE})*'"
_STRING = f"(?:{_QUOTED}|{_QUOTED.replace(chr(39), chr(34))})"
PYTHON_LIST = re.compile(rf"\[\s*{_STRING}(?:\s*,\s*{_STRING})*\s*\]")
INDICATORS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}


class FieldError(ValueError):
    """A field that does not hold what it should; becomes a Problem of its record."""


def to_document(
    record: Mapping[str, Any], options: ReadOptions, at: int | str
) -> Document | Problem:
    """The document in a record, or what is wrong with it."""
    try:
        fields = [field.strip() for field in options.text_field.split(",")]
        text = "\n".join([_text(record, field) for field in fields])
        if options.label_columns is None:
            labels = _labels(record, options)
        else:
            labels = [n for n in label_columns(record, options) if _indicator(record, n)]
        identity = plain_value(record.get(options.id_field), options.id_field)
        date = plain_value(record.get(options.date_field), options.date_field)
    except FieldError as error:
        return Problem(at, str(error))
    return Document(text, labels, identity, date, at=at)


def check_columns(columns: Sequence[str], options: ReadOptions, source: object) -> None:
    """Raise if a table lacks a column that its documents need, before any row is read."""
    wanted = [field.strip() for field in options.text_field.split(",")]
    if options.label_columns is None:
        wanted.append(options.labels_field)
    else:
        try:
            label_columns(dict.fromkeys(columns), options)
        except FieldError as error:
            raise DataError(f"{source}: {error}") from error
    missing = [name for name in wanted if name not in columns]
    if missing:
        raise DataError(
            f"{source}: expected a column {missing[0]!r}, the columns are: "
            f"{', '.join(map(repr, columns)) or 'none'}. Name yours with text_field and "
            "labels_field (--text-field, --labels-field), or, if every label has a column of its "
            "own, with label_columns (--label-columns '*')."
        )
    twice = [name for name, count in Counter(columns).items() if count > 1]
    if twice:
        raise DataError(
            f"{source}: the column {twice[0]!r} stands there twice. Rename one of them."
        )


def needed_columns(columns: Sequence[str], options: ReadOptions) -> list[str]:
    """The columns that documents are made of; there may be others, large ones too."""
    needed = {field.strip() for field in options.text_field.split(",")}
    needed |= {options.id_field, options.date_field}
    if options.label_columns is None:
        needed.add(options.labels_field)
    else:
        needed.update(label_columns(dict.fromkeys(columns), options))
    return [name for name in columns if name in needed]


def label_columns(columns: Collection[str], options: ReadOptions) -> list[str]:
    """The columns that stand for a label each; `columns` should know its members by hash."""
    wanted = named_label_columns(options)
    if wanted is None:
        other = {field.strip() for field in options.text_field.split(",")}
        other |= {options.id_field, options.date_field}
        return [name for name in columns if name not in other]
    for name in wanted:
        if name not in columns:
            raise FieldError(
                f"label_columns names {name!r}, which is not there. The columns are: "
                f"{', '.join(map(repr, columns))}."
            )
    return wanted


def named_label_columns(options: ReadOptions) -> list[str] | None:
    """The label columns that the options name; None for all others, `*`, and for no columns."""
    if options.label_columns is None or options.label_columns.strip() == "*":
        return None
    return next(csv.reader([options.label_columns], skipinitialspace=True))


def split_labels(cell: str, separator: str) -> list[str]:
    """The labels of one string; a label that holds the separator stands in double quotes."""
    if len(separator) > 1 or separator in '"\r\n':
        names = cell.split(separator)
    else:
        try:
            rows = list(csv.reader([cell], delimiter=separator, skipinitialspace=True, strict=True))
        except csv.Error as error:
            raise FieldError(
                f"the labels {cell!r} cannot be split at {separator!r} ({error})."
            ) from error
        names = rows[0] if rows else []
    return [name.strip() for name in names if name.strip()]


def _text(record: Mapping[str, Any], field: str) -> str:
    text = record.get(field)
    if not isinstance(text, str):
        raise FieldError(
            f"expected a string in field {field!r}, got {_shown(text)}. The fields are: "
            f"{', '.join(map(str, record)) or 'none'}. Name yours with text_field (--text-field)."
        )
    if undecodable(text):
        raise FieldError(f"field {field!r} holds half of a surrogate pair, which is no character.")
    return text


def _labels(record: Mapping[str, Any], options: ReadOptions) -> Sequence[str]:
    field, separator = options.labels_field, options.label_separator
    labels = record.get(field)
    if isinstance(labels, str):
        if separator is None:
            raise FieldError(
                f"expected a list of strings in field {field!r}, got {_shown(labels)}. If one "
                "string holds several labels, name what stands between them with label_separator "
                "(--label-separator ';')."
            )
        labels = split_labels(labels, separator)
    if not isinstance(labels, (list, tuple)) or not all(isinstance(name, str) for name in labels):
        raise FieldError(
            f"expected a list of strings in field {field!r}, got {_shown(labels)}. The fields are: "
            f"{', '.join(map(str, record)) or 'none'}."
        )
    if any(undecodable(name) for name in labels):
        raise FieldError(f"a label in {field!r} holds half of a surrogate pair: {_shown(labels)}.")
    return labels


def cell_labels(cell: str, options: ReadOptions) -> list[str]:
    """The labels of one cell of a table: a list as JSON or Python writes it, or split.

    Without a separator a cell that might hold several labels is not guessed at.
    """
    if options.label_separator is not None:
        return split_labels(cell, options.label_separator)
    cell = cell.strip()
    if cell.startswith("[") and cell.endswith("]"):
        try:
            names = json.loads(cell)
        except (ValueError, RecursionError):
            names = ast.literal_eval(cell) if PYTHON_LIST.fullmatch(cell) else None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise FieldError(f"the labels {_shown(cell)} are not a list of strings.")
        return names
    if any(character in cell for character in USUAL_SEPARATORS):
        raise FieldError(
            f"the labels {_shown(cell)} may be one label or several. Name what stands between "
            "labels with label_separator (--label-separator ';')."
        )
    return [cell] if cell else []


def _indicator(record: Mapping[str, Any], column: str) -> bool:
    value = record[column]
    if value is None or (isinstance(value, str) and not value.strip()):
        return False
    found = INDICATORS.get(str(value).strip().lower())
    if found is None:
        raise FieldError(f"expected 0 or 1 in the label column {column!r}, got {_shown(value)}.")
    return found


def plain_value(value: Any, field: str) -> str | None:
    """An id or a date as a string; None where there is none."""
    if value is None or value == "":
        return None
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise FieldError(
            f"expected a string or a whole number in field {field!r}, got {_shown(value)}."
        )
    if isinstance(value, str) and undecodable(value):
        raise FieldError(f"field {field!r} holds half of a surrogate pair, which is no character.")
    return str(value)


def _shown(value: Any, limit: int = 60) -> str:
    try:
        text = repr(value)
    except RecursionError:
        text = f"a {type(value).__name__} nested very deeply"
    return text if len(text) <= limit else text[:limit] + "..."
