"""Scores and labels that thresholds are fitted on: checked, as logits, pair by pair.

Scores may be dense, masked (a masked pair was not scored, and is ignored) or CSR (an absent pair
has no score, and is never predicted).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import InputError
from longtail.metrics.blocks import applies_to, rectangles, rows_of
from longtail.metrics.inputs import label_matrix
from longtail.thresholds.scales import Scale, to_logits

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Pairs(NamedTuple):
    """Scored pairs of a document and a label."""

    documents: NDArray[np.int32]
    labels: NDArray[np.int32]
    scores: NDArray[Any]
    applies: NDArray[np.bool_]

    def at(self, positions: NDArray[np.integer]) -> Pairs:
        return Pairs(*(part[positions] for part in self))


@dataclass(frozen=True, eq=False)
class Tuning:
    """Documents that the model has not trained on: their scores as logits, and their labels."""

    pairs: Pairs
    """In any order."""
    y_true: sp.csr_matrix
    """Without masked pairs, as those are ignored."""
    label_counts: FloatArray
    """Training documents of each label."""
    scale: Scale = "logit"
    """Of the scores as they were passed."""
    is_sorted: bool = False
    """Whether the pairs are those of `by_label`."""
    fits: dict[Any, Any] = field(default_factory=dict)
    """Fitted methods that others build on; see `methods.fit`."""

    @property
    def n_labels(self) -> int:
        return int(self.y_true.shape[1])

    @property
    def n_documents(self) -> int:
        return int(self.y_true.shape[0])

    @cached_property
    def n_positive(self) -> IntArray:
        """Documents of each label: pairs without a sparse score included, masked ones not."""
        return np.bincount(self.y_true.indices, minlength=self.n_labels).astype(np.int64)

    @cached_property
    def by_label(self) -> Pairs:
        """The pairs label by label, each from the highest score down."""
        if self.is_sorted:
            return self.pairs
        # As a matrix, since scipy orders many pairs by label faster than numpy sorts them.
        n_pairs = len(self.pairs.labels)
        numbers = np.arange(n_pairs, dtype=np.int32 if n_pairs < 1 << 31 else np.int64)
        places = self.pairs.labels, numbers
        order = sp.coo_matrix((numbers, places), (self.n_labels, n_pairs)).tocsr().data
        scores = self.pairs.scores[order]
        for _, at, is_pair in rectangles(*self.segments):
            ranks = np.argsort(np.where(is_pair, -scores[at], np.inf), axis=1)
            order[at[is_pair]] = order[np.take_along_axis(at, ranks, axis=1)[is_pair]]
        return self.pairs.at(order)

    @cached_property
    def f1_steps(self) -> FloatArray:
        """By how much each pair of `by_label`, predicted after those above it, changes the F1.

        That of its label.
        """
        starts, sizes = self.segments
        hits = np.append(0, np.cumsum(self.by_label.applies))
        hits = hits[1:] - np.repeat(hits[starts], sizes)
        f1 = 2 * hits / (np.arange(1, len(hits) + 1) + np.repeat(self.n_positive - starts, sizes))
        steps: FloatArray = np.diff(f1, prepend=0.0)
        starts = starts[sizes > 0]
        steps[starts] = f1[starts]
        return steps

    @cached_property
    def segments(self) -> tuple[IntArray, IntArray]:
        """The start and the number of the pairs of each label in `by_label`."""
        sizes = np.bincount(self.pairs.labels, minlength=self.n_labels).astype(np.int64)
        return np.cumsum(sizes) - sizes, sizes

    def select(self, chosen: NDArray[np.bool_]) -> Tuning:
        """Some of the documents."""
        pairs = self.by_label.at(np.flatnonzero(chosen[self.by_label.documents]))
        numbers = np.cumsum(chosen, dtype=np.int32) - 1
        pairs = pairs._replace(documents=numbers[pairs.documents])
        return Tuning(pairs, self.y_true[chosen], self.label_counts, self.scale, is_sorted=True)


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
    return Tuning(_pairs(logits, truth), truth.astype(bool), counts, scale)


def _pairs(logits: Any, truth: sp.csr_matrix) -> Pairs:
    if sp.issparse(logits):
        documents, labels = rows_of(logits), logits.indices
        values, applies = logits.data, applies_to(truth, logits)
    else:
        n_documents, n_labels = logits.shape
        documents = np.repeat(np.arange(n_documents, dtype=np.int32), n_labels)
        labels = np.tile(np.arange(n_labels, dtype=np.int32), n_documents)
        values, applies = logits.ravel(), np.zeros(logits.size, dtype=np.bool_)
        applies[rows_of(truth) * n_labels + truth.indices] = True
    return Pairs(documents.astype(np.int32), labels.astype(np.int32, copy=False), values, applies)
