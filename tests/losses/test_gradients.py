"""Gradients of the balanced rows: half precision, second derivative, none without need.

Their first gradient is in closed form (`balanced`), so each of these is another piece of code; for
the first gradient itself see test_random.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from longtail.errors import InputError
from longtail.losses import MultiLabelLoss, balanced

from .cases import BALANCED, make_batch, make_loss, to_csr

N_LABELS = 5
LABEL_WEIGHT = torch.tensor([1.0, 0.5, 2.0, 3.0, 0.25], dtype=torch.float64)


def test_a_second_derivative_is_refused_or_right() -> None:
    logits, target = make_batch(4, N_LABELS, seed=3)
    leaf = logits.requires_grad_()
    with pytest.raises(InputError, match=r'no second derivative .*reduction="none"'):
        torch.autograd.grad(make_loss("db", N_LABELS)(leaf, target), leaf, create_graph=True)
    terms = make_loss("db", N_LABELS, reduction="none", dtype=torch.float64)
    assert torch.autograd.gradgradcheck(lambda z: terms(z, target), (leaf,))


def half_and_wide(
    loss: MultiLabelLoss, logits: Tensor, target: Any, scale: float
) -> tuple[Tensor, Tensor]:
    """Return the gradient for half-precision logits, and for the same numbers in float32."""
    grads = []
    for values in (logits, logits.float()):
        leaf = values.clone().requires_grad_()
        value = loss(leaf, target) * scale
        grads += torch.autograd.grad(value, leaf)
    return grads[0].detach(), grads[1].detach()


def check_rounded_once(half: Tensor, wide: Tensor, least: float, most: float) -> None:
    """Check that small and large half gradients equal the float32 ones to half precision."""
    assert wide.abs().min() < least and wide.abs().max() > most
    limits = torch.finfo(half.dtype)
    assert half.isfinite().all()
    # Subnormal numbers are coarser than eps.
    torch.testing.assert_close(
        half.float(), wide, rtol=limits.eps, atol=limits.smallest_normal * limits.eps
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", BALANCED)
def test_large_label_weights_fit_half_gradients(name: str, dtype: torch.dtype) -> None:
    # Weighted, an element's slope is beyond float16's 65504; the mean over the batch is not.
    logits, target = make_batch(6, N_LABELS, scale=0.5)
    weight = torch.tensor([225000.0, 1.0, 2000.0, 225000.0, 0.1])
    loss = make_loss(name, N_LABELS, label_weight=weight)
    target = target * 0.9
    for form in (target, to_csr(target)):
        half, wide = half_and_wide(loss, logits.to(dtype), form, 1.0)
        check_rounded_once(half, wide, least=1e-2, most=500)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["bce", "cb-bce", "r-bce", "logit-adjusted"])
def test_a_loss_scale_lifts_what_float16_cannot_hold(name: str, dtype: torch.dtype) -> None:
    # sigmoid(-18) is below float16's smallest number, 65536 times that is not.
    noise, target = make_batch(3, N_LABELS, scale=0.5)
    logits = (18 + noise) * (2 * target - 1)
    loss = make_loss(name, N_LABELS, reduction="sum")
    for form in (target, to_csr(target)):
        half, wide = half_and_wide(loss, logits.to(dtype), form, 65536.0)
        check_rounded_once(half, wide, least=65536 * 6e-8, most=1e-4)
        assert half.all()


def test_no_gradient_is_made_where_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bool] = []
    inner = balanced._sum_and_grad

    def recorded(*arguments: Any) -> Any:
        total, grad = inner(*arguments)
        made.append(grad is not None)
        return total, grad

    monkeypatch.setattr(balanced, "_sum_and_grad", recorded)
    logits, target = make_batch(3, N_LABELS)
    loss, leaf = make_loss("db", N_LABELS), logits.clone().requires_grad_()
    value = loss(leaf, target)
    assert value.requires_grad
    for mode in (torch.no_grad(), torch.inference_mode(), torch.enable_grad()):
        with mode:
            alone = loss(logits if isinstance(mode, torch.enable_grad) else leaf, target)
        assert not alone.requires_grad and torch.equal(alone, value.detach())
    assert made == [True, False, False, False]
