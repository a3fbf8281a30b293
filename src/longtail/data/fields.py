"""Records with named fields as documents: one set of rules for JSON, CSV, Parquet and others."""

from __future__ import annotations

import ast
import csv
import datetime
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeGuard

from longtail.checks import has_surrogate
from longtail.data.documents import Document, ReadOptions, RecordError
from longtail.data.files import shown_names
from longtail.errors import DataError, did_you_mean, shown

TAB = "\t"
USUAL_DELIMITERS = (";", TAB, ",", "|")
USUAL_SEPARATORS = ",;|\t\n"
# The repr of a list of strings, but not numpy's "['a' 'b']", which Python reads as 'ab'.
# Possessive quantifiers reject other cells in linear time and memory.
_STRING = r"""(?:'(?:[^'\\\n]|\\[\\'"nrtxuU])*+'|"(?:[^"\\\n]|\\[\\'"nrtxuU])*+")"""
PYTHON_LIST = re.compile(rf"\[\s*+{_STRING}(?:\s*+,\s*+{_STRING})*+\s*+\]")
INDICATORS: dict[str, bool | None] = dict.fromkeys(("1", "1.0", "true"), True)
INDICATORS |= dict.fromkeys(("0", "0.0", "false", ""), False)
# Unknown; "none" is null in JSON or Parquet, as pandas writes NaN.
INDICATORS |= dict.fromkeys(("-1", "-1.0", "na", "nan", "?", "none"), None)


def to_document(
    at: int | str, record: Mapping[str, Any], options: ReadOptions, part: str | None = None
) -> Document:
    """Return the document of a record, or raise RecordError."""
    texts = []
    for field in options.text_fields:
        text = record.get(field)
        if not isinstance(text, str):
            got = shown(text) if field in record else "none"
            hint = _field_hint(field, record, options)
            raise RecordError(f"expected a string in field {field!r}, got {got}. {hint}")
        texts.append(whole_characters(text, field))
    known: Sequence[str] | None = None
    if options.label_columns is None:
        labels = _labels(record, options.labels_field, options)
        if options.known_field is not None and record.get(options.known_field) not in (None, ""):
            known = _labels(record, options.known_field, options)
    else:
        applies = {name: _indicator(record, name) for name in label_columns(record, options)}
        labels = [name for name, value in applies.items() if value]
        if None in applies.values():
            known = [name for name, value in applies.items() if value is not None]
    weight = _weight(record, options.weight_field)
    identity = plain_value(record.get(options.id_field), options.id_field)
    date = plain_value(record.get(options.date_field), options.date_field)
    return Document("\n".join(texts), labels, identity, date, part, at, known, weight)


def whole_characters(text: str, field: str) -> str:
    """Return the text; raise if it cannot be encoded as UTF-8."""
    if has_surrogate(text):
        raise RecordError(f"field {field!r} holds a lone surrogate: {shown(text)}.")
    return text


def check_columns(columns: Sequence[str], options: ReadOptions, source: object) -> list[str]:
    """Return the columns to read; raise before any row is read if one is missing."""
    unique, required = set(columns), [*options.text_fields, *label_columns(columns, options)]
    if options.label_columns is None and options.labels_field is not None:
        required.append(options.labels_field)
    for name in required:
        if name not in unique:
            hint = _field_hint(name, columns, options, "columns")
            raise DataError(f"{source}: expected a column {name!r}. {hint}")
    if "" in required:
        raise DataError(
            f"{source}: column {columns.index('') + 1} has no name (a pandas index?). Write the "
            "file with index=False, or name the label columns with label_columns "
            "(--label-columns 'a,b')."
        )
    if len(unique) < len(columns):
        (repeated, _), *_ = Counter(columns).most_common(1)
        raise DataError(f"{source}: the column {shown(repeated)} occurs twice. Rename one of them.")
    used = {*required, *options.other_fields}
    return [name for name in columns if name in used]


def _field_hint(
    name: str, names: Collection[str], options: ReadOptions, kind: str = "fields"
) -> str:
    """Return the fields that there are, and how to name the right one."""
    there = f"The {kind} are: {shown_names(names)}."
    other = next((d for d in USUAL_DELIMITERS if len(names) == 1 and d in next(iter(names))), None)
    if kind == "columns" and other is not None:
        flag = f"--delimiter {'$' * (other == TAB)}{other!r}"
        return f"{there} If cells are separated by {other!r}, pass {flag}."
    if name in names:
        return there
    hint = did_you_mean(name, names) + there
    flags = ["--text-field text"] if "text" in names and options.text_field != "text" else []
    if "labels" in names and options.labels_field not in (None, "labels"):
        flags.append("--labels-field labels")
    if flags:
        return f"{hint} Pass {' '.join(flags)}."
    if kind == "fields" and name not in options.text_fields:
        return f"{hint} Name yours with labels_field (--labels-field)."
    if kind == "fields" or options.label_columns is None is options.labels_field:
        return f"{hint} Name yours with text_field (--text-field)."
    return (
        f"{hint} Name yours with text_field and labels_field (--text-field, --labels-field), or, "
        "if every label has its own column, with label_columns (--label-columns '*')."
    )


