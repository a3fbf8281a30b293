"""Large matrices in blocks of rows, positions of stored entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

BLOCK = 2**22
"""Elements processed at a time: 32 MiB of float64 or int64, whatever the number of labels."""
CACHED = 2**17
"""Elements that stay in the processor's cache from one operation to the next."""


def row_blocks(n_rows: int, row_size: int, size: int | None = None) -> Iterator[slice]:
    """Slices of rows with about `size` elements each (default: BLOCK), and one row at least."""
    step = max(1, (BLOCK if size is None else size) // max(1, row_size))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def rectangles(
    starts: NDArray[np.integer], sizes: NDArray[np.integer]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]]:
    """All rows that are not empty, those of similar size together.

    Yields their numbers, the positions of their entries (rows x longest of them), and which of
    these are entries; a row is padded with its first position.
    """
    # Within a factor of two, so that less than half of a rectangle is padding.
    scale = np.frexp(sizes)[1]
    for step in np.unique(scale[sizes > 0]):
        similar = np.flatnonzero(scale == step)
        width = int(sizes[similar].max())
        offsets = np.arange(width)
        for block in row_blocks(len(similar), width):
            rows = similar[block]
            is_entry = offsets < sizes[rows, np.newaxis]
            first = starts[rows, np.newaxis].astype(np.int64)
            yield rows, first + np.where(is_entry, offsets, 0), is_entry


def rows_of(matrix: sp.csr_matrix) -> NDArray[np.int64]:
    """The row of every stored element."""
    return np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))


def positions_of(truth: Any, scored: Any) -> NDArray[np.integer]:
    """Positions of the positives among the stored scores; both CSR or both CSC, sorted."""
    # Counted from 1, since a product of 0 would not be stored.
    numbers = np.arange(1, scored.nnz + 1, dtype=sp.get_index_dtype(maxval=scored.nnz + 1))
    numbered = type(scored)((numbers, scored.indices, scored.indptr), shape=scored.shape)
    return np.asarray(numbered.multiply(truth).data - 1)


def applies_to(truth: Any, scored: Any) -> NDArray[np.bool_]:
    """For every stored score whether its label applies; as `positions_of`."""
    applies = np.zeros(scored.nnz, dtype=np.bool_)
    applies[positions_of(truth, scored)] = True
    return applies
