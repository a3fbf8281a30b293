"""The maths of the losses as pure functions of tensors: no state, no reduction, no checks.

An element-wise loss is a pair: the cost of a logit where the label applies and where it does not.
A set-wise loss compares whole rows (or columns) of logits and returns one value for each; its sums
of exponentials are taken off the largest, so the gradient is a softmax without rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from longtail.losses.targets import Targets

__all__ = [
    "ElementCosts", "asymmetric_negative", "asymmetric_positive", "balanced_negative",
    "balanced_positive", "class_balanced_weight", "dice_with_logits", "elementwise",
    "focal_softplus", "hill_negative", "hill_positive", "negative_tolerant_shift",
    "rebalanced_weight", "squared_hinge", "two_way_with_logits", "zlpr_with_logits",
]  # fmt: skip


class ElementCosts(NamedTuple):
    """Costs of a logit by whether the label applies, for logits of any shape."""

    positive: Callable[[Tensor], Tensor]
    negative: Callable[[Tensor], Tensor]


def focal_softplus(wrongness: Tensor, gamma: float) -> Tensor:
    r"""sigmoid(x)^gamma * log(1 + e^x), where x says how wrong the logit is.

    With x = -z for a label that applies and x = z for one that does not, gamma = 0 is binary
    cross-entropy and gamma > 0 the focal loss. Finite, with finite gradient, for every finite x.
    """
    cost = F.softplus(wrongness)
    if gamma == 0:
        return cost
    # sigmoid^gamma through its logarithm: the gradient stays finite where the sigmoid is 0.
    return torch.exp(gamma * F.logsigmoid(wrongness)) * cost


def balanced_positive(logits: Tensor, gamma: float) -> Tensor:
    """-(1-p)^gamma log p with p = sigmoid(z)."""
    return focal_softplus(-logits, gamma)


def balanced_negative(logits: Tensor, gamma: float, lambda_: float, scale: float) -> Tensor:
    """-scale p^gamma log(1-p) with p = sigmoid(lambda z); the paper's scale is 1/lambda."""
    cost = focal_softplus(logits * lambda_, gamma)
    return cost if scale == 1.0 else cost * scale


def negative_tolerant_shift(label_counts: Tensor, n_samples: int, kappa: float) -> Tensor:
    """kappa * log(N/n - 1), the paper's v_i: what NTR subtracts from the logit of each label.

    Counts are read as at least half a document and at most N minus half a document, so a label
    that no training document (or every one) carries has a finite shift.
    """
    n = label_counts.clamp(min=0.5, max=n_samples - 0.5)
    return kappa * torch.log((n_samples - n) / n)


def class_balanced_weight(label_counts: Tensor, cb_beta: float) -> Tensor:
    """(1 - beta) / (1 - beta^n); a count below half a document is read as half a document."""
    n = label_counts.clamp(min=0.5)
    if cb_beta == 0:
        return torch.ones_like(n)
    # -expm1(n log beta) keeps its digits where beta is close to 1.
    log_beta = torch.log(torch.as_tensor(cb_beta, dtype=n.dtype, device=n.device))
    return (1 - cb_beta) / -torch.expm1(n * log_beta)


def rebalanced_weight(
    inverse_counts: Tensor, document_mass: Tensor, alpha: float, beta: float, mu: float
) -> Tensor:
    """alpha + sigmoid(beta (r - mu)) with r = (1/n_i) / sum over the document's labels of 1/n_j.

    `document_mass` is that sum, shape (documents,). A document without labels has mass 0; r is then
    infinite and the weight its limit, alpha + 1. Soft targets may ask for a gradient through it.
    """
    if document_mass.requires_grad:
        # 1/r cannot overflow where its square is taken, and at 1e-12 the sigmoid has no slope left.
        inverse = (document_mass.unsqueeze(-1) / inverse_counts).clamp(min=1e-12)
        return alpha + torch.exp(F.logsigmoid(beta * (1 / inverse - mu)))
    tiny = torch.finfo(inverse_counts.dtype).tiny
    ratio = inverse_counts / document_mass.clamp(min=tiny).unsqueeze(-1)
    return alpha + torch.sigmoid(beta * (ratio - mu))


def asymmetric_positive(logits: Tensor, gamma_positive: float) -> Tensor:
    """-(1-p)^g+ log p."""
    return focal_softplus(-logits, gamma_positive)


def asymmetric_negative(logits: Tensor, gamma_negative: float, margin: float) -> Tensor:
    """-p_m^g- log(1 - p_m) with p_m = max(p - m, 0)."""
    if margin == 0:
        return focal_softplus(logits, gamma_negative)
    # Through log p: autograd of the sigmoid takes 1 - p, in float32 off by 20% at a logit of 15.
    probability = torch.exp(F.logsigmoid(logits))
    free = probability <= margin
    # Where p <= m the cost is 0; the stand-in keeps the gradient of the power finite there.
    shifted = torch.where(free, 0.5, probability - margin)
    return torch.where(free, 0.0, -(shifted**gamma_negative) * torch.log1p(-shifted))


