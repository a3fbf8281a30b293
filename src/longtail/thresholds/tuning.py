"""Scores and truth in the shape that tuning needs: checked, on one scale, sorted label by label.

Scores may be dense, masked (a masked pair was not scored, and counts for nothing) or CSR (an
absent pair has no score, and is never predicted).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import InputError
from longtail.metrics.inputs import label_matrix, sorted_csr

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Scale = Literal["logit", "probability", "margin"]
"""Margins, such as distances to a hyperplane, are any real numbers; logits give probabilities."""
SCALES = ("logit", "probability", "margin")
# Documents x labels looked at in one step, to bound temporary memory.
BLOCK = 1 << 24
# Scores that stay in the processor's cache from one operation to the next.
CACHED = 1 << 17


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
        return Tuning(self.scores[rows], self.y_true[rows], self.label_counts)

    def columns(self) -> Iterator[Column]:
        """Every label in turn."""
        truth = self.y_true.tocsc()
        by_label = self.scores.tocsc() if sp.issparse(self.scores) else self.scores
        for label in range(self.n_labels):
            positive = truth.indices[truth.indptr[label] : truth.indptr[label + 1]]
            if sp.issparse(by_label):
                start, stop = by_label.indptr[label], by_label.indptr[label + 1]
                rows, values = by_label.indices[start:stop], by_label.data[start:stop]
                yield Column(label, values, np.isin(rows, positive), len(positive))
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
        truth_rows = rows_of(truth)
        if sp.issparse(self.scores):
            pairs = rows_of(self.scores) * self.n_labels + self.scores.indices
            applies = np.isin(pairs, truth_rows * self.n_labels + truth.indices)
            return self.scores.data, self.scores.indices, applies
        applies = np.zeros(truth.shape, dtype=bool)
        applies[truth_rows, truth.indices] = True
        labels = np.broadcast_to(np.arange(self.n_labels, dtype=np.int32), truth.shape)
        if np.ma.isMaskedArray(self.scores):
            scored = ~np.ma.getmaskarray(self.scores)
            return np.ma.getdata(self.scores)[scored], labels[scored], applies[scored]
        return self.scores.ravel(), labels.ravel(), applies.ravel()

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
    logits = to_logits(scores, scale, truth.shape)
    if np.ma.isMaskedArray(logits):
        rows = rows_of(truth)
        scored = ~np.ma.getmaskarray(logits)[rows, truth.indices]
        pairs = rows[scored], truth.indices[scored]
        truth = sp.csr_matrix((truth.data[scored], pairs), truth.shape)
    return Tuning(logits, truth.astype(bool), counts)


def to_logits(scores: Any, scale: Scale, shape: tuple[int, int] | None = None) -> Any:
    """Checked scores on the scale of logits; order is kept, so decisions are the same."""
    if scale not in SCALES:
        raise InputError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}.")
    if not sp.issparse(scores) and not np.ma.isMaskedArray(scores):
        scores = np.asarray(scores)
    if scores.dtype.kind not in "fiu" or scores.ndim != 2:
        raise InputError(
            f"scores must be a documents x labels matrix of numbers, got {scores.ndim} "
            f"dimensions of {scores.dtype}."
        )
    if shape is not None and scores.shape != shape:
        raise InputError(
            f"scores of shape {scores.shape} and labels of shape {shape} differ. Both must be "
            "documents x labels."
        )
    if scores.dtype.kind != "f":
        scores = scores.astype(np.float64)  # unsigned numbers have no negatives to sort by
    matrix = sorted_csr(scores) if sp.issparse(scores) else scores
    masked = np.ma.isMaskedArray(matrix)
    values = matrix.data if sp.issparse(matrix) else matrix.compressed() if masked else matrix
    if not all_finite(values):
        raise InputError("scores must be finite, got NaN or infinity. Check the training.")
    if scale != "probability":
        return matrix
    if values.size and not (values.min() >= 0 and values.max() <= 1):
        raise InputError(
            f"probabilities must lie in [0, 1], got {values.min():g} to {values.max():g}. If these "
            "are logits, say scale='logit'."
        )
    if sp.issparse(matrix):
        return sp.csr_matrix((logit(matrix.data), matrix.indices, matrix.indptr), matrix.shape)
    if masked:
        return np.ma.MaskedArray(logit(matrix.filled(0.5)), np.ma.getmaskarray(matrix))
    return logit(matrix)


def rows_of(matrix: sp.csr_matrix) -> IntArray:
    """The row of every stored element."""
    return np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))


def all_finite(scores: NDArray[Any]) -> bool:
    """Without a mask as large as the scores."""
    step = max(1, CACHED // max(1, scores[:1].size))
    return all(bool(np.isfinite(scores[k : k + step]).all()) for k in range(0, len(scores), step))


def logit(probabilities: Any) -> NDArray[Any]:
    """log(p / (1 - p)); 0 and 1 become the ends of what the precision can tell apart."""
    values = np.asarray(probabilities)
    if values.dtype == np.float16:
        values = values.astype(np.float32)  # else neighbouring probabilities become the same logit
    tiny = np.finfo(values.dtype).tiny
    top = values.dtype.type(1) - np.finfo(values.dtype).epsneg
    values = np.clip(values, tiny, top)
    result: NDArray[Any] = np.log(values) - np.log1p(-values)
    return result


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
