"""JSON for the readers: a key given twice is seen, and a huge list is read an item at a time."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from longtail.data.documents import ReadOptions
from longtail.data.fields import FieldError, used_fields
from longtail.data.limits import TooLargeError, shown

SPACE = re.compile(r"[ \t\n\r]*")
# How near to the end of what was read an error may be that more text would mend: an escape such as
# \ud83d\ude00, a literal such as -Infinity.
CUT = 16
# `{},` is three characters, and 72 bytes of memory.
BYTES_PER_ITEM = 16


class Ambiguous(dict[str, Any]):
    """An object that names a key twice; as everywhere in Python, the last value counts."""

    twice: tuple[str, ...] = ()

    def twice_of(self, options: ReadOptions) -> str | None:
        """A key given twice that documents are made of; others do no harm."""
        try:
            used = used_fields(self, options)
        except FieldError:
            return None  # `to_document` meets the same error and tells it.
        return next((name for name in self.twice if name in used), None)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    found = Ambiguous(found)
    found.twice = tuple(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
    return found


_decoder = json.JSONDecoder(object_pairs_hook=_object)
parse = _decoder.decode


def reason(error: Exception) -> str:
    """Without the line number inside the line, which would contradict the file's."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, column {error.colno}"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error)


def has_many_items(text: str, limit: int) -> bool:
    """Whether the text may hold so many values that they take far more memory than the limit."""
    most = limit // BYTES_PER_ITEM
    return len(text) > most and sum(map(text.count, "[{,")) > most


class NotJsonError(ValueError):
    """What is wrong with a JSON file; the rest of it cannot be read."""


class Stream:
    """A JSON text that is read as it is needed, and parsed a value at a time.

    No more than one value is in memory, and no value larger than the limit.
    """

    def __init__(self, pieces: Iterator[str], limit: int) -> None:
        self._pieces, self._limit = pieces, limit
        self._text, self._at = "", 0

    def peek(self) -> str:
        """The next character that is no white space; nothing at the end."""
        while True:
            self._at = SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            self._text, self._at = next(self._pieces, ""), 0
            if not self._text:
                return ""

    def expect(self, characters: str) -> str:
        """Take one of these characters."""
        found = self.peek()
        if not found or found not in characters:
            wanted = " or ".join(map(repr, characters))
            raise NotJsonError(f"expected {wanted}, found {shown(found) if found else 'the end'}")
        self._at += 1
        return found

    def value(self) -> Any:
        """Parse the next value."""
        self.peek()
        while True:
            try:
                value, stop = _decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                open_string = error.msg.startswith("Unterminated string")
                if not (open_string or error.pos >= len(self._text) - CUT) or not self._more():
                    raise NotJsonError(error.msg) from error
            except (RecursionError, ValueError) as error:
                raise NotJsonError(reason(error)) from error
            else:
                # A number at the very end may go on in the next piece, as may `1.` and `1e-`.
                if stop < len(self._text) - 2 or not isinstance(value, (int, float)):
                    self._at = stop
                    return value
                if not self._more():
                    self._at = stop
                    return value

    def _more(self) -> bool:
        """Read as much again as there is of the value; False at the end of the file."""
        rest = [self._text[self._at :]]
        wanted = size = len(rest[0])
        if size > self._limit or has_many_items(rest[0], self._limit):
            raise TooLargeError("one value of the JSON text", self._limit)
        while size < 2 * wanted + 1 and (piece := next(self._pieces, "")):
            rest.append(piece)
            size += len(piece)
        self._text, self._at = "".join(rest), 0
        return size > wanted

    def items(self) -> Iterator[Any]:
        """The items of the list that comes next."""
        self.expect("[")
        if self.peek() == "]":
            self.expect("]")
            return
        while True:
            yield self.value()
            if self.expect(",]") == "]":
                return
