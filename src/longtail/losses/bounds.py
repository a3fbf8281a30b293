"""Losses of infinite and huge logits: their limits, computed only after a loss came out huge.

The formulas multiply and subtract: 0 x inf and inf - inf are NaN where the limit is a number, and
2 x 3e38 is infinite in float32. Such a batch is computed again in float64; any other pays one look
at its loss, a single number.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

# Neither the square of a logit below it nor a product with constants of a loss overflows float32.
HUGE = 1e19
# Stands for infinity: its square and products with weights and constants are finite in float64.
BOUND = 1e120
# A loss or slope above it contains the stand-in, divided by at most a large batch.
LARGE = 1e100


class _Bounded(torch.autograd.Function):
    """+-BOUND for what is beyond, with the gradient passed on: slopes there are their limits.

    A slope that grows with the logit, as that of a square does, is infinite there.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return values.clamp(-BOUND, BOUND)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        infinite = torch.full_like(grad_output, math.inf).copysign(grad_output.detach())
        return torch.where(grad_output.abs() > LARGE, infinite, grad_output)


def suspicious(total: float) -> bool:
    """Whether a sum of losses, not negative, may contain a huge or infinite logit, or NaN."""
    return not abs(total) < HUGE


def any_huge(logits: Tensor) -> bool:
    """Whether a logit is infinite or huge: the loss must be computed from the `bounded` ones."""
    # float16, in which 1e20 is infinite, has no huge numbers but infinity.
    limit = min(HUGE, torch.finfo(logits.dtype).max)
    return bool((logits.abs() > limit).any())


def bounded(logits: Tensor) -> Tensor:
    """The logits in float64 with +-BOUND for infinities; NaN stays NaN."""
    result: Tensor = _Bounded.apply(logits.double())  # type: ignore[no-untyped-call]
    return result


def with_limits(direct: Tensor, stand_in: Tensor) -> Tensor:
    """The loss by the formula where that is finite, else by the stand-in; gradient of the latter.

    Args:
        direct: the loss of the logits as they are: right if finite.
        stand_in: the loss of the `bounded` logits, whose type the result has.
    """
    limit = torch.where(stand_in.abs() > LARGE, math.inf, stand_in.detach())
    value = torch.where(direct.isfinite(), direct.detach().to(limit.dtype), limit)
    # Infinity minus itself, where even the stand-in overflows, would be NaN.
    change = torch.where(value == stand_in, 0.0, value - stand_in.detach())
    return stand_in + change
