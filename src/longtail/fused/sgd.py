"""SGD with momentum for a part of a tensor, with stochastic rounding into bf16.

Rounded to the nearest, a step below 1/256 of a weight would be lost; rounded up or down at random,
it counts on average. The bits depend on the element and the step, so a run can be repeated.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from longtail.random_bits import mix


class Rates(NamedTuple):
    """The constants of torch.optim.SGD."""

    learning_rate: float
    momentum: float
    weight_decay: float


def sgd_step(
    weight: Tensor,
    grad: Tensor,
    velocity: Tensor | None,
    rates: Rates,
    first: int,
    seed: Tensor,
    with_kernels: bool = False,
) -> None:
    """Take a step in place.

    Args:
        weight: contiguous, in float32, float64 or bf16.
        velocity: like the weight; None without momentum.
        first: number of the weight's first element, for the random bits.
        seed: of this step, one int32.
        with_kernels: by a Triton kernel, in one pass.
    """
    if with_kernels:
        from longtail.fused.sgd_kernel import step

        step(weight, grad, velocity, rates, first, seed)
        return
    wide = weight.to(torch.promote_types(weight.dtype, torch.float32))
    change = grad.to(wide.dtype) + wide * rates.weight_decay
    numbers = torch.arange(first, first + weight.numel(), device=weight.device)
    # Numbers beyond 32 bits wrap around.
    bits = mix(numbers.to(torch.int32), seed).view(weight.shape)
    if velocity is not None:
        change = change + velocity.to(wide.dtype) * rates.momentum
        velocity.copy_(rounded(change, velocity.dtype, bits & 0xFFFF))
    wide = wide - change * rates.learning_rate
    weight.copy_(rounded(wide, weight.dtype, (bits >> 16) & 0xFFFF))


def rounded(values: Tensor, dtype: torch.dtype, bits: Tensor) -> Tensor:
    """Round to bf16, away from zero with the probability of what is cut off; other types: as is.

    `bits`: 16 random ones for each value.
    """
    if dtype != torch.bfloat16:
        return values
    raised = ((values.view(torch.int32) + bits) & -0x10000).view(torch.float32)
    # NaN could become a number.
    return torch.where(values.isfinite(), raised, values).to(dtype)
