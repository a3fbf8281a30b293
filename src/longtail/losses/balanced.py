"""The balanced loss as plain values; its sum and gradient in closed form.

Plain autograd needs about ten tensors of the logits' size. `balanced_sum` needs one, the gradient,
computed in the same pass as the loss: in chunks of rows on the CPU, by Triton kernels on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from longtail.errors import InputError
from longtail.losses import functional
from longtail.losses.targets import Targets

# Elements per chunk on the CPU: 4 MiB per buffer, and few calls from Python.
CHUNK_ELEMENTS = 1 << 20
HAS_TRITON = find_spec("triton") is not None


@dataclass(frozen=True)
class BalancedTerms:
    """The switches and per-label tensors of one balanced loss."""

    gamma: float
    lambda_: float
    negative_scale: float
    shift: Tensor | None
    label_weight: Tensor | None
    inverse_counts: Tensor | None
    """1/n of every label; None unless the loss is rebalanced."""
    alpha: float
    beta: float
    mu: float

    def map(self, change: Callable[[Tensor], Tensor]) -> BalancedTerms:
        """Apply a function to every per-label tensor."""
        changed: dict[str, Any] = {}
        for name in ("shift", "label_weight", "inverse_counts"):
            value = getattr(self, name)
            changed[name] = None if value is None else change(value)
        return replace(self, **changed)


@dataclass(frozen=True)
class Batch:
    """A batch without its logits: targets, document weights, and the mask of known elements."""

    targets: Targets
    sample_weight: Tensor | None = None
    mask: Tensor | None = None
    document_mass: Tensor | None = None
    """Per document, the sum of 1/n over its labels; None unless the loss is rebalanced."""


def weigh(values: Tensor, label_weight: Tensor | None, batch: Batch) -> Tensor:
    """Multiply elements by the weights of their label and document; 0 where masked."""
    if label_weight is not None:
        values = values * label_weight.to(values.dtype)
    if batch.sample_weight is not None:
        values = values * batch.sample_weight.to(values.dtype).unsqueeze(1)
    if batch.mask is not None:
        values = torch.where(batch.mask, values, torch.zeros_like(values))
    return values


def balanced_sum(logits: Tensor, batch: Batch, terms: BalancedTerms, scale: float = 1.0) -> Tensor:
    """Return `scale` times the batch's sum of weight * cost, differentiable in the logits."""
    with_grad = torch.is_grad_enabled() and logits.requires_grad
    return _BalancedSum.apply(logits, batch, terms, scale, with_grad)  # type: ignore[no-any-return, no-untyped-call]


def kernels_usable(logits: Tensor) -> bool:
    """Return whether the Triton kernels can run: an NVIDIA or AMD GPU, not float64."""
    fits = logits.is_cuda and logits.dtype != torch.float64 and logits.numel() > 0
    return fits and HAS_TRITON


