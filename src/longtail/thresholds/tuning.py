"""Scores and labels that thresholds are fitted on: checked, as logits, pair by pair.

A masked pair is ignored with its label, as is an unknown one; one that is absent from CSR is never
predicted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import InputError, shown
from longtail.metrics.blocks import applies_to, rows_of
from longtail.metrics.inputs import check_not_empty, known_labels, without_pairs
from longtail.thresholds.scales import Scale, to_logits

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Pairs(NamedTuple):
    """Scored pairs of a document and a label."""

    documents: NDArray[np.integer]
    labels: NDArray[np.int32]
    scores: NDArray[Any]
    applies: NDArray[np.bool_]

    def at(self, positions: NDArray[np.integer]) -> Pairs:
        return Pairs(*(part[positions] for part in self))


@dataclass(frozen=True, eq=False)
class Tuning:
    """Documents that the model has not trained on: their scores as logits, and their labels."""

    pairs: Pairs
    """Label by label."""
    y_true: sp.csr_matrix
    """Without masked pairs, as those are ignored."""
    label_counts: FloatArray
    """Training documents of each label."""
    scale: Scale = "logit"
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
        order = np.empty(len(self.pairs.scores), dtype=np.int64)
        for start, size in zip(*self.segments, strict=True):
            of_label = slice(start, start + size)
            order[of_label] = start + np.argsort(-self.pairs.scores[of_label])
        return self.pairs.at(order)

    @cached_property
    def f1_steps(self) -> FloatArray:
        """The change of its label's F1 when a pair of `by_label` is predicted after those above."""
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
        """The start and the number of the pairs of each label."""
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
    truth, unknown = known_labels(y_true)
    counts = np.asarray(label_counts, dtype=np.float64)
    check_not_empty(truth.shape)
    if counts.shape != (truth.shape[1],) or not (np.isfinite(counts) & (counts >= 0)).all():
        raise InputError(
            f"expected {truth.shape[1]} finite training counts, one per label, got "
            f"{shown(label_counts)}. Take LabelStats.label_counts of the training part."
        )
    logits = without_pairs(to_logits(scores, scale, truth), unknown)
    if np.ma.isMaskedArray(scores):
        truth = truth.multiply(~np.ma.getmaskarray(scores)).tocsr()
        truth.eliminate_zeros()
    return Tuning(_pairs(logits, truth.tocsc()), truth.astype(bool), counts, scale)


def _pairs(logits: Any, truth: sp.csc_matrix) -> Pairs:
    n_documents, n_labels = logits.shape
    labels = np.arange(n_labels, dtype=np.int32)
    if sp.issparse(logits):
        scored = logits.tocsc()
        labels, applies = np.repeat(labels, np.diff(scored.indptr)), applies_to(truth, scored)
        return Pairs(scored.indices, labels, scored.data, applies)
    documents = np.tile(np.arange(n_documents, dtype=np.int32), n_labels)
    applies = np.zeros(logits.size, dtype=np.bool_)
    applies[rows_of(truth.T) * n_documents + truth.indices] = True
    return Pairs(documents, np.repeat(labels, n_documents), logits.ravel(order="F"), applies)
