"""Argument checks with one message for all packages: numbers, choices, text."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any

from longtail.errors import InputError

_SURROGATE = re.compile("[\ud800-\udfff]")


def check_integer(name: str, value: Any, minimum: int, *, optional: bool = False) -> None:
    """Raise unless the value is an integer of at least `minimum`, or None if `optional`."""
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
        raise InputError(f"{name} must be a whole number of at least {minimum}, got {value!r}.")


def check_number(
    name: str,
    value: Any,
    minimum: float = -math.inf,
    maximum: float = math.inf,
    *,
    optional: bool = False,
    exclusive: bool = False,
) -> None:
    """Raise unless the value is a finite number from `minimum` to `maximum`.

    Args:
        optional: allow None.
        exclusive: refuse `minimum` itself.
    """
    if value is None and optional:
        return
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    # math.isfinite overflows for an integer beyond float.
    is_number = is_number and -math.inf < value < math.inf
    if is_number and minimum <= value <= maximum and not (exclusive and value == minimum):
        return
    expected = "a finite number"
    if minimum > -math.inf:
        expected = f"a number {'above' if exclusive else 'of at least'} {minimum:g}"
    if maximum < math.inf:
        expected += f" and at most {maximum:g}"
    hint = ""
    if isinstance(value, str) and re.fullmatch(r"\d+e[+-]?\d+", value):
        # YAML reads 1e5 as a string.
        hint = f" In YAML write {value.replace('e', '.0e')}."
    raise InputError(f"{name} must be {expected}, got {value!r}.{hint}")


def check_bool(name: str, value: Any) -> None:
    """Raise unless the value is a Python or numpy bool."""
    if type(value).__name__ != "bool":  # numpy's type has the same name
        raise InputError(f"{name} must be true or false, got {value!r}.")


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Raise unless the value is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{name} must be one of {', '.join(choices)}, got {value!r}.")


def has_surrogate(text: str) -> bool:
    """Return whether the text has a lone surrogate, which UTF-8 cannot encode."""
    return not text.isascii() and _SURROGATE.search(text) is not None


def replace_surrogates(text: str) -> str:
    """Join surrogate pairs into one character, and replace lone surrogates by U+FFFD."""
    if not has_surrogate(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
