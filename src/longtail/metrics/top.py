"""The k best labels of every document, found once for all ranking metrics.

Only the order of the scores counts, so logits and probabilities give the same answer and no
argument says which they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import InputError
from longtail.metrics.blocks import rectangles, row_blocks, rows_of
from longtail.metrics.inputs import check_k, labels_and_scores, score_matrix


@dataclass(frozen=True, eq=False)
class Ranking:
    """The best labels of every document down to `depth`, and which of them apply; see `rank`."""

    labels: NDArray[Any]
    """documents x min(depth, labels), best first; -1 where a document has fewer scored labels."""
    hits: NDArray[np.bool_]
    """Of the same shape: whether the label applies."""
    y_true: sp.csr_matrix
    depth: int

    @property
    def n_actual(self) -> NDArray[np.int64]:
        """Labels of each document."""
        return np.asarray(np.diff(self.y_true.indptr), dtype=np.int64)

    def hits_to(self, k: int) -> NDArray[np.bool_]:
        """The first k columns of `hits`; fewer if there are fewer labels."""
        if check_k(k) > self.depth:
            raise InputError(
                f"k = {k} is deeper than this ranking, which was made with k = {self.depth}. "
                f"Call rank(y_true, scores, {k})."
            )
        return self.hits[:, :k]


def rank(y_true: Any, scores: Any, k: int) -> Ranking:
    """Rank the labels of every document, for any metric at k or less.

    Args:
        y_true: labels, documents x labels, 0/1; dense or sparse (a stored zero is no label).
        scores: dense, or CSR; logits or probabilities, only their order counts. In CSR an absent
            pair is not scored and never ranked; a stored zero is a score of 0.
        k: how deep.
    """
    truth, checked = labels_and_scores(y_true, scores)
    depth = check_k(k)
    labels = _top_k(checked, min(depth, truth.shape[1]))
    return Ranking(labels, _applies(truth, labels), truth, depth)


def top_k(scores: Any, k: int) -> NDArray[Any]:
    """Columns of the k best labels of every document, best first: documents x k.

    Of equal scores the lower column comes first. A row ends in -1 where a document has fewer than
    k labels, or fewer than k stored scores in CSR.
    """
    checked, width = score_matrix(scores), check_k(k)
    best = _top_k(checked, min(width, checked.shape[1]))
    return np.pad(best, ((0, 0), (0, width - best.shape[1])), constant_values=-1)


def top_entries(scores: sp.csr_matrix, k: int) -> NDArray[np.int64]:
    """Positions of the best k stored scores of every row: rows x k, -1 where there are fewer.

    Columns must be sorted: of equal scores the first stored wins.
    """
    best = np.full((scores.shape[0], k), -1, dtype=np.int64)
    lowest = scores.data.min() if scores.nnz else 0
    for rows, positions, real in rectangles(scores.indptr[:-1], np.diff(scores.indptr)):
        # The padding stands behind a row's entries, so it loses to those that are as low.
        order = _descending(np.where(real, scores.data[positions], lowest))[:, :k]
        chosen = np.take_along_axis(np.where(real, positions, -1), order, axis=1)
        best[rows, : chosen.shape[1]] = chosen
    return best


def _top_k(scores: Any, k: int) -> NDArray[Any]:
    n_documents, n_labels = scores.shape
    best = np.full((n_documents, k), -1, dtype=sp.get_index_dtype(maxval=n_labels))
    if sp.issparse(scores):
        entries = top_entries(scores, k)
        found = entries >= 0
        best[found] = scores.indices[entries[found]]
    else:
        for rows in row_blocks(n_documents, n_labels):
            best[rows] = _top_k_dense(scores[rows], k)
    return best


def _top_k_dense(block: NDArray[Any], k: int) -> NDArray[Any]:
    """The best k columns, by sorting only what reaches the k-th best score of its row."""
    n_labels = block.shape[1]
    if k == n_labels:
        return _descending(block)
    last = np.partition(block, n_labels - k, axis=1)[:, n_labels - k, np.newaxis]
    chosen = block >= last
    # Of the scores that tie with the last only so many as are still wanted, lower columns first.
    crowded = np.flatnonzero(chosen.sum(axis=1) > k)
    better = block[crowded] > last[crowded]
    tied = chosen[crowded] & ~better
    wanted = k - better.sum(axis=1, keepdims=True)
    chosen[crowded] = better | (tied & (np.cumsum(tied, axis=1, dtype=np.int32) <= wanted))
    columns = np.nonzero(chosen)[1].reshape(-1, k)
    order = _descending(block[chosen].reshape(-1, k))
    return np.take_along_axis(columns, order, axis=1)


def _descending(values: NDArray[Any]) -> NDArray[np.int64]:
    """Order of every row from high to low, equal values as they stand.

    Sorted upwards from the back and read from the back: unsigned scores have no negative.
    """
    backwards = np.argsort(values[:, ::-1], axis=1, kind="stable")[:, ::-1]
    return np.asarray(values.shape[1] - 1 - backwards, dtype=np.int64)


def _applies(truth: sp.csr_matrix, labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each ranked label is one of its document's, by binary search among all pairs."""
    n_labels = truth.shape[1]
    pairs = rows_of(truth) * n_labels + truth.indices
    hits = np.zeros(labels.shape, dtype=np.bool_)
    if pairs.size == 0:
        return hits
    for block in row_blocks(*labels.shape):
        wanted = np.arange(block.start, block.stop)[:, np.newaxis] * n_labels + labels[block]
        found = np.minimum(np.searchsorted(pairs, wanted), pairs.size - 1)
        # -1 would read as the last label of the document before.
        hits[block] = (pairs[found] == wanted) & (labels[block] >= 0)
    return hits
