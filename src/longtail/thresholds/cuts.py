"""Candidate cuts of every label, and the exact best cut through the scores of all labels.

F1 can only peak just below a positive, so only positives are candidates.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from longtail.thresholds.tuning import FloatArray, IntArray, Tuning

Objective = Literal["micro", "macro", "mean"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
# Bins between the lowest and the highest positive score in the first pass of `best_cut`.
LEVELS = 1 << 13
# Smaller differences of F1 are rounding: floating-point sums depend on their order.
EQUAL = 1e-12

T = TypeVar("T", float, FloatArray)


class Cuts(NamedTuple):
    """Candidate thresholds, each just below a positive: grouped by label, in descending order."""

    labels: IntArray
    thresholds: FloatArray
    hits: IntArray
    """True positives of the label at this threshold."""
    predicted: IntArray
    """Predicted positives of the label at this threshold."""


def combine(objective: Objective, micro: T, macro: T) -> T:
    """The value of the objective, given micro- and macro-F1."""
    return {"micro": micro, "macro": macro, "mean": (micro + macro) / 2}[objective]


def cuts_of(tuning: Tuning) -> Cuts:
    """The candidate cuts of every label."""
    pairs, (starts, sizes) = tuning.by_label, tuning.segments
    positive = np.flatnonzero(pairs.applies)
    # Equal scores are on the same side of any cut, so a cut comes after the last of them.
    is_last = np.ones(len(pairs.scores), dtype=np.bool_)
    is_last[:-1] = pairs.scores[1:] != pairs.scores[:-1]
    is_last[(starts + sizes)[sizes > 0] - 1] = True
    ends = np.flatnonzero(is_last)
    last = ends[np.searchsorted(ends, positive)]
    kept = np.append(last[1:] != last[:-1], True)[: len(positive)]
    n_hits, last = np.flatnonzero(kept) + 1, last[kept]
    labels = pairs.labels[last].astype(np.int64)
    first_hit = np.searchsorted(positive, starts)
    values = np.append(pairs.scores, 0).astype(np.float64)
    lowest, highest = values[starts + sizes - 1], values[starts]
    is_lowest = last + 1 == (starts + sizes)[labels]
    below = np.where(is_lowest, below_all(lowest, highest)[labels], values[last + 1])
    return Cuts(
        labels,
        between(values[last], below),
        n_hits - first_hit[labels],
        last + 1 - starts[labels],
    )


def between(above: Any, below: Any) -> FloatArray:
    """Thresholds that `above` reaches and `below` does not: the midpoint, or `above` if none."""
    above, below = np.asarray(above, np.float64), np.asarray(below, np.float64)
    middle = (above + below) / 2
    return np.asarray(np.where((below < middle) & (middle <= above), middle, above))


def below_all(lowest: Any, highest: Any) -> Any:
    """A stand-in for the score below the lowest one: as far below it as the highest is above it.

    Relative to the range of the scores, so that thresholds scale with them.
    """
    return 2 * lowest - highest


def best_cut(
    tuning: Tuning, objective: Objective, offsets: FloatArray | None = None
) -> tuple[float, float]:
    """The best threshold for all labels, and its F1 on these documents.

    Exact without sorting all pairs: scores are binned into levels, F1 is computed at the edges of
    the levels and bounded within them by their positives, and only levels that can hold the best
    cut are sorted. Without a scored positive, the threshold is above every score; without any
    score, 0.

    Args:
        offsets: one number per label, added to its scores.
    """
    # Micro-F1 depends on counts alone, so the pairs need not be sorted.
    is_micro = objective == "micro"
    pairs = tuning.pairs if is_micro else tuning.by_label
    steps = np.zeros(len(pairs.scores)) if is_micro else tuning.f1_steps
    if offsets is not None:
        pairs = pairs._replace(scores=pairs.scores + offsets[pairs.labels])
    scores, applies = pairs.scores, pairs.applies
    if not len(scores):
        return 0.0, 0.0
    lowest, highest = float(scores.min()), float(scores.max())
    if not applies.any():
        return max(2 * highest - lowest, float(np.nextafter(highest, np.inf))), 0.0
    level = levels_of(scores, applies, LEVELS)
    totals = totals_of(level, LEVELS + 1, applies, steps)
    f1 = partial(f1_of, objective, tuning.n_positive)
    reached = cumulative(totals)
    # Upper bound within a level: all its positives come first.
    gains = np.bincount(level[applies], steps[applies], LEVELS + 1)
    positives_only = np.stack([totals[0], totals[0], gains])
    bound = f1(*(reached - totals + positives_only))
    chosen = (bound >= f1(*reached).max() - EQUAL) & (totals[0] > 0)
    order = np.flatnonzero(chosen[level])
    order = order[np.argsort(-scores[order], kind="stable")]
    counted = [applies[order], np.ones(len(order)), steps[order]]
    exact = f1(*(np.cumsum(counted, axis=1) + cumulative(totals * ~chosen)[:, level[order]]))
    ordered = scores[order]
    # A cut cannot fall between equal scores.
    exact[:-1][ordered[:-1] == ordered[1:]] = -1
    best = int(np.argmax(exact >= exact.max() - EQUAL))
    lower = scores[scores < ordered[best]]
    below = lower.max() if len(lower) else below_all(lowest, highest)
    return float(between(ordered[best], below)), float(exact[best])


def levels_of(scores: NDArray[Any], applies: NDArray[np.bool_], n_levels: int) -> IntArray:
    """Bin scores into levels of equal width, 1 at the lowest positive; 0 for scores below it."""
    positive = scores[applies].astype(np.float64)
    low, size = positive.min(), np.ptp(positive) / (n_levels - 1)
    # Subtracting and dividing are monotonic even where they round.
    level: FloatArray = np.subtract(scores, low, dtype=np.float64)
    with np.errstate(over="ignore"):
        level /= max(size, np.finfo(np.float64).tiny)
    level += 1
    np.clip(level, 0, n_levels, out=level)
    return level.astype(np.int64)


def totals_of(
    bins: IntArray, n_bins: int, applies: NDArray[np.bool_], steps: FloatArray
) -> FloatArray:
    """Number of positives, number of pairs and sum of steps in each bin."""
    n_hits, n = np.bincount(bins[applies], minlength=n_bins), np.bincount(bins, minlength=n_bins)
    return np.stack([n_hits, n, np.bincount(bins, steps, n_bins)])


def cumulative(totals: FloatArray) -> FloatArray:
    """Sums over each level and all levels above it, along the last axis."""
    return np.cumsum(totals[..., ::-1], axis=-1)[..., ::-1]


def f1_of(
    objective: Objective, n_positive: IntArray, hits: Any, predicted: Any, steps: Any
) -> FloatArray:
    """The objective, given totals over all predicted pairs."""
    return combine(objective, 2 * hits / (predicted + n_positive.sum()), steps / len(n_positive))
