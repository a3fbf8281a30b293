"""Fit thresholds by the name of a method; `auto` is the one with the best cross-validated F1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import InputError, known_name
from longtail.metrics import count, precision_recall_f1
from longtail.metrics.blocks import row_blocks
from longtail.thresholds.cuts import OBJECTIVES, Objective, combine
from longtail.thresholds.decision import Thresholds
from longtail.thresholds.methods import METHODS, fit
from longtail.thresholds.scales import Scale
from longtail.thresholds.tuning import FloatArray, Pairs, Tuning, make_tuning

AUTO = "auto"
CANDIDATES = tuple(name for name in METHODS if name != "grid")
DEFAULT = "per-label"
# Standard errors by which another method must beat the default: the best of several easily leads
# by one or two by luck. It helped an encoder a little and cost an SVM with few documents some F1:
# docs/log.md.
MIN_STANDARD_ERRORS = 3
N_RESAMPLES = 200


class CrossValidatedF1(NamedTuple):
    """F1 on documents held out from fitting the thresholds."""

    micro_f1: float
    macro_f1: float

    def of(self, objective: Objective) -> float:
        return combine(objective, self.micro_f1, self.macro_f1)


def fit_thresholds(
    scores: Any,
    y_true: Any,
    label_counts: Any,
    method: str = AUTO,
    *,
    objective: Objective = "mean",
    scale: Scale = "logit",
    folds: Any = None,
    min_labels: int = 0,
    max_labels: int | None = None,
    random_state: int = 0,
) -> Thresholds:
    """Choose thresholds on documents that the model has not trained on.

    Args:
        scores: documents x labels: dense, masked (masked pairs are ignored) or CSR (absent pairs
            are never predicted).
        y_true: labels of the same shape: 0 or 1, with NaN or -1 where a label is unknown.
        label_counts: number of training documents per label, `LabelStats.label_counts`.
        method: one of `list_methods()`.
        objective: what to maximise: `micro` or `macro` F1, or the `mean` of both.
        scale: `logit`, `probability`, or `margin` for any other real numbers.
        folds: the fold of each document if the scores are out-of-fold; default: five random folds.
        min_labels, max_labels: see `Thresholds`.
        random_state: seed of the random folds.
    """
    method, objective = _check_names(method, objective)
    tuning = make_tuning(scores, y_true, label_counts, scale, folds, random_state)
    chosen, details = _choose(tuning, objective) if method == AUTO else (method, {})
    values, fitted = fit(chosen, tuning, objective)
    details = details | fitted
    return Thresholds(values, chosen, objective, min_labels, max_labels, scale, details)


def list_methods() -> list[str]:
    """The methods that `fit_thresholds` accepts."""
    return [*METHODS, AUTO]


def cross_validated_score(
    scores: Any,
    y_true: Any,
    label_counts: Any,
    method: str = AUTO,
    *,
    objective: Objective = "mean",
    scale: Scale = "logit",
    folds: Any = None,
    random_state: int = 0,
) -> CrossValidatedF1:
    """Cross-validated F1 of a method; arguments as for `fit_thresholds`.

    F1 is computed once over the decisions of all folds, since rare labels occur in few folds.
    """
    method, objective = _check_names(method, objective)
    tuning = make_tuning(scores, y_true, label_counts, scale, folds, random_state)
    return _score(tuning, _out_of_fold(tuning, [method], objective)[method])


def cross_validated_decisions(
    scores: Any,
    y_true: Any,
    label_counts: Any,
    method: str = AUTO,
    *,
    objective: Objective = "mean",
    scale: Scale = "logit",
    folds: Any = None,
    min_labels: int = 0,
    max_labels: int | None = None,
    random_state: int = 0,
) -> sp.csr_matrix:
    """Decisions on each document by thresholds fitted on the other folds.

    Arguments as for `fit_thresholds`.
    """
    method, objective = _check_names(method, objective)
    tuning = make_tuning(scores, y_true, label_counts, scale, folds, random_state)
    limits = {"min_labels": min_labels, "max_labels": max_labels}
    return _out_of_fold(tuning, [method], objective, **limits)[method]


def _out_of_fold(
    tuning: Tuning, methods: Sequence[str], objective: Objective, **limits: Any
) -> dict[str, sp.csr_matrix]:
    """For each method, decisions on each document by thresholds fitted on the other folds."""
    names = np.unique(tuning.folds)
    if len(names) < 2:
        raise InputError("cross-validation needs at least two documents in two folds.")
    pairs = tuning.by_label
    decided = {method: np.zeros(len(pairs.scores), dtype=np.bool_) for method in methods}
    for name in names:
        rest = tuning.select(tuning.folds != name)
        held_out = np.flatnonzero((tuning.folds == name)[pairs.documents])
        scored = pairs.at(held_out)
        for method in methods:
            inner = method
            if method == AUTO:
                # Nested, so that the choice does not see the held-out documents either.
                inner = _choose(rest, objective)[0] if len(names) > 2 else "global"
            values, _ = fit(inner, rest, objective)
            decided[method][held_out] = _decide(scored, Thresholds(values, **limits))
    return {
        method: sp.csr_matrix(
            (np.ones(chosen.sum()), (pairs.documents[chosen], pairs.labels[chosen])),
            tuning.y_true.shape,
        )
        for method, chosen in decided.items()
    }


def _decide(pairs: Pairs, thresholds: Thresholds) -> NDArray[np.bool_]:
    """Whether each pair is predicted; needs all pairs of their documents."""
    if not thresholds.min_labels and thresholds.max_labels is None:
        return np.asarray(pairs.scores >= thresholds.values[pairs.labels])
    order = np.lexsort((pairs.labels, pairs.documents))
    _, sizes = np.unique(pairs.documents, return_counts=True)
    rows = pairs.scores[order], pairs.labels[order], np.append(0, np.cumsum(sizes))
    margins = thresholds.margins(sp.csr_matrix(rows, (len(sizes), thresholds.n_labels)))
    decided = np.empty(len(order), dtype=np.bool_)
    decided[order] = margins.data >= 0
    return decided


def _choose(tuning: Tuning, objective: Objective) -> tuple[str, dict[str, Any]]:
    """The method with the best cross-validated F1, or the default unless the gain is clear."""
    if len(np.unique(tuning.folds)) < 2 or not tuning.n_positive.any():
        return "global", {"cross_validated_f1": {}}
    decided = _out_of_fold(tuning, CANDIDATES, objective)
    scores = {name: _score(tuning, decisions) for name, decisions in decided.items()}
    best = max(CANDIDATES, key=lambda name: scores[name].of(objective))
    if best != DEFAULT:
        gain, error = _gain(tuning, decided[DEFAULT], decided[best], objective)
        if gain <= MIN_STANDARD_ERRORS * error:
            best = DEFAULT
    return best, {"cross_validated_f1": {name: list(f1) for name, f1 in scores.items()}}


def _gain(
    tuning: Tuning, first: sp.csr_matrix, second: sp.csr_matrix, objective: Objective
) -> tuple[float, float]:
    """Gain in F1 of the second decisions over the first, and its bootstrap standard error."""
    truth = tuning.y_true.astype(np.float64)
    n_documents, n_labels = truth.shape
    share = np.full(n_documents, 1 / n_documents)
    weights = np.random.RandomState(0).multinomial(n_documents, share, N_RESAMPLES)
    differences = np.zeros(N_RESAMPLES)
    # In blocks: with many labels the counts of all resamples may not fit in memory.
    for rows in row_blocks(N_RESAMPLES, max(n_documents, n_labels)):
        part = np.array(weights[rows].T, dtype=np.float64, order="C")
        actual = truth.T @ part
        before, after = (
            _f1_of_columns(truth.multiply(decided).T @ part, decided.T @ part, actual, objective)
            for decided in (first, second)
        )
        differences[rows] = after - before
    observed = _score(tuning, second).of(objective) - _score(tuning, first).of(objective)
    return observed, float(differences.std(ddof=1))


def _f1_of_columns(hits: Any, predicted: Any, actual: Any, objective: Objective) -> FloatArray:
    """The objective for each column of labels x resamples."""
    total = predicted + actual
    micro = 2 * hits.sum(axis=0) / np.maximum(1, total.sum(axis=0))
    return combine(objective, micro, np.mean(2 * hits / np.maximum(1, total), axis=0))


def _score(tuning: Tuning, decided: sp.csr_matrix) -> CrossValidatedF1:
    counts = count(tuning.y_true, decided)
    return CrossValidatedF1(*(precision_recall_f1(counts, name).f1 for name in ("micro", "macro")))


def _check_names(method: str, objective: str) -> tuple[str, Objective]:
    chosen: Any = known_name("objective", objective, OBJECTIVES)
    return known_name("threshold method", method, list_methods()), chosen
