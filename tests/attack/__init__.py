"""Attacks on longtail from outside: kills, damaged folders and files, wrong tensors, threads.

`python -m tests.attack --minutes 20` runs all of them; `make test` runs a bounded part of each.
"""

from __future__ import annotations

from typing import NamedTuple

RIGHT, OUR_ERROR, TOLD = "right", "our error", "told"
GOOD = (RIGHT, OUR_ERROR, TOLD)


class Outcome(NamedTuple):
    """One case, counted by its `kind`: what was attacked and how, in a few words.

    `verdict` is one of GOOD (the answer was right; a LongtailError without a traceback; something
    was left out and the user was told), or a few words on what went wrong, a defect of longtail.
    `detail` lets a person repeat the case.
    """

    kind: str
    verdict: str
    detail: str = ""
