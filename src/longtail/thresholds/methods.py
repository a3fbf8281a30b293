"""The methods to choose thresholds, as one table: from scores that the model has not trained on.

A new method is one function and one row of METHODS; docs/evaluation.md shows its first line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from longtail.thresholds.cuts import (
    Objective,
    approximate_f1,
    best_cut,
    best_cut_of,
    cuts_of,
    f1_steps,
)
from longtail.thresholds.scales import logit
from longtail.thresholds.tuning import FloatArray, IntArray, Pairs, Tuning

Fitted = tuple[FloatArray, dict[str, Any]]
"""The threshold of each label, and details for reports."""
GRID = np.round(np.arange(0.40, 0.605, 0.01), 2)
SHIFTS = np.round(np.arange(-1.0, 1.05, 0.1), 1)
# Positives at which the threshold of a label alone and that of the curve have the same weight.
SHRINKAGE = 50.0
# The curve's drop towards rare labels, in standard deviations of the scores of positives.
DROPS = np.concatenate([[0.0], np.geomspace(0.05, 3.0, 16)])
# Its bend: the quantile of the training counts above which all labels share the threshold.
BENDS = (0.5, 0.67, 0.8, 0.9, 0.97)
# Scored pairs above which the curve is chosen by the best documents of every label alone.
MANY_PAIRS = 100_000


def grid(tuning: Tuning, objective: Objective, folds: IntArray) -> Fitted:
    """One probability of 0.40, 0.41, ..., 0.60, or of margins one shift of -1.0, -0.9, ..., 1.0."""
    name, steps = ("shift", SHIFTS) if tuning.scale == "margin" else ("probability", GRID)
    cuts = SHIFTS if tuning.scale == "margin" else logit(GRID)
    pairs = tuning.pairs(cuts[0])
    # Between two cuts all scores are alike.
    rounded = cuts[np.searchsorted(cuts, pairs.scores, side="right") - 1]
    value, _ = best_cut_of(pairs._replace(scores=rounded), tuning.n_positive, objective)
    chosen = int(np.searchsorted(cuts, value, side="left").clip(0, len(cuts) - 1))
    return np.full(tuning.n_labels, cuts[chosen]), {name: float(steps[chosen])}


def one_for_all(tuning: Tuning, objective: Objective, folds: IntArray) -> Fitted:
    """One threshold, the exact best of all cuts."""
    value, f1 = best_cut(tuning, objective)
    return np.full(tuning.n_labels, value), {"threshold": value, "tuning_f1": f1}


def per_label(
    tuning: Tuning, objective: Objective, folds: IntArray, shrinkage: float = SHRINKAGE
) -> Fitted:
    """The exact best F1 of every label, shrunk towards the curve of `frequency` for rare labels."""
    curve, details = frequency(tuning, objective, folds)
    values = curve.copy()
    for label, scores, applies in tuning.columns():
        cuts, hits, predicted = cuts_of(scores, applies)
        if len(cuts):
            best = cuts[np.argmax(2 * hits / (predicted + tuning.n_positive[label]))]
            values[label] = best + (curve[label] - best) * shrinkage / (int(hits[-1]) + shrinkage)
    del details["tuning_f1"]
    return values, {**details, "shrinkage": shrinkage}


def micromacro(tuning: Tuning, objective: Objective, folds: IntArray) -> Fitted:
    """Labels from frequent to rare, each cut for running micro-F1 + F1 of the label / labels.

    Fitted once for each fold, on all other folds (with one fold, on all documents); a label's
    threshold is the mean over the fits in which it has a scored document, and the global
    threshold if there is none (Lin and Lin, CIKM 2023).
    """
    names = np.unique(folds)
    parts = [np.flatnonzero(folds != fold) for fold in names if len(names) > 1]
    first = np.full(tuning.n_labels, np.inf)
    further, n_fits = np.zeros(tuning.n_labels), np.zeros(tuning.n_labels)
    for part in parts or [np.arange(tuning.n_documents)]:
        fitted = _micromacro_once(tuning.select(part))
        known = np.isfinite(fitted)
        first = np.where(np.isfinite(first), first, fitted)
        # Sums of differences: the mean of equal thresholds is the same to the last bit.
        further[known] += fitted[known] - first[known]
        n_fits[known] += 1
    shared, _ = best_cut(tuning, objective)
    values = np.where(n_fits > 0, first + further / np.maximum(n_fits, 1), shared)
    return values, {"global": shared, "folds": len(names)}


def _micromacro_once(tuning: Tuning) -> FloatArray:
    """Thresholds of the labels that have documents here; infinity for the others."""
    values = np.full(tuning.n_labels, np.inf)
    hits = predicted = actual = 0
    order = np.argsort(-tuning.label_counts, kind="stable")
    for label, scores, applies in tuning.columns(order):
        n_positive = int(tuning.n_positive[label])
        actual += n_positive
        cuts, new_hits, new = cuts_of(scores, applies)
        if not len(cuts):
            continue
        micro = 2 * (hits + new_hits) / (predicted + new + actual)
        f1 = micro + 2 * new_hits / (new + n_positive) / tuning.n_labels
        best = int(np.argmax(f1))
        if f1[best] < 2 * hits / (predicted + actual):
            # Any prediction of this label costs more than it gains: above all its scores.
            low, high = float(scores.min()), float(scores.max())
            values[label] = max(high + 1e-6 * (high - low), float(np.nextafter(high, np.inf)))
            continue
        values[label] = cuts[best]
        hits += int(new_hits[best])
        predicted += int(new[best])
    return values


def frequency(tuning: Tuning, objective: Objective, folds: IntArray) -> Fitted:
    """A curve over the training counts: height - slope x max(0, log(bend / count)).

    Three numbers for all labels, chosen for the objective: rare labels, of which none has enough
    documents for its threshold, share one rule. The height is exact: it is the global threshold of
    shifted scores. Of more than MANY_PAIRS, slope and bend are chosen by the best pairs of every
    label, and by heights in small steps.
    """
    pairs = _best_pairs(tuning)
    n_positive, counts = tuning.n_positive, np.maximum(tuning.label_counts, 1.0)
    all_pairs = tuning.n_scored <= MANY_PAIRS
    best = (-1.0, 0.0, 0.0, 1.0)
    if pairs.applies.any():
        spread = float(np.std(pairs.scores[pairs.applies])) or 1.0
        steps = f1_steps(pairs, n_positive)
        for bend in np.unique(np.quantile(counts, BENDS)):
            rarity = np.maximum(0.0, np.log(bend / counts))
            steepest = float(rarity.max())
            for drop in DROPS if steepest > 0 else DROPS[:1]:
                slope = float(drop * spread / steepest) if steepest else 0.0
                shifted = pairs._replace(scores=pairs.scores + slope * rarity[pairs.labels])
                height = 0.0
                if all_pairs:
                    height, f1 = best_cut_of(shifted, n_positive, objective, steps)
                else:
                    f1 = approximate_f1(shifted, n_positive, objective, steps)
                if f1 > best[0] + 1e-12:
                    best = f1, height, slope, float(bend)
    f1, height, slope, bend = best
    offsets = slope * np.maximum(0.0, np.log(bend / counts))
    if not all_pairs or f1 < 0:
        # Only now the height, exactly and with all pairs; and never worse than without a slope.
        height, f1 = best_cut(tuning, objective, offsets)
        flat, flat_f1 = best_cut(tuning, objective)
        if flat_f1 >= f1:
            height, f1, slope, offsets = flat, flat_f1, 0.0, np.zeros(tuning.n_labels)
    details = {"height": height, "slope": slope, "bend": bend, "tuning_f1": f1}
    return height - offsets, details


def _best_pairs(tuning: Tuning) -> Pairs:
    """All scored pairs, or of many the best ones of every label.

    10 predictions for every document of a label, and 50 more, are lower than any good cut.
    """
    if tuning.n_scored <= MANY_PAIRS:
        return tuning.pairs()
    lowest = np.full(tuning.n_labels, -np.inf)
    for label, scores, _ in tuning.columns():
        size = int(10 * tuning.n_positive[label] + 50)
        if len(scores) > size:
            least = np.partition(scores, -size)[-size]
            # Many scores may share a lowest value, which then is too many.
            if np.count_nonzero(scores >= least) > 2 * size:
                least = np.nextafter(least, np.inf, dtype=scores.dtype)
            lowest[label] = least
    return tuning.pairs(lowest)


METHODS: dict[str, Callable[[Tuning, Objective, IntArray], Fitted]] = {
    "grid": grid,
    "global": one_for_all,
    "per-label": per_label,
    "micromacro": micromacro,
    "frequency": frequency,
}
