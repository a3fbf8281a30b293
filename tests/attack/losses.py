"""Random batches for every loss of LOSSES, valid ones and damaged ones: see tests/losses.

A valid batch must give the loss and gradient of the oracle; a damaged one, or an absurd setting, a
LongtailError.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import torch

from ..losses.bad_inputs import bad_call, bad_setting, bad_stats
from ..losses.cases import NAMES
from ..losses.random_cases import defect, make_case
from . import RIGHT, Outcome, verdict_on

MINIMUM = 200_000


def attack(seed: int, scratch: Path) -> Iterator[Outcome]:
    """Yield endless cases; 70% are valid batches."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
    for number in count():
        rng = random.Random(f"{seed} {number}")
        draw, detail = rng.random(), f"seed {seed}, case {number}"
        if draw < 0.7:
            case = make_case(rng)
            verdict = defect(case) or RIGHT
            yield Outcome(f"{case.form} targets, {case.regime} logits", verdict, detail)
            continue
        if draw < 0.9:
            case = next(case for _ in count() if (case := make_case(rng)).logits.numel())
            name = case.name
            kind, call = bad_call(rng, case.loss, case.logits)
        else:
            name = rng.choice(NAMES)
            kind, call = (bad_setting if draw < 0.96 else bad_stats)(rng, name)
        yield Outcome(kind, refused(call), f"{detail}, {name}")


def refused(call: Callable[[], Any]) -> str:
    """Return the verdict on a call that must raise a LongtailError."""
    verdict, result = verdict_on(call)
    return f"damaged input accepted: {str(result)[:60]}" if verdict == RIGHT else verdict
