"""Mistakes of a classifier: confused labels, labels never predicted, worst documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.analysis.runs import Run
from longtail.evaluation import Evaluation
from longtail.metrics.blocks import positions_of, rows_of


class ConfusedPair(NamedTuple):
    missed: str
    predicted: str
    documents: int


class NeverPredicted(NamedTuple):
    label: str
    train_count: int
    documents: int


class WrongDocument(NamedTuple):
    row: int
    missed: tuple[str, ...]
    wrong: tuple[str, ...]
    right: tuple[str, ...]
    error: float
    """See `worst_documents`."""


def confused_pairs(
    y_true: sp.csr_matrix, y_pred: sp.csr_matrix, label_names: Sequence[str], most: int = 10
) -> list[ConfusedPair]:
    """The pairs of labels that were most often missed and wrongly predicted together."""
    missed, wrong = _errors(y_true, y_pred, np.int64)
    pairs = sp.coo_matrix(missed.T @ wrong)
    order = np.lexsort((pairs.col, pairs.row, -pairs.data))[:most]
    return [
        ConfusedPair(label_names[pairs.row[k]], label_names[pairs.col[k]], int(pairs.data[k]))
        for k in order
    ]


def never_predicted(evaluation: Evaluation) -> list[NeverPredicted]:
    """Labels of evaluated documents that were never predicted, the most frequent first."""
    table = evaluation.labels
    labels = np.flatnonzero((table.actual > 0) & (table.predicted == 0))
    order = sorted(labels, key=lambda k: (-table.actual[k], -table.train_count[k], k))
    return [
        NeverPredicted(table.names[k], int(table.train_count[k]), int(table.actual[k]))
        for k in order
    ]


def worst_documents(run: Run, most: int = 8) -> list[WrongDocument]:
    """The documents with the largest errors, at most `most`; those without errors are left out.

    The error of a document is the sum, over its wrong decisions, of the distance between the score,
    as a logit or margin, and the label's threshold; without scores, the number of wrong decisions.
    A score on the right side of its threshold adds 0 (`min_labels` or `max_labels` decided). Pairs
    that are not scored get the lowest of all scores; infinite thresholds become the highest.
    """
    evaluation, logits = run.evaluation, run.logits
    truth, decided = evaluation.y_true, evaluation.y_pred
    missed, wrong = _errors(truth, decided, np.int8)
    distances = np.ones(missed.nnz + wrong.nnz)
    if logits is not None and (logits.nnz if sp.issparse(logits) else logits.size) > 0:
        values = evaluation.thresholds.values
        below, above = (_margins(part, logits, values) for part in (missed, wrong))
        distances = np.maximum(0, np.concatenate([-below, above]))
    rows = np.concatenate([rows_of(missed), rows_of(wrong)])
    errors = np.bincount(rows, distances, truth.shape[0])
    n_wrong = np.bincount(rows, minlength=truth.shape[0])
    order = np.lexsort((-n_wrong, -errors))[:most]
    right = truth.astype(bool).multiply(decided.astype(bool)).tocsr()

    def names(matrix: sp.csr_matrix, row: int) -> tuple[str, ...]:
        labels = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]
        return tuple(evaluation.labels.names[k] for k in sorted(labels))

    return [
        WrongDocument(int(k), names(missed, k), names(wrong, k), names(right, k), float(errors[k]))
        for k in order
        if n_wrong[k]
    ]


def _errors(y_true: sp.csr_matrix, y_pred: sp.csr_matrix, dtype: Any) -> list[sp.csr_matrix]:
    """The missed pairs and the wrongly predicted ones."""
    true, predicted = y_true.astype(bool), y_pred.astype(bool)
    return [sp.csr_matrix(part, dtype=dtype) for part in (true > predicted, predicted > true)]


def _margins(
    pairs: sp.csr_matrix, logits: Any, thresholds: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Score minus threshold of the given (document, label) pairs."""
    values = logits.data if sp.issparse(logits) else logits
    if sp.issparse(logits):
        scores = np.full(pairs.nnz, float(values.min()))
        ones = np.ones(logits.nnz, dtype=np.int8)
        stored = sp.csr_matrix((ones, logits.indices, logits.indptr), logits.shape)
        scores[positions_of(stored, pairs)] = values[positions_of(pairs, logits)]
    else:
        scores = values[rows_of(pairs), pairs.indices]
    finite = np.where(np.isfinite(thresholds), thresholds, float(values.max()))
    return np.asarray(scores - finite[pairs.indices], dtype=np.float64)
