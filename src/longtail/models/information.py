"""What each feature tells about the labels, as one weight per feature for a linear head."""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

# The exponent of a weight, and the documents of average labels that are added to a feature's own.
POWER, PRIOR = 0.25, 3.0
# Features whose pairs with labels exist at the same time.
BLOCK = 4096


def label_information(features: sp.csr_matrix, Y: sp.csr_matrix) -> NDArray[np.float32]:
    """One weight per feature: (what its documents tell about the labels)^(1/4), of mean energy 1.

    That is the divergence, summed over labels, of the label's frequency among the feature's
    documents from its frequency among all; three documents of average labels are added, so that
    a word of two documents tells little.
    """
    n_documents, n_features = features.shape
    present = sp.csc_matrix(features, copy=True)
    present.eliminate_zeros()
    energy = np.asarray(present.multiply(present).sum(axis=0)).ravel()
    present.data = np.ones_like(present.data, dtype=np.float32)
    df = np.diff(present.indptr).astype(np.float64)
    counts = np.asarray(Y.sum(axis=0)).ravel()
    share = np.clip(counts / n_documents, 0.5 / n_documents, 1 - 0.5 / (n_documents + 1))
    pull = PRIOR / (df + PRIOR)
    # A feature whose documents all lack a label moves that label's share by its pull alone, so
    # the absent pairs are one sum per document frequency, and only the present ones are visited.
    values, place = np.unique(df, return_inverse=True)
    pulls = PRIOR / (values + PRIOR)
    absent = np.array([_divergence(value * share, share).sum() for value in pulls])[place]
    told = np.zeros(n_features)
    for start in range(0, n_features, BLOCK):
        stop = min(start + BLOCK, n_features)
        both = sp.coo_matrix(present[:, start:stop].T @ Y)
        rows, q = both.row + start, share[both.col]
        seen = (both.data + q * PRIOR) / (df[rows] + PRIOR)
        gain = _divergence(seen, q) - _divergence(pull[rows] * q, q)
        told[start:stop] = np.bincount(both.row, gain, minlength=stop - start)
    weight = np.maximum(told + absent, 1e-3) ** POWER
    total = float((energy * weight**2).sum())
    if total > 0:
        weight *= math.sqrt(energy.sum() / total)
    found: NDArray[np.float32] = weight.astype(np.float32)
    return found


def _divergence(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Kullback-Leibler divergence of coins, with p kept off 0 and 1."""
    p = np.clip(p, 1e-12, 1 - 1e-9)
    found: NDArray[np.float64] = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    return found
