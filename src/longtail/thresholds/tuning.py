"""Scores and labels that thresholds are fitted on: checked, as logits, by pair or by label.

Scores may be dense, masked (a masked pair was not scored, and is ignored) or CSR (an absent pair
has no score, and is never predicted).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import InputError
from longtail.metrics.blocks import CACHED, applies_to, row_blocks, rows_of
from longtail.metrics.inputs import label_matrix
from longtail.thresholds.scales import Scale, to_logits

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Pairs(NamedTuple):
    """Scored pairs of a document and a label."""

    scores: NDArray[Any]
    labels: NDArray[Any]
    applies: NDArray[np.bool_]


@dataclass(frozen=True)
class Tuning:
    """Documents that the model has not trained on: their scores as logits, and their labels."""

    scores: Any
    """Dense float, or CSR."""
    y_true: sp.csr_matrix
    """Without masked pairs, as those are ignored."""
    label_counts: FloatArray
    """Training documents of each label."""
    scale: Scale = "logit"
    """Of the scores as they were passed."""

    @property
    def n_labels(self) -> int:
        return int(self.y_true.shape[1])

    @property
    def n_documents(self) -> int:
        return int(self.y_true.shape[0])

    @property
    def n_scored(self) -> int:
        """Number of scored pairs."""
        return int(self.scores.nnz if sp.issparse(self.scores) else self.scores.size)

    @cached_property
    def n_positive(self) -> IntArray:
        """Documents of each label: pairs without a sparse score included, masked ones not."""
        return np.bincount(self.y_true.indices, minlength=self.n_labels).astype(np.int64)

    def select(self, rows: IntArray) -> Tuning:
        return Tuning(self.scores[rows], self.y_true[rows], self.label_counts, self.scale)

    def columns(
        self, labels: Iterable[int] | None = None
    ) -> Iterator[tuple[int, NDArray[Any], NDArray[np.bool_]]]:
        """Each label, by default of all, with its scores and whether it applies there."""
        truth = self.y_true.tocsc()
        by_label = self.scores.tocsc() if sp.issparse(self.scores) else self.scores
        stored = applies_to(truth, by_label) if sp.issparse(by_label) else None
        for label in range(self.n_labels) if labels is None else labels:
            if stored is not None:
                entries = slice(by_label.indptr[label], by_label.indptr[label + 1])
                yield label, by_label.data[entries], stored[entries]
            else:
                applies = np.zeros(self.n_documents, dtype=np.bool_)
                applies[truth.indices[truth.indptr[label] : truth.indptr[label + 1]]] = True
                yield label, by_label[:, label], applies

    def pairs(self, lowest: Any = None, offsets: FloatArray | None = None) -> Pairs:
        """Scored pairs, document by document.

        Args:
            lowest: only those with at least this score (one number, or one per label).
            offsets: of each label, added to its scores first.
        """
        if sp.issparse(self.scores):
            labels = self.scores.indices
            scores = self.scores.data if offsets is None else self.scores.data + offsets[labels]
            pairs = Pairs(scores, labels, applies_to(self.y_true, self.scores))
            if lowest is None:
                return pairs
            high = scores >= np.broadcast_to(lowest, self.n_labels)[labels]
            return Pairs(*(part[high] for part in pairs))
        n_labels, positions, scores = self.n_labels, [], []
        # In steps that stay in the processor's cache.
        for rows in row_blocks(self.n_documents, n_labels, CACHED):
            block = self.scores[rows] if offsets is None else self.scores[rows] + offsets
            chosen = np.ones(block.shape, np.bool_) if lowest is None else block >= lowest
            at = np.flatnonzero(chosen)
            positions.append(at + rows.start * n_labels)
            scores.append(block.ravel()[at])
        at = np.concatenate(positions)
        positive = rows_of(self.y_true) * n_labels + self.y_true.indices
        nearest = np.searchsorted(at, positive)
        applies = np.zeros(len(at), dtype=np.bool_)
        applies[nearest[np.append(at, -1)[nearest] == positive]] = True
        return Pairs(np.concatenate(scores), (at % n_labels).astype(np.int32), applies)

    def positive_pairs(self, offsets: FloatArray | None) -> tuple[NDArray[Any], NDArray[Any]]:
        """Scores and labels of the scored pairs whose label applies; `offsets` as in `pairs`."""
        if sp.issparse(self.scores):
            applies = applies_to(self.y_true, self.scores)
            scores, labels = self.scores.data[applies], self.scores.indices[applies]
        else:
            labels = self.y_true.indices
            scores = self.scores[rows_of(self.y_true), labels]
        return scores if offsets is None else scores + offsets[labels], labels


def make_tuning(scores: Any, y_true: Any, label_counts: Any, scale: Scale = "logit") -> Tuning:
    """Check the user's arguments and convert the scores to logits."""
    truth = label_matrix(y_true, "labels")
    counts = np.asarray(label_counts, dtype=np.float64)
    if counts.shape != (truth.shape[1],):
        raise InputError(
            f"expected one training count per label, {truth.shape[1]} of them, got shape "
            f"{counts.shape}. Take them from LabelStats.label_counts of the training part."
        )
    if 0 in truth.shape:
        raise InputError(
            f"thresholds need at least one document and one label, got a matrix of {truth.shape}."
        )
    if not (np.isfinite(counts).all() and counts.min() >= 0):
        raise InputError("training counts must be finite and not negative.")
    logits = to_logits(scores, scale, truth)
    if np.ma.isMaskedArray(scores):
        truth = truth.multiply(~np.ma.getmaskarray(scores)).tocsr()
        truth.eliminate_zeros()
    return Tuning(logits, truth.astype(bool), counts, scale)
