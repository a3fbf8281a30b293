"""One exception family: every error that is the user's to mend derives from LongtailError.

The command and the service show these as one message without a traceback; a message says what
was expected, what came, and what to do. Here, and only here, it is made fit to be shown.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

LIMIT = 4000  # characters of a message: two screens, whatever the file or the server sent
NAME_LIMIT = 200  # characters of an unknown name that are shown
KNOWN_LIMIT = 2000  # characters of all the known names that are shown
MOST_COMPARED = 5000  # known names that are compared with an unknown one, 0.1 s

# What a terminal obeys or cannot show: control characters but the line feed, line separators, marks
# that change the direction of the text, the byte order mark, halves of surrogate pairs.
_UNPRINTABLE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def printable(text: str, limit: int = LIMIT) -> str:
    """The text with control characters as escapes and its middle left out past the limit.

    The end stays, since that is where a message says what to do.
    """
    # Of 10 MB little is escaped.
    first, last = (_UNPRINTABLE.sub(_escape, part) for part in (text[: limit + 1], text[-limit:]))
    if len(first) <= limit:
        return first
    note = f" ... ({len(text):,} characters in all) ... "
    room = max(0, limit - len(note))
    return first[: room - room // 4] + note + last[len(last) - room // 4 :]


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def shown(value: object, most: int = NAME_LIMIT) -> str:
    """repr for a message: never longer than a few lines, never an error itself."""
    try:
        text = repr(value)
    except Exception:  # an integer of 5,000 digits has none, nor may a broken object
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= most else f"{text[:most]}..."


class LongtailError(Exception):
    """Base of all errors that longtail raises on purpose; its message is printable."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(printable(arg) if isinstance(arg, str) else arg for arg in args))

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own would call __init__ with the message, and some want other arguments.
        return _restored, (type(self), *self.args), self.__dict__


def _restored(kind: type[LongtailError], *args: object) -> LongtailError:
    return kind.__new__(kind, *args)


class InputError(LongtailError, ValueError):
    """A value that cannot be used: wrong shape, type or range."""


class UnknownNameError(LongtailError, ValueError):
    """A name that is not in one of our tables; the nearest known names are suggested."""

    def __init__(self, kind: str, name: object, known: Iterable[str]) -> None:
        names = sorted(map(str, known))
        wanted = name[:NAME_LIMIT] if isinstance(name, str) else shown(name)
        # difflib's time grows with the product of the lengths, and is 18 us for a short name.
        short = [known for known in names if len(known) <= NAME_LIMIT][:MOST_COMPARED]
        near = difflib.get_close_matches(wanted, short, cutoff=0.5)
        hint = f"Did you mean {' or '.join(map(repr, near))}? " if near else ""
        listed = printable(", ".join(names), KNOWN_LIMIT)
        super().__init__(f"unknown {kind} {shown(name)}. {hint}Known: {listed}.")


def known_name(kind: str, name: object, known: Iterable[str]) -> str:
    """The known name that this is, in whatever case it is written."""
    names = list(known)
    written = name.lower() if isinstance(name, str) else name
    for each in names:
        if each.lower() == written:
            return each
    raise UnknownNameError(kind, name, names)


class DataError(LongtailError, ValueError):
    """A file or record that cannot be read as documents with labels."""


class NotFittedError(LongtailError, AttributeError, ValueError):
    """A classifier was asked to predict before it was fitted."""


class MissingExtraError(LongtailError, ImportError):
    """An optional dependency is not installed; the message names the pip command."""

    def __init__(self, purpose: str, package: str, extra: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed. "
            f"Run: pip install 'longtail[{extra}]'"
        )
