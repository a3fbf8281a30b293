"""Every loss of LOSSES as plain float64 formulas, from the publications; torch differentiates them.

Shares no code with the package.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]
Cost = Callable[[Tensor], Tensor]


class Batch(NamedTuple):
    """One batch in float64, as arrays or tensors: (documents, labels) matrices, weights of both."""

    logits: Any
    targets: Any
    known: Any
    sample_weight: Any
    label_weight: Any
    counts: Any
    n_samples: int

    def transposed(self) -> Batch:
        return Batch(
            self.logits.T, self.targets.T, self.known.T, self.label_weight, self.sample_weight,
            self.counts, self.n_samples,
        )  # fmt: skip


class Terms(NamedTuple):
    """Terms of reduction="none", and of two-way whether each has a positive."""

    values: Tensor
    present: Tensor | None = None


def softplus(x: Tensor) -> Tensor:
    return torch.logaddexp(x, torch.zeros_like(x))


def focal(x: Tensor, gamma: float) -> Tensor:
    """sigmoid(x)^gamma log(1 + e^x)."""
    return torch.sigmoid(x) ** gamma * softplus(x)


def asymmetric_negative(z: Tensor) -> Tensor:
    p_m = (torch.sigmoid(z) - 0.05).clamp(min=0)
    return -(p_m**4) * torch.log1p(-p_m)


def hill_negative(z: Tensor) -> Tensor:
    p = torch.sigmoid(z)
    return (1.5 - p) * p**2


def inside(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, targets (0 where unknown) and the weight of each element inside its document."""
    z, y = (torch.where(batch.known, part, 0.0) for part in (batch.logits, batch.targets))
    return z, y, batch.known * batch.label_weight


def mixed(batch: Batch, positive: Cost, negative: Cost, weighting: str = "none") -> Terms:
    """weight * (y * positive(z) + (1 - y) * negative(z)) per element."""
    z, y, weight = inside(batch)
    n = batch.counts.clamp(min=0.5)
    if weighting == "class-balanced":
        weight = weight * 0.1 / (1 - 0.9**n)
    if weighting == "rebalanced":
        mu = min(1.0, batch.n_samples / batch.counts.sum()) if batch.counts.any() else 1.0
        ratio = 1 / n / (y / n).sum(dim=1, keepdim=True)
        weight = weight * (0.1 + torch.sigmoid(10 * (ratio - mu)))
    boost = 1.0
    if weighting == "propensity":
        odds = (math.log(max(batch.n_samples, math.e)) - 1) * (2.5 / (batch.counts + 1.5)) ** 0.55
        propensity = 1 / (1 + odds)
        boost = 2 / propensity - 1
    cost = y * boost * positive(z) + (1 - y) * negative(z)
    return Terms(weight * batch.sample_weight[:, None] * cost)


def balanced(
    gamma: float = 0, ntr: bool = False, weighting: str = "none", kappa: float | None = None
) -> Callable[[Batch], Terms]:
    lambda_ = 2.0 if ntr else 1.0
    strength = kappa if kappa is not None else 0.05 * ntr

    def terms(batch: Batch) -> Terms:
        n = batch.counts.clamp(0.5, batch.n_samples - 0.5)
        shift = strength * torch.log(batch.n_samples / n - 1)
        return mixed(
            batch,
            lambda z: focal(shift - z, gamma),
            lambda z: focal(lambda_ * (z - shift), gamma) / lambda_,
            weighting,
        )

    return terms


def log_sum(scores: Tensor, factor: Tensor) -> Tensor:
    """log of the sum of factor * e^score per row; 0 where all factors are 0."""
    used = factor > 0
    exponents = torch.where(used, scores + torch.log(torch.where(used, factor, 1.0)), -torch.inf)
    return torch.logsumexp(torch.where(used.any(dim=1, keepdim=True), exponents, 0.0), dim=1)