def label_columns(columns: Iterable[str], options: ReadOptions) -> list[str]:
    """Return the columns that hold one label each; none if one field holds all labels."""
    if options.label_columns is None:
        return []
    if options.label_columns.strip() == "*":
        others = {*options.text_fields, *options.other_fields}
        return [name for name in columns if name not in others]
    return next(csv.reader([options.label_columns], skipinitialspace=True))


def split_labels(cell: str, separator: str) -> list[str]:
    """Split a string into labels, stripped and without empty ones.

    A label that contains the separator is in double quotes.
    """
    if len(separator) > 1 or separator in '"\r\n':
        names = cell.split(separator)
    else:
        try:
            names = next(
                csv.reader([cell], delimiter=separator, skipinitialspace=True, strict=True)
            )
        except csv.Error as error:
            message = f"the labels {shown(cell)} cannot be split at {separator!r} ({error})."
            raise RecordError(message) from error
    return [stripped for name in names if (stripped := name.strip())]


def _labels(record: Mapping[str, Any], field: str | None, options: ReadOptions) -> list[str]:
    separator = options.label_separator
    if field is None:
        return []
    labels = record.get(field)
    if isinstance(labels, str):
        # `write_data` writes lists into tables, which are read with any separator.
        if separator is None or PYTHON_LIST.fullmatch(labels.strip()):
            labels = cell_labels(labels)
        else:
            labels = split_labels(labels, separator)
    if not is_strings(labels):
        got = shown(labels) if field in record else "none"
        hint = _field_hint(field, record, options)
        raise RecordError(f"expected a list of strings in field {field!r}, got {got}. {hint}")
    whole_characters(" ".join(labels), field)
    return labels


def is_strings(value: Any) -> TypeGuard[list[str]]:
    """Return whether a value is a list of strings."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def cell_labels(cell: str) -> list[str]:
    """Return the labels of a string without a separator: a JSON or Python list, or one label.

    Raises for any other string that may hold several labels.
    """
    cell = cell.strip()
    if cell.startswith("[") and cell.endswith("]"):
        names = None
        try:
            names = json.loads(cell)
        except (ValueError, RecursionError):
            with suppress(ValueError, SyntaxError):
                names = ast.literal_eval(cell) if PYTHON_LIST.fullmatch(cell) else None
        if not is_strings(names):
            raise RecordError(f"the labels {shown(cell)} are not a list of strings.")
        return names
    if any(character in cell for character in USUAL_SEPARATORS):
        raise RecordError(
            f"the labels {shown(cell)} may be one label or several. Name their separator with "
            "label_separator (--label-separator ';')."
        )
    return [cell] if cell else []


def _indicator(record: Mapping[str, Any], column: str) -> bool | None:
    """Return whether a label applies; None if unknown."""
    if column not in record:
        raise RecordError(f"expected a label column {column!r}, got: {shown_names(record)}.")
    value = str(record[column]).strip().lower()
    if value not in INDICATORS:
        raise RecordError(
            f"expected 0, 1, or ? for unknown in the label column {column!r}, got "
            f"{shown(record[column])}. If it is not a label, name the label columns "
            f"(--label-columns 'a,b'), or, if it holds the ids, name it with id_field "
            f"(--id-field {column})."
        )
    return INDICATORS[value]


def _weight(record: Mapping[str, Any], field: str | None) -> float | None:
    value = None if field is None else record.get(field)
    if value is None or value == "":
        return None
    try:
        weight = float(value)
    except (TypeError, ValueError):
        weight = math.nan
    if not 0 <= weight < math.inf:
        message = f"expected a weight of at least 0 in field {field!r}, got {shown(value)}."
        raise RecordError(message)
    return weight


def plain_value(value: Any, field: str) -> str | None:
    """Return an id or date as a string; None if the record has none."""
    if value is None or value == "":
        return None
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        message = f"expected a string or a whole number in field {field!r}, got {shown(value)}."
        raise RecordError(message)
    return whole_characters(str(value), field)
