"""Digits where terms cancel, overflow where products are finite; see test_random.py for NaN,
infinite and huge logits of every loss."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from longtail.losses import BalancedLoss, build_loss, functional

from .cases import NAMES, check_same, loss_and_grad, make_batch, make_loss, to_csr, to_offsets


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0, 3.7, 1e6])
def test_huge_logits_under_any_focus(gamma: float) -> None:
    loss = BalancedLoss(gamma=gamma, lambda_=1e6, reduction="sum")
    logits = torch.tensor([[3e38, -3e38, 3e35, 1.0]], requires_grad=True)
    for target in (torch.zeros(1, 4), torch.ones(1, 4)):
        value = loss(logits, target)
        (grad,) = torch.autograd.grad(value, logits, create_graph=True)
        assert value.item() == pytest.approx(3e38, rel=2e-3)
        assert grad.isfinite().all()
        (second,) = torch.autograd.grad(grad.sum(), logits)
        assert second.isfinite().all()


@pytest.mark.parametrize("form", [torch.clone, to_csr])
def test_two_way_at_logits_beyond_a_billion(form: Callable[[Tensor], Tensor]) -> None:
    # -1e9 stood for "none": a positive below it was no positive, and its term 0.
    loss = make_loss("two-way", 2, reduction="none")
    logits = torch.tensor([[1e10, 3e10]])
    value = loss(logits, form(torch.tensor([[1.0, 0.0]])))
    torch.testing.assert_close(value, torch.tensor([2e10, 0.0, 0.0]))
    # All labels apply: there is no negative to stay below.
    assert not loss(-4 * logits, form(torch.ones(1, 2))).any()


@pytest.mark.parametrize("name", ["zlpr", "two-way"])
def test_an_unknown_label_does_not_drown_the_known_ones(name: str) -> None:
    # Its stand-in logit of 0 is e^100 above the known label's term, which would round to nothing.
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
    # What the terms of a soft target cancel to is known to eps times each of them.
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


def target_gradients(name: str, logits: Tensor, target: Tensor) -> list[Tensor]:
    """Gradients of the targets in float32 and in float64."""
    grads = []
    for dtype in (torch.float32, torch.float64):
        leaf = target.to(dtype, copy=True).requires_grad_()
        loss = make_loss(name, target.shape[1], reduction="sum", dtype=torch.float64)
        loss(logits.to(dtype), leaf).backward()
        grads.append(leaf.grad.double())
    return grads


@pytest.mark.parametrize("tiny", [0.0, 1e-42, 1e-30, 1e-20, 1e-12, 1e-4])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_tiny_soft_targets(name: str, tiny: float) -> None:
    # 1/mass^2 overflowed, and 0 x inf is NaN; log(y) has no slope at 0 where the loss has one.
    logits, _ = make_batch(3, 5, seed=1, scale=1.0)
    target = torch.tensor([[0.0, 0, 0, 1, 1], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0]]) * tiny
    target[1, 1] = 1.0
    torch.testing.assert_close(*target_gradients(name, logits, target), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("apart", [10.0, 70.0, 300.0])
def test_targets_of_the_two_way_loss_keep_their_gradient_at_logits_far_apart(apart: float) -> None:
    # e^(score - sum) overflowed float32 where the slope of the softplus underflows.
    target = torch.tensor([[0.3, 0.0, 0.5], [0.0, 0.9, 0.2]])
    logits = torch.tensor([[apart, -apart, 0.0], [1.0, apart, -apart]])
    narrow, wide = target_gradients("two-way", logits, target)
    in_range = wide.abs() < 1e37
    torch.testing.assert_close(narrow[in_range], wide[in_range], rtol=1e-4, atol=1e-5)


def test_targets_of_weight_zero_have_no_gradient_whatever_the_logits() -> None:
    # The slope there is beyond float32, and infinity times the weight of 0 was NaN.
    loss = build_loss("two-way", reduction="sum", label_weight=torch.tensor([10.0]))
    target = torch.tensor([[0.0], [1e-12], [0.0]], requires_grad=True)
    logits = torch.tensor([[-1e30], [0.0], [0.0]])
    loss(logits, target, sample_weight=torch.tensor([0.0, 1.0, 1.0])).backward()
    assert target.grad is not None and target.grad[0] == 0 and target.grad.isfinite().all()


@pytest.mark.parametrize("name", ["zlpr", "two-way"])
def test_logits_keep_their_gradient_beside_targets_that_want_one(name: str) -> None:
    # e^(score - value) of an element of weight 0 overflows: times 0 that was NaN.
    target = torch.tensor([[0.0, 1.0, 1.0]], requires_grad=True)
    loss = build_loss(name, reduction="sum")
    assert loss_and_grad(loss, torch.tensor([[-200.0, 200.0, 1.0]]), target)[1].isfinite().all()


@pytest.mark.filterwarnings("ignore:.*[Ss]parse:UserWarning")
@pytest.mark.parametrize("name", NAMES)
def test_csr_targets_pass_the_gradient_of_dense_ones(name: str) -> None:
    # Distillation: the teacher's probabilities are part of the graph.
    logits, target = make_batch(3, 5, seed=4, soft=True)
    loss = make_loss(name, 5, dtype=torch.float64)
    leaf, other = ((0.1 + 0.8 * target).requires_grad_() for _ in range(2))
    loss(logits, leaf).backward()
    loss(logits, other.to_sparse_csr()).backward()
    torch.testing.assert_close(other.grad, leaf.grad)
