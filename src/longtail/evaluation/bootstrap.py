"""Bootstrap over documents: confidence intervals of one evaluation, differences between two.

All groups are computed on the same resamples. Macro-F1 skips labels that are absent only from the
resample: counted as 0, they would pull it far below the full-sample value. Skipping them raises it,
since absent labels tend to have the lowest F1; so the resamples are shifted until their mean equals
the full-sample value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.checks import check_integer
from longtail.errors import InputError
from longtail.evaluation.results import BoolArray, Evaluation, FloatArray, Interval, document_groups
from longtail.metrics.inputs import ratio

MEASURES = ("micro_f1", "macro_f1")
LEVELS = (2.5, 97.5)
# Smaller differences are rounding: the same F1 values summed in another order.
ROUNDING = 1e-12
Figures = dict[str, dict[str, FloatArray]]
"""Group -> measure -> values: the full sample first, then each resample."""


@dataclass(frozen=True)
class Difference:
    """Second minus first, as a fraction, with its 95 % interval."""

    value: float
    low: float
    high: float
    p: float
    """Two-sided p-value: twice the fraction of resamples on the other side of 0."""


def compare(
    first: Evaluation, second: Evaluation, n_resamples: int = 1000, random_state: int = 0
) -> dict[str, dict[str, Difference]]:
    """Paired bootstrap: evaluate both models on the same resamples of the documents.

    Returns group -> `micro_f1` or `macro_f1` -> by how much the second model is better. The groups
    are `all`, head, medium and tail of the first model (the second may have been trained on other
    counts), and those of `document_groups`; empty groups are left out.
    """
    truth = first.y_true
    if truth.shape != second.y_true.shape or (truth != second.y_true).nnz:
        raise InputError(
            "two evaluations can be compared only on the same documents and labels, got different "
            f"ones, of shape {truth.shape} and {second.y_true.shape}."
        )
    check_integer("n_resamples", n_resamples, 1)
    if truth.shape[0] < 2:
        raise InputError(f"a comparison needs at least two documents, got {truth.shape[0]}.")
    decided = [first.y_pred, second.y_pred]
    before, after = resampled(truth, decided, first.masks, n_resamples, random_state)
    return {
        group: {name: difference(after[group][name] - values) for name, values in figures.items()}
        for group, figures in before.items()
    }


def resampled(
    truth: sp.csr_matrix,
    decided: Sequence[sp.csr_matrix],
    masks: Mapping[str, BoolArray],
    n_resamples: int,
    random_state: int,
    documents: Mapping[str, BoolArray] | None = None,
) -> list[Figures]:
    """F1 of several sets of decisions on the same resamples of the documents.

    The resamples depend only on the number of documents and the random state, so that other
    decisions can be evaluated on the same ones later. `masks` are groups of labels, `documents`
    groups of documents; default: `document_groups`.
    """
    n_documents, n_labels = truth.shape
    every_label, every_document = np.ones(n_labels, np.bool_), np.ones(n_documents, np.bool_)
    parts = [_f1_function(truth, decided, every_document, {"all": every_label, **masks})]
    for name, rows in (document_groups(truth) if documents is None else documents).items():
        if rows.any():
            parts.append(_f1_function(truth, decided, rows, {name: every_label}))
    groups = [group for names, _ in parts for group in names]
    values = np.zeros((len(decided), len(groups), len(MEASURES), n_resamples + 1))
    rng = np.random.RandomState(random_state)
    weights = np.ones(n_documents)
    for k in range(n_resamples + 1):
        if k:
            drawn = rng.randint(0, n_documents, n_documents)
            weights = np.bincount(drawn, minlength=n_documents).astype(np.float64)
        values[..., k] = np.concatenate([f1_of(weights) for _, f1_of in parts], axis=1)
    return [
        {group: dict(zip(MEASURES, f1[k], strict=True)) for k, group in enumerate(groups)}
        for f1 in values
    ]


def _f1_function(
    truth: sp.csr_matrix,
    decided: Sequence[sp.csr_matrix],
    rows: BoolArray,
    groups: Mapping[str, BoolArray],
) -> tuple[list[str], Callable[[FloatArray], FloatArray]]:
    """The non-empty groups of labels, and a function from document weights to F1 on `rows`."""
    labels, predicted = truth[rows], [matrix[rows] for matrix in decided]
    groups = {group: mask for group, mask in groups.items() if mask.any()}
    # Labels that are neither present nor predicted have an F1 of 0 in any resample: only counted.
    active = np.unique(np.concatenate([matrix.indices for matrix in (labels, *predicted)]))
    absent = np.bincount(labels.indices, minlength=truth.shape[1]) == 0
    n_absent = np.array([np.count_nonzero(mask & absent) for mask in groups.values()], np.float64)
    membership = np.array([mask[active] for mask in groups.values()], dtype=np.float64)
    actual_by_label = _by_label(labels, active)
    by_label = [
        (_by_label(labels.multiply(matrix), active), _by_label(matrix, active))
        for matrix in predicted
    ]

    def f1_of(weights: FloatArray) -> FloatArray:
        """Decisions x groups x (micro-F1, macro-F1); NaN for a group absent from the resample."""
        weights = weights[rows]
        actual = actual_by_label @ weights
        present = (actual > 0).astype(np.float64)
        results = []
        for hits_by_label, predicted_by_label in by_label:
            hits, size = hits_by_label @ weights, predicted_by_label @ weights + actual
            f1 = ratio(2 * hits, size)
            # Not BLAS, whose threads cost more than they gain at this size.
            sums = np.einsum("gl,vl->gv", membership, np.stack([2 * hits, size, f1, present]))
            n_labels = sums[:, 3] + n_absent
            undefined = np.where(n_labels > 0, 0.0, np.nan)
            micro, macro = ratio(sums[:, 0], sums[:, 1]), ratio(sums[:, 2], n_labels)
            results.append(np.column_stack([micro + undefined, macro + undefined]))
        return np.array(results)

    return list(groups), f1_of


def _by_label(matrix: Any, labels: Any) -> sp.csr_matrix:
    """Labels x documents, so that multiplying by document weights gives sums per label."""
    return sp.csr_matrix(sp.csc_matrix(matrix, dtype=np.float64)[:, labels].T)


def difference(values: FloatArray) -> Difference:
    """The full-sample difference, `values[0]`, with the interval and p of the resamples."""
    values = np.where(np.abs(values) < ROUNDING, 0.0, values)
    drawn = _centred(values)
    # Add 1, as p is never 0: n resamples cannot resolve less than 1 / n.
    n_opposite = min((drawn <= 0).sum(), (drawn >= 0).sum()) + 1
    p = float(min(1.0, 2 * n_opposite / (len(drawn) + 1)))
    return Difference(float(values[0]), *interval(values, (-1.0, 1.0)), p)


def interval(values: FloatArray, widest: Interval) -> Interval:
    """The 95 % percentile interval of `values[1:]`, clipped to `widest`; that if all are NaN."""
    drawn = _centred(values)
    low, high = np.percentile(drawn, LEVELS).clip(*widest) if len(drawn) else widest
    return float(low), float(high)


def _centred(values: FloatArray) -> FloatArray:
    """The resamples that are not NaN, shifted so that their mean is the full-sample value."""
    drawn: FloatArray = values[1:][~np.isnan(values[1:])]
    if not len(drawn) or np.isnan(values[0]):
        return drawn
    shifted: FloatArray = drawn + (values[0] - drawn.mean())
    return np.where(np.abs(shifted) < ROUNDING, 0.0, shifted)
