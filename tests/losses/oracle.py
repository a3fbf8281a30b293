"""Every loss of LOSSES in float64 numpy with its derivatives by hand, right at infinite logits too.

Written from the published formulas, sharing no code with the package; test_formulas.py compares the
derivatives with differences, and rows with numbers computed by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Costs = Callable[[Array], tuple[Array, Array]]


@dataclass(frozen=True)
class Batch:
    """One batch in float64: (documents, labels) matrices, and weights of both."""

    logits: Array
    targets: Array
    known: NDArray[np.bool_]
    sample_weight: Array
    label_weight: Array
    counts: Array
    n_samples: int

    def transposed(self) -> Batch:
        return Batch(
            self.logits.T, self.targets.T, self.known.T, self.label_weight, self.sample_weight,
            self.counts, self.n_samples,
        )  # fmt: skip


@dataclass(frozen=True)
class Terms:
    """Terms of reduction="none", and what pulls a gradient of the terms back."""

    values: Array
    pull: Callable[[Array], Array]
    """Gradient by the terms -> gradient by logits."""
    present: NDArray[np.bool_] | None = None


def times(factor: Array, value: Array) -> Array:
    """Their product, 0 where the factor is 0: the limit, if the value is infinite."""
    return np.where(factor == 0, 0.0, factor * value)


def softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def sigmoid(x: Array) -> Array:
    return np.exp(-softplus(-x))


def focal(x: Array, gamma: float) -> tuple[Array, Array]:
    """sigmoid(x)^gamma log(1 + e^x), and its slope."""
    cost, focus = softplus(x), np.exp(-times(np.asarray(gamma), softplus(-x)))
    slope = focus * (gamma * times(sigmoid(-x), cost) + sigmoid(x))
    return times(focus, cost), slope


def focal_positive(shift: Array | float, gamma: float) -> Costs:
    """-(1-q)^gamma log q with q = sigmoid(z - shift)."""

    def positive(z: Array) -> tuple[Array, Array]:
        cost, slope = focal(shift - z, gamma)
        return cost, -slope

    return positive


def asymmetric_negative(z: Array) -> tuple[Array, Array]:
    p, q = sigmoid(z), sigmoid(-z)
    # p - 0.05 from the side that keeps its digits.
    p_m = np.maximum(np.where(z > 0, 0.95 - q, p - 0.05), 0)
    p_m = np.where(np.isnan(z), np.nan, p_m)
    log = np.log1p(-p_m)
    return -(p_m**4) * log, (p_m**4 / (1 - p_m) - 4 * p_m**3 * log) * p * q


def hill_negative(z: Array) -> tuple[Array, Array]:
    p, q = sigmoid(z), sigmoid(-z)
    return (1.5 - p) * p**2, 3 * p * q * p * q


def hinge(sign: float) -> Costs:
    """max(0, 1 - sign z)^2."""

    def cost(z: Array) -> tuple[Array, Array]:
        violation = np.maximum(1 - sign * z, 0)
        return violation**2, -2 * sign * violation

    return cost


def mixed(batch: Batch, positive: Costs, negative: Costs, weighting: str = "none") -> Terms:
    """weight * (y * positive(z) + (1 - y) * negative(z)) per element."""
    z, y = np.where(batch.known, batch.logits, 0), np.where(batch.known, batch.targets, 0)
    (cost_1, slope_1), (cost_0, slope_0) = positive(z), negative(z)
    cost = times(y, cost_1) + times(1 - y, cost_0)
    slope = y * slope_1 + (1 - y) * slope_0
    outer = batch.known * batch.label_weight * batch.sample_weight[:, None]
    n = np.maximum(batch.counts, 0.5)
    weight = np.ones_like(z)
    if weighting == "class-balanced":
        weight = weight * 0.1 / -np.expm1(n * np.log(0.9))
    if weighting == "rebalanced":
        mu = min(1.0, batch.n_samples / batch.counts.sum()) if batch.counts.any() else 1.0
        weight = 0.1 + sigmoid(10 * (1 / n / (y / n).sum(axis=1, keepdims=True) - mu))
    return Terms(times(outer * weight, cost), lambda upstream: upstream * outer * weight * slope)


def balanced(
    gamma: float = 0, ntr: bool = False, weighting: str = "none", kappa: float | None = None
) -> Callable[[Batch], Terms]:
    lambda_ = 2.0 if ntr else 1.0
    strength = kappa if kappa is not None else 0.05 * ntr

    def terms(batch: Batch) -> Terms:
        n = np.clip(batch.counts, 0.5, batch.n_samples - 0.5)
        shift = strength * np.log(batch.n_samples / n - 1)

        def negative(z: Array) -> tuple[Array, Array]:
            cost, slope = focal(lambda_ * (z - shift), gamma)
            return cost / lambda_, slope

        return mixed(batch, focal_positive(shift, gamma), negative, weighting)

    return terms


def exponential_sum(scores: Array, factor: Array, one: float) -> tuple[Array, Array]:
    """log(one + sum of factor * e^score) per row; its derivatives by scores."""
    if scores.shape[1] == 0:
        return np.zeros(scores.shape[0]) + np.log(one), scores
    exponents = np.where(factor > 0, scores + np.log(np.where(factor > 0, factor, 1)), -np.inf)
    top = exponents.max(axis=1)
    top = np.maximum(top, 0) if one else top
    top = np.where(np.isinf(top), 0, top)
    summed = np.exp(exponents - top[:, None]).sum(axis=1)
    total = summed + np.exp(-top) if one else summed
    value = np.where(total == 0, -np.inf, top + np.log(total))
    if one:
        value = np.where(top == 0, np.log1p(summed), value)
    return value, np.exp(exponents - top[:, None]) / total[:, None]


def weights_inside(batch: Batch) -> tuple[Array, Array, Array]:
    """Logits, targets (0 where unknown) and the weight of each element inside its document."""
    z, y = np.where(batch.known, batch.logits, 0), np.where(batch.known, batch.targets, 0)
    return z, y, batch.known * batch.label_weight


def zlpr(batch: Batch) -> Terms:
    z, y, inside = weights_inside(batch)
    negatives, share_0 = exponential_sum(z, inside * (1 - y), 1.0)
    positives, share_1 = exponential_sum(-z, inside * y, 1.0)

    def pull(upstream: Array) -> Array:
        return (upstream * batch.sample_weight)[:, None] * (share_0 - share_1)

    return Terms(batch.sample_weight * (negatives + positives), pull)


def dice(batch: Batch) -> Terms:
    z, y, inside = weights_inside(batch)
    p = sigmoid(z)
    top = 2 * (inside * p * y).sum(axis=1) + 1
    bottom = (inside * (p * p + y * y)).sum(axis=1) + 1
    ratio = (top / bottom)[:, None]

    def pull(upstream: Array) -> Array:
        scale = (upstream * batch.sample_weight / bottom)[:, None] * inside
        return scale * 2 * (ratio * p - y) * p * sigmoid(-z)

    return Terms(batch.sample_weight * (1 - top / bottom), pull)


def one_way(batch: Batch) -> Terms:
    """log(1 + negatives * positives^4) per document."""
    z, y, inside = weights_inside(batch)
    negatives, share_0 = exponential_sum(z, inside * (1 - y), 0.0)
    positives, share_1 = exponential_sum(-z / 4, inside * y, 0.0)
    present = (inside * y > 0).any(axis=1)
    counts = present & (inside * (1 - y) > 0).any(axis=1)
    joint = np.where(counts, negatives + 4 * positives, -np.inf)
    # A NaN shows in the terms of its document and its label, though no pair uses it.
    joint = np.where((np.isnan(z) & (inside > 0)).any(axis=1), np.nan, joint)

    def pull(upstream: Array) -> Array:
        scale = np.where(counts, upstream * batch.sample_weight * sigmoid(joint), 0)[:, None]
        return times(scale, share_0 - share_1)

    return Terms(times(batch.sample_weight, softplus(joint)), pull, present)


def two_way(batch: Batch) -> Terms:
    """Terms of the documents, then of the labels."""
    across, down = one_way(batch), one_way(batch.transposed())
    n_documents = len(across.values)

    def pull(upstream: Array) -> Array:
        return across.pull(upstream[:n_documents]) + down.pull(upstream[n_documents:]).T

    assert across.present is not None and down.present is not None
    present = np.concatenate([across.present, down.present])
    return Terms(np.concatenate([across.values, down.values]), pull, present)


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
    "asl": lambda batch: mixed(batch, focal_positive(0, 1), asymmetric_negative),
    "hill": lambda batch: mixed(batch, focal_positive(1, 2), hill_negative),
    "zlpr": zlpr,
    "two-way": two_way,
    "dice": dice,
    "logit-adjusted": balanced(0, kappa=1.0),
    "squared-hinge": lambda batch: mixed(batch, hinge(1), hinge(-1)),
}


def evaluate(name: str, batch: Batch, reduction: str) -> tuple[Array, Array]:
    """The loss, and its gradient (of the sum, if `none`) by logits."""
    with np.errstate(all="ignore"):
        terms = FORMULAS[name](batch)
        weights = np.ones_like(terms.values)
        if reduction in ("mean", "batchmean"):
            weights = weights / counted(name, terms, batch, reduction)
        value = terms.values if reduction == "none" else np.asarray((weights * terms.values).sum())
        return value, terms.pull(weights)


def counted(name: str, terms: Terms, batch: Batch, reduction: str) -> Array:
    """What a mean divides each term by."""
    if name == "two-way":
        assert terms.present is not None
        parts = np.split(terms.present, [batch.logits.shape[0]])
        return np.concatenate([np.full(len(part), max(1.0, part.sum())) for part in parts])
    if reduction == "batchmean" or name in ("zlpr", "dice"):
        return np.maximum(1.0, batch.known.any(axis=1).sum())
    return np.maximum(1.0, batch.known.sum())
