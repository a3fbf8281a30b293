"""The balanced loss summed over a batch, with its gradient in closed form.

Plain autograd keeps eight logit-sized tensors for the backward pass; this keeps one. On the CPU
the gradient is made together with the loss, a few cache-sized rows at a time; on a GPU the Triton
kernels make both passes straight from the logits. Same maths as `functional`, tested to agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from longtail.losses.targets import Targets

# Elements worked on at a time on the CPU: few enough to stay in the cache, enough for two threads.
CHUNK_ELEMENTS = 1 << 17


@dataclass(frozen=True)
class BalancedTerms:
    """The switches and per-label tensors of one balanced loss, as plain values."""

    gamma: float
    lambda_: float
    negative_scale: float
    shift: Tensor | None
    label_weight: Tensor | None
    inverse_counts: Tensor | None
    alpha: float
    beta: float
    mu: float

    @property
    def rebalanced(self) -> bool:
        return self.inverse_counts is not None

    def columns(self, start: int, stop: int) -> BalancedTerms:
        """The terms of the labels start..stop-1."""

        def cut(values: Tensor | None) -> Tensor | None:
            return None if values is None else values[start:stop]

        return BalancedTerms(
            self.gamma,
            self.lambda_,
            self.negative_scale,
            cut(self.shift),
            cut(self.label_weight),
            cut(self.inverse_counts),
            self.alpha,
            self.beta,
            self.mu,
        )


@dataclass(frozen=True)
class BatchWeights:
    """What weighs the elements of one batch: document masses, document weights, known elements."""

    document_mass: Tensor | None = None
    sample_weight: Tensor | None = None
    mask: Tensor | None = None


def balanced_sum(
    logits: Tensor, targets: Targets, terms: BalancedTerms, weights: BatchWeights
) -> Tensor:
    """Sum over the batch of weight * cost, differentiable in the logits."""
    with_grad = torch.is_grad_enabled() and logits.requires_grad
    if kernels_usable(logits):
        from longtail.losses.kernels import KernelSum

        result = KernelSum.apply(logits, targets, terms, weights)  # type: ignore[no-untyped-call]
    else:
        result = _EagerSum.apply(logits, targets, terms, weights, with_grad)  # type: ignore[no-untyped-call]
    assert isinstance(result, Tensor)
    return result


def kernels_usable(logits: Tensor) -> bool:
    """Whether the Triton kernels can run on these logits: an NVIDIA or AMD GPU, not float64."""
    if not logits.is_cuda or logits.dtype == torch.float64 or logits.numel() == 0:
        return False
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


class _EagerSum(torch.autograd.Function):
    """The sum in plain torch operations, with the gradient made in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        targets: Targets,
        terms: BalancedTerms,
        weights: BatchWeights,
        with_grad: bool,
    ) -> Tensor:
        dtype = torch.promote_types(logits.dtype, torch.float32)
        positions = targets.sparse()
        grad = torch.empty_like(logits) if with_grad else None
        # float64 costs nothing for one number, but some accelerators do not have it.
        exact = torch.float64 if logits.device.type == "cpu" else dtype
        total = torch.zeros((), dtype=exact, device=logits.device)
        step = max(1, CHUNK_ELEMENTS // max(1, logits.shape[1]))
        starts = _chunk_starts(positions, step)
        for number, start in enumerate(range(0, logits.shape[0], step)):
            rows = slice(start, min(start + step, logits.shape[0]))
            picked = slice(starts[number], starts[number + 1])
            chunk = logits.detach()[rows].to(dtype)
            part, slope = _chunk(chunk, positions, picked, rows, terms, weights, with_grad)
            total += part
            if grad is not None and slope is not None:
                grad[rows] = slope
        if grad is not None:
            ctx.save_for_backward(grad)
        return total.to(dtype)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = ctx.saved_tensors
        return (grad * grad_output).to(grad.dtype), None, None, None, None


def _chunk_starts(positions: Targets, step: int) -> list[int]:
    """Where the positions of each chunk of `step` documents begin; positions go by document."""
    rows, _ = positions.positions()
    bounds = torch.arange(0, positions.shape[0] + step, step, device=rows.device)
    return torch.searchsorted(rows, bounds).tolist()  # type: ignore[no-any-return]


def _chunk(
    logits: Tensor,
    positions: Targets,
    picked: slice,
    rows: slice,
    terms: BalancedTerms,
    weights: BatchWeights,
    with_grad: bool,
) -> tuple[Tensor, Tensor | None]:
    """Weighted sum and gradient of a few documents."""
    all_rows, all_labels = positions.positions()
    at = (all_rows[picked] - rows.start, all_labels[picked])
    y = positions.position_values(logits.dtype)[picked]
    shifted = logits if terms.shift is None else logits - terms.shift
    wrongness = shifted if terms.lambda_ == 1 else shifted * terms.lambda_
    cost, slope = _cost_and_slope(wrongness, terms.gamma, with_grad)
    if terms.negative_scale != 1:
        cost.mul_(terms.negative_scale)
    slope_scale = terms.negative_scale * terms.lambda_
    if slope is not None and slope_scale != 1:
        slope.mul_(slope_scale)
    cost_here, slope_here = _cost_and_slope(-shifted[at], terms.gamma, with_grad)
    cost[at] = y * cost_here + (1 - y) * cost[at]
    if slope is not None and slope_here is not None:
        slope[at] = (1 - y) * slope[at] - y * slope_here
    weight = _chunk_weight(logits, rows, terms, weights)
    for matrix in (cost, slope):
        if matrix is None:
            continue
        if weight is not None:
            matrix.mul_(weight)
        if weights.mask is not None:
            matrix.masked_fill_(~weights.mask[rows], 0.0)
    return cost.sum(), slope


def _cost_and_slope(
    wrongness: Tensor, gamma: float, with_slope: bool
) -> tuple[Tensor, Tensor | None]:
    """sigmoid(x)^gamma softplus(x) and its derivative sigmoid^gamma (gamma (1-s) softplus + s)."""
    cost = F.softplus(wrongness)
    if gamma == 0:
        return cost, torch.sigmoid(wrongness) if with_slope else None
    sigmoid = torch.sigmoid(wrongness)
    if gamma == 2:
        focus = sigmoid * sigmoid
    else:
        focus = torch.exp(gamma * F.logsigmoid(wrongness))
    slope = None
    if with_slope:
        slope = torch.sub(1, sigmoid).mul_(cost).mul_(gamma).add_(sigmoid).mul_(focus)
    return cost.mul_(focus), slope


def _chunk_weight(
    logits: Tensor, rows: slice, terms: BalancedTerms, weights: BatchWeights
) -> Tensor | None:
    weight = None
    if terms.inverse_counts is not None:
        assert weights.document_mass is not None
        tiny = torch.finfo(logits.dtype).tiny
        scale = terms.beta / weights.document_mass[rows].clamp(min=tiny).unsqueeze(1)
        weight = (terms.inverse_counts * scale).sub_(terms.beta * terms.mu)
        weight.sigmoid_().add_(terms.alpha)
    if terms.label_weight is not None:
        weight = terms.label_weight if weight is None else weight.mul_(terms.label_weight)
    if weights.sample_weight is not None:
        per_document = weights.sample_weight[rows].to(logits.dtype).unsqueeze(1)
        weight = per_document if weight is None else weight * per_document
    return weight
