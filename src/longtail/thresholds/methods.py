"""The ways to choose thresholds, as one table: from scores that the model has not trained on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from longtail.thresholds.curves import Objective, best_cut, best_of_events, f1_steps, nearly_best
from longtail.thresholds.scales import logit
from longtail.thresholds.tuning import Cuts, FloatArray, IntArray, Tuning, cuts_of

Found = tuple[FloatArray, dict[str, Any]]
GRID = np.round(np.arange(0.40, 0.605, 0.01), 2)
SHIFTS = np.round(np.arange(-1.0, 1.05, 0.1), 1)
# Positives at which a label's own threshold and the curve's weigh the same.
SHRINKAGE = 50.0
# The curve's drop towards rare labels, in units of the spread of the scores of positives.
DROPS = np.concatenate([[0.0], np.geomspace(0.05, 3.0, 16)])
# Its bend: the quantile of the training counts above which all labels share the threshold.
BENDS = (0.5, 0.67, 0.8, 0.9, 0.97)
# Scored pairs above which the curve looks only at the best documents of every label.
MANY_PAIRS = 100_000


def grid(tuning: Tuning, objective: Objective, folds: IntArray) -> Found:
    """The paper's search: one probability of 0.40, 0.41, ..., 0.60 for all labels.

    Of margins: one distance from the hyperplane of -1.0, -0.9, ..., 1.0.
    """
    values, labels, applies = tuning.events()
    steps, kind = (SHIFTS, "shift") if tuning.scale == "margin" else (GRID, "probability")
    cuts = SHIFTS if tuning.scale == "margin" else logit(GRID)
    level = np.searchsorted(cuts, values, side="right")
    # Below the lowest cut nothing is ever let in; between two cuts all scores are alike.
    inside = level > 0
    value, _ = best_of_events(
        cuts[level[inside] - 1], labels[inside], applies[inside], tuning.positives(), objective
    )
    chosen = int(np.searchsorted(cuts, value, side="left").clip(0, len(cuts) - 1))
    return _same(tuning, float(cuts[chosen])), {kind: float(steps[chosen])}


def one_for_all(tuning: Tuning, objective: Objective, folds: IntArray) -> Found:
    """The exact best single threshold."""
    value, earned = best_cut(tuning, objective)
    return _same(tuning, value), {"threshold": value, "earned_in_tuning": earned}


def per_label(
    tuning: Tuning, objective: Objective, folds: IntArray, shrinkage: float = SHRINKAGE
) -> Found:
    """The best F1 of every label by itself, drawn towards the curve of `frequency` where rare."""
    curve, details = frequency(tuning, objective, folds)
    values = curve.copy()
    for column in tuning.columns():
        cuts = cuts_of(column)
        if len(cuts.values):
            f1 = 2 * cuts.hits / (cuts.predicted + column.n_positive)
            own = cuts.threshold(int(np.argmax(f1)))
            n_seen = int(cuts.hits[-1])
            shared = curve[column.label]
            values[column.label] = own + (shared - own) * shrinkage / (n_seen + shrinkage)
    of_curve = {name: details[name] for name in ("height", "slope", "bend")}
    return values, {**of_curve, "shrinkage": shrinkage}


def micromacro(tuning: Tuning, objective: Objective, folds: IntArray) -> Found:
    """Labels from frequent to rare, each cut for running micro-F1 + F1 of the label / labels.

    Fitted on all folds of the documents but one, in turn (with one fold, on all documents); a
    label's threshold is the mean over the turns in which it has a scored document, and the global
    threshold if there is none (Lin and Lin, CIKM 2023).
    """
    names = np.unique(folds)
    parts = [np.flatnonzero(folds != fold) for fold in names if len(names) > 1]
    first = np.full(tuning.n_labels, np.inf)
    further, votes = np.zeros(tuning.n_labels), np.zeros(tuning.n_labels)
    for part in parts or [np.arange(tuning.n_documents)]:
        found = _micromacro_once(tuning.select(part))
        seen = np.isfinite(found)
        first = np.where(np.isfinite(first), first, found)
        # Sums of differences: thresholds that are all alike stay what they are to the last bit.
        further[seen] += found[seen] - first[seen]
        votes[seen] += 1
    shared, _ = best_cut(tuning, objective)
    values = np.where(votes > 0, first + further / np.maximum(votes, 1), shared)
    return values, {"global": shared, "folds": len(names)}


def _micromacro_once(tuning: Tuning) -> FloatArray:
    """Thresholds of the labels that have documents here; infinity for the others."""
    columns: dict[int, tuple[Cuts, float]] = {}
    for column in tuning.columns():
        cuts = cuts_of(column)
        if len(cuts.values):
            low, high = float(column.values.min()), float(column.values.max())
            nothing = max(high + 1e-6 * (high - low), float(np.nextafter(high, np.inf)))
            columns[column.label] = cuts, nothing
    positives = tuning.positives()
    values = np.full(tuning.n_labels, np.inf)
    hits = predicted = actual = 0
    for label in np.argsort(-tuning.label_counts, kind="stable"):
        n_positive = int(positives[label])
        actual += n_positive
        if int(label) not in columns:
            continue
        cuts, nothing = columns[int(label)]
        micro = 2 * (hits + cuts.hits) / (predicted + cuts.predicted + actual)
        own = 2 * cuts.hits / (cuts.predicted + n_positive)
        earned = micro + own / tuning.n_labels
        best = int(np.argmax(earned))
        if earned[best] < 2 * hits / (predicted + actual):
            values[label] = nothing  # any document of this label costs more than it brings
            continue
        values[label] = cuts.threshold(best)
        hits += int(cuts.hits[best])
        predicted += int(cuts.predicted[best])
    return values


def frequency(tuning: Tuning, objective: Objective, folds: IntArray) -> Found:
    """A curve over the training counts: c - b * max(0, log(bend / count)), rare labels lower.

    Slope, height and bend are chosen for the objective, so that rare labels, of which none has
    enough documents for a threshold of its own, share one rule. The height is exact: it is the
    global threshold of shifted scores. Of more than MANY_PAIRS, slope and bend are chosen by the
    best pairs of every label, and by heights in small steps.
    """
    values, labels, applies = _best_pairs(tuning)
    n_positive = tuning.positives()
    counts = np.maximum(tuning.label_counts, 1.0)
    if not applies.any():
        shared, earned = best_cut(tuning, objective)
        details = {"height": shared, "slope": 0.0, "bend": 1.0, "earned_in_tuning": earned}
        return _same(tuning, shared), details
    spread = float(np.std(values[applies])) or 1.0
    all_pairs = tuning.n_scored <= MANY_PAIRS
    best = (-1.0, 0.0, 0.0, 1.0)
    steps = f1_steps(values, labels, applies, n_positive)
    for bend in np.unique(np.quantile(counts, BENDS)):
        rarity = np.maximum(0.0, np.log(bend / counts))
        steepest = float(rarity.max())
        for drop in DROPS if steepest > 0 else DROPS[:1]:
            slope = float(drop * spread / steepest) if steepest else 0.0
            shifted = values + slope * rarity[labels]
            height = 0.0
            if all_pairs:
                height, earned = best_of_events(
                    shifted, labels, applies, n_positive, objective, steps
                )
            else:
                earned = nearly_best(shifted, applies, n_positive, objective, steps)
            if earned > best[0] + 1e-12:
                best = earned, height, slope, float(bend)
    earned, height, slope, bend = best
    lift = slope * np.maximum(0.0, np.log(bend / counts))
    if not all_pairs:
        # Only now the height, exactly and with all pairs; and never worse than without a slope.
        height, earned = best_cut(tuning, objective, lift)
        flat, earned_flat = best_cut(tuning, objective)
        if earned_flat >= earned:
            height, earned, slope, lift = flat, earned_flat, 0.0, np.zeros(tuning.n_labels)
    details = {"height": height, "slope": slope, "bend": bend, "earned_in_tuning": earned}
    return height - lift, details


def _best_pairs(tuning: Tuning) -> tuple[Any, IntArray, Any]:
    """All scored pairs, or of many the best ones of every label.

    10 predictions for every document of a label, and 50 more, are further than any good cut goes.
    """
    if tuning.n_scored <= MANY_PAIRS:
        return tuning.events()
    lowest = np.full(tuning.n_labels, -np.inf)
    for column in tuning.columns():
        size = 10 * column.n_positive + 50
        if len(column.values) > size:
            least = np.partition(column.values, -size)[-size]
            # Scores may share a floor, which then is too many.
            if np.count_nonzero(column.values >= least) > 2 * size:
                least = np.nextafter(least, np.inf, dtype=column.values.dtype)
            lowest[column.label] = least
    return tuning.reaching(lowest)


def _same(tuning: Tuning, value: float) -> FloatArray:
    return np.full(tuning.n_labels, value)


@dataclass(frozen=True)
class Method:
    """One way to choose thresholds."""

    name: str
    summary: str
    fit: Callable[[Tuning, Objective, IntArray], Found]


_TABLE = (
    Method("grid", "one probability of 0.40 to 0.60, or shift of -1 to 1, as in the paper", grid),
    Method("global", "one threshold, the exact best of all cuts", one_for_all),
    Method("per-label", "the best of every label, drawn towards the curve of frequency", per_label),
    Method("micromacro", "frequent to rare, for micro- and macro-F1 at once", micromacro),
    Method("frequency", "a curve over the training counts", frequency),
)
METHODS = {method.name: method for method in _TABLE}
