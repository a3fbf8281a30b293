"""Cancellation and overflow; see test_random.py for NaN."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from longtail.losses import BalancedLoss, functional

from .cases import check_same, loss_and_grad, make_batch, make_loss, to_csr, to_offsets


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0, 3.7, 1e6])
def test_huge_logits_under_any_focus(gamma: float) -> None:
    loss = BalancedLoss(gamma=gamma, reduction="sum")
    logits = torch.tensor([[1e18, -1e18, 1e15, 1.0]], requires_grad=True)
    for target in (torch.zeros(1, 4), torch.ones(1, 4)):
        value = loss(logits, target)
        (grad,) = torch.autograd.grad(value, logits)
        assert value.item() == pytest.approx(1e18, rel=2e-3)
        assert grad.isfinite().all()


@pytest.mark.parametrize("form", [torch.clone, to_csr])
def test_two_way_at_logits_beyond_a_billion(form: Callable[[Tensor], Tensor]) -> None:
    # With -1e9 as a placeholder, the term of a positive below it was 0.
    loss = make_loss("two-way", 2, reduction="none")
    logits = torch.tensor([[1e10, 3e10]])
    value = loss(logits, form(torch.tensor([[1.0, 0.0]])))
    torch.testing.assert_close(value, torch.tensor([2e10, 0.0, 0.0]))
    # All labels apply: no negatives to compare with.
    assert not loss(-4 * logits, form(torch.ones(1, 2))).any()


@pytest.mark.parametrize("name", ["zlpr", "two-way"])
def test_an_unknown_label_does_not_drown_the_known_ones(name: str) -> None:
    # The masked logit 0 is e^100 above the known label's term, which would vanish.
    logits, target = torch.tensor([[0.0, 400.0, 420.0]]), torch.tensor([[1.0, 1.0, 0.0]])
    mask = torch.tensor([[False, True, True]])
    loss = make_loss(name, 3, reduction="none")
    check_same(loss, logits, target, to_csr(target), to_offsets(target), mask=mask)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("scale", [1.0, 5.0, 20.0, 100.0])
@pytest.mark.parametrize("name", ["asl", "zlpr", "bce", "fl", "db"])
def test_float32_gradients_keep_their_digits(name: str, scale: float, soft: bool) -> None:
    logits, target = make_batch(40, 5, seed=2, scale=scale, soft=soft)
    logits, target = logits.float(), target.float()
    loss = make_loss(name, 5, reduction="sum", dtype=torch.float64)
    _, exact = loss_and_grad(loss, logits.double(), target.double())
    _, grad = loss_and_grad(loss, logits, target)
    # The terms of a soft target cancel to within eps of each.
    atol = 2e-7 if soft else 1e-20
    torch.testing.assert_close(grad.double(), exact, rtol=1e-4, atol=atol)


@pytest.mark.parametrize("margin", [0.05, 0.5, 1e-4])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 4.0])
def test_asymmetric_negatives_have_both_derivatives(gamma: float, margin: float) -> None:
    logits = torch.linspace(-8, 8, 31, dtype=torch.float64)

    def cost(z: Tensor) -> Tensor:
        return functional.asymmetric_negative(z, gamma, margin)

    away = (torch.sigmoid(logits) - margin).abs() > 1e-3
    leaf = logits[away].requires_grad_()
    assert torch.autograd.gradcheck(cost, (leaf,))
    assert torch.autograd.gradgradcheck(cost, (leaf,))
