"""Whether probabilities can be taken at their word: reliability bins and their mean error."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.evaluation.facts import Calibration

N_BINS = 15
# Pairs looked at in one step, to bound temporary memory.
BLOCK = 1 << 22


def calibration_of(truth: sp.csr_matrix, logits: Any, n_bins: int = N_BINS) -> Calibration:
    """Over all scored pairs; in a CSR matrix of scores these are the stored ones."""
    edges = np.linspace(0.0, 1.0, n_bins + 1)
    total, applies, summed = np.zeros((3, n_bins))
    step = max(1, BLOCK // max(1, truth.shape[1]))
    if sp.issparse(logits):
        step = max(1, truth.shape[0] // 64)
    for start in range(0, truth.shape[0], step):
        probability, positive = _pairs(truth[start : start + step], logits[start : start + step])
        place = np.minimum((probability * n_bins).astype(np.int64), n_bins - 1)
        total += np.bincount(place, minlength=n_bins)
        applies += np.bincount(place, weights=positive, minlength=n_bins)
        summed += np.bincount(place, weights=probability, minlength=n_bins)
    known = total > 0
    mean = np.divide(summed, total, out=np.zeros(n_bins), where=known)
    share = np.divide(applies, total, out=np.zeros(n_bins), where=known)
    n_pairs = float(total.sum())
    error = float((total * np.abs(share - mean)).sum() / n_pairs) if n_pairs else 0.0
    return Calibration(
        error,
        tuple(edges.tolist()),
        tuple(int(n) for n in total),
        tuple(float(m) if k else None for m, k in zip(mean, known, strict=True)),
        tuple(float(s) if k else None for s, k in zip(share, known, strict=True)),
    )


def _pairs(truth: sp.csr_matrix, logits: Any) -> tuple[Any, Any]:
    """Probabilities of the scored pairs, and 1 where the label applies."""
    if sp.issparse(logits):
        rows = np.repeat(np.arange(logits.shape[0]), np.diff(logits.indptr))
        values = logits.data
        keys = rows * logits.shape[1] + logits.indices
        own = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr)) * truth.shape[1]
        positive = np.isin(keys, own + truth.indices)
    else:
        values = np.ma.getdata(logits).ravel()
        positive = np.zeros(values.size, dtype=bool)
        rows = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr))
        positive[rows * truth.shape[1] + truth.indices] = True
        scored = ~np.ma.getmaskarray(logits).ravel() if np.ma.isMaskedArray(logits) else None
        if scored is not None:
            values, positive = values[scored], positive[scored]
    probability = 0.5 * (1 + np.tanh(0.5 * np.asarray(values, dtype=np.float64)))
    return probability, positive.astype(np.float64)
