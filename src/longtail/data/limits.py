"""Limits on one record: lines of bounded length, and values of bounded length in messages.

The file is not bounded, only what is in memory at a time: 10 GB of documents in a gz are fine.
"""

from __future__ import annotations

import csv
import json
import lzma
import reprlib
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TextIO

from longtail.data.documents import MEGABYTE

# Yielded in place of a line that is too long; readers compare by identity.
TOO_LONG = "".join(["a line that is too ", "long"])
PIECE = 1 << 20
# `{},` is three characters of JSON, and 72 bytes of memory.
BYTES_PER_ITEM = 16
# Errors of the libraries below the readers: a damaged file, a disk that fails, UTF-16 without mark,
# a number or a date beyond Python's, an archive with an unsupported compression method.
READ_ERRORS = (
    *(OSError, EOFError, ValueError, LookupError, ArithmeticError, RuntimeError),
    *(csv.Error, struct.error, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError),
)


def bounded_lines(file: TextIO, limit: int, ends: str = "\n") -> Iterator[str]:
    """The lines of a text file; `TOO_LONG` in place of one with more than `limit` characters.

    `ends`: the characters at which the file breaks lines. A byte order mark is in no line.
    """
    read, limit = file.readline, limit + 1
    line = read(limit).removeprefix("\ufeff")
    while line:
        if len(line) >= limit and line[-1] not in ends:
            while (rest := read(PIECE)) and rest[-1] not in ends:
                pass
            line = TOO_LONG
        yield line
        line = read(limit)


def has_many_items(text: str, limit: int) -> bool:
    """Whether the values of JSON text may take much more memory than the limit."""
    most = limit // BYTES_PER_ITEM
    return len(text) > most and sum(map(text.count, "[{,")) > most


class TooLargeError(Exception):
    """A record over the limit, after which the rest of the file cannot be read."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(too_large(what, limit))


def too_large(what: str, limit: int) -> str:
    """The message for a record over the limit."""
    return (
        f"{what} is larger than {limit / MEGABYTE:g} MB and was not read. If that is no mistake, "
        f"raise the limit, as in max_record_mb={4 * limit / MEGABYTE:g} (--max-record-mb)."
    )


def reason(error: Exception) -> str:
    """The message of an error, or its name where it has none."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, json.JSONDecodeError):
        # Without the line number inside the line, which would contradict the file's.
        return f"{error.msg}, column {error.colno}"
    return str(error)[:300] or type(error).__name__


class _Brief(reprlib.Repr):
    """repr that looks at the beginning of a value only, however large or deep it is."""

    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to write out a number of more than 4,300 digits.
        return repr(x) if abs(x) < 10**200 else "a whole number of many digits"


_brief = _Brief()
_brief.maxlevel, _brief.maxstring, _brief.maxother = 3, 200, 200


def shown(value: Any, limit: int = 60) -> str:
    """A value for a message: at most `limit` characters, control characters escaped."""
    text = repr(value[: limit + 1]) if isinstance(value, str) else _brief.repr(value)
    return text if len(text) <= limit else text[:limit] + "..."


def shown_names(names: Iterable[Any]) -> str:
    """The first few of many names, for a message."""
    first = list(islice(names, 6))
    more = ", ..." if len(first) > 5 else ""
    return ", ".join(shown(name, 40) for name in first[:5]) + more or "none"
