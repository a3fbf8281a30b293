"""The Triton kernel of `sgd_step`: one pass over weights, velocities and gradients.

Imported only on a GPU, or by the tests under Triton's interpreter.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from longtail.fused.sgd import Rates
from longtail.losses.kernel_parts import mix

BLOCK = 1024


@triton.jit
def _rounded(values, bits, dtype: tl.constexpr):
    if dtype == tl.bfloat16:
        raised = (values.to(tl.int32, bitcast=True) + bits) & -0x10000
        # NaN could become a number.
        finite = tl.abs(values) < float("inf")
        values = tl.where(finite, raised.to(tl.float32, bitcast=True), values)
    return values.to(dtype)


@triton.jit(do_not_specialize=["first"])
def _step_kernel(
    weight_ptr, grad_ptr, velocity_ptr, seed_ptr, first, count, rate, momentum, decay,
    BLOCK: tl.constexpr,
):  # fmt: skip
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    weight = tl.load(weight_ptr + places, mask=inside, other=0.0).to(tl.float32)
    change = tl.load(grad_ptr + places, mask=inside, other=0.0).to(tl.float32) + weight * decay
    bits = mix((places + first).to(tl.int32), tl.load(seed_ptr))
    if velocity_ptr is not None:
        velocity = tl.load(velocity_ptr + places, mask=inside, other=0.0).to(tl.float32)
        change = change + velocity * momentum
        rounded = _rounded(change, bits & 0xFFFF, velocity_ptr.dtype.element_ty)
        tl.store(velocity_ptr + places, rounded, mask=inside)
    weight = weight - change * rate
    rounded = _rounded(weight, (bits >> 16) & 0xFFFF, weight_ptr.dtype.element_ty)
    tl.store(weight_ptr + places, rounded, mask=inside)


def step(
    weight: Tensor, grad: Tensor, velocity: Tensor | None, rates: Rates, first: int, seed: Tensor
) -> None:
    """Take a step in place; see `sgd_step`."""
    count = weight.numel()
    _step_kernel[(triton.cdiv(count, BLOCK),)](
        weight, grad, velocity, seed, first, count, *rates, BLOCK=BLOCK
    )
    # Autograd detects in-place changes by torch only.
    torch.autograd.graph.increment_version(weight)
