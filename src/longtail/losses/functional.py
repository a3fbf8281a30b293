"""The maths of the losses that is shared or numerically delicate, as pure functions of tensors.

An element-wise loss is a pair of costs: of a logit whose label applies and of one whose does not.
A set-wise loss compares rows (or columns) of logits with `log_sum`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from longtail.losses.targets import Targets

Cost = Callable[[Tensor], Tensor]


def focal_softplus(wrongness: Tensor, gamma: float) -> Tensor:
    r"""sigmoid(x)^gamma * log(1 + e^x) with x = -z for a label that applies, x = z for another.

    gamma = 0 is binary cross-entropy, gamma > 0 the focal loss. Value and gradient are finite for
    every finite x.
    """
    cost = F.softplus(wrongness)
    if gamma == 0:
        return cost
    # Through log(sigmoid): the gradient stays finite where the sigmoid is 0.
    return torch.exp(gamma * F.logsigmoid(wrongness)) * cost


def negative_tolerant_shift(label_counts: Tensor, n_samples: int, kappa: float) -> Tensor:
    """kappa * log(N/n - 1), the paper's v_i, which NTR subtracts from the logits of a label.

    Counts are clamped to [0.5, N - 0.5], so that a label of no or of all training documents has a
    finite shift.
    """
    n = label_counts.clamp(min=0.5, max=n_samples - 0.5)
    return kappa * torch.log((n_samples - n) / n)


def class_balanced_weight(label_counts: Tensor, cb_beta: float) -> Tensor:
    """(1 - beta) / (1 - beta^n), with counts of at least 0.5."""
    n = label_counts.clamp(min=0.5)
    if cb_beta == 0:
        return torch.ones_like(n)
    # -expm1(n log beta) is exact for beta close to 1.
    log_beta = torch.log(torch.as_tensor(cb_beta, dtype=n.dtype, device=n.device))
    return (1 - cb_beta) / -torch.expm1(n * log_beta)


def propensity_weight(label_counts: Tensor, n_samples: int, a: float, b: float) -> Tensor:
    """2/p - 1 = 1 + 2 (ln N - 1) ((b+1) / (n+b))^a: p is the propensity of `metrics`."""
    # ln N - 1 is negative below three documents.
    odds = max(0.0, math.log(max(1, n_samples)) - 1) * ((b + 1) / (label_counts + b)) ** a
    return 1 + 2 * odds


def rebalanced_weight(
    inverse_counts: Tensor, document_mass: Tensor, alpha: float, beta: float, mu: float
) -> Tensor:
    """alpha + sigmoid(beta (r - mu)) with r = (1/n_i) / sum over the document's labels of 1/n_j.

    `document_mass` is that sum, shape (documents,). For a document without labels it is 0, and the
    weight its limit alpha + 1.
    """
    tiny = torch.finfo(inverse_counts.dtype).tiny
    ratio = inverse_counts / document_mass.clamp(min=tiny).unsqueeze(-1)
    return alpha + torch.sigmoid(beta * (ratio - mu))


def asymmetric_negative(logits: Tensor, gamma_negative: float, margin: float) -> Tensor:
    """-p_m^g- log(1 - p_m) with p_m = max(p - m, 0)."""
    if margin == 0:
        return focal_softplus(logits, gamma_negative)
    # Through log p: autograd of the sigmoid uses 1 - p, 20% off in float32 at a logit of 15.
    probability = torch.exp(F.logsigmoid(logits))
    is_easy = probability <= margin
    # Easy negatives cost 0; the placeholder 0.5 keeps the gradient of the power finite.
    shifted = torch.where(is_easy, 0.5, probability - margin)
    return torch.where(is_easy, 0.0, -(shifted**gamma_negative) * torch.log1p(-shifted))


def elementwise(
    input: Tensor,
    targets: Targets,
    positive: Cost,
    negative: Cost,
    positive_weight: Tensor | None = None,
) -> Tensor:
    """y * weight * positive(z) + (1 - y) * negative(z) for every element; a weight per label."""
    if targets.dense is not None:
        y = targets.dense.to(input.dtype)
        weighted = y if positive_weight is None else y * positive_weight
        return weighted * positive(input) + (1 - y) * negative(input)
    rows, labels = targets.positions()
    y = targets.position_values(input.dtype)
    picked = input[rows, labels]
    weighted = y if positive_weight is None else y * positive_weight[labels]
    mixed = weighted * positive(picked) + (1 - y) * negative(picked)
    return negative(input).index_put((rows, labels), mixed)


def log_sum(
    targets: Targets,
    scores: Tensor,
    weight: Tensor | None,
    dim: int,
    *,
    positive: bool,
    plus_one: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the log of the sum of weight * y * e^score along `dim`, and whether it has a term.

    A sum without a term gives 0. `positive=False`: 1 - y in place of y. `plus_one`: add 1 to the
    sum. The largest exponent is subtracted first, so the gradient is an exact softmax.
    """
    segments, size = None, targets.shape[1 - dim]
    if targets.dense is not None:
        y = targets.dense.to(scores.dtype)
        y = y if positive else 1 - y
        weight = y if weight is None else y * weight
    else:
        rows, labels = targets.positions()
        y, picked = targets.position_values(scores.dtype), scores[rows, labels]
        if positive:
            segments, scores = (rows if dim == 1 else labels), picked
            weight = y if weight is None else y * weight.expand(targets.shape)[rows, labels]
        else:
            scores = scores.index_put((rows, labels), _exponents(picked, 1 - y))
    exponents = scores if weight is None else _exponents(scores, weight)
    if segments is None and targets.shape[dim]:
        top = exponents.detach().amax(dim)
    else:
        top = exponents.new_full((size,), -math.inf)
        if segments is not None:
            top = top.scatter_reduce(0, segments, exponents.detach(), "amax")
    # Without a term the top is -inf, which would give inf - inf.
    top = top.clamp(min=0) if plus_one else top.masked_fill(torch.isinf(top), 0.0)
    if segments is None:
        total = torch.exp(exponents - top.unsqueeze(dim)).sum(dim)
    else:
        terms = torch.exp(exponents - top[segments])
        total = terms.new_zeros(size).index_add(0, segments, terms)
    # Not `> 0`, which would hide NaN. Where the total is 0, so is the top.
    counts = total != 0
    if plus_one:
        return top + torch.log1p(total + torch.expm1(-top)), counts
    return top + torch.log(torch.where(counts, total, 1.0)), counts


def _exponents(scores: Tensor, factor: Tensor) -> Tensor:
    """Return score + log(factor), -inf where the factor is 0."""
    # In the exponent: an element of weight 0 cannot become the top. NaN stays.
    unused = factor <= 0
    logs = torch.log(torch.where(unused, 1.0, factor))
    return torch.where(unused, -math.inf, scores + logs)
