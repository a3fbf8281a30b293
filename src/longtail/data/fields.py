"""From a record with named fields to a document: one set of rules for JSON, CSV, Parquet ..."""

from __future__ import annotations

import csv
import datetime
import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from longtail.data.documents import Document, Problem, ReadOptions
from longtail.data.files import undecodable
from longtail.data.limits import shown, shown_names
from longtail.errors import DataError, InputError

USUAL_SEPARATORS = ",;|\t\n"
# What repr gives for a list of strings; numpy's "['a' 'b']", which Python reads as 'ab', is not it.
_ESCAPE = r"\\(?:[\\'\"nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U00(?:0[0-9a-f]|10)[0-9a-f]{4})"
# Possessive, here and below: a cell that is no list is given up in linear time and memory.
_QUOTED = rf"'(?:[^'\\\x00-\x1f]|{_ESCAPE})*+'"
_STRING = f"(?:{_QUOTED}|{_QUOTED.replace(chr(39), chr(34))})"
PLAIN_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_ESCAPED = re.compile(_ESCAPE)
PYTHON_STRING = re.compile(_STRING)
PYTHON_LIST = re.compile(rf"\[\s*+{_STRING}(?:\s*+,\s*+{_STRING})*+\s*+\]")
INDICATORS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}


class FieldError(ValueError):
    """A field that does not hold what it should; becomes a Problem of its record."""


def to_document(
    record: Mapping[str, Any], options: ReadOptions, at: int | str, cells: bool = False
) -> Document | Problem:
    """The document in a record, or what is wrong with it.

    `cells`: a string of labels is the cell of a table, see `cell_labels`.
    """
    n_empty = 0
    try:
        fields = [field.strip() for field in options.text_field.split(",")]
        text = "\n".join([_text(record, field) for field in fields])
        if options.label_columns is None:
            labels, n_empty = _labels(record, options, cells)
        else:
            labels = [n for n in label_columns(record, options) if _indicator(record, n)]
        identity = plain_value(record.get(options.id_field), options.id_field)
        date = plain_value(record.get(options.date_field), options.date_field)
    except FieldError as error:
        return Problem(at, str(error))
    return Document(text, labels, identity, date, None, at, n_empty)


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
            f"{shown_names(columns)}. Name yours with text_field and "
            "labels_field (--text-field, --labels-field), or, if every label has a column of its "
            "own, with label_columns (--label-columns '*')."
        )
    twice = [name for name, count in Counter(columns).items() if count > 1]
    if twice:
        raise DataError(
            f"{source}: the column {shown(twice[0])} stands there twice. Rename one of them."
        )


def used_fields(columns: Collection[str], options: ReadOptions) -> set[str]:
    """The fields that documents are made of; `columns` should know its members by hash."""
    used = {field.strip() for field in options.text_field.split(",")}
    used |= {options.id_field, options.date_field}
    if options.label_columns is None:
        used.add(options.labels_field)
    else:
        used.update(label_columns(columns, options))
    return used


def needed_columns(columns: Sequence[str], options: ReadOptions) -> list[str]:
    """The columns that documents are made of; there may be others, large ones too."""
    needed = used_fields(dict.fromkeys(columns), options)
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
                f"{shown_names(columns)}."
            )
    return wanted


def named_label_columns(options: ReadOptions) -> list[str] | None:
    """The label columns that the options name; None for all others, `*`, and for no columns."""
    if options.label_columns is None or options.label_columns.strip() == "*":
        return None
    try:
        return next(csv.reader([options.label_columns], skipinitialspace=True))
    except csv.Error as error:
        raise InputError(
            f"label_columns must be names with commas between them ({error}), got "
            f"{shown(options.label_columns)}."
        ) from error


