"""One exception family: every error that is the user's to mend derives from LongtailError.

The command and the service show these as one message without a traceback; a message says what
was expected, what came, and what to do. Here, and only here, it is made fit to be shown.
"""

from __future__ import annotations

import difflib
import re
import reprlib
from bisect import bisect
from collections.abc import Iterable
from itertools import accumulate, takewhile
from typing import Any, Self

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
    if len(text) <= limit:
        shown = _UNPRINTABLE.sub(_escape, text)
        if len(shown) <= limit:
            return shown
    # Pieces, since an escape must not be cut; of a text of 10 MB no more than the limit is read.
    room = max(limit - len(_left_out(len(text))), 0)
    first = _fitting(text[:limit], room * 3 // 4)
    rest = text[len(first) :]
    last = _fitting(reversed(rest[-limit:] if limit else ""), room - sum(map(len, first)))[::-1]
    return "".join([*first, _left_out(len(rest) - len(last)), *last])


def _left_out(number: int) -> str:
    return f" ... ({number:,} more characters) ... "


def _fitting(characters: Iterable[str], room: int) -> list[str]:
    """As many of the characters, escaped, as there is room for."""
    escaped = [_UNPRINTABLE.sub(_escape, character) for character in characters]
    ends = accumulate(map(len, escaped))
    return escaped[: sum(1 for _ in takewhile(lambda end: end <= room, ends))]


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


class LongtailError(Exception):
    """Base of all errors that longtail raises on purpose; its message is printable."""

    def __new__(cls, *args: object, **_: object) -> Self:
        # Here too: an error of another process is made without calling its __init__.
        return super().__new__(cls, *map(_printable_argument, args))

    def __init__(self, *args: object) -> None:
        super().__init__(*map(_printable_argument, args))

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own would call __init__ with the message, and some want other arguments.
        return _restored, (type(self), self.args, self.__dict__)


def _printable_argument(value: object) -> object:
    return printable(value) if isinstance(value, str) else value


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
        shown = _shown(name)
        near = _nearest(name if isinstance(name, str) else shown, names)
        hint = f"Did you mean {' or '.join(map(repr, near))}? " if near else ""
        super().__init__(f"unknown {kind} {shown}. {hint}Known: {_listed(names)}.")


_shortened = reprlib.Repr()
_shortened.maxstring = _shortened.maxother = NAME_LIMIT


def _shown(name: object) -> str:
    try:
        return _shortened.repr(name)
    except ValueError:  # Python refuses to write out an integer of more than 4,300 digits
        return f"<{type(name).__name__}>"


def _nearest(name: str, names: list[str]) -> list[str]:
    # difflib's time grows with the product of the lengths, and is 18 us for a short name. Of too
    # many names, those around this one in the alphabet.
    candidates = [known for known in names if len(known) <= NAME_LIMIT]
    first = min(bisect(candidates, name) - MOST_COMPARED // 2, len(candidates) - MOST_COMPARED)
    first = max(first, 0)
    some = candidates[first : first + MOST_COMPARED]
    return difflib.get_close_matches(name[:NAME_LIMIT], some, n=3, cutoff=0.5)


def _listed(names: list[str]) -> str:
    """The names, as many as fit, and how many more there are."""
    cut = [printable(name[: 2 * NAME_LIMIT], NAME_LIMIT) for name in names[:KNOWN_LIMIT]]
    ends = accumulate(len(name) + 2 for name in cut)
    fitting = max(sum(1 for _ in takewhile(lambda end: end <= KNOWN_LIMIT, ends)), 1)
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
