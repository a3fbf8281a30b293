"""One threshold for all labels: the exact best cut of micro-F1, macro-F1 or their mean.

One pass over the scores from high to low; a cut only pays where a label's document is let in.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from longtail.thresholds.tuning import FloatArray, IntArray, Tuning, beneath, between, over

Objective = Literal["micro", "macro", "mean"]
OBJECTIVES = ("micro", "macro", "mean")
# Scores from which it pays to look for the best cut without sorting them all.
LARGE = 1 << 21
# Of which so many are looked at to guess where to look, and so many guesses are tried.
SAMPLE = 1 << 18
ATTEMPTS = 3
# Cuts of `nearly_best`.
STEPS = 4096


def best_cut(
    tuning: Tuning, objective: Objective, lift: FloatArray | None = None
) -> tuple[float, float]:
    """The best threshold for all labels, and what it earns on these documents.

    Without any scored positive nothing can be tuned: the threshold is then above every score,
    by as much as the scores reach; without any score, 0.

    `lift`: of each label, added to its scores.
    """
    if tuning.n_scored >= LARGE:
        found = _best_of_many(tuning, objective, lift)
        if found is not None:
            return found
    values, labels, applies = tuning.events()
    return best_of_events(
        _lifted(values, labels, lift), labels, applies, tuning.positives(), objective
    )


def _lifted(values: NDArray[Any], labels: NDArray[Any], lift: FloatArray | None) -> NDArray[Any]:
    return values if lift is None else values + lift[labels]


def best_of_events(
    values: NDArray[Any],
    labels: NDArray[Any],
    applies: NDArray[np.bool_],
    n_positive: IntArray,
    objective: Objective,
    steps: FloatArray | None = None,
) -> tuple[float, float]:
    """The best cut through scored pairs, given how many documents every label has.

    `steps`: of `f1_steps`, where they are known: they stay the same when all scores of a label are
    moved by as much.
    """
    if not len(values):
        return 0.0, 0.0
    if not applies.any():
        return over(values.min(), values.max()), 0.0
    if steps is None and objective != "micro":
        steps = f1_steps(values, labels, applies, n_positive)
    # Stable, so that sums of steps are the same to the last bit whatever lies below; of counts
    # they are anyway.
    order = np.argsort(-values, kind=None if objective == "micro" else "stable")
    values = values[order]
    earned = np.zeros(len(values))
    if objective != "macro":
        n_predicted = np.arange(1, len(values) + 1)
        earned += 2 * np.cumsum(applies[order]) / (n_predicted + n_positive.sum())
    if objective != "micro":
        assert steps is not None
        earned += np.cumsum(steps[order]) / len(n_positive)
    if objective == "mean":
        earned /= 2
    # A cut cannot fall between equal scores.
    earned[:-1][values[:-1] == values[1:]] = -1
    best = int(np.argmax(earned))
    after = values[best + 1] if best + 1 < len(values) else beneath(values[-1], values[0])
    below = float(after)
    return between(float(values[best]), below), float(earned[best])


def f1_steps(
    values: NDArray[Any], labels: NDArray[Any], applies: NDArray[np.bool_], n_positive: IntArray
) -> FloatArray:
    """By how much each pair moves its label's F1 when it is let in after all higher ones."""
    by_label = np.lexsort((-values, labels))
    grouped = labels[by_label]
    first = np.append(True, grouped[1:] != grouped[:-1])
    starts = np.flatnonzero(first)
    sizes = np.diff(np.append(starts, len(grouped)))
    grouped_applies = applies[by_label].astype(np.int64)
    total = np.cumsum(grouped_applies)
    hits = total - np.repeat(total[starts] - grouped_applies[starts], sizes)
    n_predicted = np.arange(len(grouped)) - np.repeat(starts, sizes) + 1
    f1 = 2 * hits / (n_predicted + n_positive[grouped])
    step = f1.copy()
    step[1:] -= np.where(first[1:], 0.0, f1[:-1])
    moved: FloatArray = np.empty(len(labels))
    moved[by_label] = step
    return moved


def nearly_best(
    values: NDArray[Any],
    applies: NDArray[np.bool_],
    n_positive: IntArray,
    objective: Objective,
    steps: FloatArray,
) -> float:
    """About what the best cut earns: of cuts in equal steps, without sorting; see `f1_steps`."""
    low, high = values[applies].min(), values[applies].max()
    # What lies below all positives is let in by no cut, and has no step.
    reached = values >= low
    share = np.clip((values - low) / ((high - low) or 1.0), 0.0, 1.0)
    place = (share * (STEPS - 1)).astype(np.int64)

    def let_in(weights: NDArray[Any]) -> FloatArray:
        sums = np.bincount(place, weights=weights, minlength=STEPS)
        return np.asarray(np.cumsum(sums[::-1]))

    earned = np.zeros(STEPS)
    if objective != "macro":
        earned += 2 * let_in(applies) / (let_in(reached) + n_positive.sum())
    if objective != "micro":
        earned += let_in(np.where(reached, steps, 0.0)) / len(n_positive)
    return float(earned.max()) / (2 if objective == "mean" else 1)


