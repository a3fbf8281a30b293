"""What differs between the settings of a run and those that are requested now, in words."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

MAX_SHOWN, MAX_LENGTH = 5, 60


def differences(
    before: Mapping[str, Any], now: Mapping[str, Any], ignored: Collection[str] = ()
) -> list[str]:
    """Sentences such as "epochs was 3, now 5"; `ignored`: names that may differ."""
    found = [
        f"{name} was {_short(old)}, now {_short(new)}"
        for name, old, new in _changed(before, now)
        if name not in ignored
    ]
    more = len(found) - MAX_SHOWN
    return [*found[:MAX_SHOWN], f"and {more} more"] if more > 0 else found


def _changed(before: Any, now: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The innermost values that differ, with the key of each."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted({*before, *now}):
            yield from _changed(before.get(key), now.get(key), key)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for old, new in zip(before, now, strict=True):
            yield from _changed(old, new, name)
    elif before != now:
        yield name, before, now


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_LENGTH else f"{text[:MAX_LENGTH]}..."
