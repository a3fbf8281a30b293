"""One exception family: every error that is the user's to mend derives from LongtailError.

The command and the service show these as one message without a traceback; a message says what
was expected, what came, and what to do. Here, and only here, it is made fit to be shown.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect
from collections.abc import Iterable
from itertools import accumulate
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

    The end stays, since that is where a message says what to do. Never longer than the limit, or
    than the note of what was left out where the limit has no room for more.
    """
    kept = min(len(text), limit)
    while True:
        # The text is cut before it is escaped: no escape is cut, and of 10 MB little is read.
        first, last = text[: (kept * 3 + 3) // 4], text[len(text) - kept // 4 :]
        left_out = len(text) - len(first) - len(last)
        note = f" ... ({left_out:,} more characters) ... " if left_out else ""
        escaped = [_UNPRINTABLE.sub(_escape, part) for part in (first, last)]
        excess = sum(map(len, escaped)) + len(note) - limit
        if excess <= 0 or kept == 0:
            return note.join(escaped)
        kept = max(kept - max(excess // 6, 1), 0)  # an escape has up to six characters


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
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[LongtailError], args: tuple[object, ...], state: Any) -> LongtailError:
    """The error that was pickled or copied."""
    error = kind.__new__(kind)
    LongtailError.__init__(error, *args)
    error.__dict__.update(state)
    return error


class InputError(LongtailError, ValueError):
    """A value that cannot be used: wrong shape, type or range."""


class UnknownNameError(LongtailError, ValueError):
    """A name that is not in one of our tables; the nearest known names are suggested."""

    def __init__(self, kind: str, name: object, known: Iterable[str]) -> None:
        names = sorted(map(str, known))
        near = _nearest(name if isinstance(name, str) else shown(name), names)
        hint = f"Did you mean {' or '.join(map(repr, near))}? " if near else ""
        super().__init__(f"unknown {kind} {shown(name)}. {hint}Known: {_listed(names)}.")


def _nearest(name: str, names: list[str]) -> list[str]:
    # difflib's time grows with the product of the lengths, and is 18 us for a short name. Of too
    # many names, those around this one in the alphabet.
    candidates = [known for known in names if len(known) <= NAME_LIMIT]
    first = min(bisect(candidates, name) - MOST_COMPARED // 2, len(candidates) - MOST_COMPARED)
    some = candidates[max(first, 0) :][:MOST_COMPARED]
    return difflib.get_close_matches(name[:NAME_LIMIT], some, n=3, cutoff=0.5)


def _listed(names: list[str]) -> str:
    """The names, as many as fit, and how many more there are."""
    cut = [printable(name[: 2 * NAME_LIMIT], NAME_LIMIT) for name in names[:KNOWN_LIMIT]]
    ends = accumulate(len(name) + 2 for name in cut)
    fitting = max(bisect(list(ends), KNOWN_LIMIT), 1)
    more = f" and {len(names) - fitting:,} more" if len(names) > fitting else ""
    return ", ".join(cut[:fitting]) + more


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
