"""The table of methods that choose thresholds on held-out scores.

A new method is one function and one row of METHODS; docs/evaluation.md quotes its first line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from longtail.thresholds.cuts import (
    Objective,
    best_cut,
    combine,
    cumulative,
    cuts_of,
    f1_of,
    levels_of,
    totals_of,
)
from longtail.thresholds.scales import logit
from longtail.thresholds.tuning import FloatArray, Tuning

Fitted = tuple[FloatArray, dict[str, Any]]
"""One threshold per label, and details for reports."""
GRID = np.round(np.arange(0.40, 0.605, 0.01), 2)
SHIFTS = np.round(np.arange(-1.0, 1.05, 0.1), 1)
# Number of positives at which a label's own threshold and the curve have equal weight.
SHRINKAGE = 50.0
# Candidates for how far the curve drops for the rarest label, in standard deviations of the
# positive scores.
DROPS = np.concatenate([[0.0], np.geomspace(0.05, 3.0, 16)])
# Candidates for the bend, as quantiles of the training counts: labels above it share a threshold.
BENDS = (0.5, 0.67, 0.8, 0.9, 0.97)
# Curves are compared on this many levels of score, and levels per unit of log(count).
CURVE_LEVELS, COUNT_LEVELS = 1 << 11, 32


def grid(tuning: Tuning, objective: Objective) -> Fitted:
    """The best probability of 0.40, 0.41, ..., 0.60 for all labels; of margins the best shift of
    -1.0, -0.9, ..., 1.0."""
    name, values, cuts = "probability", GRID, logit(GRID)
    if tuning.scale == "margin":
        name, values, cuts = "shift", SHIFTS, SHIFTS
    pairs = tuning.by_label.at(np.flatnonzero(tuning.by_label.scores >= cuts[0]))
    # Scores between two neighbouring cuts are interchangeable.
    rounded = cuts[np.searchsorted(cuts, pairs.scores, side="right") - 1]
    pairs = pairs._replace(scores=rounded)
    value, _ = best_cut(replace(tuning, pairs=pairs, is_sorted=True), objective)
    chosen = int(np.searchsorted(cuts, value, side="left").clip(0, len(cuts) - 1))
    return np.full(tuning.n_labels, cuts[chosen]), {name: float(values[chosen])}


def one_for_all(tuning: Tuning, objective: Objective) -> Fitted:
    """The best threshold for all labels."""
    value, f1 = best_cut(tuning, objective)
    return np.full(tuning.n_labels, value), {"threshold": value, "tuning_f1": f1}


def per_label(tuning: Tuning, objective: Objective, shrinkage: float = SHRINKAGE) -> Fitted:
    """The best threshold of each label, shrunk towards the curve of `frequency` for rare labels.

    With `macro`, the best threshold maximises the label's own F1; with `micro` and `mean`, the
    objective while all other labels stay at their thresholds on the curve.
    """
    curve, details = fit("frequency", tuning, objective)
    pairs, cuts, values = tuning.by_label, cuts_of(tuning), curve.copy()
    label_f1 = 2 * cuts.hits / (cuts.predicted + tuning.n_positive[cuts.labels])
    # Hits and predictions of all other labels at their thresholds on the curve.
    by_curve = pairs.scores >= curve[pairs.labels]
    predicted = np.bincount(pairs.labels[by_curve], minlength=tuning.n_labels)
    hits = np.bincount(pairs.labels[by_curve & pairs.applies], minlength=tuning.n_labels)
    hits, predicted = (part.sum() - part[cuts.labels] for part in (hits, predicted))
    total = predicted + cuts.predicted + tuning.n_positive.sum()
    f1 = combine(objective, 2 * (hits + cuts.hits) / total, label_f1 / tuning.n_labels)
    # By label, then by descending F1; of equal ones the highest threshold first.
    order = np.lexsort((cuts.predicted, -f1, cuts.labels))
    labels, first = np.unique(cuts.labels[order], return_index=True)
    best = cuts.thresholds[order[first]]
    n_hits = np.bincount(pairs.labels[pairs.applies], minlength=tuning.n_labels)[labels]
    values[labels] = best + (curve[labels] - best) * shrinkage / (n_hits + shrinkage)
    names = ("height", "slope", "bend")
    return values, {**{name: details[name] for name in names}, "shrinkage": shrinkage}


def micromacro(tuning: Tuning, objective: Objective) -> Fitted:
    """From frequent labels to rare ones, the best threshold of each for micro-F1 so far + F1 of the
    label / number of labels.

    Fitted once per fold, on all other folds (on all documents if there is only one fold). A
    label's threshold is the mean over the fits in which it has a scored positive, or the global
    threshold if it has none (Lin and Lin, CIKM 2023).
    """
    names = np.unique(tuning.folds)
    parts = [tuning.select(tuning.folds != fold) for fold in names] if len(names) > 1 else [tuning]
    first = np.full(tuning.n_labels, np.inf)
    differences, n_fits = np.zeros(tuning.n_labels), np.zeros(tuning.n_labels)
    for part in parts:
        fitted = _micromacro_once(part)
        known = np.isfinite(fitted)
        first = np.where(np.isfinite(first), first, fitted)
        # Sum differences, so that the mean of equal thresholds is exact to the last bit.
        differences[known] += fitted[known] - first[known]
        n_fits[known] += 1
    shared = fit("global", tuning, objective)[1]["threshold"]
    values = np.where(n_fits > 0, first + differences / np.maximum(n_fits, 1), shared)
    return values, {"global": shared, "folds": len(names)}


def _micromacro_once(tuning: Tuning) -> FloatArray:
    """Thresholds from one fit; infinity for labels without a scored positive."""
    values = np.full(tuning.n_labels, np.inf)
    hits = predicted = actual = 0
    cuts, (starts, sizes) = cuts_of(tuning), tuning.segments
    ends = np.searchsorted(cuts.labels, np.arange(tuning.n_labels + 1))
    for label in np.argsort(-tuning.label_counts, kind="stable").tolist():
        n_positive = int(tuning.n_positive[label])
        actual += n_positive
        label_cuts = slice(ends[label], ends[label + 1])
        new_hits, new = cuts.hits[label_cuts], cuts.predicted[label_cuts]
        if not len(new):
            continue
        micro = 2 * (hits + new_hits) / (predicted + new + actual)
        f1 = micro + 2 * new_hits / (new + n_positive) / tuning.n_labels
        best = int(np.argmax(f1))
        if f1[best] < 2 * hits / (predicted + actual):
            # Any prediction of this label costs more than it gains: put it above all its scores.
            scores = tuning.by_label.scores[starts[label] : starts[label] + sizes[label]]
            low, high = float(scores[-1]), float(scores[0])
            values[label] = max(high + 1e-6 * (high - low), float(np.nextafter(high, np.inf)))
            continue
        values[label] = cuts.thresholds[label_cuts][best]
        hits += int(new_hits[best])
        predicted += int(new[best])
    return values


def frequency(tuning: Tuning, objective: Objective) -> Fitted:
    """A curve over the training counts: height - slope x max(0, log(bend / count)).

    Three parameters for all labels, so that rare labels, which have too few documents to tune a
    threshold each, share one rule. The height is exact, as it is the best cut through the scores
    shifted by the curve; slope and bend are searched on binned scores.
    """
    pairs, counts = tuning.by_label, np.maximum(tuning.label_counts, 1.0)
    flat = fit("global", tuning, objective)[1]
    height, slope, bend, f1 = flat["threshold"], 0.0, 1.0, flat["tuning_f1"]
    if pairs.applies.any():
        curve = _slope_and_bend(tuning, objective, counts)
        best = best_cut(tuning, objective, curve[0] * _rarity(counts, curve[1]))
        # Binning may pick a slope that is worse than none.
        if best[1] > f1:
            (height, f1), (slope, bend) = best, curve
    details = {"height": height, "slope": slope, "bend": bend, "tuning_f1": f1}
    return height - slope * _rarity(counts, bend), details


def _rarity(counts: FloatArray, bend: float) -> FloatArray:
    return np.maximum(0.0, np.log(bend / counts))


def _slope_and_bend(
    tuning: Tuning, objective: Objective, counts: FloatArray
) -> tuple[float, float]:
    """Slope and bend of the best curve on binned scores, where a slope shifts whole bins."""
    pairs = tuning.by_label
    _, groups = np.unique(np.round(np.log(counts) * COUNT_LEVELS), return_inverse=True)
    n_groups, n_levels = int(groups.max()) + 1, CURVE_LEVELS + 1
    bins = levels_of(pairs.scores, pairs.applies, CURVE_LEVELS)
    bins += n_levels * groups[pairs.labels]
    totals = totals_of(bins, n_groups * n_levels, pairs.applies, tuning.f1_steps)
    group_sums = cumulative(totals.reshape(3, n_groups, n_levels))
    _, first = np.unique(groups, return_index=True)
    positive = pairs.scores[pairs.applies].astype(np.float64)
    spread, size = float(np.std(positive)), float(np.ptp(positive)) / (CURVE_LEVELS - 1)
    best = -1.0, 0.0, 1.0
    for bend in np.unique(np.quantile(counts, BENDS)):
        rarity = _rarity(counts, bend)
        for drop in DROPS if rarity.any() and spread else DROPS[:1]:
            slope = float(drop * spread / rarity.max()) if drop else 0.0
            sums = np.zeros((3, n_levels))
            for group, shift in enumerate(np.rint(slope * rarity[first] / (size or 1)).astype(int)):
                kept = max(0, n_levels - shift)
                sums[:, shift:] += group_sums[:, group, :kept]
                sums[:, :shift] += group_sums[:, group, :1]
            f1 = float(f1_of(objective, tuning.n_positive, *sums).max())
            if f1 > best[0] + 1e-12:
                best = f1, slope, float(bend)
    return best[1:]


METHODS: dict[str, Callable[[Tuning, Objective], Fitted]] = {
    "grid": grid,
    "global": one_for_all,
    "per-label": per_label,
    "micromacro": micromacro,
    "frequency": frequency,
}


def fit(name: str, tuning: Tuning, objective: Objective) -> Fitted:
    """Fit a method, or return its cached result: methods build on each other."""
    fitted: Fitted | None = tuning.fits.get((name, objective))
    if fitted is None:
        fitted = tuning.fits[name, objective] = METHODS[name](tuning, objective)
    return fitted
