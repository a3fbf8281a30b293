"""A bounded part of the attack on the losses; tests/losses shows that its comparison can fail."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from longtail.errors import InputError

from . import GOOD, OUR_ERROR, RIGHT
from .losses import MINIMUM, attack, refused


def test_three_seconds_of_attack(tmp_path: Path) -> None:
    deadline = time.monotonic() + 3
    verdicts = []
    for outcome in attack(7, tmp_path):
        assert outcome.verdict in GOOD, outcome
        verdicts.append(outcome.verdict)
        if time.monotonic() > deadline and len(verdicts) >= 200:
            break
    assert set(verdicts) == {RIGHT, OUR_ERROR}
    assert MINIMUM >= 200_000


def test_what_is_not_refused_or_refused_badly_is_noticed() -> None:
    def fail(error: Exception) -> None:
        raise error

    assert refused(lambda: fail(InputError("expected this, got that; do so"))) == OUR_ERROR
    assert "says only no" in refused(lambda: fail(InputError("no")))
    assert refused(lambda: fail(IndexError("index out of range"))).startswith("raw IndexError")
    assert refused(lambda: torch.ones(1)).startswith("damaged input accepted")
