"""Opening files: gunzipped if need be, in lines of bounded length.

Only a record is bounded: 10 GB of documents in one gz are fine. Text is decoded such that a wrong
byte spoils only its line.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import lzma
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from longtail.checks import has_surrogate
from longtail.data.documents import MEGABYTE, ReadOptions, Record, RecordError, Records, attempt
from longtail.errors import shown

Tick = Callable[[int], None]
"""Called with the number of bytes just read from disk."""

GZIP_MAGIC = b"\x1f\x8b"
BUFFER = 1 << 20
STANDARD_INPUT = Path("-")
# Python's surrogateescape fails for bytes below 128, which may be wrong in UTF-16.
ESCAPE = "longtail.escape"
codecs.register_error(ESCAPE, lambda error: ("\udc80", error.end))  # type: ignore[attr-defined]
# Stands for a line that is too long; cannot be decoded from a file.
TOO_LONG = "\udfff"
# Errors of the libraries below the readers: a damaged file, a failing disk, UTF-16 without a byte
# order mark, a number or date out of range, an unsupported compression method.
READ_ERRORS = (
    *(OSError, EOFError, ValueError, LookupError, ArithmeticError, RuntimeError),
    *(csv.Error, struct.error, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError),
)


class TooLargeError(Exception):
    """A record over the limit, raised if the rest of the file cannot be read."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(
            f"{what} is larger than {limit / MEGABYTE:g} MB and was not read. If the data are "
            f"right, raise the limit, for example max_record_mb={4 * limit / MEGABYTE:g} "
            "(--max-record-mb)."
        )


def unreadable(text: str, options: ReadOptions) -> str | None:
    """Return why a line cannot be used (too long, wrong encoding), or None if it can."""
    if not has_surrogate(text):
        return None
    if TOO_LONG in text:
        return str(TooLargeError("the line", options.max_record))
    return (
        f"not valid {options.encoding or 'UTF-8'}. If the file has another encoding, name it, for "
        "example encoding='latin-1' (--encoding latin-1)."
    )


def reason(error: Exception) -> str:
    """Return the message of an error, or its class name."""
    if isinstance(error, json.JSONDecodeError):
        # Its line number is 1, whatever the line of the file.
        return f"{error.msg}, column {error.colno}"
    if isinstance(error, PermissionError):
        return f"no permission for {error.filename}"
    return str(error)[:300] or type(error).__name__


def shown_names(names: Iterable[Any]) -> str:
    """Return the first five of many names, for a message."""
    first = list(islice(names, 6))
    more = ", ..." if len(first) > 5 else ""
    return ", ".join(shown(name, 40) for name in first[:5]) + more or "none"


class _CountedFile(io.FileIO):
    """Reports how many bytes are read."""

    def __init__(self, path: Path, tick: Tick) -> None:
        super().__init__(path, "rb")
        self._tick = tick

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = super().readinto(buffer) or 0
        self._tick(count)
        return count


class _Unpacked(gzip.GzipFile):
    """Returns the data before the cut of a truncated file, which GzipFile.read drops."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(size) if size is None or size < 0 else self.read1(size)


@contextmanager
def open_binary(path: Path, tick: Tick) -> Iterator[BinaryIO]:
    """Open a file, gunzipped if its content is gzip, whatever its name."""
    if path == STANDARD_INPUT:
        # Not counted: the total is unknown.
        yield sys.stdin.buffer
        return
    with io.BufferedReader(_CountedFile(path, tick), BUFFER) as raw:
        if raw.peek(2)[:2] == GZIP_MAGIC:
            with _Unpacked(fileobj=raw) as unpacked:
                yield cast(BinaryIO, unpacked)
        else:
            yield raw


@contextmanager
def open_lines(
    path: Path, options: ReadOptions, tick: Tick, newline: str = "\n"
) -> Iterator[Iterator[str]]:
    """Iterate over the lines of a text file; `TOO_LONG` stands for one over the limit.

    Undecodable bytes become lone surrogates; a byte order mark is dropped.
    """
    with open_binary(path, tick) as file:
        encoding = options.encoding or "utf-8"
        text = io.TextIOWrapper(file, encoding, errors=ESCAPE, newline=newline)
        try:
            yield _bounded_lines(text, options.max_record + 1, newline or "\r\n")
        finally:
            text.detach()


def _bounded_lines(file: TextIO, limit: int, ends: str) -> Iterator[str]:
    read = file.readline
    line = read(limit).removeprefix("\ufeff")
    while line:
        if len(line) >= limit and line[-1] not in ends:
            while (rest := read(BUFFER)) and rest[-1] not in ends:
                pass
            line = TOO_LONG
        yield line
        line = read(limit)


def line_records(
    path: Path,
    options: ReadOptions,
    tick: Tick,
    parse: Callable[[int, str, ReadOptions], Record],
    blank: bool = False,
) -> Records:
    """Yield the parsed lines of a file, and a problem for each unreadable one.

    `blank`: parse blank lines too.
    """
    with open_lines(path, options, tick) as lines:
        for number, line in enumerate(lines, start=1):
            if (fault := unreadable(line, options)) is not None:
                yield RecordError(fault, number)
            elif blank or line.strip():
                yield attempt(parse, number, line, options)
