"""From scores to decisions: one threshold for all labels, the exact optimum of micro-F1.

A threshold is fitted on scores of documents that the model has not trained on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import InputError


@dataclass(frozen=True)
class Threshold:
    """Predicts every label whose score is at least `value`; the scores may be logits or not."""

    value: float

    @classmethod
    def fit(cls, scores: NDArray[Any], y_true: sp.csr_matrix) -> Threshold:
        """The cut with the best micro-F1, found in one sorted pass over all scores.

        With no positive at all nothing can be tuned: the value is then above every score.
        """
        _check(scores, y_true)
        flat = np.asarray(scores, dtype=np.float64).ravel()
        order = np.argsort(-flat, kind="stable")
        ranked = flat[order]
        rows = np.repeat(np.arange(y_true.shape[0]), np.diff(y_true.indptr))
        applies = np.zeros(flat.size, dtype=bool)
        applies[rows * scores.shape[1] + y_true.indices] = y_true.data > 0
        hits = np.cumsum(applies[order])
        if flat.size == 0 or hits[-1] == 0:
            return cls(float(ranked[0]) + 1.0 if flat.size else 0.0)
        f1 = 2 * hits / (np.arange(1, flat.size + 1) + hits[-1])
        # A cut cannot fall between equal scores.
        f1[:-1][ranked[:-1] == ranked[1:]] = -1
        best = int(np.argmax(f1))
        below = ranked[best + 1] if best + 1 < ranked.size else ranked[best] - 1.0
        # In the precision of the scores, where the middle of two neighbours may be one of them.
        middle = np.asarray(scores).dtype.type((ranked[best] + below) / 2)
        return cls(float(middle) if middle > below else float(ranked[best]))

    def apply(self, scores: NDArray[Any]) -> sp.csr_matrix:
        """The decisions as a sparse matrix of ones."""
        return sp.csr_matrix(np.asarray(scores) >= self.value).astype(np.float32)


def _check(scores: NDArray[Any], y_true: sp.csr_matrix) -> None:
    if scores.shape != y_true.shape:
        raise InputError(
            f"scores of shape {scores.shape} and labels of shape {y_true.shape} differ. "
            "Both must be documents x labels."
        )
    if not np.isfinite(scores).all():
        raise InputError("scores must be finite, got NaN or infinity. Check the training.")
