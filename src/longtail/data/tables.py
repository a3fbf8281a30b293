"""Tables: CSV and TSV with a header, and LibMultiLabel's TSV without one."""

from __future__ import annotations

import csv
import json
from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from longtail.checks import has_surrogate
from longtail.data.documents import (
    Document,
    LabelNames,
    ReadOptions,
    Record,
    RecordError,
    Records,
)
from longtail.data.fields import check_columns, label_columns, split_labels, to_document
from longtail.data.files import Tick, line_records, open_text, write_lines, wrong_encoding
from longtail.data.limits import TOO_LONG, bounded_lines, too_large
from longtail.data.textdata import TextData
from longtail.errors import DataError, InputError

# The csv module refuses cells over 128 KiB by default; a text may well be longer.
LONGEST_CELL = 2**31 - 1
# How often all of a file, or how many characters of a small one, may be read again to recover the
# rows that a stray quote has swallowed.
MOST_AGAIN, CHEAP_AGAIN = 8, 1 << 20
QUOTES_ARE_TEXT = "If quotes are just text in this file, use quote='none' (--quote none)."


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
            if len(self._row) == 1:
                raise RecordError(too_large("the line", self._limit))
            raise RecordError(f"{too_large('the row', self._limit)} {QUOTES_ARE_TEXT}")
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
    with open_text(path, options.encoding, tick, newline="") as file:
        lines = _Lines(bounded_lines(file, options.max_record, "\r\n"), options.max_record)
        rows = csv.reader(
            lines,
            delimiter=options.delimiter or delimiter,
            strict=True,
            quoting=csv.QUOTE_NONE if options.quote == "none" else csv.QUOTE_MINIMAL,
        )
        while True:
            row, message = [], ""
            try:
                row = next(rows)
                if any(map(has_surrogate, row)):
                    message = wrong_encoding(options.encoding)
                elif columns and row and len(row) != len(columns):
                    message = f"expected {len(columns)} cells as in the header, got {len(row)}."
            except StopIteration:
                return
            except csv.Error as error:
                message = f"not valid CSV ({error}). {QUOTES_ARE_TEXT}"
            except RecordError as error:
                message = str(error)
            if message and not columns:
                raise DataError(f"{path}, line {lines.first}: {message}")
            if message:
                yield RecordError(message, lines.first)
            elif row and not columns:
                columns = row
                check_columns(columns, options, path)
                yield LabelNames(tuple(label_columns(columns, options)))
            elif row:
                record = dict(zip(columns, row, strict=True))
                yield to_document(lines.first, record, options, cells=True)
            if not lines.next_row(failed=bool(message) and not row):
                message = f"the rest was not read: too many quotes do not close. {QUOTES_ARE_TEXT}"
                yield RecordError(message, f"from line {lines.first}")
                return


read_csv = partial(_read_table, ",")
read_tsv = partial(_read_table, "\t")


def _table_lines(delimiter: str, data: TextData) -> Iterator[str]:
    """A table with the labels of a document as a JSON list in one cell."""
    # csv's writer returns what the file's `write` returns.
    table = csv.writer(SimpleNamespace(write=str), delimiter=delimiter)
    fields = [name for name in ("id", "date") if getattr(data, name + "s") is not None]
    yield table.writerow([*fields, "text", "labels"])
    for document in data:
        labels = json.dumps(list(document.labels), ensure_ascii=False)
        yield table.writerow([*(getattr(document, n) for n in fields), document.text, labels])


write_csv = partial(write_lines, partial(_table_lines, ","))
write_tsv = partial(write_lines, partial(_table_lines, "\t"))


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
    labels, n_empty = cells[-2].split(), 0
    if options.label_separator is not None:
        labels, n_empty = split_labels(cells[-2], options.label_separator)
    return Document(cells[-1], labels, identity, at=at, n_empty_labels=n_empty)


def _libmultilabel_lines(data: TextData) -> Iterator[str]:
    """Id, labels and text separated by tabs; labels must not hold white space.

    White space in a text becomes one space; dates are not written.
    """
    for name in data.label_names:
        if not name or any(map(str.isspace, name)):
            raise InputError(
                f"the label {name!r} holds white space, which separates labels in LibMultiLabel's "
                "format. Write JSONL or Parquet, or rename the label."
            )
    for row, document in enumerate(data):
        identity = str(row) if document.id is None else " ".join(document.id.split())
        text = " ".join(document.text.split())
        yield f"{identity}\t{' '.join(document.labels)}\t{text}\n"


write_libmultilabel = partial(write_lines, _libmultilabel_lines)
