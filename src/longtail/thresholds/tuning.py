"""Scores and truth in the shape that tuning needs: checked, on one scale, sorted label by label.

Scores may be dense, masked (a masked pair was not scored, and counts for nothing) or CSR (an
absent pair has no score, and is never predicted).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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


class Column(NamedTuple):
    """What is known of one label: the scores of its documents, and to which it applies."""

    label: int
    values: FloatArray
    applies: NDArray[np.bool_]
    n_positive: int
    """Documents with the label, those without a score for it included."""


class Cuts(NamedTuple):
    """Where a label can be cut with profit: at the scores of its positives, from high to low."""

    values: FloatArray
    below: FloatArray
    """The next lower score; where there is none, one below all, see `beneath`."""
    hits: IntArray
    predicted: IntArray

    def threshold(self, best: int) -> float:
        return between(self.values[best], self.below[best])


@dataclass(frozen=True)
class Tuning:
    """Documents that the model has not trained on: their scores as logits, and their labels."""

    scores: Any
    """Dense float, masked, or CSR."""
    y_true: sp.csr_matrix
    """Without the pairs that are masked, as those count for nothing."""
    label_counts: FloatArray
    """Training documents of each label."""
    scale: Scale = "logit"
    """Of what was given; margins are taken as they are."""

    @property
    def n_labels(self) -> int:
        return int(self.y_true.shape[1])

    @property
    def n_documents(self) -> int:
        return int(self.y_true.shape[0])

    @property
    def n_scored(self) -> int:
        """Pairs with a score."""
        if sp.issparse(self.scores):
            return int(self.scores.nnz)
        return (
            int(np.ma.count(self.scores)) if np.ma.isMaskedArray(self.scores) else self.scores.size
        )

    def select(self, rows: IntArray) -> Tuning:
        return Tuning(self.scores[rows], self.y_true[rows], self.label_counts, self.scale)

    def columns(self) -> Iterator[Column]:
        """Every label in turn."""
        truth = self.y_true.tocsc()
        by_label = self.scores.tocsc() if sp.issparse(self.scores) else self.scores
        stored = applies_to(truth, by_label) if sp.issparse(by_label) else None
        for label in range(self.n_labels):
            positive = truth.indices[truth.indptr[label] : truth.indptr[label + 1]]
            if stored is not None:
                own = slice(by_label.indptr[label], by_label.indptr[label + 1])
                yield Column(label, by_label.data[own], stored[own], len(positive))
                continue
            applies = np.zeros(self.n_documents, dtype=bool)
            applies[positive] = True
            values = by_label[:, label]
            if isinstance(values, np.ma.MaskedArray):
                scored = ~np.ma.getmaskarray(values)
                values, applies = values.data[scored], applies[scored]
                yield Column(label, values, applies, int(applies.sum()))
            else:
                yield Column(label, values, applies, len(positive))

    def events(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
        """All scored pairs: score, label, and whether the label applies."""
        truth = self.y_true
        if sp.issparse(self.scores):
            return self.scores.data, self.scores.indices, applies_to(truth, self.scores)
        applies = np.zeros(truth.shape, dtype=bool)
        applies[rows_of(truth), truth.indices] = True
        labels = np.broadcast_to(np.arange(self.n_labels, dtype=np.int32), truth.shape)
        if np.ma.isMaskedArray(self.scores):
            scored = ~np.ma.getmaskarray(self.scores)
            return np.ma.getdata(self.scores)[scored], labels[scored], applies[scored]
        return self.scores.ravel(), labels.ravel(), applies.ravel()

    def reaching(self, lowest: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
        """The pairs of `events` whose score is at least so high (a number, or one per label)."""
        if sp.issparse(self.scores):
            values, labels, applies = self.events()
            high = values >= np.broadcast_to(lowest, self.n_labels)[labels]
            return values[high], labels[high], applies[high]
        found, places = [], []
        # In steps that stay in the processor's cache.
        for rows in row_blocks(self.n_documents, self.n_labels, CACHED):
            block = self.scores[rows]
            let_in = np.ma.getdata(block) >= lowest
            if np.ma.isMaskedArray(block):
                let_in &= ~np.ma.getmaskarray(block)
            block, high = np.ma.getdata(block), np.flatnonzero(let_in)
            found.append(block.ravel()[high])
            places.append(high + rows.start * self.n_labels)
        place = np.concatenate(places)
        positive = rows_of(self.y_true) * self.n_labels + self.y_true.indices
        applies = np.zeros(len(place), dtype=bool)
        at = np.searchsorted(place, positive)
        inside = at < len(place)
        at, positive = at[inside], positive[inside]
        applies[at[place[at] == positive]] = True
        return np.concatenate(found), (place % self.n_labels).astype(np.int32), applies

    def scored_positives(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The scores of the pairs whose label applies, and the labels."""
        if sp.issparse(self.scores):
            applies = applies_to(self.y_true, self.scores)
            return self.scores.data[applies], self.scores.indices[applies]
        scores = np.ma.getdata(self.scores)
        return scores[rows_of(self.y_true), self.y_true.indices], self.y_true.indices

    def positives(self) -> IntArray:
        """Documents of every label; a masked pair is not counted."""
        return np.bincount(self.y_true.indices, minlength=self.n_labels).astype(np.int64)


