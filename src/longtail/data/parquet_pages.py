"""Batches of a Parquet file in bounded memory.

A few KB can say "this value of 10 MB, a million times": sizes are looked up in the headers of the
pages, which Arrow itself allocates by, before a batch is unpacked.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from longtail.data.limits import TooLargeError, shown
from longtail.data.thrift import CutError, DamagedError, Reader
from longtail.errors import DataError

MOST_ROWS = 256
# Names and footers; Arrow's own limits are 100 MB and a million.
LONGEST_STRING, MOST_FIELDS = 64 << 20, 1 << 20
HEADER, LONGEST_HEADER = 1 << 10, 1 << 24
DICTIONARY_PAGE = 2
BYTE_ARRAYS = (6, 7)
DELTA_BYTE_ARRAY = 7
# DuckDB and fastparquet write all rows of a group in one page, so a page may be much larger than
# a record: so many times, or so many times its packed bytes. Text packs to a tenth, rarely a 50th.
PAGE_RECORDS, PAGE_RATIO = 8, 200
# Bytes in memory of one value of a list, beside its characters, and values of an average list.
BYTES_PER_VALUE, MOST_PER_ROW = 32, 1000
# Rows of which lists are measured at a time.
MEASURED_ROWS = 8192


class _Chunk(NamedTuple):
    """The values of one column in one group of rows."""

    path: tuple[str, ...]
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
    """The file, with limits on what its footer makes Arrow allocate."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(
        path,
        pre_buffer=False,
        read_dictionary=dictionaries,
        thrift_string_size_limit=LONGEST_STRING,
        thrift_container_size_limit=MOST_FIELDS,
    )


def bounded_batches(path: Path, file: Any, columns: list[str], limit: int) -> Iterator[Any]:
    """Batches of these columns; the rows in one are fewer the larger the values may be."""
    schema = file.schema
    descriptors = [schema.column(place) for place in range(len(schema))]
    repeated = {found.path for found in descriptors if found.max_repetition_level > 0}
    wanted = set(columns)
    strings = [found.path for found in descriptors if found.physical_type == "BYTE_ARRAY"]
    # Opened once: a footer of many groups would be parsed once per group.
    with path.open("rb") as raw, open_parquet(path, strings) as packed:
        groups = [
            (n_rows, [chunk for chunk in chunks if chunk.path[0] in wanted])
            for n_rows, chunks in _row_groups(raw)
        ]
        _refuse_shared(path, [chunk for _, chunks in groups for chunk in chunks])
        for group, (n_all, chunks) in enumerate(groups):
            n_rows = MOST_ROWS
            for chunk in chunks:
                pages = list(_pages(raw, chunk))
                _check_pages(pages, chunk, limit)
                values = _Values(packed, group, chunk)
                if ".".join(chunk.path) in repeated:
                    n_rows = min(n_rows, _rows_of_lists(pages, values, n_all, limit))
                elif chunk.kind in BYTE_ARRAYS:
                    n_rows = min(n_rows, _rows_of_strings(pages, values, limit))
            yield from file.iter_batches(
                batch_size=n_rows, row_groups=[group], columns=columns, use_threads=False
            )


def _refuse_shared(path: Path, chunks: list[_Chunk]) -> None:
    """Raise if columns share bytes: 1,000 groups that share 1,000 pages take a million steps."""
    for first, second in pairwise(sorted(chunks, key=lambda chunk: (chunk.start, chunk.end))):
        if second.start < first.end:
            raise DataError(
                f"{path} was refused: the bytes of the column {shown('.'.join(second.path))} "
                "belong to another column or group of rows as well. Get the file from a source "
                "that you trust."
            )


def _check_pages(pages: list[_Page], chunk: _Chunk, limit: int) -> None:
    for page in pages:
        if page.size > max(PAGE_RECORDS * limit, PAGE_RATIO * page.packed):
            raise TooLargeError(f"a page of the column {_name(chunk)}", limit)


