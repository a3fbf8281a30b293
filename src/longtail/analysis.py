"""Where a classifier goes wrong: confused labels, labels never predicted, the worst documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.evaluation import Evaluation
from longtail.thresholds import Thresholds


class ConfusedPair(NamedTuple):
    missed: str
    given: str
    documents: int


def confused_pairs(
    y_true: sp.csr_matrix, y_pred: sp.csr_matrix, label_names: Sequence[str], most: int = 10
) -> list[ConfusedPair]:
    """Pairs (a, b) by the number of documents where a was missed and b wrongly given."""
    true, given = y_true.astype(bool), y_pred.astype(bool)
    missed = (true > given).astype(np.int64)
    wrong = (given > true).astype(np.int64)
    pairs = sp.coo_matrix(missed.T @ wrong)
    order = np.lexsort((pairs.col, pairs.row, -pairs.data))[:most]
    return [
        ConfusedPair(label_names[pairs.row[k]], label_names[pairs.col[k]], int(pairs.data[k]))
        for k in order
    ]


class NeverPredicted(NamedTuple):
    label: str
    train_count: int
    documents: int


class WrongDocument(NamedTuple):
    position: int
    missed: tuple[str, ...]
    given: tuple[str, ...]
    """Labels that do not apply."""
    right: tuple[str, ...]
    error: float
    """See `worst_documents`."""


def never_predicted(evaluation: Evaluation) -> list[NeverPredicted]:
    """Labels that judged documents carry and that no document got, those with most first."""
    table = evaluation.labels
    places = np.flatnonzero((table.actual > 0) & (table.predicted == 0))
    order = sorted(places, key=lambda k: (-table.actual[k], -table.train_count[k], k))
    return [
        NeverPredicted(table.names[k], int(table.train_count[k]), int(table.actual[k]))
        for k in order
    ]


def worst_documents(
    evaluation: Evaluation, scores: Any = None, most: int = 8
) -> list[WrongDocument]:
    """The documents with the largest errors.

    The error of a document is the sum, over its wrong decisions, of how far the score lies on the
    wrong side of the label's threshold; without scores it is the number of wrong decisions.
    """
    truth, decided = evaluation.decisions()
    wrong = (truth.astype(bool) != decided.astype(bool)).tocoo()
    size = np.ones(wrong.nnz)
    if scores is not None and wrong.nnz:
        size = _distances(
            wrong.row, wrong.col, scores, Thresholds.from_dict(evaluation.thresholds).values
        )
    errors = np.bincount(wrong.row, weights=size, minlength=truth.shape[0])
    amount = np.bincount(wrong.row, minlength=truth.shape[0])
    order = np.lexsort((-amount, -errors))[:most]
    return [
        _described(evaluation, truth, decided, int(k), float(errors[k])) for k in order if amount[k]
    ]


def _distances(
    rows: NDArray[Any], columns: NDArray[Any], scores: Any, thresholds: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Between score and threshold of some pairs; what is not scored has the lowest score."""
    values = scores.data if sp.issparse(scores) else np.ma.compressed(scores)
    if not len(values):
        return np.ones(len(rows))
    lowest, highest = float(values.min()), float(values.max())
    if sp.issparse(scores):
        # A stored score of 0 would look absent: count from the lowest, and one up.
        shifted = sp.csr_matrix(scores, copy=True)
        shifted.data = shifted.data - lowest + 1
        found = np.asarray(shifted[rows, columns]).ravel()
        own = np.where(found > 0, found - 1 + lowest, lowest)
    else:
        own = np.ma.filled(np.ma.asarray(scores[rows, columns], dtype=np.float64), lowest)
    reached = np.where(np.isfinite(thresholds), thresholds, highest)[columns]
    return np.asarray(np.abs(own - reached), dtype=np.float64)


def _described(
    evaluation: Evaluation, truth: sp.csr_matrix, decided: sp.csr_matrix, row: int, error: float
) -> WrongDocument:
    names = evaluation.labels.names
    applies, given = (
        set(matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]].tolist())
        for matrix in (truth, decided)
    )
    missed, wrong, right = (
        tuple(names[k] for k in sorted(part))
        for part in (applies - given, given - applies, applies & given)
    )
    return WrongDocument(row, missed, wrong, right, error)
