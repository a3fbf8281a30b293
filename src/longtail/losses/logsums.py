"""Logarithms of weighted sums of exponentials over positives or negatives, for ZLPR and two-way.

Exponents are taken off their largest, so the gradient is a softmax without rounding of the
logarithm; weights that carry gradient get it at 0, too.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from longtail.losses.targets import Targets


class _Part(NamedTuple):
    """Elements and their weights; None: all are 1. `segments` is None for a whole matrix."""

    scores: Tensor
    factor: Tensor | None
    segments: Tensor | None = None


class LogSum(NamedTuple):
    """log of a sum of weight * e^score per row or column, without gradient of the weights."""

    value: Tensor
    """0 where the sum is."""
    counts: Tensor
    """Whether the sum is more than 0."""
    present: Tensor
    """Of positives, whether any has a positive weight: that of a logit of +inf adds nothing."""
    parts: list[_Part]
    """For `with_weight_gradient`."""


def log_sum(
    targets: Targets,
    scores: Tensor,
    weight: Tensor | None,
    dim: int,
    *,
    positive: bool,
    plus_one: bool = False,
) -> LogSum:
    """log of the sum along `dim` of weight * y * e^score (or 1 - y), or of 1 plus that sum."""
    main, parts = _parts(targets, scores, weight, positive, dim)
    exponents, segments, present = main.scores, main.segments, None
    size = targets.shape[1 - dim]
    if main.factor is not None:
        exponents, unused = _exponents(exponents, main.factor.detach())
        if positive and not plus_one:
            present = _segment_sum(~unused, segments, dim, size) > 0
    if segments is None and targets.shape[dim]:
        top = exponents.detach().amax(dim)
    else:
        top = exponents.new_full((size,), -math.inf)
        if segments is not None:
            top = top.scatter_reduce(0, segments, exponents.detach(), "amax")
    if plus_one:
        top = top.clamp(min=0)
    # An infinite top would make inf - inf of its own element.
    top = top.masked_fill(torch.isinf(top), 0.0)
    off_top = exponents - (top.unsqueeze(dim) if segments is None else top[segments])
    total = _segment_sum(torch.exp(off_top), segments, dim, size)
    # Not `> 0`: a NaN must show. Where the total is 0, so is the top.
    counts = total != 0
    if plus_one:
        value = top + torch.log1p(total + torch.expm1(-top))
    else:
        value = top + torch.log(torch.where(counts, total, 1.0))
    return LogSum(value, counts, counts if present is None else present, parts)


def _parts(
    targets: Targets, scores: Tensor, weight: Tensor | None, positive: bool, dim: int
) -> tuple[_Part, list[_Part]]:
    """What to sum, and the parts of it whose weights want a gradient."""
    if targets.dense is not None:
        factor = targets.dense.to(scores.dtype)
        factor = factor if positive else 1 - factor
        part = _Part(scores, _weighted(factor, weight))
        return part, [part]
    rows, labels = targets.positions()
    segments = rows if dim == 1 else labels
    values = targets.position_values(scores.dtype)
    picked = scores[rows, labels]
    if weight is not None:
        weight = weight.expand(targets.shape)
    here = None if weight is None else weight[rows, labels]
    if positive:
        part = _Part(picked, _weighted(values, here), segments)
        return part, [part]
    rest = 1 - values
    remaining = scores.index_put((rows, labels), _exponents(picked, rest.detach())[0])
    inside = _Part(picked, _weighted(rest, None if here is None else here.detach()), segments)
    everything = _Part(remaining, weight)
    return everything, [inside, everything]


def _weighted(factor: Tensor, weight: Tensor | None) -> Tensor:
    if weight is None:
        return factor
    product = factor * weight
    if factor.requires_grad and not weight.requires_grad:
        # The gradient may be infinite here, and infinity times a weight of 0 would be NaN.
        product = torch.where(weight == 0, 0.0, product)
    return product


def _exponents(scores: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
    """score + log(factor), minus infinity where the factor is 0; and where that is."""
    # In the exponent, so that an element of weight 0 cannot become the top; NaN stays.
    unused = factor <= 0
    logs = torch.log(torch.where(unused, 1.0, factor))
    return torch.where(unused, -math.inf, scores + logs), unused


def _segment_sum(terms: Tensor, segments: Tensor | None, dim: int, size: int) -> Tensor:
    """Sums of a matrix along `dim`, or of flat terms by their segment."""
    if segments is None:
        return terms.sum(dim)
    terms = terms.long() if terms.dtype == torch.bool else terms
    return terms.new_zeros(size).index_add(0, segments, terms)


def with_weight_gradient(value: Tensor, parts: list[_Part], dim: int, log_total: Tensor) -> Tensor:
    """The value, with a derivative by each weight of e^(score - log_total).

    Finite where that is: through log(weight) it would be 0 at a weight of 0, and NaN at the
    smallest weights.
    """
    largest = math.log(torch.finfo(value.dtype).max) - 1
    for scores, factor, segments in parts:
        if factor is None or not factor.requires_grad:
            continue
        totals = log_total.unsqueeze(dim) if segments is None else log_total[segments]
        # Before the exponential: the gradient of an infinite one would be NaN.
        slope = torch.exp((scores - totals).clamp(max=largest))
        zero = (factor - factor.detach()) * slope
        value = value + _segment_sum(zero, segments, dim, value.shape[0])
    return value
