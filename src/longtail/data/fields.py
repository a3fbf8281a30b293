"""From a record with named fields to a document: one set of rules for JSON, CSV, Parquet ..."""

from __future__ import annotations

import ast
import csv
import datetime
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from longtail.checks import has_surrogate
from longtail.data.documents import Document, ReadOptions, Record, RecordError, reports_problems
from longtail.data.limits import has_many_items, shown, shown_names, too_large
from longtail.errors import DataError, InputError

USUAL_SEPARATORS = ",;|\t\n"
# The repr of a list of strings; numpy's "['a' 'b']", which Python reads as 'ab', does not match.
_ESCAPE = r"\\(?:[\\'\"nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U00(?:0[0-9a-f]|10)[0-9a-f]{4})"
# Possessive, here and below: a cell that is no list is rejected in linear time and memory.
_QUOTED = rf"'(?:[^'\\\x00-\x1f]|{_ESCAPE})*+'"
_STRING = f"(?:{_QUOTED}|{_QUOTED.replace(chr(39), chr(34))})"
PYTHON_STRING = re.compile(_STRING)
PYTHON_LIST = re.compile(rf"\[\s*+{_STRING}(?:\s*+,\s*+{_STRING})*+\s*+\]")
INDICATORS = dict.fromkeys(("1", "1.0", "true"), True)
INDICATORS |= dict.fromkeys(("0", "0.0", "false", ""), False)
NO_CHARACTER = "half of a surrogate pair, which is no character."


@reports_problems
def to_document(
    at: int | str,
    record: Mapping[str, Any],
    options: ReadOptions,
    cells: bool = False,
    part: str | None = None,
) -> Record:
    """The document in a record.

    `cells`: a string of labels is the cell of a table, see `cell_labels`.
    """
    texts = []
    for field in options.text_fields:
        text = record.get(field)
        if not isinstance(text, str):
            raise RecordError(
                f"expected a string in field {field!r}, got {shown(text)}. The fields are: "
                f"{shown_names(record)}. Name yours with text_field (--text-field)."
            )
        texts.append(_whole_characters(text, field))
    if options.label_columns is None:
        labels, n_empty = _labels(record, options, cells)
    else:
        labels = [n for n in label_columns(record, options) if _indicator(record, n)]
        n_empty = 0
    identity = plain_value(record.get(options.id_field), options.id_field)
    date = plain_value(record.get(options.date_field), options.date_field)
    return Document("\n".join(texts), labels, identity, date, part, at, n_empty)


def _whole_characters(text: str, field: str) -> str:
    if has_surrogate(text):
        raise RecordError(f"field {field!r} holds {NO_CHARACTER}")
    return text


def check_columns(columns: Sequence[str], options: ReadOptions, source: object) -> list[str]:
    """The columns that documents are made of; raises if one is missing, before any row is read."""
    there = set(columns)
    for name in label_columns(columns, options):
        if name not in there:
            raise DataError(f"{source}: {_no_label_column(name, columns)}")
    in_one_field = [options.labels_field] if options.label_columns is None else []
    for name in options.text_fields + in_one_field:
        if name not in there:
            raise DataError(
                f"{source}: expected a column {name!r}, the columns are: {shown_names(columns)}. "
                "Name yours with text_field and labels_field (--text-field, --labels-field), or, "
                "if every label has its own column, with label_columns (--label-columns '*')."
            )
    name, count = Counter(columns).most_common(1)[0]
    if count > 1:
        raise DataError(f"{source}: the column {shown(name)} occurs twice. Rename one of them.")
    used = used_fields(columns, options)
    return [name for name in columns if name in used]


def used_fields(columns: Iterable[str], options: ReadOptions) -> set[str]:
    """The fields that documents are made of; there may be others, large ones too."""
    used = {*options.text_fields, options.id_field, options.date_field}
    return used.union(label_columns(columns, options) or [options.labels_field])


