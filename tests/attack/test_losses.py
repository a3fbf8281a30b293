"""A bounded part of the attack on the losses, and proof that its judge can fail."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from longtail.errors import InputError

from .losses import MINIMUM, attack, judge, make_case, refused
from .outcome import GOOD, OUR_ERROR, RIGHT


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


Loss = Callable[..., Tensor]


def flipped(loss: Loss, logits: Tensor, *rest: Any, **kw: Any) -> Tensor:
    return -loss(logits, *rest, **kw)


def weak_gradient(loss: Loss, logits: Tensor, *rest: Any, **kw: Any) -> Tensor:
    value = loss(logits, *rest, **kw)
    return value.detach() + 0.99 * (value - value.detach())


def swallowed_nan(loss: Loss, logits: Tensor, *rest: Any, **kw: Any) -> Tensor:
    value = loss(logits, *rest, **kw)
    return torch.where(value.isnan(), 0.0, value)


def unmasked(loss: Loss, logits: Tensor, *rest: Any, mask: Any, **kw: Any) -> Tensor:
    return loss(logits, *rest, mask=None, **kw)


def raw_error(loss: Loss, logits: Tensor, *rest: Any, **kw: Any) -> Tensor:
    return loss(logits, *rest, **kw)[7, 7]


def refusal(loss: Loss, logits: Tensor, *rest: Any, **kw: Any) -> Tensor:
    raise InputError("a good batch, refused with a long message")


FAULTS = [flipped, weak_gradient, swallowed_nan, unmasked, raw_error, refusal]


@pytest.mark.parametrize("fault", FAULTS)
# One row of each kind: the judge treats all rows of a kind alike.
@pytest.mark.parametrize("name", ["bce", "db", "asl", "zlpr", "two-way", "dice"])
def test_the_judge_notices_a_wrong_loss(name: str, fault: Callable[..., Tensor]) -> None:
    rng = random.Random(f"{name} {fault.__name__}")
    for _ in range(400):
        case = make_case(rng, name)
        assert judge(case) == RIGHT

        def wrong(*arguments: Any, right: Loss = case.loss, **kw: Any) -> Tensor:
            return fault(right, *arguments, **kw)

        if judge(case, wrong) != RIGHT:
            return
    raise AssertionError("400 cases, and no defect was noticed")


def test_the_judge_notices_what_is_not_refused_or_refused_badly() -> None:
    def fail(error: Exception) -> None:
        raise error

    assert refused(lambda: fail(InputError("expected this, got that; do so"))) == OUR_ERROR
    assert "says only no" in refused(lambda: fail(InputError("no")))
    assert refused(lambda: fail(IndexError("index out of range"))).startswith("raw IndexError")
    assert refused(lambda: torch.ones(1)).startswith("damaged input accepted")