def _rows_of_strings(pages: list[_Page], values: _Values, limit: int) -> int:
    """How many rows of a column of strings can be unpacked within the limit."""
    n_rows = MOST_ROWS
    for page in pages:
        # Of values that stand one after the other, all are as long as their page: a batch is to
        # touch two large pages at most.
        if page.kind != DICTIONARY_PAGE and page.size * MOST_ROWS > limit:
            n_rows = min(n_rows, max(1, page.n_values))
    return max(1, min(n_rows, limit // max(1, _longest(pages, values, limit // MOST_ROWS))))


def _rows_of_lists(pages: list[_Page], values: _Values, n_all: int, limit: int) -> int:
    """How many rows of a column of lists can be unpacked within the limit."""
    most = PAGE_RECORDS * limit
    too_large = TooLargeError(f"a list in the column {_name(values.chunk)}", limit)
    n_values = sum(page.n_values for page in pages if page.kind != DICTIONARY_PAGE)
    if n_values * BYTES_PER_VALUE > most + n_all * MOST_PER_ROW * BYTES_PER_VALUE:
        raise too_large
    if values.chunk.kind not in BYTE_ARRAYS:
        return MOST_ROWS
    longest = _longest(pages, values, most // max(1, n_values))
    if longest * n_values <= most:
        return MOST_ROWS
    if DELTA_BYTE_ARRAY in values.chunk.encodings or (largest := values.largest_row()) is None:
        raise too_large
    if largest > most:
        raise too_large
    return max(1, min(MOST_ROWS, limit // max(1, largest)))


def _longest(pages: list[_Page], values: _Values, unimportant: int) -> int:
    """Bytes of the longest value that any row can hold; not measured if it cannot matter.

    Where values are written once and referred to, or share their beginnings, that is each of them.
    """
    if DELTA_BYTE_ARRAY in values.chunk.encodings:
        return max((page.size for page in pages), default=0)
    dictionary = max((page.size for page in pages if page.kind == DICTIONARY_PAGE), default=0)
    if dictionary <= unimportant:
        return dictionary
    found = values.longest()
    return dictionary if found is None else found


def _name(chunk: _Chunk) -> str:
    return shown(".".join(chunk.path))


class _Values(NamedTuple):
    """Lengths of the strings of a column, from a file opened so that none is repeated in memory."""

    file: Any
    group: int
    chunk: _Chunk

    def _batches(self, n_rows: int) -> Iterator[Any]:
        batches = self.file.iter_batches(
            batch_size=n_rows,
            row_groups=[self.group],
            columns=[".".join(self.chunk.path)],
            use_threads=False,
        )
        return (batch.column(0) for batch in batches)

    def longest(self) -> int | None:
        """Bytes of the longest value in the dictionary; None if there is no way to tell."""
        import pyarrow as pa
        import pyarrow.compute as pc

        values = next(self._batches(1), None)
        while values is not None and not pa.types.is_dictionary(values.type):
            values = getattr(values, "values", None)
        if values is None:
            return None
        return pc.max(pc.binary_length(values.dictionary)).as_py() or 0

    def largest_row(self) -> int | None:
        """Bytes of the longest list of strings; None if the lists hold something else."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        largest = 0
        for lists in self._batches(MEASURED_ROWS):
            values = getattr(lists, "values", None)
            if values is None or not pa.types.is_dictionary(values.type):
                return None
            lengths = pc.binary_length(values.dictionary).take(values.indices).fill_null(0)
            ends = np.concatenate([[0], np.cumsum(lengths.to_numpy(zero_copy_only=False))])
            rows = np.diff(ends[lists.offsets.to_numpy()])
            largest = max(largest, int(rows.max(initial=0)))
        return largest


def _row_groups(raw: BinaryIO) -> Iterator[tuple[int, list[_Chunk]]]:
    """The number of rows and the columns of every group, from the footer."""
    size = raw.seek(0, 2)
    raw.seek(max(0, size - 8))
    length = int.from_bytes(raw.read(4), "little")
    if length + 8 > size:
        raise DamagedError
    raw.seek(size - 8 - length)
    try:
        footer = Reader(raw.read(length)).struct()
        for group in footer.get(4, []):
            yield int(group[3]), [_chunk(column[3]) for column in group.get(1, [])]
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise DamagedError from error


def _chunk(found: dict[int, Any]) -> _Chunk:
    path = tuple(name.decode() for name in found[3])
    # Writers that name no dictionary may still begin with one.
    start = min(offset for offset in (found[9], found.get(11)) if offset)
    return _Chunk(path, found[1], tuple(found[2]), start, start + found[7])


def _pages(raw: BinaryIO, chunk: _Chunk) -> Iterator[_Page]:
    """The pages of a column as their headers describe them."""
    at = chunk.start
    while at < chunk.end:
        header, length = _header(raw, at)
        kind, size, packed = (header.get(k, -1) for k in (1, 2, 3))
        # Field 1 of the header of a data page, a dictionary page and a data page of version 2.
        inner: dict[int, Any] = next(
            (header[k] for k in (5, 7, 8) if isinstance(header.get(k), dict)), {}
        )
        n_values = inner.get(1, -1)
        numbers = (kind, size, packed, n_values)
        if not all(isinstance(number, int) and number >= 0 for number in numbers):
            raise DamagedError
        yield _Page(kind, size, packed, n_values)
        at += length + packed


def _header(raw: BinaryIO, at: int) -> tuple[dict[int, Any], int]:
    """The header of the page at a place in the file, and its length."""
    size = HEADER
    while True:
        raw.seek(at)
        content = raw.read(size)
        reader = Reader(content)
        try:
            return reader.struct(), reader.at
        except CutError as error:
            # Statistics of a page may hold its longest value.
            if len(content) < size or size >= LONGEST_HEADER:
                raise DamagedError from error
            size *= 4