def label_columns(columns: Iterable[str], options: ReadOptions) -> list[str]:
    """The columns that stand for a label each; none if one field holds all labels."""
    if options.label_columns is None:
        return []
    if options.label_columns.strip() == "*":
        others = {*options.text_fields, options.id_field, options.date_field}
        return [name for name in columns if name not in others]
    try:
        return next(csv.reader([options.label_columns], skipinitialspace=True))
    except csv.Error as error:
        raise InputError(
            f"label_columns must be names with commas between them ({error}), got "
            f"{shown(options.label_columns)}."
        ) from error


def _no_label_column(name: str, columns: Iterable[str]) -> str:
    return (
        f"label_columns names {name!r}, which is not there. The columns are: "
        f"{shown_names(columns)}."
    )


def split_labels(cell: str, separator: str) -> tuple[list[str], int]:
    """The labels of one string, and how many empty ones between separators were left out.

    White space around a label is no part of it. A label that holds the separator is in double
    quotes.
    """
    if len(separator) > 1 or separator in '"\r\n':
        names = cell.split(separator)
    else:
        try:
            rows = list(csv.reader([cell], delimiter=separator, skipinitialspace=True, strict=True))
        except csv.Error as error:
            raise RecordError(
                f"the labels {shown(cell)} cannot be split at {separator!r} ({error})."
            ) from error
        names = rows[0] if rows else []
    kept = [stripped for name in names if (stripped := name.strip())]
    return kept, len(names) - len(kept) if len(names) > 1 else 0


def _labels(
    record: Mapping[str, Any], options: ReadOptions, cells: bool
) -> tuple[Sequence[str], int]:
    field, separator = options.labels_field, options.label_separator
    labels, n_empty = record.get(field), 0
    if isinstance(labels, str) and separator is not None:
        labels, n_empty = split_labels(labels, separator)
    elif isinstance(labels, str) and cells:
        labels = cell_labels(labels, options.max_record)
    if not is_strings(labels):
        hint = (
            "If one string holds several labels, name what is between them with label_separator "
            "(--label-separator ';')."
            if isinstance(labels, str)
            else f"The fields are: {shown_names(record)}."
        )
        raise RecordError(
            f"expected a list of strings in field {field!r}, got {shown(labels)}. {hint}"
        )
    if any(map(has_surrogate, labels)):
        raise RecordError(f"a label in {field!r} holds half of a surrogate pair: {shown(labels)}.")
    return labels, n_empty


def is_strings(value: Any) -> TypeGuard[list[str]]:
    """Whether a value is a list of strings."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def cell_labels(cell: str, limit: int) -> list[str]:
    """The labels of one cell of a table without a separator: one label, or a list of them as JSON
    or Python writes it. A cell that might hold several labels otherwise is an error."""
    cell = cell.strip()
    if cell.startswith("[") and cell.endswith("]"):
        if has_many_items(cell, limit):
            raise RecordError(too_large("the list of labels", limit))
        try:
            names = json.loads(cell)
        except (ValueError, RecursionError):
            names = None
            if PYTHON_LIST.fullmatch(cell):
                # One string at a time: the syntax tree of a whole list takes 100 times its size.
                strings = PYTHON_STRING.findall(cell)
                names = [ast.literal_eval(s) if "\\" in s else s[1:-1] for s in strings]
        if not is_strings(names):
            raise RecordError(f"the labels {shown(cell)} are not a list of strings.")
        return names
    if any(character in cell for character in USUAL_SEPARATORS):
        raise RecordError(
            f"the labels {shown(cell)} may be one label or several. Name what is between labels "
            "with label_separator (--label-separator ';')."
        )
    return [cell] if cell else []


def _indicator(record: Mapping[str, Any], column: str) -> bool:
    if column not in record:
        raise RecordError(_no_label_column(column, record))
    value = "" if record[column] is None else record[column]
    indicator = INDICATORS.get(str(value).strip().lower())
    if indicator is None:
        raise RecordError(f"expected 0 or 1 in the label column {column!r}, got {shown(value)}.")
    return indicator


def plain_value(value: Any, field: str) -> str | None:
    """An id or a date as a string; None where there is none."""
    if value is None or value == "":
        return None
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise RecordError(
            f"expected a string or a whole number in field {field!r}, got {shown(value)}."
        )
    return _whole_characters(str(value), field)
