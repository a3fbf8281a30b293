"""One threshold for all labels: the exact best cut of micro-F1, macro-F1 or their mean.

One pass over the scores from high to low; a cut only pays where a label's document is let in.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.metrics.blocks import CACHED, row_blocks, rows_of
from longtail.thresholds.tuning import FloatArray, IntArray, Tuning, beneath, between, over

Objective = Literal["micro", "macro", "mean"]
OBJECTIVES = ("micro", "macro", "mean")
# Dense scores from which it pays to look for the best micro-F1 without sorting them all.
LARGE = 1 << 21
# Of which so many are looked at to guess where to look.
SAMPLE = 1 << 19


def best_cut(tuning: Tuning, objective: Objective) -> tuple[float, float]:
    """The best threshold for all labels, and what it earns on these documents.

    Without any scored positive nothing can be tuned: the threshold is then above every score,
    by as much as the scores reach; without any score, 0.
    """
    n_positive = tuning.positives()
    scores = tuning.scores
    plain = not sp.issparse(scores) and not np.ma.isMaskedArray(scores)
    if n_positive.sum() and objective == "micro" and plain and scores.size >= LARGE:
        found = _best_micro_of_many(scores, tuning.y_true)
        if found is not None:
            return found
    values, labels, applies = tuning.events()
    return best_of_events(values, labels, applies, n_positive, objective)


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
    # Stable, which is also the faster sort where values come label by label.
    order = np.argsort(-values, kind="stable")
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


def _best_micro_of_many(scores: NDArray[Any], y_true: sp.csr_matrix) -> tuple[float, float] | None:
    """The exact best micro-F1 without sorting what cannot matter; None if all may matter.

    With P positives, k predictions earn at most 2P / (k + P). One good cut therefore bounds how
    many predictions a better one can have, and only the scores above that bound are sorted.
    """
    positive = np.sort(scores[rows_of(y_true), y_true.indices])[::-1]
    n_positive = len(positive)
    # A few cuts on some of the documents show about where the best one is.
    sample = scores[:: max(1, scores.size // SAMPLE)]
    share = len(sample) / len(scores)
    tried = np.unique(positive[np.linspace(0, n_positive - 1, 24).astype(int)])
    hits = n_positive - np.searchsorted(positive[::-1], tried, side="left")
    predicted = np.array([np.count_nonzero(sample >= cut) for cut in tried]) / share
    most = n_positive * (2 / np.max(2 * hits / (predicted + n_positive)) - 1)
    # The highest of them that surely lets in as many as a better cut could have.
    enough = tried[predicted > 1.2 * most + 100]
    lowest = enough[-1] if len(enough) else tried[0]
    kept = np.sort(_at_least(scores, lowest))
    if len(kept) > scores.size // 2:
        return None
    above = positive[positive >= lowest]
    last = np.append(above[1:] != above[:-1], True)
    cuts, n_hits = above[last], np.flatnonzero(last) + 1
    first = np.searchsorted(kept, cuts, side="left")
    earned = 2 * n_hits / (len(kept) - first + n_positive)
    best = int(np.argmax(earned))
    if lowest > tried[0] and earned[best] < 2 * n_positive / (len(kept) + n_positive):
        return None
    if first[best] > 0:
        below = float(kept[first[best] - 1])
    else:
        lower = scores[scores < cuts[best]]
        below = float(lower.max()) if lower.size else beneath(cuts[best], kept[-1])
    return between(float(cuts[best]), below), float(earned[best])


def _at_least(scores: NDArray[Any], lowest: Any) -> NDArray[Any]:
    """The scores from a value up, in steps that stay in the processor's cache."""
    blocks = (scores[rows] for rows in row_blocks(len(scores), scores.shape[1], CACHED))
    return np.concatenate([block[block >= lowest] for block in blocks])
