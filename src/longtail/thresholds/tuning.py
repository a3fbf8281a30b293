"""The scores and labels that thresholds are fitted on: checked, as logits, one entry per pair.

Masked pairs and pairs with an unknown label are ignored; pairs absent from CSR are never predicted.
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
N_FOLDS = 5


class Pairs(NamedTuple):
    """Scored (document, label) pairs."""

    documents: NDArray[np.integer]
    labels: NDArray[np.int32]
    scores: NDArray[Any]
    applies: NDArray[np.bool_]

    def at(self, positions: NDArray[np.integer]) -> Pairs:
        return Pairs(*(part[positions] for part in self))


@dataclass(frozen=True, eq=False)
class Tuning:
    """Held-out documents: their scores as logits, their labels and their folds."""

    pairs: Pairs
    """Grouped by label."""
    y_true: sp.csr_matrix
    """Labels without those of masked pairs."""
    label_counts: FloatArray
    """Number of training documents per label."""
    folds: IntArray
    """The fold of each document."""
    scale: Scale = "logit"
    is_sorted: bool = False
    """Whether `pairs` are already in the order of `by_label`."""
    fits: dict[Any, Any] = field(default_factory=dict)
    """Cache of fitted methods; see `methods.fit`."""

    @property
    def n_labels(self) -> int:
        return int(self.y_true.shape[1])

    @cached_property
    def n_positive(self) -> IntArray:
        """Number of documents per label, including pairs absent from CSR scores."""
        return np.bincount(self.y_true.indices, minlength=self.n_labels).astype(np.int64)

    @cached_property
    def by_label(self) -> Pairs:
        """The pairs grouped by label, by descending score within a label."""
        if self.is_sorted:
            return self.pairs
        order = np.empty(len(self.pairs.scores), dtype=np.int64)
        for start, size in zip(*self.segments, strict=True):
            segment = slice(start, start + size)
            order[segment] = start + np.argsort(-self.pairs.scores[segment])
        return self.pairs.at(order)

    @cached_property
    def f1_steps(self) -> FloatArray:
        """For each pair of `by_label`: the change in its label's F1 when the cut moves below it."""
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
        """Start and number of the pairs of each label."""
        sizes = np.bincount(self.pairs.labels, minlength=self.n_labels).astype(np.int64)
        return np.cumsum(sizes) - sizes, sizes

    def select(self, mask: NDArray[np.bool_]) -> Tuning:
        """The subset of documents where `mask` is true."""
        pairs = self.by_label.at(np.flatnonzero(mask[self.by_label.documents]))
        rows = np.cumsum(mask, dtype=np.int32) - 1
        pairs = pairs._replace(documents=rows[pairs.documents])
        y_true, folds = self.y_true[mask], self.folds[mask]
        return Tuning(pairs, y_true, self.label_counts, folds, self.scale, is_sorted=True)


def make_tuning(
    scores: Any,
    y_true: Any,
    label_counts: Any,
    scale: Scale = "logit",
    folds: Any = None,
    random_state: int = 0,
) -> Tuning:
    """Check the user's arguments, convert the scores to logits and draw folds if none are given."""
    truth, unknown = known_labels(y_true)
    counts = np.asarray(label_counts, dtype=np.float64)
    check_not_empty(truth.shape)
    if counts.shape != (truth.shape[1],) or not (np.isfinite(counts) & (counts >= 0)).all():
        raise InputError(
            f"expected {truth.shape[1]} finite training counts, one per label, got "
            f"{shown(label_counts)}. Take LabelStats.label_counts of the training part."
        )
    n_documents = truth.shape[0]
    if folds is None:
        groups = np.argsort(np.random.RandomState(random_state).permutation(n_documents)) % N_FOLDS
    elif np.shape(folds) == (n_documents,):
        groups = np.unique(np.asarray(folds), return_inverse=True)[1].astype(np.int64)
    else:
        raise InputError(
            f"expected one fold per document, {n_documents} in all, got shape {np.shape(folds)}."
        )
    logits = without_pairs(to_logits(scores, scale, truth), unknown)
    if np.ma.isMaskedArray(scores):
        truth = truth.multiply(~np.ma.getmaskarray(scores)).tocsr()
        truth.eliminate_zeros()
    return Tuning(_pairs(logits, truth.tocsc()), truth.astype(bool), counts, groups, scale)


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
