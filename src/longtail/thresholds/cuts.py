"""Where to cut: the cuts of one label, and the exact best cut through the scores of all labels.

A better cut always lies just below a positive, so only positives are candidates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from longtail.thresholds.tuning import FloatArray, IntArray, Pairs, Tuning

Objective = Literal["micro", "macro", "mean"]
OBJECTIVES = ("micro", "macro", "mean")
# Scored pairs from which it pays to look for the best cut without sorting all of them.
LARGE = 1 << 21
# Pairs that are sampled for that to guess a lower bound, and number of guesses.
SAMPLE = 1 << 18
ATTEMPTS = 3
# Cuts that `approximate_f1` compares.
STEPS = 4096

T = TypeVar("T", float, FloatArray)


def combine(objective: Objective, micro: Callable[[], T], macro: Callable[[], T]) -> T:
    """The objective from micro- and macro-F1, of which only those needed are computed."""
    if objective != "mean":
        return micro() if objective == "micro" else macro()
    total = micro()
    total += macro()  # in place, as the arrays may be large
    total /= 2
    return total


def cuts_of(
    scores: NDArray[Any], applies: NDArray[np.bool_]
) -> tuple[FloatArray, IntArray, IntArray]:
    """Candidate thresholds of one label, each just below a positive, from high to low.

    With the hits and the predictions of each.
    """
    ordered, positive = np.sort(scores), np.sort(scores[applies])[::-1]
    # Equal scores are on the same side of any cut: keep the last of them.
    last = np.append(positive[1:] != positive[:-1], True)[: len(positive)]
    above = positive[last].astype(np.float64)
    first = np.searchsorted(ordered, positive[last], side="left")
    lowest = [below_all(ordered[0], ordered[-1])] if len(ordered) else []
    below = np.concatenate([lowest, ordered])[first].astype(np.float64)
    return between(above, below), np.flatnonzero(last) + 1, len(ordered) - first


def between(above: Any, below: Any) -> FloatArray:
    """Thresholds that `above` reaches and `below` does not, in the middle where there is one."""
    above, below = np.asarray(above, np.float64), np.asarray(below, np.float64)
    middle = (above + below) / 2
    return np.asarray(np.where((below < middle) & (middle <= above), middle, above))


def below_all(lowest: float, highest: float) -> float:
    """In place of a score below the lowest one: as far below it as the highest is above it.

    A distance in the unit of the scores, so that thresholds follow a change of it.
    """
    return 2 * float(lowest) - float(highest)


def above_all(lowest: float, highest: float) -> float:
    """A threshold that no score reaches, likewise."""
    return max(2 * float(highest) - float(lowest), float(np.nextafter(float(highest), np.inf)))


def best_cut(
    tuning: Tuning, objective: Objective, offsets: FloatArray | None = None
) -> tuple[float, float]:
    """The best threshold for all labels, and its F1 on these documents.

    Without any scored positive the threshold is above every score; without any score, 0.

    Args:
        offsets: of each label, added to its scores.
    """
    result = None
    if tuning.n_scored >= LARGE:
        result = _best_cut_of_many(tuning, objective, offsets)
    return result or best_cut_of(tuning.pairs(offsets=offsets), tuning.n_positive, objective)


def best_cut_of(
    pairs: Pairs, n_positive: IntArray, objective: Objective, steps: FloatArray | None = None
) -> tuple[float, float]:
    """The best threshold for these pairs, and its F1.

    Args:
        n_positive: documents of each label.
        steps: of `f1_steps`, if known: they do not change with an offset to a label's scores.
    """
    if not len(pairs.scores):
        return 0.0, 0.0
    if not pairs.applies.any():
        return above_all(pairs.scores.min(), pairs.scores.max()), 0.0
    if steps is None:  # before the sort, to need less memory
        steps = np.zeros(0) if objective == "micro" else f1_steps(pairs, n_positive)
    # Stable, so that sums of steps are the same to the last bit whatever lies below; sums of
    # counts are exact anyway.
    order = np.argsort(-pairs.scores, kind=None if objective == "micro" else "stable")
    scores, n_predicted = pairs.scores[order], np.arange(1, len(order) + 1)
    f1 = combine(
        objective,
        lambda: 2 * np.cumsum(pairs.applies[order]) / (n_predicted + n_positive.sum()),
        lambda: np.cumsum(steps[order]) / len(n_positive),
    )
    # A cut cannot fall between equal scores.
    f1[:-1][scores[:-1] == scores[1:]] = -1
    best = int(np.argmax(f1))
    below = scores[best + 1] if best + 1 < len(scores) else below_all(scores[-1], scores[0])
    return float(between(scores[best], below)), float(f1[best])


def f1_steps(pairs: Pairs, n_positive: IntArray) -> FloatArray:
    """By how much each pair changes its label's F1 when it is predicted after all higher ones."""
    by_label = np.lexsort((-pairs.scores, pairs.labels))
    labels, applies = pairs.labels[by_label], pairs.applies[by_label].astype(np.int64)
    is_first = np.append(True, labels[1:] != labels[:-1])
    starts = np.flatnonzero(is_first)
    sizes = np.diff(np.append(starts, len(labels)))
    total = np.cumsum(applies)
    hits = total - np.repeat(total[starts] - applies[starts], sizes)
    n_predicted = np.arange(len(labels)) - np.repeat(starts, sizes) + 1
    f1 = 2 * hits / (n_predicted + n_positive[labels])
    f1[1:] -= np.where(is_first[1:], 0.0, f1[:-1])
    steps: FloatArray = np.empty(len(labels))
    steps[by_label] = f1
    return steps