def make_tuning(scores: Any, y_true: Any, label_counts: Any, scale: Scale = "logit") -> Tuning:
    """Check what the user gave and bring it onto the scale of logits."""
    truth = label_matrix(y_true, "labels")
    counts = np.asarray(label_counts, dtype=np.float64)
    if counts.shape != (truth.shape[1],):
        raise InputError(
            f"expected one training count per label, {truth.shape[1]} of them, got shape "
            f"{counts.shape}. Take them from LabelStats.label_counts of the training part."
        )
    if truth.shape[0] == 0 or truth.shape[1] == 0:
        raise InputError(
            f"thresholds need at least one document and one label, got a matrix of {truth.shape}."
        )
    if not (np.isfinite(counts).all() and counts.min() >= 0):
        raise InputError("training counts must be finite and not negative.")
    logits = to_logits(scores, scale, truth)
    if np.ma.isMaskedArray(logits):
        rows = rows_of(truth)
        scored = ~np.ma.getmaskarray(logits)[rows, truth.indices]
        pairs = rows[scored], truth.indices[scored]
        truth = sp.csr_matrix((truth.data[scored], pairs), truth.shape)
    return Tuning(logits, truth.astype(bool), counts, scale)


def cuts_of(column: Column) -> Cuts:
    """The label's cuts: precision and recall change for the better only at its positives."""
    ordered = np.sort(column.values)
    positive = np.sort(column.values[column.applies])[::-1]
    # Equal scores fall on the same side of any cut: keep the last of them.
    last = np.append(positive[1:] != positive[:-1], True)[: len(positive)]
    values = positive[last]
    first = np.searchsorted(ordered, values, side="left")
    lowest = [beneath(ordered[0], ordered[-1])] if len(ordered) else []
    padded = np.concatenate([lowest, ordered])
    return Cuts(
        values.astype(np.float64),
        padded[first].astype(np.float64),
        (np.flatnonzero(last) + 1).astype(np.int64),
        len(ordered) - first,
    )


def between(above: float, below: float) -> float:
    """A threshold that lets `above` pass and stops `below`, in the middle where there is one."""
    middle = (float(above) + float(below)) / 2
    return middle if below < middle <= above else float(above)


def beneath(lowest: float, highest: float) -> float:
    """What stands for the next lower score of the lowest one: as far below as they reach up.

    A distance in the scores' own unit, so that thresholds follow a change of it.
    """
    return 2 * float(lowest) - float(highest)


def over(lowest: float, highest: float) -> float:
    """A threshold that no score reaches, likewise."""
    return max(2 * float(highest) - float(lowest), float(np.nextafter(float(highest), np.inf)))
