"""NaN shows, infinities give limits, and float32 gradients keep their digits where terms cancel."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest
import torch
from torch import Tensor

from longtail.losses import LOSSES, BalancedLoss, build_loss, functional

from .cases import NAMES, loss_and_grad, make_batch, make_loss, to_csr, to_offsets

REDUCTIONS = ["none", "mean", "batchmean", "sum"]
REBALANCED = [
    name for name, row in LOSSES.items() if row.constants.get("weighting") == "rebalanced"
]


def forms(target: Tensor) -> list[Any]:
    """All forms; 0/1 targets as label indices too."""
    hard = bool(((target == 0) | (target == 1)).all())
    return [target, to_csr(target), *([to_offsets(target), target.bool()] if hard else [])]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_a_nan_that_counts_shows(name: str, reduction: str) -> None:
    # Of the two-way loss a positive's NaN was taken for "no positive", and the loss was 0.
    target = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    loss = make_loss(name, 3, reduction=reduction)
    for label, soft in ((0, 1.0), (1, 1.0), (0, 0.5)):
        logits = torch.zeros(2, 3)
        logits[0, label] = nan
        for form in forms(target * soft):
            value = loss(logits, form)
            assert value.isnan().any()
            if value.dim() == 2:
                assert torch.equal(value.isnan(), logits.isnan())
        mask = torch.ones(2, 3, dtype=torch.bool)
        mask[0, label] = False
        assert loss(logits, target * soft, mask=mask).isfinite().all()


@pytest.mark.parametrize("soft", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_a_nan_in_a_batch_of_one_kind_shows(name: str, reduction: str, soft: float) -> None:
    # The two-way loss has no pair to compare in an unlabelled document or a fully labelled one.
    loss = make_loss(name, 3, reduction=reduction)
    logits = torch.zeros(2, 3)
    logits[0, 1] = nan
    for form in forms(torch.full((2, 3), soft)):
        value = loss(logits, form)
        if name == "two-way" and reduction == "none":
            assert value.isnan().tolist() == [True, False, False, True, False]
        assert value.isnan().any()
        mask = torch.tensor([[True, False, True], [True, True, True]])
        assert loss(logits, form, mask=mask).isfinite().all()
    # Nor does an element of weight 0 count.
    weighted = make_loss(name, 3, reduction=reduction, label_weight=[1.0, 0.0, 1.0])
    if name == "two-way" and reduction == "none":
        weighted_nan = weighted(logits, torch.full((2, 3), soft)).isnan()
        assert weighted_nan.tolist() == [False, False, False, True, False]


HUGE = {
    torch.float16: [65504.0],
    torch.bfloat16: [3.38e38],
    torch.float32: [1e38, 2e38, 3.4e38],
    torch.float64: [1.7e308],
}


@pytest.mark.parametrize("weight", [0.0, 1.0])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_huge_logits_give_their_value_or_infinity(name: str, reduction: str, weight: float) -> None:
    # lambda z overflowed, and gamma cost: times 0 both were NaN.
    loss = make_loss(name, 3, reduction=reduction)
    exact = make_loss(name, 3, reduction=reduction, dtype=torch.float64)
    sample_weight = torch.tensor([weight, 1.0])
    for dtype, sizes in HUGE.items():
        for size in [sign * size for sign in (1, -1) for size in sizes]:
            logits = torch.tensor([[size, 0.3, -0.7], [0.2, size, 0.4]], dtype=dtype)
            for y in (0.5, 1.0):
                for form in forms(torch.tensor([[y, 0.0, 1.0], [0.0, y, 0.0]]))[:2]:
                    value, grad = loss_and_grad(loss, logits, form, sample_weight=sample_weight)
                    assert not value.isnan().any() and grad.isfinite().all()
                    if dtype == torch.float64 or name == "two-way":
                        continue
                    wide, slope = loss_and_grad(
                        exact, logits.double(), form, sample_weight=sample_weight
                    )
                    torch.testing.assert_close(value, wide.float(), rtol=2e-6, atol=1e-6)
                    torch.testing.assert_close(grad, slope.to(dtype), rtol=1e-2, atol=1e-5)


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


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "two-way"])
def test_infinite_logits_give_the_limit(name: str, reduction: str) -> None:
    # 1e6 is as good as infinity for all that is finite there.
    loss = make_loss(name, 3, reduction=reduction)
    for sign, y in ((1, 0.0), (1, 1.0), (1, 0.5), (-1, 0.0), (-1, 1.0), (-1, 0.5)):
        target = torch.tensor([[y, 0.0, 1.0], [0.0, 1.0, 0.0]])
        logits = torch.tensor([[0.0, 0.3, -0.7], [0.2, 0.1, 0.4]])
        near, far = logits.clone(), logits.clone()
        near[0, 0], far[0, 0] = sign * 1e6, sign * inf
        for form in forms(target):
            expected, expected_grad = loss_and_grad(loss, near, form)
            value, grad = loss_and_grad(loss, far, form)
            expected = torch.where(expected > 1e3, inf, expected)
            torch.testing.assert_close(value, expected)
            torch.testing.assert_close(grad, expected_grad)


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_a_certain_label_of_the_two_way_loss_still_counts(reduction: str) -> None:
    # A positive at +inf adds nothing to the sum; its document and label have a term all the same.
    loss = make_loss("two-way", 3, reduction=reduction)
    target = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    near = torch.tensor([[1e6, 0.3, -0.7], [0.2, 0.1, 0.4]])
    far = torch.tensor([[inf, 0.3, -0.7], [0.2, 0.1, 0.4]])
    for form in forms(target):
        expected, expected_grad = loss_and_grad(loss, near, form)
        value, grad = loss_and_grad(loss, far, form)
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(grad, expected_grad)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_infinite_logits_without_a_term_have_no_gradient(reduction: str) -> None:
    loss = make_loss("two-way", 3, reduction=reduction)
    logits = torch.tensor([[inf, 0.3, -inf], [0.2, 0.1, 0.4]])
    for form in forms(torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])):
        value, grad = loss_and_grad(loss, logits, form)
        assert value.isfinite().all() and not grad[0, [0, 2]].any() and grad[1].any()


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_two_way_at_logits_beyond_a_billion(form: str) -> None:
    # -1e9 stood for "none": a positive below it was no positive, and its term 0.
    loss = make_loss("two-way", 2, reduction="none")
    logits, target = torch.tensor([[1e10, 3e10]]), torch.tensor([[1.0, 0.0]])
    value = loss(logits, target if form == "dense" else to_csr(target))
    torch.testing.assert_close(value, torch.tensor([2e10, 0.0, 0.0]))
    # All labels apply: there is no negative to stay below.
    value = loss(-4 * logits, torch.ones(1, 2) if form == "dense" else to_csr(torch.ones(1, 2)))
    assert not value.any()


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
    logits = torch.linspace(-8, 8, 31, dtype=torch.float64).requires_grad_()

    def cost(z: Tensor) -> Tensor:
        return functional.asymmetric_negative(z, gamma, margin)

    away = (torch.sigmoid(logits) - margin).abs() > 1e-3
    leaf = logits.detach()[away].requires_grad_()
    assert torch.autograd.gradcheck(cost, (leaf,))
    assert torch.autograd.gradgradcheck(cost, (leaf,))
    # torch.func does not take a hand-written gradient; it gets the same from autograd.
    by_func = torch.func.grad(lambda z: cost(z).sum())(leaf.detach())
    (by_hand,) = torch.autograd.grad(cost(leaf).sum(), leaf)
    torch.testing.assert_close(by_func, by_hand)


@pytest.mark.parametrize("tiny", [0.0, 1e-42, 1e-30, 1e-20, 1e-12, 1e-4])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_tiny_soft_targets(name: str, tiny: float) -> None:
    # 1/mass^2 overflowed, and 0 x inf is NaN; log(y) has no slope at 0 where the loss has one.
    logits, _ = make_batch(3, 5, seed=1, scale=1.0)
    target = torch.tensor([[0.0, 0, 0, 1, 1], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0]]) * tiny
    target[1, 1] = 1.0
    loss = make_loss(name, 5, reduction="sum", dtype=torch.float64)
    grads = []
    for dtype in (torch.float32, torch.float64):
        leaf = target.to(dtype, copy=True).requires_grad_()
        loss(logits.to(dtype), leaf).backward()
        assert leaf.grad is not None and leaf.grad.isfinite().all()
        grads.append(leaf.grad.double())
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["zlpr", "dice", "bce", *REBALANCED])
def test_gradients_of_targets_at_zero_are_differences(name: str) -> None:
    logits, _ = make_batch(2, 5, seed=1, scale=1.0)
    target = torch.tensor([[0.0, 0, 0, 1, 0.4], [0, 1, 0, 0, 0]], dtype=torch.float64)
    loss = make_loss(name, 5, reduction="sum", dtype=torch.float64)
    for form in ("dense", "csr"):
        leaf = target.clone().requires_grad_()
        loss(logits, leaf if form == "dense" else leaf.to_sparse_csr()).backward()
        assert leaf.grad is not None
        for row, label in ((0, 0), (0, 3), (0, 4), (1, 1)) if form == "dense" else ((0, 4), (1, 1)):
            # Into [0, 1]: the loss is not defined beside it.
            size = -1e-7 if target[row, label] > 0.5 else 1e-7
            step = torch.zeros_like(target)
            step[row, label] = size
            slope = (loss(logits, target + step) - loss(logits, target)) / size
            assert leaf.grad[row, label].item() == pytest.approx(slope.item(), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("apart", [10.0, 70.0, 120.0, 300.0])
def test_targets_of_the_two_way_loss_keep_their_gradient_at_logits_far_apart(apart: float) -> None:
    # e^(score - sum) overflowed float32 where the slope of the softplus underflows.
    target = torch.tensor([[0.3, 0.0, 0.5], [0.0, 0.9, 0.2]])
    logits = torch.tensor([[apart, -apart, 0.0], [1.0, apart, -apart]])
    grads = []
    for dtype in (torch.float32, torch.float64):
        leaf = target.to(dtype, copy=True).requires_grad_()
        make_loss("two-way", 3, reduction="sum")(logits.to(dtype), leaf).backward()
        assert leaf.grad is not None
        grads.append(leaf.grad.double())
    in_range = grads[1].abs() < 1e37
    torch.testing.assert_close(grads[0][in_range], grads[1][in_range], rtol=1e-4, atol=1e-5)


def test_targets_of_weight_zero_have_no_gradient_whatever_the_logits() -> None:
    # The slope there is beyond float32, and infinity times the weight of 0 was NaN.
    loss = build_loss("two-way", reduction="sum", label_weight=torch.tensor([10.0]))
    target = torch.tensor([[0.0], [1e-12], [0.0]], requires_grad=True)
    logits = torch.tensor([[-1e30], [0.0], [0.0]])
    loss(logits, target, sample_weight=torch.tensor([0.0, 1.0, 1.0])).backward()
    assert target.grad is not None and target.grad[0] == 0 and target.grad.isfinite().all()


def test_logits_keep_their_gradient_beside_targets_that_want_one() -> None:
    # e^(score - value) of an element of weight 0 overflows: times 0 that was NaN.
    for name in ("zlpr", "two-way"):
        logits = torch.tensor([[-200.0, 200.0, 1.0]], requires_grad=True)
        target = torch.tensor([[0.0, 1.0, 1.0]], requires_grad=True)
        build_loss(name, reduction="sum")(logits, target).backward()
        assert logits.grad is not None and logits.grad.isfinite().all()


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
@pytest.mark.parametrize("name", NAMES)
def test_csr_targets_pass_the_gradient_of_dense_ones(name: str) -> None:
    logits, target = make_batch(3, 5, seed=4, soft=True)
    loss = make_loss(name, 5, dtype=torch.float64)
    leaf, other = ((0.1 + 0.8 * target).requires_grad_() for _ in range(2))
    loss(logits, leaf).backward()
    loss(logits, other.to_sparse_csr()).backward()
    torch.testing.assert_close(other.grad, leaf.grad)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_infinite_half_logits(name: str, dtype: torch.dtype) -> None:
    logits = torch.tensor([[-inf, 0.5, -inf]], dtype=dtype)
    value, grad = loss_and_grad(make_loss(name, 3), logits, torch.tensor([[0, 1, 0]]))
    assert value.isfinite() and grad.isfinite().all() and grad.dtype == dtype