def hill_positive(logits: Tensor, gamma: float, margin: float) -> Tensor:
    """-(1-p)^gamma log p with p = sigmoid(z - margin)."""
    return focal_softplus(margin - logits, gamma)


def hill_negative(logits: Tensor, peak: float) -> Tensor:
    """(peak - p) p^2: falls again for very confident negatives, which may be missing labels."""
    probability = torch.sigmoid(logits)
    return (peak - probability) * probability**2


def squared_hinge(margin: Tensor) -> Tensor:
    """max(0, 1 - m)^2 with the margin m = z where the label applies, -z where it does not."""
    return F.relu(1 - margin) ** 2


def elementwise(input: Tensor, target: Tensor | Targets, costs: ElementCosts) -> Tensor:
    """y * positive(z) + (1 - y) * negative(z) for every element."""
    targets = Targets.of(target)
    if targets.dense is not None:
        y = targets.dense.to(input.dtype)
        return y * costs.positive(input) + (1 - y) * costs.negative(input)
    rows, labels = targets.positions()
    y = targets.position_values(input.dtype)
    picked = input[rows, labels]
    mixed = y * costs.positive(picked) + (1 - y) * costs.negative(picked)
    return costs.negative(input).index_put((rows, labels), mixed)


def zlpr_with_logits(
    input: Tensor, target: Tensor | Targets, element_weight: Tensor | None = None
) -> Tensor:
    """log(1 + sum over negatives of e^z) + log(1 + sum over positives of e^-z), per document."""
    targets = Targets.of(target)
    value = input.new_zeros(input.shape[0])
    for scores, positive in ((input, False), (-input, True)):
        side = _log_sum(targets, scores, element_weight, 1, positive=positive, plus_one=True)
        value = value + _with_weight_gradient(side.value, side.parts, 1, side.value)
    return value


def two_way_with_logits(
    input: Tensor,
    target: Tensor | Targets,
    dim: int,
    positive_temperature: float,
    negative_temperature: float,
    element_weight: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """softplus(T- lse over negatives of z/T-, plus T+ lse over positives of -z/T+) along `dim`.

    `dim=1` gives one value per document, `dim=0` one per label, and beside it whether there is a
    positive at all; the value is 0 where there is none.
    """
    targets = Targets.of(target)
    positives = _log_sum(targets, -input / positive_temperature, element_weight, dim, positive=True)
    negatives = _log_sum(targets, input / negative_temperature, element_weight, dim, positive=False)
    joint = negative_temperature * negatives.value + positive_temperature * positives.value
    value, log_slope = F.softplus(joint), F.logsigmoid(joint)
    for side, scale in ((positives, positive_temperature), (negatives, negative_temperature)):
        # One exponent: e^(score - sum) may overflow where the slope of the softplus underflows.
        log_total = side.value - log_slope - math.log(scale)
        value = _with_weight_gradient(value, side.parts, dim, log_total)
    # A NaN on one side shows, even where the other side is empty.
    counts = (positives.counts & negatives.counts) | joint.isnan()
    return torch.where(counts, value, 0.0), positives.present


def dice_with_logits(
    input: Tensor, target: Tensor | Targets, smooth: float, element_weight: Tensor | None = None
) -> Tensor:
    """1 - (2 sum p y + s) / (sum p^2 + sum y^2 + s), per document."""
    targets = Targets.of(target)
    probability = torch.sigmoid(input)
    weighted = probability if element_weight is None else probability * element_weight
    overlap = targets.row_sum(weighted)
    squares = (weighted * probability).sum(dim=1)
    ones = probability.new_ones(1) if element_weight is None else element_weight
    target_squares = targets.row_sum(ones.expand(probability.shape), squared=True)
    return 1 - (2 * overlap + smooth) / (squares + target_squares + smooth)


class _Part(NamedTuple):
    """Elements and their weights; None: all are 1. `segments` is None for a whole matrix."""

    scores: Tensor
    factor: Tensor | None
    segments: Tensor | None = None


class _LogSum(NamedTuple):
    """log of a sum of weight * e^score per row or column, without gradient of the weights.

    `value` is 0 where the sum is, `counts` whether it is more; `present`, of positives, whether any
    has a positive weight: that of a logit of +inf adds nothing.
    """

    value: Tensor
    counts: Tensor
    present: Tensor
    parts: list[_Part]


def _log_sum(
    targets: Targets,
    scores: Tensor,
    weight: Tensor | None,
    dim: int,
    *,
    positive: bool,
    plus_one: bool = False,
) -> _LogSum:
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
    return _LogSum(value, counts, counts if present is None else present, parts)


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


def _with_weight_gradient(value: Tensor, parts: list[_Part], dim: int, log_total: Tensor) -> Tensor:
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
