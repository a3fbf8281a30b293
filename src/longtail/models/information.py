"""Information of each feature about the labels: informative features are regularised less."""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

# Exponent of the information; pseudo-documents with average labels that are added to each feature;
# features processed at a time.
POWER, PRIOR, BLOCK_FEATURES = 0.25, 3.0, 4096


def label_information(features: sp.csr_matrix, Y: sp.csr_matrix) -> NDArray[np.float32]:
    """One weight per feature: its information to the power 1/4, scaled to keep the total energy.

    Information is the Kullback-Leibler divergence, summed over labels, of the label's frequency in
    the feature's documents from its frequency in all. Three pseudo-documents with average labels
    are added, so that a word in two documents has little information.
    """
    n_documents, n_features = features.shape
    present = sp.csc_matrix(features, copy=True)
    present.eliminate_zeros()
    energy = np.asarray(present.multiply(present).sum(axis=0)).ravel()
    present.data = np.ones_like(present.data, dtype=np.float32)
    df = np.diff(present.indptr).astype(np.float64)
    counts = np.asarray(Y.sum(axis=0)).ravel()
    prior = np.clip(counts / n_documents, 0.5 / n_documents, 1 - 0.5 / (n_documents + 1))
    shrinkage = PRIOR / (df + PRIOR)
    # For a label absent from all documents of a feature only the shrinkage matters: absent pairs
    # take one sum per document frequency, and only the others are visited.
    values, inverse = np.unique(df, return_inverse=True)
    # Labels of the same count have the same term.
    priors, n_labels = np.unique(prior, return_counts=True)
    absent = np.array(
        [n_labels @ _divergence(s * priors, priors) for s in PRIOR / (values + PRIOR)]
    )
    information = absent[inverse]
    gains = np.zeros(n_features)
    for start in range(0, n_features, BLOCK_FEATURES):
        stop = min(start + BLOCK_FEATURES, n_features)
        both = sp.coo_matrix(present[:, start:stop].T @ Y)
        rows, q = both.row + start, prior[both.col]
        posterior = (both.data + q * PRIOR) / (df[rows] + PRIOR)
        gain = _divergence(posterior, q) - _divergence(shrinkage[rows] * q, q)
        gains[start:stop] = np.bincount(both.row, gain, minlength=stop - start)
    weight = np.maximum(gains + information, 1e-3) ** POWER
    total = float((energy * weight**2).sum())
    if total > 0:
        weight *= math.sqrt(energy.sum() / total)
    return np.asarray(weight, dtype=np.float32)


def _divergence(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Kullback-Leibler divergence of Bernoulli variables, with p clipped."""
    p = np.clip(p, 1e-12, 1 - 1e-9)
    return np.asarray(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)))
