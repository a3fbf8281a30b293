"""Batches of a Parquet file in bounded memory.

A few KB can unpack to gigabytes, so the sizes in the footer and the headers of the pages are
checked first. They are read here because Arrow shows no page headers, and its view of a damaged
footer ends the process (a C++ exception that pyarrow 26 does not catch).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow.parquet as pq

from longtail.data.limits import TooLargeError, shown
from longtail.errors import DataError

MOST_ROWS = 256
# Names and footers; Arrow's defaults are 100 MB and a million.
LONGEST_STRING, MOST_FIELDS = 64 << 20, 1 << 20
HEADER, LONGEST_HEADER, DEEPEST = 1 << 10, 1 << 24, 12
DICTIONARY_PAGE = 2
BYTE_ARRAY, FIXED_BYTES = 6, 7
# Encodings that Arrow cannot read as a dictionary; values of the second one share their beginnings.
DELTA_LENGTH, DELTA_BYTES = 6, 7
# DuckDB and fastparquet write all rows of a group in one page, so a page may be larger than a
# record: this many times, or this many times its packed bytes. Text packs to a tenth or less,
# rarely to a 50th.
PAGE_RECORDS, PAGE_RATIO = 8, 200
# Bytes in memory of one value of a list, and values of an average list.
BYTES_PER_VALUE, MOST_PER_ROW = 32, 1000
DAMAGED = "not a valid Parquet file: a damaged header or footer"


class _Thrift:
    """Reads Thrift's compact protocol from `at` on: structures as dicts of field numbers.

    Raises IndexError where a structure continues after the end, EOFError where it is invalid.
    """

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            kind = head & 15
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if depth > DEEPEST:
            raise EOFError(DAMAGED)
        if kind in (1, 2, 3):
            return self._byte()
        if kind in (4, 5, 6):
            return self._integer()
        if kind in (7, 8):
            return self._bytes(8 if kind == 7 else self._varint())
        if kind in (9, 10):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._varint()
            if count > len(self.content) - self.at:
                raise IndexError  # Every item has at least one byte.
            return [self._value(head & 15, depth + 1) for _ in range(count)]
        if kind == 12:
            return self.struct(depth + 1)
        raise EOFError(DAMAGED)

    def _bytes(self, count: int) -> bytes:
        start, self.at = self.at, self.at + count
        if self.at > len(self.content):
            raise IndexError
        return self.content[start : self.at]

    def _byte(self) -> int:
        self.at += 1
        return self.content[self.at - 1]

    def _varint(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise EOFError(DAMAGED)

    def _integer(self) -> int:
        number = self._varint()
        return number >> 1 ^ -(number & 1)


class _Chunk(NamedTuple):
    """The values of one column in one group of rows."""

    name: str
    column: str
    kind: int
    encodings: tuple[int, ...]
    start: int
    end: int


class _Page(NamedTuple):
    kind: int
    size: int
    """Bytes when unpacked."""
    packed: int
    n_values: int


def open_parquet(path: str | Path, dictionaries: list[str] | None = None) -> Any:
    """The file, with limits on what its footer makes Arrow allocate.

    `dictionaries`: columns of strings of which repeated values are to take memory once.
    """
    return pq.ParquetFile(
        path,
        pre_buffer=False,
        read_dictionary=dictionaries,
        thrift_string_size_limit=LONGEST_STRING,
        thrift_container_size_limit=MOST_FIELDS,
    )


def bounded_batches(path: Path, columns: list[str], limit: int) -> Iterator[Any]:
    """Batches of these columns, of fewer rows the larger the values may be.

    Strings come as dictionaries, as far as their encoding allows.
    """
    with path.open("rb") as raw:
        groups = [
            (n_rows, [chunk for chunk in chunks if chunk.column in columns])
            for n_rows, chunks in _row_groups(raw)
        ]
        chunks = [chunk for _, of_group in groups for chunk in of_group]
        for first, second in pairwise(sorted(chunks, key=lambda chunk: (chunk.start, chunk.end))):
            if second.start < first.end:
                # 1,000 groups that share 1,000 pages would take a million steps.
                raise DataError(
                    f"{path} was refused: the bytes of the column {shown(second.name)} belong to "
                    "another column or group of rows as well. Get the file from a source that you "
                    "trust."
                )
        delta = {c.name for c in chunks if {DELTA_LENGTH, DELTA_BYTES}.intersection(c.encodings)}
        strings = {chunk.name for chunk in chunks if chunk.kind == BYTE_ARRAY} - delta
        plain = delta | {chunk.name for chunk in chunks if chunk.kind == FIXED_BYTES}
        with open_parquet(path, sorted(strings)) as file:
            paths = map(file.schema.column, range(len(file.schema)))
            lists = {column.path for column in paths if column.max_repetition_level > 0}
            for group, (n_all, of_group) in enumerate(groups):
                n_rows = MOST_ROWS
                for chunk in of_group:
                    pages = list(_pages(raw, chunk))
                    most = n_all * MOST_PER_ROW if chunk.name in lists else None
                    is_plain = chunk.name in plain
                    n_rows = min(n_rows, _rows_per_batch(pages, chunk, is_plain, most, limit))
                yield from file.iter_batches(
                    batch_size=n_rows, row_groups=[group], columns=columns, use_threads=False
                )


def _rows_per_batch(
    pages: list[_Page], chunk: _Chunk, is_plain: bool, most_values: int | None, limit: int
) -> int:
    """How many rows of a column can be unpacked within the limit.

    Args:
        is_plain: repeated values are repeated in memory.
        most_values: usual number of values if the column holds lists.
    """
    for page in pages:
        if page.size > max(PAGE_RECORDS * limit, PAGE_RATIO * page.packed):
            raise TooLargeError(f"a page of the column {shown(chunk.name)}", limit)
    data_pages = [page for page in pages if page.kind != DICTIONARY_PAGE]
    largest = max((page.size for page in pages), default=0)
    # A value that is written once and referred to may be as large as its page.
    repeats = is_plain and (DELTA_BYTES in chunk.encodings or len(data_pages) < len(pages))
    if most_values is not None:
        n_values = sum(page.n_values for page in data_pages)
        most = PAGE_RECORDS * limit
        too_many = n_values * BYTES_PER_VALUE > most + most_values * BYTES_PER_VALUE
        if too_many or (repeats and n_values * largest > most):
            raise TooLargeError(f"a list in the column {shown(chunk.name)}", limit)
    elif repeats:
        return max(1, min(MOST_ROWS, limit // max(1, largest)))
    # Values one after the other are together as large as their page: a batch is to touch two large
    # pages at most.
    large = [page.n_values for page in data_pages if page.size * MOST_ROWS > limit]
    return max(1, min([MOST_ROWS, *large]))


def _row_groups(raw: BinaryIO) -> Iterator[tuple[int, list[_Chunk]]]:
    """The number of rows and the columns of every group, from the footer."""
    size = raw.seek(0, 2)
    raw.seek(max(0, size - 8))
    length = int.from_bytes(raw.read(4), "little")
    if length + 8 > size:
        raise EOFError(DAMAGED)
    raw.seek(size - 8 - length)
    try:
        for group in _Thrift(raw.read(length)).struct().get(4, []):
            chunks = []
            for column in group.get(1, []):
                fields = column[3]
                names = [name.decode() for name in fields[3]]
                # Writers that name no dictionary may still begin with one.
                start = min(offset for offset in (fields[9], fields.get(11)) if offset)
                encodings, end = tuple(fields[2]), start + fields[7]
                chunks.append(_Chunk(".".join(names), names[0], fields[1], encodings, start, end))
            yield int(group[3]), chunks
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise EOFError(DAMAGED) from error


def _pages(raw: BinaryIO, chunk: _Chunk) -> Iterator[_Page]:
    """The pages of a column as their headers describe them."""
    at = chunk.start
    while at < chunk.end:
        header, length = _header(raw, at)
        # The headers of a data page, a dictionary page and a data page of version 2.
        inner = [header[k] for k in (5, 7, 8) if isinstance(header.get(k), dict)]
        numbers = [header.get(k, -1) for k in (1, 2, 3)]
        numbers.append(inner[0].get(1, -1) if inner else -1)
        if not all(isinstance(number, int) and number >= 0 for number in numbers):
            raise EOFError(DAMAGED)
        page = _Page(*numbers)
        yield page
        at += length + page.packed


def _header(raw: BinaryIO, at: int) -> tuple[dict[int, Any], int]:
    """The header of the page at an offset of the file, and its length."""
    size = HEADER
    while True:
        raw.seek(at)
        content = raw.read(size)
        reader = _Thrift(content)
        try:
            return reader.struct(), reader.at
        except IndexError as error:
            # Statistics of a page may hold its longest value.
            if len(content) < size or size >= LONGEST_HEADER:
                raise EOFError(DAMAGED) from error
            size *= 4
