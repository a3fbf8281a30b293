"""Tables: CSV and TSV with a header, and LibMultiLabel's TSV without one."""

from __future__ import annotations

import csv
import json
from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal

from longtail.checks import has_surrogate
from longtail.data.documents import Document, LabelNames, Problem, ReadOptions, Records
from longtail.data.fields import FieldError, check_columns, label_columns, split_labels, to_document
from longtail.data.files import (
    Tick,
    counted,
    numbered_lines,
    open_text,
    writing,
    wrong_encoding,
)
from longtail.data.limits import TOO_LONG, bounded_lines, too_large
from longtail.data.textdata import TextData
from longtail.errors import DataError, InputError
from longtail.progress import OnProgress, ignore

# The csv module refuses cells over 128 KiB by default; a text may well be longer.
LONGEST_CELL = 2**31 - 1
# How often all of a file, or how many characters of a small one, may be read again to recover the
# rows that a stray quote has swallowed.
MOST_AGAIN, CHEAP_AGAIN = 8, 1 << 20
QUOTES_ARE_TEXT = "If quotes are just text in this file, use quote='none' (--quote none)."


class _TooLongError(Exception):
    """A line or a row over the limit."""


class _Lines:
    """Lines for the csv module, which can return to the second line of a row.

    A row that began with a stray quote may have swallowed others, up to the end of the file.
    """

    def __init__(self, lines: Iterator[str], limit: int) -> None:
        self._lines, self._limit = lines, limit
        self._again: deque[str] = deque()
        self._row: list[str] = []
        self._size = self._n_read = self._n_again = 0
        self.first = 1
        """The number of the line on which the row begins."""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self._again:
            line = self._again.popleft()
        else:
            line = next(self._lines)
            self._n_read += len(line)
        self._row.append(line)
        self._size += len(line)
        if line is TOO_LONG or self._size > self._limit:
            raise _TooLongError(len(self._row))
        return line

    def next_row(self, failed: bool) -> bool:
        """Go to the next row, or line of a failed row; False if that would be quadratic."""
        n_taken = 1 if failed else len(self._row)
        if len(self._row) > n_taken:
            self._again.extendleft(reversed(self._row[n_taken:]))
            self._n_again += self._size
        self.first += n_taken
        self._row.clear()
        self._size = 0
        return self._n_again <= MOST_AGAIN * self._n_read + CHEAP_AGAIN


def _read_table(delimiter: str, path: Path, options: ReadOptions, tick: Tick) -> Records:
    """One record per row, with the labels in one cell or in one column each."""
    csv.field_size_limit(LONGEST_CELL)
    columns: list[str] = []
    quoting: Literal[0, 3] = csv.QUOTE_NONE if options.quote == "none" else csv.QUOTE_MINIMAL
    with open_text(path, options.encoding, tick, newline="") as file:
        lines = _Lines(bounded_lines(file, options.max_record, "\r\n"), options.max_record)
        separator = options.delimiter or delimiter
        rows = csv.reader(lines, delimiter=separator, strict=True, quoting=quoting)
        while True:
            row, message = _next_row(rows, options)
            if row is None:
                return
            if message is not None and not columns:
                raise DataError(f"{path}, line {lines.first}: {message}")
            if message is not None:
                yield Problem(lines.first, message)
            elif row and not columns:
                columns = row
                check_columns(columns, options, path)
                yield LabelNames(tuple(label_columns(columns, options)))
            elif row:
                yield _row(columns, row, options, lines.first)
            if not lines.next_row(failed=message is not None and not row):
                yield Problem(
                    f"from line {lines.first}",
                    f"the rest was not read: too many quotes do not close. {QUOTES_ARE_TEXT}",
                )
                return


def _next_row(
    rows: Iterator[list[str]], options: ReadOptions
) -> tuple[list[str] | None, str | None]:
    """The cells of the next row, None at the end; and what is wrong with it."""
    try:
        row = next(rows, None)
    except csv.Error as error:
        return [], f"not valid CSV ({error}). {QUOTES_ARE_TEXT}"
    except _TooLongError as error:
        if error.args[0] == 1:
            return [], too_large("the line", options.max_record)
        return [], f"{too_large('the row', options.max_record)} {QUOTES_ARE_TEXT}"
    if row is not None and any(has_surrogate(cell) for cell in row):
        return row, wrong_encoding(options.encoding)
    return row, None


def _row(columns: list[str], row: list[str], options: ReadOptions, at: int) -> Document | Problem:
    if len(row) != len(columns):
        return Problem(at, f"expected {len(columns)} cells as in the header, got {len(row)}.")
    return to_document(dict(zip(columns, row, strict=True)), options, at, cells=True)


read_csv = partial(_read_table, ",")
read_tsv = partial(_read_table, "\t")


def _write_table(
    delimiter: str, data: TextData, path: str | Path, progress: OnProgress = ignore
) -> None:
    """Write a table with the labels of a document as a JSON list in one cell."""
    with writing(path) as file:
        table = csv.writer(file, delimiter=delimiter)
        fields = [name for name in ("id", "date") if getattr(data, name + "s") is not None]
        table.writerow([*fields, "text", "labels"])
        for document in counted(data, path, progress):
            labels = json.dumps(list(document.labels), ensure_ascii=False)
            table.writerow([*(getattr(document, n) for n in fields), document.text, labels])


write_csv = partial(_write_table, ",")
write_tsv = partial(_write_table, "\t")


def read_libmultilabel(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """One document per line: an id if there is one, the labels separated by spaces, the text."""
    n_cells = 0
    for number, line in numbered_lines(path, options, tick):
        if isinstance(line, Problem):
            yield line
            continue
        cells = line.rstrip("\r\n").split("\t", 3)
        if len(cells) not in (2, 3):
            yield Problem(
                number,
                "expected two cells separated by tabs (labels, text) or three (id, labels, text), "
                f"got {line.count(chr(9)) + 1}. For other formats use format (--format).",
            )
            continue
        n_cells = n_cells or len(cells)
        if len(cells) != n_cells:
            # A tab in the text would make an id of the labels.
            yield Problem(number, f"expected {n_cells} cells as before, got {len(cells)}.")
            continue
        yield _line(cells, options, number)


def _line(cells: list[str], options: ReadOptions, at: int) -> Document | Problem:
    identity = cells[0] or None if len(cells) == 3 else None
    labels, n_empty = cells[-2].split(), 0
    if options.label_separator is not None:
        try:
            labels, n_empty = split_labels(cells[-2], options.label_separator)
        except FieldError as error:
            return Problem(at, str(error))
    return Document(cells[-1], labels, identity, at=at, n_empty_labels=n_empty)


def write_libmultilabel(data: TextData, path: str | Path, progress: OnProgress = ignore) -> None:
    """Write id, labels and text separated by tabs; labels must not hold white space.

    White space in a text becomes one space; dates are not written.
    """
    for name in data.label_names:
        if not name or any(character.isspace() for character in name):
            raise InputError(
                f"the label {name!r} holds white space, which separates labels in LibMultiLabel's "
                "format. Write JSONL or Parquet, or rename the label."
            )
    with writing(path) as file:
        for row, document in enumerate(counted(data, path, progress)):
            identity = str(row) if document.id is None else " ".join(document.id.split())
            text = " ".join(document.text.split())
            file.write(f"{identity}\t{' '.join(document.labels)}\t{text}\n")
