"""Where a classifier goes wrong: confused labels, labels never predicted, the worst documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.evaluation import Evaluation
from longtail.metrics.blocks import positions_of, rows_of
from longtail.thresholds.scales import Scale, to_logits


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
    evaluation: Evaluation, scores: Any = None, most: int = 8, scale: Scale | None = None
) -> list[WrongDocument]:
    """The documents with the largest errors.

    The error of a document is the sum, over its wrong decisions, of how far the score, as a logit
    or a margin, lies on the wrong side of the label's threshold; without scores it is the number
    of wrong decisions. A score on the right side, where `top_k` or `at_least_one` decided, adds
    nothing. What is not scored counts as the lowest of all scores; a label that is never predicted
    as one with the highest as threshold.

    Args:
        evaluation: of `evaluate`.
        scores: those that it judged: dense, masked or CSR.
        most: how many documents at most; those without a wrong decision are left out.
        scale: `logit`, `probability` or `margin`; default: as they were judged.
    """
    truth, decided = evaluation.decisions()
    applies, given = truth.astype(bool), decided.astype(bool)
    missed, wrong = (
        sp.csr_matrix(part, dtype=np.int8) for part in (applies > given, given > applies)
    )
    sizes = [np.ones(missed.nnz), np.ones(wrong.nnz)]
    if scores is not None:
        logits = to_logits(scores, evaluation.scale if scale is None else scale, truth)
        if (logits.nnz if sp.issparse(logits) else np.ma.count(logits)) > 0:
            above = [_margins(part, logits, evaluation.rule.values) for part in (missed, wrong)]
            sizes = [np.maximum(0, -above[0]), np.maximum(0, above[1])]
    rows = np.concatenate([rows_of(missed), rows_of(wrong)])
    errors = np.bincount(rows, np.concatenate(sizes), truth.shape[0])
    amount = np.bincount(rows, minlength=truth.shape[0])
    order = np.lexsort((-amount, -errors))[:most]
    return [
        _described(evaluation, truth, decided, int(k), float(errors[k])) for k in order if amount[k]
    ]


def _margins(
    pairs: sp.csr_matrix, logits: Any, thresholds: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How far the scores of some pairs lie above their thresholds."""
    values = logits.data if sp.issparse(logits) else logits
    lowest, highest = float(values.min()), float(values.max())
    own = np.full(pairs.nnz, lowest)
    if sp.issparse(logits):
        ones = np.ones(logits.nnz, dtype=np.int8)
        stored = sp.csr_matrix((ones, logits.indices, logits.indptr), logits.shape)
        own[positions_of(stored, pairs)] = logits.data[positions_of(pairs, logits)]
    else:
        own[:] = np.ma.filled(logits[rows_of(pairs), pairs.indices], lowest)
    reached = np.where(np.isfinite(thresholds), thresholds, highest)
    return np.asarray(own - reached[pairs.indices], dtype=np.float64)


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
