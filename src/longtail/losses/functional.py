"""The maths of the losses as pure functions of tensors: no state, no reduction, no checks.

An element-wise loss is a pair: the cost of a logit where the label applies and where it does not.
A set-wise loss compares whole rows (or columns) of logits and returns one value for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from longtail.losses.logsums import log_sum, with_weight_gradient
from longtail.losses.targets import Targets

__all__ = [
    "ElementCosts", "asymmetric_negative", "asymmetric_positive", "balanced_negative",
    "balanced_positive", "class_balanced_weight", "dice_with_logits", "elementwise",
    "focal_softplus", "hill_negative", "hill_positive", "negative_tolerant_shift",
    "rebalanced_weight", "two_way_with_logits", "zlpr_with_logits",
]  # fmt: skip


class ElementCosts(NamedTuple):
    """Costs of a logit by whether the label applies.

    Both take (logits, labels): a whole (documents, labels) matrix with None, or a flat selection
    of elements with the label index of each.
    """

    positive: Callable[[Tensor, Tensor | None], Tensor]
    negative: Callable[[Tensor, Tensor | None], Tensor]


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


def balanced_positive(logits: Tensor, gamma: float, shift: Tensor | float = 0.0) -> Tensor:
    """-(1-q)^gamma log q with q = sigmoid(z - shift)."""
    return focal_softplus(shift - logits, gamma)


def balanced_negative(
    logits: Tensor,
    gamma: float,
    shift: Tensor | float = 0.0,
    lambda_: float = 1.0,
    negative_scale: float | None = None,
) -> Tensor:
    """-1/lambda q^gamma log(1-q) with q = sigmoid(lambda (z - shift))."""
    scale = 1.0 / lambda_ if negative_scale is None else negative_scale
    cost = focal_softplus((logits - shift) * lambda_, gamma)
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


def elementwise(input: Tensor, target: Tensor | Targets, costs: ElementCosts) -> Tensor:
    """y * positive(z) + (1 - y) * negative(z) for every element."""
    targets = Targets.of(target)
    if targets.dense is not None:
        y = targets.dense.to(input.dtype)
        return y * costs.positive(input, None) + (1 - y) * costs.negative(input, None)
    rows, labels = targets.positions()
    y = targets.position_values(input.dtype)
    picked = input[rows, labels]
    mixed = y * costs.positive(picked, labels) + (1 - y) * costs.negative(picked, labels)
    return costs.negative(input, None).index_put((rows, labels), mixed)


def zlpr_with_logits(
    input: Tensor, target: Tensor | Targets, element_weight: Tensor | None = None
) -> Tensor:
    """log(1 + sum over negatives of e^z) + log(1 + sum over positives of e^-z), per document."""
    targets = Targets.of(target)
    value = input.new_zeros(input.shape[0])
    for scores, positive in ((input, False), (-input, True)):
        side = log_sum(targets, scores, element_weight, 1, positive=positive, plus_one=True)
        value = value + with_weight_gradient(side.value, side.parts, 1, side.value)
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
    positives = log_sum(targets, -input / positive_temperature, element_weight, dim, positive=True)
    negatives = log_sum(targets, input / negative_temperature, element_weight, dim, positive=False)
    joint = negative_temperature * negatives.value + positive_temperature * positives.value
    value, log_slope = F.softplus(joint), F.logsigmoid(joint)
    for side, scale in ((positives, positive_temperature), (negatives, negative_temperature)):
        # One exponent: e^(score - sum) may overflow where the slope of the softplus underflows.
        log_total = side.value - log_slope - math.log(scale)
        value = with_weight_gradient(value, side.parts, dim, log_total)
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
