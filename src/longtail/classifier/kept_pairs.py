"""The pairs of a block of documents that matter among very many labels, as CSR scores.

They are collected from the scores of some labels at a time: the highest of each document, all above
their thresholds, and those nearest to them that `min_labels` may force.
"""

from __future__ import annotations

import numba
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.thresholds import Thresholds

# Scores that are compared at once before any of them is looked at.
GROUP = 64

jit = numba.njit(nogil=True, cache=True)


class KeptPairs:
    """The pairs of `n_documents` documents that are kept.

    Args:
        known: the labels that can be kept.
        n_highest: how many of the highest scores of each document; ties go to the lower column.
        thresholds: also all pairs that these predict.
    """

    def __init__(
        self,
        n_documents: int,
        known: NDArray[np.bool_],
        n_highest: int,
        thresholds: Thresholds | None = None,
    ) -> None:
        values = np.full(len(known), np.inf) if thresholds is None else thresholds.values
        self.known, self.n_highest, self.values = known, n_highest, values
        self.n_forced = 0 if thresholds is None else thresholds.min_labels
        # The lowest float32 that reaches the threshold.
        nearest = values.astype(np.float32)
        above = np.nextafter(nearest, np.float32(np.inf))
        self.lowest = np.where(nearest < values, above, nearest)
        self.bars = np.full((n_documents, 2), -np.inf)
        self.sizes = np.zeros(n_documents, dtype=np.int64)
        capacity = min(len(known), 4 * (n_highest + self.n_forced) + GROUP)
        self.labels = np.zeros((n_documents, capacity), dtype=np.int32)
        self.scores = np.zeros((n_documents, capacity), dtype=np.float32)

    def add(self, first: int, scores: NDArray[np.float32]) -> None:
        """Add the scores of the labels from `first` on; labels in ascending order."""
        part = slice(first, first + scores.shape[1])
        known, values, lowest = self.known[part], self.values[part], self.lowest[part]
        start = np.zeros(2, dtype=np.int64)
        while not _add(
            scores,
            first,
            start,
            known,
            values,
            lowest,
            self.values,
            self.n_highest,
            self.n_forced,
            self.bars,
            self.sizes,
            self.labels,
            self.scores,
        ):
            wider = ((0, 0), (0, self.labels.shape[1]))
            self.labels, self.scores = np.pad(self.labels, wider), np.pad(self.scores, wider)

    def matrix(self) -> sp.csr_matrix:
        """The scores that are kept, documents x labels."""
        _finish(
            self.labels,
            self.scores,
            self.sizes,
            self.values,
            self.n_highest,
            self.n_forced,
            self.bars,
        )
        stored = np.arange(self.labels.shape[1]) < self.sizes[:, None]
        starts = np.append(0, np.cumsum(self.sizes))
        shape = (len(self.sizes), len(self.known))
        return sp.csr_matrix((self.scores[stored], self.labels[stored], starts), shape)


def highest(scores: NDArray[np.float32], n_highest: int) -> sp.csr_matrix:
    """The highest scores of each document as CSR, without those that are minus infinity."""
    kept = KeptPairs(len(scores), np.ones(scores.shape[1], dtype=np.bool_), n_highest)
    kept.add(0, np.asarray(scores, dtype=np.float32))
    return kept.matrix()


@jit
def _add(  # type: ignore[no-untyped-def]
    block,
    first,
    start,
    known,
    values,
    lowest,
    thresholds,
    n_highest,
    n_forced,
    bars,
    sizes,
    labels,
    scores,
):
    """Add pairs from position `start` on; False, with `start` moved, where a document is full."""
    n_documents, n_labels = block.shape
    for i in range(start[0], n_documents):
        row, bar = block[i], bars[i]
        for group in range(start[1] // GROUP * GROUP, n_labels, GROUP):
            stop = min(group + GROUP, n_labels)
            is_hit = n_forced > 0
            least = np.float32(bar[0])
            for k in range(group, stop):
                is_hit |= (row[k] >= least) | (row[k] >= lowest[k])
            if not is_hit:
                continue
            for k in range(max(group, start[1]), stop):
                score = row[k]
                is_near = n_forced > 0 and score - values[k] >= bar[1] and values[k] < np.inf
                is_kept = score >= bar[0] or score >= lowest[k] or is_near
                if not is_kept or not known[k] or score == -np.inf:
                    continue
                if sizes[i] == labels.shape[1]:
                    sizes[i] = _compact(
                        labels[i], scores[i], sizes[i], thresholds, n_highest, n_forced, bar
                    )
                    if 2 * sizes[i] > labels.shape[1]:
                        start[0], start[1] = i, k
                        return False
                labels[i, sizes[i]], scores[i, sizes[i]] = first + k, score
                sizes[i] += 1
        start[1] = 0
    return True


@jit
def _finish(labels, scores, sizes, thresholds, n_highest, n_forced, bars):  # type: ignore[no-untyped-def]
    """Drop what is not kept of every document."""
    for i in range(len(sizes)):
        sizes[i] = _compact(
            labels[i], scores[i], sizes[i], thresholds, n_highest, n_forced, bars[i]
        )


@jit
def _compact(labels, scores, n, thresholds, n_highest, n_forced, bar):  # type: ignore[no-untyped-def]
    """Drop pairs that are not kept, in place; return how many are left.

    `bar`: the least score, and the least distance to a threshold, that new pairs need.
    """
    reached = scores[:n].astype(np.float64)
    distances = reached - thresholds[labels[:n]]
    kept = distances >= 0
    _mark_highest(reached, n_highest, kept, bar[:1])
    _mark_highest(distances, n_forced, kept, bar[1:])
    size = 0
    for j in range(n):
        if kept[j]:
            labels[size], scores[size] = labels[j], scores[j]
            size += 1
    return size


@jit
def _mark_highest(values, n_highest, kept, bar):  # type: ignore[no-untyped-def]
    """Mark the highest finite values, of equal ones the first; `bar` becomes the lowest of them."""
    if n_highest == 0:
        bar[0] = np.inf
        return
    least = -np.inf
    if len(values) > n_highest:
        least = np.partition(values, len(values) - n_highest)[len(values) - n_highest]
        bar[0] = least
    n_tied = n_highest - (values > least).sum()
    for j in range(len(values)):
        if values[j] > least:
            kept[j] = True
        elif values[j] == least and n_tied > 0 and least > -np.inf:
            kept[j] = True
            n_tied -= 1
