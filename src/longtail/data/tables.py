"""Tables: CSV and TSV with a header, and LibMultiLabel's TSV without one."""

from __future__ import annotations

import csv
import json
from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from longtail.data.documents import Document, LabelNames, Problem, ReadOptions, Records
from longtail.data.fields import (
    FieldError,
    check_columns,
    label_columns,
    split_labels,
    to_document,
)
from longtail.data.files import (
    Tick,
    Written,
    counted,
    open_text,
    undecodable,
    writing,
    wrong_encoding,
)
from longtail.data.limits import TOO_LONG, bounded_lines, too_large
from longtail.data.textdata import TextData
from longtail.errors import DataError, InputError

# The csv module refuses cells over 128 KiB unless told otherwise; a text may well be longer.
LONGEST_CELL = 2**31 - 1
# How often all of a file may be read once more to find the rows that a stray quote has swallowed,
# and how many characters of a small file.
MOST_AGAIN, CHEAP_AGAIN = 8, 1 << 20
QUOTES_ARE_TEXT = "If quotes are just text in this file, say so with quote='none' (--quote none)."


class _TooLongError(Exception):
    """A line or a row over the limit."""


class _Lines:
    """Lines for the csv module. A row that began with a stray quote may have swallowed others:

    `next_row` after an error gives all of its lines but the first once more.
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
        """Go to the next row; False if quotes that never close make that too long a way."""
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
    columns: list[str] | None = None
    with open_text(path, options.encoding, tick, newline="") as file:
        lines = _Lines(bounded_lines(file, options.max_record, "\r\n"), options.max_record)
        separator = options.delimiter or delimiter
        if options.quote == "none":
            rows = csv.reader(lines, delimiter=separator, strict=True, quoting=csv.QUOTE_NONE)
        else:
            rows = csv.reader(lines, delimiter=separator, strict=True)
        while True:
            row, why = _next_row(rows, options)
            if row is None:
                return
            if why is not None and columns is None:
                raise DataError(f"{path}, line {lines.first}: {why}")
            if why is not None:
                yield Problem(lines.first, why)
            elif columns is None and row:
                columns = row
                check_columns(columns, options, path)
                if options.label_columns is not None:
                    yield LabelNames(tuple(label_columns(dict.fromkeys(columns), options)))
            elif columns is not None and row:
                yield _row(columns, row, options, lines.first)
            if not lines.next_row(failed=why is not None and not row):
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
        spanning = error.args[0] > 1
        why = too_large("the row" if spanning else "the line", options.max_record)
        return [], f"{why} {QUOTES_ARE_TEXT}" if spanning else why
    if row is not None and any(undecodable(cell) for cell in row):
        return row, wrong_encoding(options.encoding)
    return row, None


def _row(columns: list[str], row: list[str], options: ReadOptions, at: int) -> Document | Problem:
    if len(row) != len(columns):
        return Problem(at, f"expected {len(columns)} cells as in the header, got {len(row)}.")
    return to_document(dict(zip(columns, row, strict=True)), options, at, cells=True)


read_csv = partial(_read_table, ",")
read_tsv = partial(_read_table, "\t")


def _write_table(
    delimiter: str, data: TextData, path: str | Path, written: Written | None = None
) -> None:
    """Write a table with the labels of a document as a JSON list in one cell."""
    with writing(path) as file:
        table = csv.writer(file, delimiter=delimiter)
        fields = [name for name in ("id", "date") if getattr(data, name + "s") is not None]
        table.writerow([*fields, "text", "labels"])
        for document in counted(data, len(data), written):
            labels = json.dumps(list(document.labels), ensure_ascii=False)
            table.writerow([*(getattr(document, n) for n in fields), document.text, labels])


write_csv = partial(_write_table, ",")
write_tsv = partial(_write_table, "\t")


def read_libmultilabel(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """One document per line: an id if there is one, the labels separated by spaces, the text."""
    n_cells = 0
    with open_text(path, options.encoding, tick) as file:
        for number, line in enumerate(bounded_lines(file, options.max_record), start=1):
            if line is TOO_LONG:
                yield Problem(number, too_large("the line", options.max_record))
                continue
            if undecodable(line):
                yield Problem(number, wrong_encoding(options.encoding))
                continue
            if not line.strip():
                continue
            cells = line.rstrip("\r\n").split("\t", 3)
            if len(cells) not in (2, 3):
                yield Problem(
                    number,
                    "expected two cells separated by tabs (labels, text) or three (id, labels, "
                    f"text), got {line.count(chr(9)) + 1}. For other formats use format "
                    "(--format).",
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
    separator = options.label_separator
    if separator is None:
        return Document(cells[-1], cells[-2].split(), identity, at=at)
    try:
        labels, n_empty = split_labels(cells[-2], separator)
    except FieldError as error:
        return Problem(at, str(error))
    return Document(cells[-1], labels, identity, at=at, n_empty_labels=n_empty)


def write_libmultilabel(data: TextData, path: str | Path, written: Written | None = None) -> None:
    """Write id, labels and text separated by tabs; labels must not hold white space.

    White space in a text becomes one space, as a line has room for no other; dates have no place.
    """
    for name in data.label_names:
        if not name or any(character.isspace() for character in name):
            raise InputError(
                f"the label {name!r} holds white space, which separates labels in LibMultiLabel's "
                "format. Write JSONL or Parquet, or rename the label."
            )
    with writing(path) as file:
        for row, document in enumerate(counted(data, len(data), written)):
            identity = str(row) if document.id is None else " ".join(document.id.split())
            text = " ".join(document.text.split())
            file.write(f"{identity}\t{' '.join(document.labels)}\t{text}\n")
