"""What holds for every row of LOSSES on every batch: the oracle's numbers, and clean hands.

Shapes from no document to several, one label, all types and forms of targets, documents without
labels, labels of no or every document, extreme logits, masks up to everything: see random_cases.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from .cases import NAMES
from .oracle import FORMULAS, Array, Batch
from .random_cases import Case, defect, make_case


def test_every_row_has_its_formula() -> None:
    assert list(FORMULAS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_random_batches_agree_with_the_oracle(name: str) -> None:
    rng = random.Random(name)
    for number in range(250):
        assert defect(make_case(rng, name)) is None, f"case {number}"


@pytest.mark.parametrize("seed", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_derivatives_of_the_oracle_are_differences(name: str, seed: int) -> None:
    rng = np.random.RandomState(seed)
    logits, targets = 3 * rng.randn(4, 5), 0.02 + 0.9 * rng.rand(4, 5)
    rest = (rng.rand(4, 5) < 0.8, rng.rand(4), rng.rand(5), np.array([7.0, 0, 40, 1, 20]), 40)
    terms = FORMULAS[name](Batch(logits, targets, *rest))
    upstream = rng.rand(*terms.values.shape)

    def value(logits: Array) -> float:
        return float((upstream * FORMULAS[name](Batch(logits, targets, *rest)).values).sum())

    by_logits = terms.pull(upstream)
    for place in np.ndindex(4, 5):
        step = np.zeros((4, 5))
        step[place] = 1e-6
        slope = (value(logits + step) - value(logits - step)) / 2e-6
        assert by_logits[place] == pytest.approx(slope, rel=1e-5, abs=1e-7)


FAULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "flipped": lambda value: -value,
    "weak gradient": lambda value: value.detach() + 0.99 * (value - value.detach()),
    "swallowed NaN": lambda value: torch.where(value.isnan(), 0.0, value),
    "raw error": lambda value: value[7, 7],
    "unmasked": lambda value: value,
}


@pytest.mark.parametrize("fault", FAULTS)
# One row of each kind: the comparison treats all rows of a kind alike.
@pytest.mark.parametrize("name", ["bce", "db", "asl", "zlpr", "two-way", "dice"])
def test_the_comparison_notices_a_wrong_loss(name: str, fault: str) -> None:
    rng = random.Random(f"{name} {fault}")

    def is_noticed(case: Case) -> bool:
        def wrong(*arguments: Any, mask: Any, **kw: Any) -> Tensor:
            known = None if fault == "unmasked" else mask
            return FAULTS[fault](case.loss(*arguments, mask=known, **kw))

        return defect(case, wrong) is not None

    assert any(is_noticed(make_case(rng, name)) for _ in range(400))


def parts(target: Any) -> list[Tensor]:
    if not isinstance(target, Tensor):
        return list(target)
    if target.layout == torch.sparse_csr:
        return [target.values(), target.col_indices(), target.crow_indices()]
    return [target]


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", NAMES)
def test_inputs_and_grad_mode_are_left_alone(name: str, mode: Any) -> None:
    rng = random.Random(name)
    for _ in range(12):
        case = make_case(rng, name)
        tensors = [case.logits, *parts(case.target), case.mask, case.sample_weight]
        tensors = [tensor for tensor in tensors if tensor is not None]
        before = [tensor.detach().clone() for tensor in tensors]
        wanted = mode is torch.enable_grad
        with mode():
            inside = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
            case.logits.requires_grad_(wanted)
            value = case.loss(
                case.logits, case.target, mask=case.mask, sample_weight=case.sample_weight
            )
            assert inside == (torch.is_grad_enabled(), torch.is_inference_mode_enabled())
        assert value.requires_grad == wanted
        if wanted:
            value.sum().backward()
        for now, old in zip(tensors, before, strict=True):
            torch.testing.assert_close(now.detach(), old, rtol=0, atol=0, equal_nan=True)
            assert now.grad is None or now.requires_grad
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
