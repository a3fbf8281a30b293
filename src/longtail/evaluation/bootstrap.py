"""Bootstrap over documents: intervals of one evaluation, and differences of two.

All groups are computed in the same resamples of all documents. A label that only this resample
lacks is left out of its macro-F1: counted as 0 it would pull the figure far below what all
documents give. Left out it raises the figure, as the lacking ones have the lowest F1; so the
resamples are moved back, by as much as their mean is off what all documents give.
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
# Differences below this are rounding: sums of the same F1 in another order.
ROUNDING = 1e-12
Figures = dict[str, dict[str, FloatArray]]
"""Group -> measure -> its values: first with all documents, then in every resample."""


@dataclass(frozen=True)
class Difference:
    """Second minus first, as fractions, its 95 % interval, and a two-sided p."""

    value: float
    low: float
    high: float
    p: float
    """Share of resamples on the other side of 0, doubled."""


def compare(
    first: Evaluation, second: Evaluation, n_resamples: int = 1000, random_state: int = 0
) -> dict[str, dict[str, Difference]]:
    """Paired bootstrap: both models are evaluated on the same resampled documents.

    Group -> micro_f1 and macro_f1 -> by how much the second is better. The groups are `all`, those
    of labels as the first has them (the second may have been trained on other counts), and those
    of `document_groups`; a group without labels or documents is left out.
    """
    truth, one = first.y_true, first.y_pred
    other_truth, two = second.y_true, second.y_pred
    if truth.shape != other_truth.shape or (truth != other_truth).nnz:
        raise InputError(
            "two evaluations can be compared only on the same documents and labels, got others, of "
            f"shape {truth.shape} and {other_truth.shape}."
        )
    check_integer("n_resamples", n_resamples, 1)
    if truth.shape[0] < 2:
        raise InputError(f"a comparison needs at least two documents, got {truth.shape[0]}.")
    before, after = resampled(truth, [one, two], first.masks, n_resamples, random_state)
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
    """The figures of each of several decisions, all in the same resamples of the documents.

    The resamples depend on the number of documents and the random state alone: other decisions can
    be evaluated in the same ones later. `documents`: groups of them; default: `document_groups`.
    """
    n_documents, n_labels = truth.shape
    every_label, every_document = np.ones(n_labels, np.bool_), np.ones(n_documents, np.bool_)
    parts = [_prepared(truth, decided, every_document, {"all": every_label, **masks})]
    for name, rows in (document_groups(truth) if documents is None else documents).items():
        if rows.any():
            parts.append(_prepared(truth, decided, rows, {name: every_label}))
    groups = [group for known, _ in parts for group in known]
    values = np.zeros((len(decided), len(groups), len(MEASURES), n_resamples + 1))
    rng = np.random.RandomState(random_state)
    weights = np.ones(n_documents)
    for k in range(n_resamples + 1):
        if k:
            drawn = rng.randint(0, n_documents, n_documents)
            weights = np.bincount(drawn, minlength=n_documents).astype(np.float64)
        values[..., k] = np.concatenate([figures(weights) for _, figures in parts], axis=1)
    return [
        {group: dict(zip(MEASURES, each[k], strict=True)) for k, group in enumerate(groups)}
        for each in values
    ]


def _prepared(
    truth: sp.csr_matrix,
    decided: Sequence[sp.csr_matrix],
    rows: BoolArray,
    groups: Mapping[str, BoolArray],
) -> tuple[list[str], Callable[[FloatArray], FloatArray]]:
    """Groups of labels that are not empty, and their figures on these rows for given weights."""
    labels, predicted = truth[rows], [each[rows] for each in decided]
    known = {group: mask for group, mask in groups.items() if mask.any()}
    # Labels that are neither there nor predicted have an F1 of 0 in any resample: only counted.
    active = np.unique(np.concatenate([each.indices for each in (labels, *predicted)]))
    absent = np.bincount(labels.indices, minlength=truth.shape[1]) == 0
    n_absent = np.array([np.count_nonzero(mask & absent) for mask in known.values()], np.float64)
    membership = np.array([mask[active] for mask in known.values()], dtype=np.float64)
    actual_of = _by_label(labels, active)
    sums_of = [
        (_by_label(labels.multiply(each), active), _by_label(each, active)) for each in predicted
    ]

    def figures(weights: FloatArray) -> FloatArray:
        """Decisions x groups x (micro-F1, macro-F1); NaN for a group the resample lacks."""
        weights = weights[rows]
        actual = actual_of @ weights
        present = (actual > 0).astype(np.float64)
        results = []
        for hits_of, predicted_of in sums_of:
            hits, size = hits_of @ weights, predicted_of @ weights + actual
            f1 = ratio(2 * hits, size)
            # Not by the linear algebra library, whose threads cost more here than they bring.
            sums = np.einsum("gl,vl->gv", membership, np.stack([2 * hits, size, f1, present]))
            n_labels = sums[:, 3] + n_absent
            unknown = np.where(n_labels > 0, 0.0, np.nan)
            micro, macro = ratio(sums[:, 0], sums[:, 1]), ratio(sums[:, 2], n_labels)
            results.append(np.column_stack([micro + unknown, macro + unknown]))
        return np.array(results)

    return list(known), figures


def _by_label(matrix: Any, labels: Any) -> sp.csr_matrix:
    """Labels x documents, so that weights of documents give sums by label."""
    return sp.csr_matrix(sp.csc_matrix(matrix, dtype=np.float64)[:, labels].T)


def difference(values: FloatArray) -> Difference:
    """The difference with all documents, which comes first, and what the resamples say of it."""
    values = np.where(np.abs(values) < ROUNDING, 0.0, values)
    drawn = _centred(values)
    # Never exactly 0: n resamples cannot show less than 1 / n.
    wrong = min((drawn <= 0).sum(), (drawn >= 0).sum()) + 1
    p = float(min(1.0, 2 * wrong / (len(drawn) + 1)))
    return Difference(float(values[0]), *interval(values, (-1.0, 1.0)), p)


def interval(values: FloatArray, widest: Interval) -> Interval:
    """The middle 95 % of the resamples, which follow the value of all documents.

    `widest` where every resample is NaN.
    """
    drawn = _centred(values)
    low, high = np.percentile(drawn, LEVELS).clip(*widest) if len(drawn) else widest
    return float(low), float(high)


def _centred(values: FloatArray) -> FloatArray:
    """The resamples that are not NaN, moved so that their mean is what all documents give."""
    drawn: FloatArray = values[1:][~np.isnan(values[1:])]
    if not len(drawn) or np.isnan(values[0]):
        return drawn
    moved: FloatArray = drawn + (values[0] - drawn.mean())
    return np.where(np.abs(moved) < ROUNDING, 0.0, moved)
