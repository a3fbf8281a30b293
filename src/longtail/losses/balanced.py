"""Losses with a term per element as plain values; their sum and gradient in closed form.

`balanced_sum` computes both in one pass: on a GPU by Triton kernels, for all kinds of terms; on the
CPU in chunks of rows, for the balanced loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from longtail.losses import functional
from longtail.losses.closed_form import Batch, differentiable, gradient_dtype
from longtail.losses.targets import kernels_usable

# Elements per chunk on the CPU: 4 MiB per buffer, and few calls from Python.
CHUNK_ELEMENTS = 1 << 20
Kind = Literal["balanced", "asymmetric", "two-focal", "hill", "squared-hinge"]


class ElementTerms(NamedTuple):
    """The maths of one loss as plain values: its kind, its constants, its per-label tensors."""

    kind: Kind = "balanced"
    """Whose formula it is; "two-focal" is the asymmetric loss without margin."""
    gamma: float = 0.0
    """The focal exponent; of the positives only, unless the kind is balanced."""
    gamma_negative: float = 0.0
    lambda_: float = 1.0
    negative_scale: float = 1.0
    margin: float = 0.0
    peak: float = 0.0
    shift: Tensor | None = None
    label_weight: Tensor | None = None
    inverse_counts: Tensor | None = None
    """1/n of every label; None unless the loss is rebalanced."""
    positive_weight: Tensor | None = None
    """Weights of positives by label; the negatives have none."""
    alpha: float = 0.0
    beta: float = 0.0
    mu: float = 0.0

    def map(self, change: Callable[[Tensor], Tensor]) -> ElementTerms:
        """Apply a function to every per-label tensor."""
        names = ("shift", "label_weight", "inverse_counts", "positive_weight")
        known = {name: values for name in names if (values := getattr(self, name)) is not None}
        changed: dict[str, Any] = {name: change(values) for name, values in known.items()}
        return self._replace(**changed)

    def constants(self) -> tuple[float, float]:
        """Return the two numbers in the formula besides the exponents."""
        if self.kind == "balanced":
            return self.lambda_, self.negative_scale
        return self.margin, self.peak


def weigh(values: Tensor, label_weight: Tensor | None, batch: Batch) -> Tensor:
    """Multiply elements by the weights of their label and document; 0 where masked."""
    if label_weight is not None:
        values = values * label_weight.to(values.dtype)
    if batch.sample_weight is not None:
        values = values * batch.sample_weight.to(values.dtype).unsqueeze(1)
    if batch.mask is not None:
        values = torch.where(batch.mask, values, torch.zeros_like(values))
    return values


def balanced_sum(logits: Tensor, batch: Batch, terms: ElementTerms, scale: float = 1.0) -> Tensor:
    """Return `scale` times the batch's sum of weight * cost, differentiable in the logits."""
    # The kernels scale the gradient where they compute it; the CPU does in the backward pass.
    factor = 1.0 if kernels_usable(logits) else scale
    return differentiable(
        logits, batch, lambda z, with_grad: _sum_and_grad(z, batch, terms, scale, with_grad), factor
    )


def _sum_and_grad(
    logits: Tensor, batch: Batch, terms: ElementTerms, scale: float, with_grad: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the scaled sum, and the gradient: scaled by the kernels, unscaled on the CPU."""
    if kernels_usable(logits):
        from longtail.losses.kernels import sum_and_grad

        return sum_and_grad(logits, batch, terms, scale, gradient_dtype(logits, with_grad))
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
    terms: ElementTerms,
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


def _weights(buffer: Tensor, chunk: slice, batch: Batch, terms: ElementTerms) -> Iterator[Tensor]:
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


def _positives(picked: Tensor, batch: Batch, terms: ElementTerms) -> tuple[Tensor, Tensor]:
    """Return weighted cost and gradient at the positions; soft targets mix in the negative side."""
    rows, labels = batch.targets.positions()
    y = batch.targets.position_values(picked.dtype)
    shifted = picked if terms.shift is None else picked - terms.shift[labels]
    cost, slope = _cost_and_slope(-shifted, terms.gamma)
    weighted = y if terms.positive_weight is None else y * terms.positive_weight[labels]
    cost, slope = weighted * cost, -weighted * slope
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
