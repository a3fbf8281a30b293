"""Limits on one record: lines of bounded length, and values of bounded length in messages.

The file is not bounded, only what is in memory at a time: 10 GB of documents in a gz are fine.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TextIO

from longtail.data.documents import MEGABYTE

# Yielded in place of a line that is too long; readers compare by identity.
TOO_LONG = "".join(["a line that is too ", "long"])
PIECE = 1 << 20
# `{},` is three characters of JSON, and 72 bytes of memory.
BYTES_PER_ITEM = 16


def bounded_lines(file: TextIO, limit: int, ends: str = "\n") -> Iterator[str]:
    """The lines of a text file; `TOO_LONG` in place of one with more than `limit` characters.

    `ends`: the characters at which the file breaks lines.
    """
    read, limit = file.readline, limit + 1
    while line := read(limit):
        if len(line) >= limit and line[-1] not in ends:
            while (rest := read(PIECE)) and rest[-1] not in ends:
                pass
            line = TOO_LONG
        yield line


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


class _Brief(reprlib.Repr):
    """repr that looks at the beginning of a value only, however large or deep it is."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxlist, self.maxtuple, self.maxdict = 3, 8, 8, 8
        self.maxstring = self.maxother = 200

    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to write out a number of more than 4,300 digits.
        return repr(x) if abs(x) < 10**200 else "a whole number of many digits"


_brief = _Brief()


def shown(value: Any, limit: int = 60) -> str:
    """A value for a message: at most `limit` characters, control characters escaped."""
    text = repr(value[: limit + 1]) if isinstance(value, str) else _brief.repr(value)
    return text if len(text) <= limit else text[:limit] + "..."


def shown_names(names: Iterable[Any], limit: int = 5) -> str:
    """The first few of many names, for a message."""
    first = list(islice(names, limit + 1))
    more = ", ..." if len(first) > limit else ""
    return ", ".join(shown(name, 40) for name in first[:limit]) + more or "none"
