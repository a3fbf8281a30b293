"""Big matrices in pieces: blocks of dense rows, and ragged rows of similar length as rectangles.

Rectangles because numpy sorts many short rows some ten times faster than one long array of pairs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

BLOCK = 2**22
"""Elements worked on at a time: 32 MiB of float64 or of an order, whatever the number of labels."""


def row_blocks(n_rows: int, row_size: int) -> Iterator[slice]:
    """Slices of rows that hold some BLOCK elements each, and one row at least."""
    step = max(1, BLOCK // max(1, row_size))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def rectangles(
    starts: NDArray[np.integer], sizes: NDArray[np.integer]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]]:
    """All rows that are not empty, those of similar size together.

    Yields their numbers, the positions of their entries (rows x longest of them), and which of
    these are real; behind the end of a row its first position is repeated.
    """
    # Within a factor of two, so that less than half of a rectangle is padding.
    scale = np.frexp(sizes)[1]
    for step in np.unique(scale[sizes > 0]):
        alike = np.flatnonzero(scale == step)
        width = int(sizes[alike].max())
        places = np.arange(width)
        for block in row_blocks(len(alike), width):
            rows = alike[block]
            real = places < sizes[rows, np.newaxis]
            first = starts[rows, np.newaxis].astype(np.int64)
            yield rows, first + np.where(real, places, 0), real
