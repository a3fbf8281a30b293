"""Whether probabilities can be taken at their word: reliability bins and their mean error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.evaluation.facts import Calibration
from longtail.metrics.blocks import applies_to, row_blocks
from longtail.thresholds.scales import sigmoid

N_BINS = 15


def calibration_of(truth: sp.csr_matrix, logits: Any, n_bins: int = N_BINS) -> Calibration:
    """Over all scored pairs; in a CSR matrix of scores these are the stored ones."""
    edges = np.linspace(0.0, 1.0, n_bins + 1)
    total, applies, summed = np.zeros((3, n_bins))
    for values, positive in _scored_pairs(truth, logits):
        probability = sigmoid(values)
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


def _scored_pairs(
    truth: sp.csr_matrix, logits: Any
) -> Iterator[tuple[NDArray[Any], NDArray[np.bool_]]]:
    """Scores of some pairs at a time, and which of their labels apply."""
    if sp.issparse(logits):
        applies = applies_to(truth, logits)
        for part in row_blocks(logits.nnz, 1):
            yield logits.data[part], applies[part]
        return
    for rows in row_blocks(*logits.shape):
        block, applies = logits[rows], truth[rows].toarray().astype(np.bool_)
        if np.ma.isMaskedArray(block):
            scored = ~np.ma.getmaskarray(block)
            yield np.ma.getdata(block)[scored], applies[scored]
        else:
            yield block.ravel(), applies.ravel()