class _BalancedSum(torch.autograd.Function):
    """The sum and, in the same pass over the logits, its gradient."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, batch: Batch, terms: BalancedTerms, scale: float, with_grad: bool
    ) -> Tensor:
        # All but the logits are saved only so that autograd detects in-place changes.
        ctx.save_for_backward(logits, batch.targets.dense, batch.mask, batch.sample_weight)
        ctx.rest = (batch, terms, scale)
        total, ctx.grad = _sum_and_grad(logits, batch, terms, scale, with_grad)
        return total

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise InputError(
                "the reduced loss has no second derivative (create_graph=True). Build it with "
                'reduction="none" and reduce the result.'
            )
        logits = ctx.saved_tensors[0]
        batch, terms, scale = ctx.rest
        # The first backward pass returns the stored gradient, scaled in place: another buffer would
        # take as long as all the maths. A second one (retain_graph) computes it again.
        grad, ctx.grad = ctx.grad, None
        if grad is None:
            _, grad = _sum_and_grad(logits, batch, terms, scale, with_grad=True)
        assert grad is not None
        return grad.mul_(grad_output * scale).to(logits.dtype), None, None, None, None


def gradient_dtype(logits: Tensor) -> torch.dtype:
    """Return the type of the unscaled gradient.

    Before scaling, float16 would overflow for large weights and underflow for small slopes;
    bfloat16 has the range of float32.
    """
    return torch.float32 if logits.dtype == torch.float16 else logits.dtype


def _sum_and_grad(
    logits: Tensor, batch: Batch, terms: BalancedTerms, scale: float, with_grad: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the scaled sum, and the gradient of the unscaled sum."""
    logits = logits.detach()
    if kernels_usable(logits):
        from longtail.losses.kernels import sum_and_grad

        return sum_and_grad(
            logits, batch, terms, scale, gradient_dtype(logits) if with_grad else None
        )
    # All elements as negatives except each document's labels, which are added at the end.
    dtype = torch.promote_types(logits.dtype, torch.float32)
    n_rows, n_labels = logits.shape
    batch = replace(batch, targets=batch.targets.sparse())
    rows, labels = batch.targets.positions()
    grad = None
    if with_grad:
        grad = torch.empty(logits.shape, dtype=gradient_dtype(logits), device=logits.device)
    # Some accelerators have no float64.
    exact = torch.float64 if logits.device.type == "cpu" else dtype
    total = torch.zeros((), dtype=exact, device=logits.device)
    step = max(1, min(n_rows, CHUNK_ELEMENTS // max(1, n_labels)))
    starts = torch.searchsorted(rows, torch.arange(0, n_rows + step, step, device=rows.device))
    edges = starts.tolist()
    flat = rows * n_labels + labels
    # Shared by all chunks.
    buffers = [torch.empty(step, n_labels, dtype=dtype, device=logits.device) for _ in range(4)]
    for number, start in enumerate(range(0, n_rows, step)):
        chunk = slice(start, min(start + step, n_rows))
        skipped = flat[edges[number] : edges[number + 1]] - start * n_labels
        z = logits[chunk].to(dtype)
        *work, slope = (buffer[: z.shape[0]] for buffer in buffers)
        if grad is not None and grad.dtype == dtype:
            slope = grad[chunk]
        total += _negatives(work, z, skipped, chunk, batch, terms, slope)
        if grad is not None and grad.dtype != dtype:
            grad[chunk] = slope
    cost, slope = _positives(logits[rows, labels].to(dtype), batch, terms)
    if grad is not None:
        grad[rows, labels] = slope.to(grad.dtype)
    return (total + cost.sum()).to(dtype) * scale, grad


def _negatives(
    work: list[Tensor],
    logits: Tensor,
    skipped: Tensor,
    chunk: slice,
    batch: Batch,
    terms: BalancedTerms,
    slope: Tensor,
) -> Tensor:
    """Return the weighted cost of a chunk without the elements `skipped`; gradient in `slope`."""
    wrongness, sigmoid, cost = work
    if terms.shift is None:
        torch.mul(logits, terms.lambda_, out=wrongness)
    else:
        torch.add(terms.shift * -terms.lambda_, logits, alpha=terms.lambda_, out=wrongness)
    # Makes the cost and slope of skipped elements exactly 0.
    wrongness.view(-1).index_fill_(0, skipped, -1e4)
    torch.ops.aten.softplus.out(wrongness, 1, 20, out=cost)
    factor = None
    if terms.gamma == 0:
        torch.sigmoid(wrongness, out=slope)
    else:
        torch.sigmoid(wrongness, out=sigmoid)
        focus = None
        if terms.gamma != 2:
            focus = F.logsigmoid(wrongness).mul_(terms.gamma).exp_()
        rest = torch.sub(1, sigmoid, out=wrongness)
        torch.addcmul(sigmoid, cost, rest, value=terms.gamma, out=slope)
        factor = sigmoid.mul_(sigmoid) if focus is None else focus
    for weight in _weights(wrongness, chunk, batch, terms):
        factor = weight if factor is None else torch.mul(factor, weight, out=sigmoid)
    if factor is not None:
        slope.mul_(factor)
    if terms.negative_scale * terms.lambda_ != 1:
        slope.mul_(terms.negative_scale * terms.lambda_)
    if batch.mask is None and factor is not None and factor.shape == cost.shape:
        return torch.dot(cost.view(-1), factor.view(-1)).mul_(terms.negative_scale)
    if factor is not None:
        cost.mul_(factor)
    if batch.mask is not None:
        unknown = ~batch.mask[chunk]
        slope.masked_fill_(unknown, 0.0)
        cost.masked_fill_(unknown, 0.0)
    return cost.sum().mul_(terms.negative_scale)


def _weights(buffer: Tensor, chunk: slice, batch: Batch, terms: BalancedTerms) -> Iterator[Tensor]:
    """Yield the weights of the elements: a matrix, a row for labels, a column for documents."""
    if terms.inverse_counts is not None:
        assert batch.document_mass is not None
        tiny = torch.finfo(buffer.dtype).tiny
        scale = terms.beta / batch.document_mass[chunk].clamp(min=tiny).unsqueeze(1)
        torch.mul(terms.inverse_counts, scale, out=buffer).sub_(terms.beta * terms.mu)
        yield buffer.sigmoid_().add_(terms.alpha)
    if terms.label_weight is not None:
        yield terms.label_weight
    if batch.sample_weight is not None:
        yield batch.sample_weight[chunk].to(buffer.dtype).unsqueeze(1)


def _positives(picked: Tensor, batch: Batch, terms: BalancedTerms) -> tuple[Tensor, Tensor]:
    """Return weighted cost and gradient at the positions; soft targets mix in the negative side."""
    rows, labels = batch.targets.positions()
    y = batch.targets.position_values(picked.dtype)
    shifted = picked if terms.shift is None else picked - terms.shift[labels]
    cost, slope = _cost_and_slope(-shifted, terms.gamma)
    cost, slope = y * cost, -y * slope
    if batch.targets.values is not None:
        other_cost, other_slope = _cost_and_slope(shifted * terms.lambda_, terms.gamma)
        cost += (1 - y) * terms.negative_scale * other_cost
        slope += (1 - y) * terms.negative_scale * terms.lambda_ * other_slope
    weight = torch.ones_like(cost)
    if terms.inverse_counts is not None:
        assert batch.document_mass is not None
        inverse, mass = terms.inverse_counts[labels, None], batch.document_mass[rows]
        weight = functional.rebalanced_weight(
            inverse, mass, terms.alpha, terms.beta, terms.mu
        ).squeeze(1)
    if terms.label_weight is not None:
        weight = weight * terms.label_weight[labels]
    if batch.sample_weight is not None:
        weight = weight * batch.sample_weight[rows].to(weight.dtype)
    cost, slope = cost * weight, slope * weight
    if batch.mask is not None:
        unknown = ~batch.mask[rows, labels]
        cost, slope = cost.masked_fill(unknown, 0.0), slope.masked_fill(unknown, 0.0)
    return cost, slope


def _cost_and_slope(wrongness: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """Return sigmoid(x)^gamma softplus(x) and its derivative s^gamma (gamma (1-s) softplus + s)."""
    cost, sigmoid = F.softplus(wrongness), torch.sigmoid(wrongness)
    if gamma == 0:
        return cost, sigmoid
    focus = torch.exp(gamma * F.logsigmoid(wrongness))
    return focus * cost, focus * (gamma * (1 - sigmoid) * cost + sigmoid)
