"""One exception family: every error that is the user's to mend derives from LongtailError.

The command and the service show these as one message without a traceback; a message says what
was expected, what came, and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LongtailError(Exception):
    """Base of all errors that longtail raises on purpose."""


class InputError(LongtailError, ValueError):
    """A value that cannot be used: wrong shape, type or range."""


class UnknownNameError(LongtailError, ValueError):
    """A name that is not in one of our tables; the nearest known names are suggested."""

    def __init__(self, kind: str, name: object, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(map(repr, near))}? " if near else ""
        super().__init__(f"unknown {kind} {name!r}. {hint}Known: {', '.join(names)}.")


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