def _best_of_many(
    tuning: Tuning, objective: Objective, lift: FloatArray | None
) -> tuple[float, float] | None:
    """The exact best cut without sorting what cannot matter; None if all may matter.

    A label with P documents and k predictions has an F1 of at most 2P / (k + P), and the lower the
    cut, the more predictions. One good cut therefore bounds how low a better one can be.
    """
    n_positive = tuning.positives()
    own, own_labels = tuning.scored_positives()
    if not len(own):
        return None
    own = _lifted(own, own_labels, lift)
    for lowest in _too_low(tuning, objective, lift, own, own_labels)[:ATTEMPTS]:
        values, labels, applies = _reaching(tuning, lowest, lift)
        if len(values) > tuning.n_scored // 2:
            return None
        value, reached = best_of_events(values, labels, applies, n_positive, objective)
        predicted = np.bincount(labels, minlength=tuning.n_labels)
        # Clearly: the last of these pairs can reach the bound, and what lies below is not at hand.
        if _highest_f1(predicted, n_positive, objective) < reached - 1e-9:
            return value, reached
    return None


def _too_low(
    tuning: Tuning,
    objective: Objective,
    lift: FloatArray | None,
    own: NDArray[Any],
    own_labels: NDArray[Any],
) -> NDArray[Any]:
    """Cuts that are probably below the best one, the highest first: by some of the documents."""
    # Also among the lowest positives: where most are easy to find, the best cut is there.
    ranks = np.concatenate(
        [np.linspace(0, len(own) - 1, 24), np.geomspace(1, len(own), 16) - 1]
    ).astype(int)
    tried = np.unique(np.sort(own)[ranks])
    sample = np.arange(0, tuning.n_documents, max(1, tuning.n_scored // SAMPLE))
    values, labels, _ = tuning.select(sample).events()
    values = _lifted(values, labels, lift)
    share = len(sample) / tuning.n_documents
    n_positive, n_labels = tuning.positives(), tuning.n_labels
    if objective == "micro":  # all labels as one, which is faster to count
        n_positive, n_labels = n_positive.sum(keepdims=True), 1
    earned, most = np.zeros(len(tried)), np.zeros(len(tried))
    for k, cut in enumerate(tried):
        hits = _count(own_labels, own >= cut, n_labels)
        predicted = _count(labels, values >= cut, n_labels) / share
        earned[k] = _f1(hits, np.maximum(predicted, hits), n_positive, objective)
        most[k] = _highest_f1(predicted, n_positive, objective)
    found: NDArray[Any] = tried[most < 0.98 * earned.max()][::-1]
    return found


def _count(labels: NDArray[Any], let_in: NDArray[np.bool_], n_labels: int) -> NDArray[np.int64]:
    if n_labels == 1:
        return np.array([np.count_nonzero(let_in)])
    return np.bincount(labels[let_in], minlength=n_labels)


def _reaching(
    tuning: Tuning, lowest: float, lift: FloatArray | None
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
    """The pairs whose lifted score is at least so high, as `Tuning.events`."""
    if lift is None:
        return tuning.reaching(lowest)
    # A little too many, as a difference is rounded.
    slack = 1e-6 * (1 + abs(lowest) + np.abs(lift))
    values, labels, applies = tuning.reaching(lowest - lift - slack)
    values = _lifted(values, labels, lift)
    high = values >= lowest
    return values[high], labels[high], applies[high]


def _f1(hits: Any, predicted: Any, n_positive: IntArray, objective: Objective) -> float:
    """The objective, by counts of every label."""
    micro = 2 * hits.sum() / max(1, predicted.sum() + n_positive.sum())
    macro = float(np.mean(2 * hits / np.maximum(1, predicted + n_positive)))
    return float({"micro": micro, "macro": macro, "mean": (micro + macro) / 2}[objective])


def _highest_f1(predicted: Any, n_positive: IntArray, objective: Objective) -> float:
    """What no cut can exceed that predicts at least as much."""
    each = np.maximum(predicted, n_positive)
    micro = 2 * n_positive.sum() / (max(predicted.sum(), n_positive.sum()) + n_positive.sum())
    macro = float(np.mean(2 * n_positive / np.maximum(1, each + n_positive)))
    return float({"micro": micro, "macro": macro, "mean": (micro + macro) / 2}[objective])
