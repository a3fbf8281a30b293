"""Scores of a sparse linear head for some labels at a time, so that they stay in the cache.

Of many labels most have a weight for the frequent features: their weights are dense vectors, which
take a fifth of the time of sparse ones.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numba
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

TILE = 8192
"""Labels of a tile: 32 kB of scores for a document."""
# The share of nonzero weights from which a feature is dense.
DENSE = 0.25

Floats = NDArray[np.float32]


class Tile(NamedTuple):
    """The weights of some labels, as arrays for compiled code."""

    starts: NDArray[np.int32]
    """Where the labels and weights of each feature start."""
    labels: NDArray[np.uint16]
    """Positions in the tile."""
    weights: Floats
    row_of: NDArray[np.int32]
    """The row of each feature in `rows`, or -1 if it is not dense."""
    rows: Floats
    bias: Floats

    @classmethod
    def of(cls, weight: sp.csr_matrix, bias: Floats) -> Self:
        """Take the weights of labels x features."""
        by_feature = weight.T.tocsr()
        sizes = np.diff(by_feature.indptr)
        dense = np.flatnonzero(sizes > DENSE * len(bias))
        row_of = np.full(len(sizes), -1, dtype=np.int32)
        row_of[dense] = np.arange(len(dense))
        rows = np.ascontiguousarray(by_feature[dense].toarray())
        sparse = np.repeat(row_of < 0, sizes)
        starts = np.append(0, np.cumsum(np.where(row_of < 0, sizes, 0))).astype(np.int32)
        labels = by_feature.indices[sparse].astype(np.uint16)
        return cls(starts, labels, by_feature.data[sparse], row_of, rows, bias)


def tiles_of(weight: sp.csr_matrix, bias: Floats) -> list[Tile]:
    """The tiles of all labels, in order."""
    starts = range(0, len(bias), TILE)
    return [Tile.of(weight[k : k + TILE], bias[k : k + TILE]) for k in starts]


def tile_scores(features: sp.csr_matrix, tile: Tile) -> Floats:
    """The scores of documents for the labels of a tile, dense."""
    scores = np.zeros((features.shape[0], len(tile.bias)), dtype=np.float32)
    _add_products(features.indptr, features.indices, features.data, tile, scores)
    return scores


jit = numba.njit(nogil=True, cache=True)


# No fastmath: sums in the order of the features, as those of scipy.
@jit
def _add_products(indptr, indices, data, tile, scores):  # type: ignore[no-untyped-def]
    """Add the product of documents and weights, and the bias, to `scores`."""
    for i in range(len(scores)):
        total = scores[i]
        for e in range(indptr[i], indptr[i + 1]):
            feature, value = indices[e], data[e]
            row = tile.row_of[feature]
            if row >= 0:
                weights = tile.rows[row]
                for k in range(len(total)):
                    total[k] += value * weights[k]
            else:
                for p in range(tile.starts[feature], tile.starts[feature + 1]):
                    total[tile.labels[p]] += value * tile.weights[p]
        for k in range(len(total)):
            total[k] += tile.bias[k]