def split_labels(cell: str, separator: str) -> tuple[list[str], int]:
    """The labels of one string, and how many empty ones between separators were left out.

    White space around a label is no part of it. A label that holds the separator stands in double
    quotes.
    """
    if len(separator) > 1 or separator in '"\r\n':
        names = cell.split(separator)
    else:
        try:
            rows = list(csv.reader([cell], delimiter=separator, skipinitialspace=True, strict=True))
        except csv.Error as error:
            raise FieldError(
                f"the labels {shown(cell)} cannot be split at {separator!r} ({error})."
            ) from error
        names = rows[0] if rows else []
    kept = [stripped for name in names if (stripped := name.strip())]
    return kept, len(names) - len(kept) if len(names) > 1 else 0


def _text(record: Mapping[str, Any], field: str) -> str:
    text = record.get(field)
    if not isinstance(text, str):
        raise FieldError(
            f"expected a string in field {field!r}, got {shown(text)}. The fields are: "
            f"{shown_names(record)}. Name yours with text_field (--text-field)."
        )
    if undecodable(text):
        raise FieldError(f"field {field!r} holds half of a surrogate pair, which is no character.")
    return text


def _labels(
    record: Mapping[str, Any], options: ReadOptions, cells: bool
) -> tuple[Sequence[str], int]:
    field, separator = options.labels_field, options.label_separator
    labels, n_empty = record.get(field), 0
    if isinstance(labels, str):
        if cells:
            labels, n_empty = cell_labels(labels, options)
        elif separator is not None:
            labels, n_empty = split_labels(labels, separator)
        else:
            raise FieldError(
                f"expected a list of strings in field {field!r}, got {shown(labels)}. If one "
                "string holds several labels, name what stands between them with label_separator "
                "(--label-separator ';')."
            )
    if not isinstance(labels, (list, tuple)) or not all(isinstance(name, str) for name in labels):
        raise FieldError(
            f"expected a list of strings in field {field!r}, got {shown(labels)}. The fields are: "
            f"{shown_names(record)}."
        )
    if any(undecodable(name) for name in labels):
        raise FieldError(f"a label in {field!r} holds half of a surrogate pair: {shown(labels)}.")
    return labels, n_empty


def cell_labels(cell: str, options: ReadOptions) -> tuple[list[str], int]:
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
            names = _python_list(cell)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise FieldError(f"the labels {shown(cell)} are not a list of strings.")
        return names, 0
    if any(character in cell for character in USUAL_SEPARATORS):
        raise FieldError(
            f"the labels {shown(cell)} may be one label or several. Name what stands between "
            "labels with label_separator (--label-separator ';')."
        )
    return ([cell] if cell else []), 0


def _python_list(cell: str) -> list[str] | None:
    """The strings of a list as Python writes it; None if it is none.

    One string at a time: the tree that Python makes of a whole list takes 100 times its size.
    """
    if not PYTHON_LIST.fullmatch(cell):
        return None
    strings = PYTHON_STRING.findall(cell)
    return [_ESCAPED.sub(_unescaped, one[1:-1]) if "\\" in one else one[1:-1] for one in strings]


def _unescaped(escape: re.Match[str]) -> str:
    kind = escape[0][1]
    return chr(int(escape[0][2:], 16)) if kind in "xuU" else PLAIN_ESCAPES.get(kind, kind)


def _indicator(record: Mapping[str, Any], column: str) -> bool:
    value = record[column]
    if value is None or (isinstance(value, str) and not value.strip()):
        return False
    found = INDICATORS.get(str(value).strip().lower())
    if found is None:
        raise FieldError(f"expected 0 or 1 in the label column {column!r}, got {shown(value)}.")
    return found


def plain_value(value: Any, field: str) -> str | None:
    """An id or a date as a string; None where there is none."""
    if value is None or value == "":
        return None
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise FieldError(
            f"expected a string or a whole number in field {field!r}, got {shown(value)}."
        )
    if isinstance(value, str) and undecodable(value):
        raise FieldError(f"field {field!r} holds half of a surrogate pair, which is no character.")
    return str(value)
