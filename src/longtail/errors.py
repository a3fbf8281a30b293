"""One exception family: every error that a user can fix derives from LongtailError.

The command and the service show its message without a traceback. A message says what was expected,
what came, and what to do; it is bounded and printable from here on.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import warnings
from collections.abc import Iterable
from typing import Any

LIMIT = 4000  # characters per message: two screens, whatever the file or the server sent
NAME_LIMIT = 200  # characters shown of an unknown name
KNOWN_LIMIT = 2000  # characters shown of the list of known names
MOST_COMPARED = 5000  # known names compared with an unknown one: 0.1 s

PACKAGE = os.path.join(os.path.dirname(__file__), "")

# What a terminal acts on or cannot show: control characters except the line feed, line separators,
# bidirectional marks, the byte order mark, lone surrogates.
_UNPRINTABLE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def printable(text: str, limit: int = LIMIT) -> str:
    """Escape control characters, and cut the middle of a text longer than `limit`.

    The end is kept: that is where a message says what to do.
    """
    # Cut first: escaping 10 MB takes seconds.
    first, last = (_UNPRINTABLE.sub(_escape, part) for part in (text[: limit + 1], text[-limit:]))
    if len(first) <= limit:
        return first
    note = f" ... ({len(text):,} characters in all) ... "
    room = max(0, limit - len(note))
    return first[: room - room // 4] + note + last[len(last) - room // 4 :]


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def shown(value: object, most: int = NAME_LIMIT) -> str:
    """Return a repr for a message: cut at `most` characters, and never raises."""
    try:
        text = repr(value)
    except Exception:  # an integer of 5,000 digits, a broken __repr__
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= most else f"{text[:most]}..."


def warn(message: str) -> None:
    """Warn of the line that called longtail."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


class LongtailError(Exception):
    """Base of all errors raised on purpose; its message is printable."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(printable(arg) if isinstance(arg, str) else arg for arg in args))

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call __init__ with the message; some subclasses take other arguments.
        return type(self).__new__, (type(self), *self.args), self.__dict__


class InputError(LongtailError, ValueError):
    """A value that cannot be used: wrong shape, type or range."""


class UnknownNameError(LongtailError, ValueError):
    """A name that no table has; suggests the nearest known names."""

    def __init__(self, kind: str, name: object, known: Iterable[str]) -> None:
        names = sorted(map(str, known))
        hint, listed = did_you_mean(name, names), printable(", ".join(names), KNOWN_LIMIT)
        super().__init__(f"unknown {kind} {shown(name)}. {hint}Known: {listed}.")


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return a question with the nearest known names and a space, or nothing if none is near."""
    unknown = name[:NAME_LIMIT] if isinstance(name, str) else shown(name)
    # difflib's time grows with the product of the lengths; a short name takes 18 us.
    candidates = [entry for entry in known if len(entry) <= NAME_LIMIT][:MOST_COMPARED]
    near = difflib.get_close_matches(unknown, candidates, cutoff=0.5)
    return f"Did you mean {' or '.join(map(repr, near))}? " if near else ""


def known_name(kind: str, name: object, known: Iterable[str]) -> str:
    """Return the known name that equals `name` up to case."""
    by_lower = {entry.lower(): entry for entry in known}
    if isinstance(name, str) and name.lower() in by_lower:
        return by_lower[name.lower()]
    raise UnknownNameError(kind, name, by_lower.values())


class DataError(LongtailError, ValueError):
    """A file or record that cannot be read, or a place that cannot be written."""


class BadRecordError(DataError):
    """A record that cannot be read; `--on-error skip` leaves it out."""


class NotFittedError(LongtailError, AttributeError, ValueError):
    """A classifier was asked to predict before it was fitted."""


class MissingExtraError(LongtailError, ImportError):
    """An optional dependency is not installed; the message names the pip command."""

    def __init__(self, purpose: str, package: str, extra: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed. "
            f"Run: pip install 'longtail[{extra}]'"
        )
