"""Gradients of the balanced rows: half precision, and none if none is wanted.

Their first gradient is in closed form (`balanced`), so each of these is another piece of code; for
the first gradient itself see test_random.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

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
    """The gradient for half-precision logits, and that for the same numbers in float32."""
    grads = []
    for values in (logits, logits.float()):
        leaf = values.clone().requires_grad_()
        value = loss(leaf, target) * scale
        grads += torch.autograd.grad(value, leaf)
    return grads[0].detach(), grads[1].detach()


def check_rounded_once(half: Tensor, wide: Tensor, least: float, most: float) -> None:
    """Half gradients equal the float32 ones, small and large ones, to half precision."""
    assert wide.abs().min() < least and wide.abs().max() > most
    limits = torch.finfo(half.dtype)
    assert half.isfinite().all()
    # The last step of the smallest numbers is coarser than eps.
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
    # sigmoid(-18) is below float16's smallest step, 65536 times as much is not.
    noise, target = make_batch(3, N_LABELS, scale=0.5)
    logits = (18 + noise) * (2 * target - 1)
    loss = make_loss(name, N_LABELS, reduction="sum")
    for form in (target, to_csr(target)):
        half, wide = half_and_wide(loss, logits.to(dtype), form, 65536.0)
        check_rounded_once(half, wide, least=65536 * 6e-8, most=1e-4)
        assert half.all()


class LargestAllocation(TorchDispatchMode):
    """Bytes of the largest tensor made inside, whatever shares memory with the logits aside."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = logits.untyped_storage().data_ptr()
        self.size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, Tensor) and tensor.untyped_storage().data_ptr() != self.logits:
                self.size = max(self.size, tensor.untyped_storage().nbytes())
        return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_no_gradient_is_made_where_none_is_wanted(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Chunks of one row, so that only a gradient is as large as the logits.
    monkeypatch.setattr(balanced, "CHUNK_ELEMENTS", 1 << 15)
    n_rows, n_labels = 32, 20_000
    logits = torch.linspace(-3, 3, n_rows * n_labels).view(n_rows, n_labels).to(dtype)
    labels = torch.arange(0, n_labels, 5_000)
    offsets = torch.full((n_rows,), len(labels))
    offsets[:2] = torch.tensor([0, 3])
    loss = make_loss("db", n_labels)
    wanted = logits.clone().requires_grad_()
    with LargestAllocation(wanted) as with_grad:
        value = loss(wanted, (labels, offsets))
    assert value.requires_grad and with_grad.size >= logits.nbytes
    for mode in (torch.no_grad(), torch.inference_mode(), torch.enable_grad()):
        leaf = logits.clone().requires_grad_(not isinstance(mode, torch.enable_grad))
        with mode, LargestAllocation(leaf) as without:
            alone = loss(leaf, (labels, offsets))
        assert alone.grad_fn is None and not alone.requires_grad
        assert torch.equal(alone, value.detach())
        assert without.size < logits.nbytes
