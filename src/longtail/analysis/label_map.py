"""How labels share documents: ranks, counts and p(i|j) of cells or of bins of ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from longtail.analysis.measures import IntArray, count_labels
from longtail.data.textdata import TextData
from longtail.labels import FloatArray
from longtail.metrics.blocks import rows_of

# Beyond this a cell per label would be smaller than a dot of the printed figure.
MAX_CELLS = 400
N_BINS = 80


@dataclass(frozen=True)
class LabelMap:
    """The labels by falling count, and p(i|j) of cells or of bins."""

    order: IntArray
    """Columns of the data by rank."""
    counts: FloatArray
    """Documents per label, by rank."""
    edges: IntArray
    """Bin k holds the ranks edges[k] to edges[k + 1] - 1, counted from 0."""
    p: FloatArray
    """Row j, column i: p(i|j), or its mean over the pairs of two bins; NaN where undefined."""

    @property
    def binned(self) -> bool:
        return len(self.edges) <= self.counts.size


def label_map(data: TextData, max_cells: int = MAX_CELLS, n_bins: int = N_BINS) -> LabelMap:
    """Sort the labels by count, ties by column, and measure how they share documents."""
    counts = count_labels(data.Y)
    order = np.argsort(-counts, kind="stable")
    cells = counts.size <= max_cells
    edges = np.arange(counts.size + 1) if cells else rank_bins(counts.size, n_bins)
    return LabelMap(order, counts[order], edges, conditional_means(data.Y[:, order], edges))


def rank_bins(n_labels: int, n_bins: int) -> IntArray:
    """Edges of bins of ranks, from 0 to n_labels, whose widths grow by a constant factor."""
    edges = np.unique(np.round(np.geomspace(1, n_labels + 1, n_bins + 1)).astype(np.int64) - 1)
    edges[-1] = n_labels
    return edges


def conditional_means(Y: sp.csr_matrix, edges: IntArray) -> FloatArray:
    """The mean of p(i|j) over the pairs i != j of two bins of columns: j by row, i by column.

    p(i|j) = documents with i and j / documents with j; labels without documents have none and are
    left out as j. NaN where no pair is left. No labels x labels matrix is built, but one of labels
    x bins.
    """
    counts, sizes = count_labels(Y), np.diff(edges)
    bins, starts = np.repeat(np.arange(len(sizes)), sizes), np.arange(counts.size + 1)
    in_bin = sp.csr_matrix((np.ones(counts.size), bins, starts), (counts.size, len(sizes)))
    # Documents that a label shares with those of a bin, itself left out.
    shared = sp.csr_matrix(Y.T @ (Y @ in_bin) - sp.diags(counts) @ in_bin)
    shared.data /= counts[rows_of(shared)]
    n_seen = in_bin.T @ (counts > 0)
    pairs: FloatArray = np.outer(n_seen, sizes) - np.diag(n_seen)
    total = np.asarray((in_bin.T @ shared).toarray(), dtype=np.float64)
    return np.divide(total, pairs, out=np.full_like(total, np.nan), where=pairs > 0)
