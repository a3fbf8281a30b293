"""Tables: CSV and TSV with a header, LibMultiLabel's TSV without one, and plain lines."""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path

from longtail.checks import has_surrogate
from longtail.data.documents import (
    Document,
    LabelNames,
    ReadOptions,
    Record,
    RecordError,
    Records,
    attempt,
)
from longtail.data.fields import check_columns, label_columns, split_labels, to_document
from longtail.data.files import Tick, line_records, open_lines, unreadable
from longtail.errors import DataError

QUOTES_ARE_TEXT = "If quotes are just text in this file, use quote='none' (--quote none)."


def _read_table(delimiter: str, path: Path, options: ReadOptions, tick: Tick) -> Records:
    """One record per row, with the labels in one cell or in one column each."""
    # Also what bounds a cell whose quote does not close; the default is 128 KiB.
    csv.field_size_limit(min(options.max_record, 2**31 - 1))
    columns: list[str] = []
    with open_lines(path, options, tick, newline="") as lines:
        rows = csv.reader(
            lines,
            delimiter=options.delimiter or delimiter,
            strict=True,
            quoting=csv.QUOTE_NONE if options.quote == "none" else csv.QUOTE_MINIMAL,
        )
        while True:
            first, row, fault = rows.line_num + 1, [], None
            try:
                row = next(rows)
                if any(map(has_surrogate, row)):
                    fault = unreadable("".join(row), options)
                elif columns and row and len(row) != len(columns):
                    fault = f"expected {len(columns)} cells as in the header, got {len(row)}."
            except StopIteration:
                return
            except csv.Error as error:
                upto = f", up to line {rows.line_num}," if rows.line_num > first else ""
                fault = f"not valid CSV{upto} ({error}). {QUOTES_ARE_TEXT}"
            if fault and not columns:
                raise DataError(f"{path}, line {first}: {fault}")
            if fault:
                yield RecordError(fault, first)
            elif row and not columns:
                columns = row
                check_columns(columns, options, path)
                yield LabelNames(tuple(label_columns(columns, options)))
            elif row:
                yield attempt(to_document, first, dict(zip(columns, row, strict=True)), options)


read_csv = partial(_read_table, ",")
read_tsv = partial(_read_table, "\t")


def _text(at: int, line: str, _: ReadOptions) -> Record:
    return Document(line.rstrip("\r\n"), (), at=at)


read_text = partial(line_records, parse=_text, blank=True)


def read_libmultilabel(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """One document per line: an id if there is one, the labels separated by spaces, the text."""
    yield from line_records(path, options, tick, partial(_line, widths=[]))


def _line(at: int, line: str, options: ReadOptions, widths: list[int]) -> Record:
    cells = line.rstrip("\r\n").split("\t", 3)
    if len(cells) not in (2, 3):
        raise RecordError(
            "expected two cells separated by tabs (labels, text) or three (id, labels, text), "
            f"got {line.count(chr(9)) + 1}. For other formats use format (--format)."
        )
    if not widths:
        widths.append(len(cells))
    if len(cells) != widths[0]:
        # A tab in the text would make an id of the labels.
        raise RecordError(f"expected {widths[0]} cells as before, got {len(cells)}.")
    identity = cells[0] or None if len(cells) == 3 else None
    separator = options.label_separator
    labels = cells[-2].split() if separator is None else split_labels(cells[-2], separator)
    return Document(cells[-1], labels, identity, at=at)
