"""Forty documents with six labels, per-label thresholds, and scores in every form."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.analysis import Run
from longtail.evaluation import evaluate
from longtail.labels import LabelStats
from longtail.thresholds import Thresholds

STATS = LabelStats.from_counts([30, 20, 10, 5, 4, 1], 40)
# The fifth label is never predicted.
VALUES = np.array([0.25, 0.5, -0.25, 0.75, np.inf, 0.0])


def make(kind: str, rule: dict[str, Any]) -> tuple[Run, np.ndarray, np.ndarray]:
    """A run, its labels, and its scores as an array with NaN where there is none."""
    rng = np.random.RandomState(3)
    truth = (rng.rand(40, 6) < 0.3).astype(float)
    dense = truth + rng.randn(40, 6)
    dense[:3, 0] = 0.0
    scored = dense > -0.8 if kind != "dense" else np.ones(dense.shape, dtype=bool)
    scored[7] &= kind == "dense"  # a document without any score
    plain, rows = np.where(scored, dense, np.nan), scored.nonzero()
    forms = {
        "dense": dense,
        # Absent pairs are not scored; explicit zeros are.
        "sparse": sp.csr_matrix((dense[rows], rows), dense.shape),
        "masked": np.ma.masked_array(np.where(scored, dense, np.inf), ~scored),
    }
    result = evaluate(truth, forms[kind], Thresholds(VALUES, **rule), STATS, n_resamples=0)
    return Run(result, scores=forms[kind]), truth, plain
