"""Tables: CSV and TSV with a header, LibMultiLabel's TSV without one, and plain lines."""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path

from longtail.checks import has_surrogate
from longtail.data.documents import (
    Document,
    FieldNames,
    LabelNames,
    ReadOptions,
    Record,
    RecordError,
    Records,
    attempt,
)
from longtail.data.fields import TAB, check_columns, label_columns, split_labels, to_document
from longtail.data.files import Tick, line_records, open_lines, unreadable
from longtail.errors import DataError

QUOTES_ARE_TEXT = "If quotes are plain text in this file, use quote='none' (--quote none)."


def _read_table(delimiter: str, path: Path, options: ReadOptions, tick: Tick) -> Records:
    """Read one record per row, with the labels in one cell or in one column each."""
    # Bounds a cell whose quote is not closed; the default is 128 KiB.
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
                last = f", up to line {rows.line_num}," if rows.line_num > first else ""
                fault = f"not valid CSV{last} ({error}). {QUOTES_ARE_TEXT}"
            if fault and not columns:
                raise DataError(f"{path}, line {first}: {fault}")
            if fault:
                yield RecordError(fault, first)
            elif row and not columns:
                columns = row
                check_columns(columns, options, path)
                yield FieldNames(columns)
                yield LabelNames(tuple(label_columns(columns, options)))
            elif row:
                yield attempt(to_document, first, dict(zip(columns, row, strict=True)), options)


read_csv = partial(_read_table, ",")
read_tsv = partial(_read_table, TAB)


def read_text(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """Read one text per line, without labels."""
    yield from line_records(
        path,
        options,
        tick,
        lambda at, line, _: Document(line.rstrip("\r\n"), (), at=at),
        blank=True,
    )


def read_libmultilabel(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """Read one document per line: an optional id, the labels separated by spaces, the text."""
    n_cells = 0

    def parse(at: int, line: str, options: ReadOptions) -> Record:
        nonlocal n_cells
        cells = line.rstrip("\r\n").split("\t", 3)
        if len(cells) not in (2, 3):
            raise RecordError(
                "expected two cells separated by tabs (labels, text) or three (id, labels, text), "
                f"got {line.count(TAB) + 1}. For other formats use format (--format)."
            )
        n_cells = n_cells or len(cells)
        if len(cells) != n_cells:
            # A tab in the text would turn the labels into an id.
            raise RecordError(f"expected {n_cells} cells as before, got {len(cells)}.")
        identity = cells[0] or None if len(cells) == 3 else None
        separator = options.label_separator
        labels = cells[-2].split() if separator is None else split_labels(cells[-2], separator)
        return Document(cells[-1], labels, identity, at=at)

    yield from line_records(path, options, tick, parse)
