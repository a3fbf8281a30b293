"""Random labels and scores of nine labels, most of them rare."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from longtail.labels import LabelStats
from longtail.thresholds import Thresholds

STATS = LabelStats.from_counts([90, 60, 40, 20, 9, 7, 3, 2, 1], 100)
ZERO = Thresholds(np.zeros(9))


def draw(seed: int, n_documents: int = 60) -> tuple[sp.csr_matrix, np.ndarray]:
    rng = np.random.RandomState(seed)
    truth = (rng.rand(n_documents, 9) < np.linspace(0.6, 0.02, 9)).astype(float)
    return sp.csr_matrix(truth), truth * 2 - 1 + rng.randn(n_documents, 9)
