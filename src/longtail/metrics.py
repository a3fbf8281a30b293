"""F1 scores from sparse label matrices, without dense copies. numpy and scipy only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import InputError


class Counts(NamedTuple):
    """True positives, predicted and actual positives of every label."""

    hits: NDArray[np.float64]
    predicted: NDArray[np.float64]
    actual: NDArray[np.float64]


def count(y_true: sp.csr_matrix, y_pred: sp.csr_matrix) -> Counts:
    """Count per label over all documents."""
    if y_true.shape != y_pred.shape:
        raise InputError(
            f"labels of shape {y_true.shape} and predictions of shape {y_pred.shape} differ. "
            "Both must be documents x labels."
        )
    hits = y_true.multiply(y_pred)
    return Counts(
        *(np.asarray(m.sum(axis=0), dtype=np.float64).ravel() for m in (hits, y_pred, y_true))
    )


def micro_f1(counts: Counts) -> float:
    """F1 of all decisions together; 0 where nothing is predicted and nothing applies."""
    total = counts.predicted.sum() + counts.actual.sum()
    return float(2 * counts.hits.sum() / total) if total else 0.0


def label_f1(counts: Counts) -> NDArray[np.float64]:
    """F1 of each label; 0 for a label that is neither predicted nor present."""
    total = counts.predicted + counts.actual
    return np.divide(2 * counts.hits, total, out=np.zeros_like(total), where=total > 0)


def macro_f1(counts: Counts) -> float:
    """Mean F1 over all labels, absent ones counting 0, as in the paper."""
    scores = label_f1(counts)
    return float(scores.mean()) if scores.size else 0.0
