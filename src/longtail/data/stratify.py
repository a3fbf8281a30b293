"""Assigning documents to parts so that rare labels are in all of them, on sparse labels.

Iterative stratification (Sechidis et al. 2011), which deals out the rarest label first, after a
pass that seeks one document for each part of every label with as many documents as parts.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
# Documents of a label that are compared for a part without it: more take longer and add little.
CANDIDATES = 64


def deal(matrix: sp.csr_matrix, sizes: IntArray, first_is_train: bool) -> IntArray:
    """The part of each row, parts being of these sizes; earlier rows are taken first."""
    dealing = _Dealing(matrix, sizes, first_is_train)
    rarest_first = np.argsort(dealing.left, kind="stable")
    if first_is_train:
        # Before all else: a label that no training document carries is lost.
        dealing.cover(rarest_first, [0])
    # From the most frequent on: a part too small for all labels lacks the rarest.
    dealing.cover(rarest_first[::-1], range(len(sizes)))
    dealing.balance()
    without_label = dealing.parts < 0
    dealing.parts[without_label] = np.repeat(np.arange(len(sizes)), dealing.capacity)
    return dealing.parts


class _Dealing:
    """The state of the assignment: the documents of each label that a part lacks, and its capacity.

    `wanted` is in sixteenths of a document: integers, which tie on every platform, and coarse
    enough that folds tie which differ by one document; else the larger ones get all rare labels.
    """

    one = 16

    def __init__(self, matrix: sp.csr_matrix, sizes: IntArray, first_is_train: bool) -> None:
        by_label = matrix.tocsc()
        self.labels_at, self.labels_from = matrix.indices, matrix.indptr
        self.rows_at, self.rows_from = by_label.indices, by_label.indptr
        self.capacity = sizes.copy()
        self.left = np.diff(by_label.indptr).astype(np.int64)
        n_documents = matrix.shape[0]
        self.parts = np.full(n_documents, -1, dtype=np.int64)
        self.wanted = (2 * self.one * self.left[:, None] * sizes + n_documents) // (2 * n_documents)
        self.lacking = np.repeat(self.left[:, None] >= len(sizes), len(sizes), axis=1)
        self.lacking[:, 0] |= first_is_train

    def cover(self, labels: IntArray, parts: Sequence[int]) -> None:
        """Give these parts one document of every label that they should not be without."""
        for label in labels:
            for part in parts:
                if self.lacking[label, part] and self.capacity[part]:
                    rows = self._rows_left(label)[:CANDIDATES]
                    if len(rows):
                        best = self._most_useful(rows, part)
                        self._give(rows[best : best + 1], np.array([part]))

    def balance(self) -> None:
        """Deal out all other documents, rarest label first."""
        n_labels = len(self.left)
        heap = sorted(self._keys(np.arange(n_labels)))
        while heap:
            count, label = divmod(heapq.heappop(heap), n_labels)
            if count != self.left[label]:
                continue  # outdated: pushed again when the count fell
            fallen = np.unique(self._deal(label))
            if len(heap) + len(fallen) > 4 * n_labels:
                # Without this, outdated entries would grow to one per label of each document.
                heap = sorted(self._keys(np.arange(n_labels)))
            else:
                for key in self._keys(fallen):
                    heapq.heappush(heap, key)

    def _keys(self, labels: IntArray) -> list[int]:
        """Count and label as one number, which takes less memory than a pair."""
        labels = labels[self.left[labels] > 0]
        keys: list[int] = (self.left[labels] * len(self.left) + labels).tolist()
        return keys

    def _deal(self, label: int) -> IntArray:
        """Give each document of a label to the part that wants it most, then has most capacity."""
        rows = self._rows_left(label)
        want, free = self.wanted[label].tolist(), self.capacity.tolist()
        dealt = np.empty(len(rows), dtype=np.int64)
        for k in range(len(rows)):
            open_parts = (part for part in range(len(free)) if free[part])
            dealt[k] = part = max(open_parts, key=lambda part: (want[part], free[part]))
            want[part] -= self.one
            free[part] -= 1
        return self._give(rows, dealt)

    def _rows_left(self, label: int) -> IntArray:
        rows: IntArray = self.rows_at[self.rows_from[label] : self.rows_from[label + 1]]
        return rows[self.parts[rows] < 0]

    def _labels_of(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """The labels of these documents one after the other, and how many each has."""
        labels = [self.labels_at[self.labels_from[row] : self.labels_from[row + 1]] for row in rows]
        return np.concatenate(labels), np.array([len(part) for part in labels], dtype=np.int64)

    def _most_useful(self, rows: IntArray, part: int) -> int:
        """Which document fills most gaps in this part and least in others, rare labels first."""
        labels, lengths = self._labels_of(rows)
        lacking = self.lacking[labels].astype(np.int64)
        use = len(self.capacity) * lacking[:, part] - lacking.sum(axis=1)
        weighted = (use << 20) // self.left[labels]
        total = np.add.reduceat(weighted, np.cumsum(lengths) - lengths)
        # The mean: by the sum, small parts would get the documents with the most labels.
        return int((total // lengths).argmax())

    def _give(self, rows: IntArray, parts: IntArray) -> IntArray:
        """Assign documents to parts, and return their labels."""
        labels, lengths = self._labels_of(rows)
        label_parts = np.repeat(parts, lengths)
        self.parts[rows] = parts
        self.capacity -= np.bincount(parts, minlength=len(self.capacity))
        self.lacking[labels, label_parts] = False
        np.subtract.at(self.left, labels, 1)
        np.subtract.at(self.wanted, (labels, label_parts), self.one)
        return labels
