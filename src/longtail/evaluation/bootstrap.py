"""How sure the figures are: bootstrap over documents, of one evaluation or of a difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from longtail.errors import InputError
from longtail.evaluation.facts import BoolArray, Evaluation, FloatArray, Interval
from longtail.metrics import Counts, count, macro_f1, micro_f1

MEASURES = ("micro_f1", "macro_f1")
LEVELS = (2.5, 97.5)


@dataclass(frozen=True)
class Difference:
    """Second minus first, as fractions: what was seen, its 95 % interval, and a two-sided p."""

    value: float
    low: float
    high: float
    p: float
    """Share of resamples on the other side of 0, doubled: small if chance hardly explains it."""


def intervals_of(
    truth: sp.csr_matrix,
    decided: sp.csr_matrix,
    masks: Mapping[str, BoolArray],
    n_resamples: int,
    seed: int,
) -> dict[str, dict[str, Interval]]:
    """95 % intervals of micro- and macro-F1 for all labels and for every group."""
    if n_resamples < 0:
        raise InputError(f"n_resamples must not be negative, got {n_resamples}.")
    if not n_resamples or truth.shape[0] < 2:
        return {}
    found = resampled(truth, decided, masks, n_resamples, seed)
    return {
        group: {name: _interval(values) for name, values in measures.items()}
        for group, measures in found.items()
    }


def compare(
    first: Evaluation, second: Evaluation, n_resamples: int = 1000, seed: int = 0
) -> dict[str, dict[str, Difference]]:
    """Paired bootstrap: both models are judged on the same resampled documents.

    Group -> micro_f1 and macro_f1 -> by how much the second is better.
    """
    truth, one = first.decisions()
    other_truth, two = second.decisions()
    if truth.shape != other_truth.shape or (truth != other_truth).nnz:
        raise InputError(
            "two evaluations can be compared only on the same documents and labels, got "
            f"{truth.shape} and {other_truth.shape}"
            f"{' with other labels' if truth.shape == other_truth.shape else ''}."
        )
    if n_resamples < 1 or truth.shape[0] < 2:
        raise InputError("a comparison needs at least one resample and two documents.")
    before = resampled(truth, one, first.masks, n_resamples, seed)
    after = resampled(truth, two, first.masks, n_resamples, seed)
    # Both on the groups of the first: the second may have been trained on other counts.
    seen = [_observed(truth, decided, first.masks) for decided in (one, two)]
    result: dict[str, dict[str, Difference]] = {}
    for group, measures in before.items():
        result[group] = {}
        for name, values in measures.items():
            difference = after[group][name] - values
            low, high = _interval(difference)
            value = seen[1][group][name] - seen[0][group][name]
            # Never exactly 0: so many resamples cannot show less than their own share.
            wrong = min((difference <= 0).sum(), (difference >= 0).sum()) + 1
            n_known = int((~np.isnan(difference)).sum())
            p = float(min(1.0, 2 * wrong / (n_known + 1)))
            result[group][name] = Difference(value, low, high, p)
    return result


def _observed(
    truth: sp.csr_matrix, decided: sp.csr_matrix, masks: Mapping[str, BoolArray]
) -> dict[str, dict[str, float]]:
    counts = count(truth, decided)
    groups = {"all": np.ones(truth.shape[1], dtype=bool), **masks}
    found = {}
    for group, rows in groups.items():
        own = Counts(*(part[rows] for part in counts))
        found[group] = {"micro_f1": micro_f1(own), "macro_f1": macro_f1(own)}
    return found


def resampled(
    truth: sp.csr_matrix,
    decided: sp.csr_matrix,
    masks: Mapping[str, BoolArray],
    n_resamples: int,
    seed: int,
) -> dict[str, dict[str, FloatArray]]:
    """Group -> measure -> its value in every resample of the documents.

    A label that only this resample lacks is left out of its macro-F1: counted as 0 it would pull
    the figure below what all documents give, most of all for rare labels.
    """
    n_documents = truth.shape[0]
    rng = np.random.RandomState(seed)
    matrices = [
        sp.csc_matrix(matrix, dtype=np.float64).T
        for matrix in (truth.multiply(decided), decided, truth)
    ]
    groups: dict[str, BoolArray] = {"all": np.ones(truth.shape[1], dtype=bool), **masks}
    never_there = np.asarray(truth.sum(axis=0)).ravel() == 0
    found = {g: {m: np.zeros(n_resamples) for m in MEASURES} for g in groups}
    for k in range(n_resamples):
        weights = np.bincount(rng.randint(0, n_documents, n_documents), minlength=n_documents)
        sums = [matrix @ weights.astype(np.float64) for matrix in matrices]
        judged = never_there | (sums[2] > 0)
        for group, rows in groups.items():
            seen = rows & judged
            # A resample without any document of a group's labels says nothing of it.
            if rows.any() and not seen.any():
                found[group]["micro_f1"][k] = found[group]["macro_f1"][k] = np.nan
                continue
            found[group]["micro_f1"][k] = micro_f1(Counts(*(total[rows] for total in sums)))
            found[group]["macro_f1"][k] = macro_f1(Counts(*(total[seen] for total in sums)))
    return found


def _interval(values: FloatArray) -> Interval:
    known = values[~np.isnan(values)]
    low, high = np.percentile(known, LEVELS) if len(known) else (-1.0, 1.0)
    return float(low), float(high)