def zlpr(batch: Batch) -> Terms:
    z, y, weight = inside(batch)
    ones = z.new_ones(len(z), 1)

    def log_one_plus(scores: Tensor, factor: Tensor) -> Tensor:
        return log_sum(torch.cat([0 * ones, scores], dim=1), torch.cat([ones, factor], dim=1))

    values = log_one_plus(z, weight * (1 - y)) + log_one_plus(-z, weight * y)
    return Terms(batch.sample_weight * values)


def dice(batch: Batch) -> Terms:
    z, y, weight = inside(batch)
    p = torch.sigmoid(z)
    top = 2 * (weight * p * y).sum(dim=1) + 1
    return Terms(batch.sample_weight * (1 - top / ((weight * (p * p + y * y)).sum(dim=1) + 1)))


def one_way(batch: Batch) -> Terms:
    """log(1 + negatives * positives^4) per document."""
    z, y, weight = inside(batch)
    present = (weight * y > 0).any(dim=1)
    counts = present & (weight * (1 - y) > 0).any(dim=1)
    joint = log_sum(z, weight * (1 - y)) + 4 * log_sum(-z / 4, weight * y)
    # A NaN makes the terms of its document and label NaN, though no pair uses it.
    joint = torch.where(counts, joint, -torch.inf)
    joint = torch.where((z.isnan() & (weight > 0)).any(dim=1), torch.nan, joint)
    return Terms(batch.sample_weight * softplus(joint), present)


def two_way(batch: Batch) -> Terms:
    """Terms of the documents, then of the labels."""
    return Terms(*map(torch.cat, zip(one_way(batch), one_way(batch.transposed()), strict=True)))


FORMULAS: dict[str, Callable[[Batch], Terms]] = {
    "bce": balanced(),
    "fl": balanced(2),
    "cb": balanced(2, weighting="class-balanced"),
    "r-fl": balanced(2, weighting="rebalanced"),
    "ntr-fl": balanced(2, ntr=True),
    "db-0fl": balanced(0, ntr=True, weighting="rebalanced"),
    "cb-ntr": balanced(2, ntr=True, weighting="class-balanced"),
    "db": balanced(2, ntr=True, weighting="rebalanced"),
    "cb-bce": balanced(0, weighting="class-balanced"),
    "r-bce": balanced(0, weighting="rebalanced"),
    "ntr-bce": balanced(0, ntr=True),
    "asl": lambda batch: mixed(batch, lambda z: focal(-z, 1), asymmetric_negative),
    "hill": lambda batch: mixed(batch, lambda z: focal(1 - z, 2), hill_negative),
    "zlpr": zlpr,
    "two-way": two_way,
    "dice": dice,
    "logit-adjusted": balanced(0, kappa=1.0),
    "pw-bce": balanced(0, weighting="propensity"),
    "squared-hinge": lambda batch: mixed(
        batch, lambda z: (1 - z).relu() ** 2, lambda z: (1 + z).relu() ** 2
    ),
}


def evaluate(name: str, batch: Batch, reduction: str) -> tuple[Array, Array]:
    """The loss, and its gradient (of the sum, if `none`) by logits."""
    batch = Batch(*map(torch.tensor, batch[:-1]), batch.n_samples)
    logits = batch.logits.clone().requires_grad_()
    terms = FORMULAS[name](batch._replace(logits=logits))
    values = terms.values
    if reduction in ("mean", "batchmean"):
        values = values / counted(name, terms, batch, reduction).clamp(min=1)
    (grad,) = torch.autograd.grad(values.sum(), logits)
    return (values if reduction == "none" else values.sum()).detach().numpy(), grad.numpy()


def counted(name: str, terms: Terms, batch: Batch, reduction: str) -> Tensor:
    """Return the divisor of each term in a mean."""
    if terms.present is not None:
        parts = terms.present.split(batch.logits.shape)
        return torch.cat([part.sum().expand(len(part)) for part in parts])
    if reduction == "batchmean" or name in ("zlpr", "dice"):
        return batch.known.any(dim=1).sum()
    return batch.known.sum()
