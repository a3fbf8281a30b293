"""What one attack came to. Three verdicts are good; any other is a defect of longtail."""

from __future__ import annotations

from typing import NamedTuple

RIGHT, OUR_ERROR, TOLD = "right", "our error", "told"
GOOD = (RIGHT, OUR_ERROR, TOLD)


class Outcome(NamedTuple):
    """One case.

    `kind` is what was attacked and how, in a few words: cases are counted by it. `verdict` is one
    of GOOD (the answer was right; a LongtailError without a traceback; something was left out and
    the user was told), or a few words on what went wrong. `detail` lets a person repeat the case.
    """

    kind: str
    verdict: str
    detail: str = ""
