"""Every row of LOSSES on random batches: the oracle's numbers, and inputs left unchanged.

Shapes from no document to several, one label, all types and forms of targets, documents without
labels, labels of no or every document, extreme logits, masks up to everything: see random_cases.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from .cases import NAMES
from .oracle import FORMULAS
from .random_cases import Case, defect, make_case


def test_every_row_has_its_formula() -> None:
    assert list(FORMULAS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_random_batches_agree_with_the_oracle(name: str) -> None:
    rng = random.Random(name)
    for number in range(80):
        assert defect(make_case(rng, name)) is None, f"case {number}"


FAULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "flipped": lambda value: -value,
    "weak gradient": lambda value: value.detach() + 0.99 * (value - value.detach()),
    "swallowed NaN": lambda value: torch.where(value.isnan(), 0.0, value),
    "raw error": lambda value: value[7, 7],
    "unmasked": lambda value: value,
}


@pytest.mark.parametrize("fault", FAULTS)
# One row of each kind: the comparison treats all rows of a kind alike.
@pytest.mark.parametrize("name", ["db", "two-way"])
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
