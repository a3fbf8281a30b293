"""Blocks of rows of large matrices, and positions of stored entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

BLOCK = 2**22
"""Elements per block: 32 MiB of float64 or int64."""


def row_blocks(n_rows: int, row_size: int) -> Iterator[slice]:
    """Slices of at least one row with about BLOCK elements each; one slice if there are no rows."""
    step = max(1, BLOCK // max(1, row_size))
    for start in range(0, max(1, n_rows), step):
        yield slice(start, min(start + step, n_rows))


def rows_of(matrix: sp.csr_matrix) -> NDArray[np.int64]:
    """The row of every stored element."""
    return np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))


def positions_of(truth: Any, scored: Any) -> NDArray[np.integer]:
    """Positions of the positives among the stored scores.

    Both matrices are CSR or both CSC, with sorted indices.
    """
    # Numbered from 1: scipy drops zeros from a product.
    numbers = np.arange(1, scored.nnz + 1, dtype=sp.get_index_dtype(maxval=scored.nnz + 1))
    numbered = type(scored)((numbers, scored.indices, scored.indptr), shape=scored.shape)
    return np.asarray(numbered.multiply(truth).data - 1)


def applies_to(truth: Any, scored: Any) -> NDArray[np.bool_]:
    """Whether the label applies, for every stored score; arguments as for `positions_of`."""
    applies = np.zeros(scored.nnz, dtype=np.bool_)
    applies[positions_of(truth, scored)] = True
    return applies
