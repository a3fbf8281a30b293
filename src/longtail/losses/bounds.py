"""Losses of infinite logits: their limits, computed only after a loss came out infinite or NaN.

The formulas multiply and subtract: 0 x inf and inf - inf are NaN where the limit is a number. A
batch without infinities pays one look at its loss, a single number.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

# Stands for infinity: its products with any weight and constant are finite in float32.
BOUND = 1e30
# A loss above it contains the stand-in, divided by at most a large batch.
LARGE = 1e20


class _Bounded(torch.autograd.Function):
    """+-BOUND for infinities, with the gradient passed on: slopes there are their limits."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return torch.nan_to_num(values, nan=math.nan, posinf=BOUND, neginf=-BOUND)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return grad_output


def bounded(logits: Tensor) -> Tensor:
    """The logits with +-1e30 for infinities; NaN stays NaN."""
    result: Tensor = _Bounded.apply(logits)  # type: ignore[no-untyped-call]
    return result


def with_limits(direct: Tensor, stand_in: Tensor) -> Tensor:
    """The loss by the formula where it has a value, else by the stand-in; gradient of the latter.

    Args:
        direct: the loss of the logits as they are: right unless NaN.
        stand_in: the loss of the `bounded` logits.
    """
    limit = torch.where(stand_in.abs() > LARGE, math.inf, stand_in.detach())
    value = torch.where(direct.isnan(), limit, direct.detach())
    # Infinity minus itself, where even the stand-in overflows, would be NaN.
    change = torch.where(value == stand_in, 0.0, value - stand_in.detach())
    return stand_in + change
