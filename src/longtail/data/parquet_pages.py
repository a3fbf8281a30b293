"""Batches of a Parquet file in bounded memory.

A few KB can say "this value of 10 MB, a million times": sizes are looked up in the headers of the
pages, which Arrow itself allocates by, before a batch is unpacked.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from longtail.data.limits import TooLargeError, shown
from longtail.data.thrift import CutError, DamagedError, Reader

MOST_ROWS = 256
# Names and footers; Arrow's own limits are 100 MB and a million.
LONGEST_STRING, MOST_FIELDS = 64 << 20, 1 << 20
HEADER, LONGEST_HEADER = 1 << 10, 1 << 24
DICTIONARY_PAGE = 2
BYTE_ARRAYS = (6, 7)
DELTA_BYTE_ARRAY = 7
# Bytes in memory of one value of a list, beside its characters.
BYTES_PER_VALUE = 32


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
    n_values: int


def open_parquet(path: str | Path) -> Any:
    """The file, with limits on what its footer makes Arrow allocate."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(
        path,
        pre_buffer=False,
        thrift_string_size_limit=LONGEST_STRING,
        thrift_container_size_limit=MOST_FIELDS,
    )


def bounded_batches(path: Path, file: Any, columns: list[str], limit: int) -> Iterator[Any]:
    """Batches of these columns; the rows in one are fewer the larger the values may be."""
    schema = file.schema
    descriptors = [schema.column(place) for place in range(len(schema))]
    repeated = {found.path for found in descriptors if found.max_repetition_level > 0}
    wanted = set(columns)
    with path.open("rb") as raw:
        for group, chunks in enumerate(_row_groups(raw)):
            n_rows = MOST_ROWS
            for chunk in chunks:
                if chunk.path[0] in wanted:
                    is_list = ".".join(chunk.path) in repeated
                    n_rows = min(n_rows, _rows_at_a_time(path, raw, group, chunk, is_list, limit))
            yield from file.iter_batches(
                batch_size=n_rows, row_groups=[group], columns=columns, use_threads=False
            )


def _rows_at_a_time(
    path: Path, raw: BinaryIO, group: int, chunk: _Chunk, is_list: bool, limit: int
) -> int:
    """How many rows of a column can be unpacked within the limit."""
    name = shown(".".join(chunk.path))
    pages = list(_pages(raw, chunk))
    largest = max((page.size for page in pages), default=0)
    if largest > limit:
        raise TooLargeError(f"a page of the column {name}", limit)
    n_values = max((page.n_values for page in pages if page.kind != DICTIONARY_PAGE), default=0)
    if is_list and n_values * BYTES_PER_VALUE > 4 * limit:
        raise TooLargeError(f"a list in the column {name}", limit)
    if chunk.kind not in BYTE_ARRAYS:
        return MOST_ROWS
    # Where values are written once and referred to, or share their beginnings, any row can hold
    # the longest; where they stand one after the other, all of them are as long as their page.
    longest = largest if DELTA_BYTE_ARRAY in chunk.encodings else 0
    dictionary = max((page.size for page in pages if page.kind == DICTIONARY_PAGE), default=0)
    if dictionary * MOST_ROWS > limit or (is_list and dictionary * n_values > limit):
        longest = max(longest, _longest_value(path, group, chunk.path, dictionary))
    if is_list and longest * n_values > 4 * limit:
        raise TooLargeError(f"a list in the column {name}", limit)
    return max(1, min(MOST_ROWS, limit // max(1, longest)))


def _longest_value(path: Path, group: int, column: tuple[str, ...], size: int) -> int:
    """Bytes of the longest value in the dictionary of a column, which has a page of this size."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, read_dictionary=[".".join(column)], pre_buffer=False) as file:
        batches = file.iter_batches(
            batch_size=1, row_groups=[group], columns=[column[0]], use_threads=False
        )
        first = next(batches, None)
        values = None if first is None else first.column(0)
        while values is not None and not pa.types.is_dictionary(values.type):
            values = getattr(values, "values", None)
        if values is None:
            return size
        return pc.max(pc.binary_length(values.dictionary)).as_py() or 0


def _row_groups(raw: BinaryIO) -> Iterator[list[_Chunk]]:
    """The columns of every group of rows, from the footer."""
    size = raw.seek(0, 2)
    raw.seek(max(0, size - 8))
    length = int.from_bytes(raw.read(4), "little")
    if length + 8 > size:
        raise DamagedError
    raw.seek(size - 8 - length)
    try:
        footer = Reader(raw.read(length)).struct()
        for group in footer.get(4, []):
            yield [_chunk(column[3]) for column in group.get(1, [])]
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
        yield _Page(kind, size, n_values)
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