def approximate_f1(
    pairs: Pairs, n_positive: IntArray, objective: Objective, steps: FloatArray
) -> float:
    """About the F1 of the best cut: of cuts in equal steps, without sorting; see `f1_steps`."""
    low, high = pairs.scores[pairs.applies].min(), pairs.scores[pairs.applies].max()
    # No cut reaches what lies below all positives.
    reached = pairs.scores >= low
    share = np.clip((pairs.scores - low) / ((high - low) or 1.0), 0.0, 1.0)
    level = (share * (STEPS - 1)).astype(np.int64)

    def cumulative(weights: NDArray[Any]) -> FloatArray:
        sums = np.bincount(level, weights=weights, minlength=STEPS)
        return np.asarray(np.cumsum(sums[::-1]))

    f1 = combine(
        objective,
        lambda: 2 * cumulative(pairs.applies) / (cumulative(reached) + n_positive.sum()),
        lambda: cumulative(np.where(reached, steps, 0.0)) / len(n_positive),
    )
    return float(f1.max())


def _best_cut_of_many(
    tuning: Tuning, objective: Objective, offsets: FloatArray | None
) -> tuple[float, float] | None:
    """The exact best cut without sorting what cannot matter; None if all may matter.

    A label with P documents and k predictions has an F1 of at most 2P / (k + P), and the lower the
    cut, the more predictions. One good cut therefore bounds how low a better one can be.
    """
    n_positive = tuning.n_positive
    for lowest in _lower_bounds(tuning, objective, offsets)[:ATTEMPTS]:
        pairs = tuning.pairs(lowest, offsets)
        if len(pairs.scores) > tuning.n_scored // 2:
            return None
        threshold, f1 = best_cut_of(pairs, n_positive, objective)
        n_predicted = np.bincount(pairs.labels, minlength=tuning.n_labels)
        # Clearly lower: the last of these pairs can reach the bound, and what lies below is not
        # known here.
        if _highest_f1(n_predicted, n_positive, objective) < f1 - 1e-9:
            return threshold, f1
    return None


def _lower_bounds(tuning: Tuning, objective: Objective, offsets: FloatArray | None) -> NDArray[Any]:
    """Cuts that are probably below the best one, the highest first, from a sample of documents."""
    scores, labels = tuning.positive_pairs(offsets)
    if not len(scores):
        return scores
    # Also among the lowest positives: if most are easy to find, the best cut is there.
    ranks = [np.linspace(0, len(scores) - 1, 24), np.geomspace(1, len(scores), 16) - 1]
    cuts = np.unique(np.sort(scores)[np.concatenate(ranks).astype(int)])
    rows = np.arange(0, tuning.n_documents, max(1, tuning.n_scored // SAMPLE))
    sample = tuning.select(rows).pairs(offsets=offsets)
    share = len(rows) / tuning.n_documents
    n_positive, n_labels = tuning.n_positive, tuning.n_labels
    if objective == "micro":  # all labels as one, which is faster to count
        n_positive, n_labels = n_positive.sum(keepdims=True), 1
    reached, highest = np.zeros((2, len(cuts)))
    for k, cut in enumerate(cuts):
        hits = _count(labels, scores >= cut, n_labels)
        n_predicted = _count(sample.labels, sample.scores >= cut, n_labels) / share
        reached[k] = _f1(hits, np.maximum(n_predicted, hits), n_positive, objective)
        highest[k] = _highest_f1(n_predicted, n_positive, objective)
    bounds: NDArray[Any] = cuts[highest < 0.98 * reached.max()][::-1]
    return bounds


def _count(labels: NDArray[Any], chosen: NDArray[np.bool_], n_labels: int) -> NDArray[np.int64]:
    if n_labels == 1:
        return np.array([np.count_nonzero(chosen)])
    return np.bincount(labels[chosen], minlength=n_labels)


def _f1(hits: Any, n_predicted: Any, n_positive: IntArray, objective: Objective) -> float:
    """The objective from the counts of every label."""
    return combine(
        objective,
        lambda: float(2 * hits.sum() / max(1, n_predicted.sum() + n_positive.sum())),
        lambda: float(np.mean(2 * hits / np.maximum(1, n_predicted + n_positive))),
    )


def _highest_f1(n_predicted: Any, n_positive: IntArray, objective: Objective) -> float:
    """What no cut can exceed that predicts at least as many documents of each label."""
    return _f1(n_positive, np.maximum(n_predicted, n_positive), n_positive, objective)
