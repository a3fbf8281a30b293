"""Attacks on longtail from outside: kills, damaged folders and files, wrong tensors, threads.

`python -m tests.attack --minutes 20` runs all of them; `make test` runs a bounded part of each.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any, NamedTuple

from longtail.errors import LIMIT, LongtailError

RIGHT, OUR_ERROR, REPORTED = "right", "our error", "reported"
GOOD = (RIGHT, OUR_ERROR, REPORTED)


class Outcome(NamedTuple):
    """One case, counted by its `kind`: what was attacked and how, in a few words.

    `verdict` is one of GOOD (the answer was right; a LongtailError without a traceback; something
    was left out and the user was warned), or a few words on what went wrong, a defect of longtail.
    `detail` lets a person repeat the case.
    """

    kind: str
    verdict: str
    detail: str = ""


def verdict_on(call: Callable[[], Any]) -> tuple[str, Any]:
    """Return RIGHT and the result of a call, OUR_ERROR, or a description of a wrong error."""
    try:
        return RIGHT, call()
    except LongtailError as error:
        message = str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # including panics of Rust libraries
        return f"raw {type(error).__name__}: {error}"[:200], None
    if not 20 < len(message) <= LIMIT:
        return f"a message of {len(message)} characters", None
    odd = any(unicodedata.category(c) in ("Cc", "Cs") and c != "\n" for c in message)
    return "a message that is not printable" if odd else OUR_ERROR, None
