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

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Scale = Literal["logit", "probability"]
SCALES = ("logit", "probability")
# Documents x labels looked at in one step, to bound temporary memory.
BLOCK = 1 << 24


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
    """The next lower score; minus infinity if there is none."""
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
    label_counts: FloatArray
    """Training documents of each label."""

    @property
    def n_labels(self) -> int:
        return int(self.y_true.shape[1])

    @property
    def n_documents(self) -> int:
        return int(self.y_true.shape[0])

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

    def events(self) -> tuple[FloatArray, IntArray, NDArray[np.bool_]]:
        """All scored pairs: score, label, and whether the label applies."""
        if sp.issparse(self.scores):
            rows = np.repeat(np.arange(self.n_documents), np.diff(self.scores.indptr))
            labels = self.scores.indices.astype(np.int64)
            values = self.scores.data
        else:
            scored = ~np.ma.getmaskarray(self.scores)
            rows, labels = np.nonzero(scored)
            values = np.ma.getdata(self.scores)[rows, labels]
        truth = self.y_true
        keys = np.repeat(np.arange(self.n_documents), np.diff(truth.indptr)) * self.n_labels
        applies = np.isin(rows * self.n_labels + labels, keys + truth.indices)
        return values, labels, applies

    def positives(self) -> IntArray:
        """Documents of every label; a masked pair is not counted."""
        truth = self.y_true
        if isinstance(self.scores, np.ma.MaskedArray) and self.scores.mask is not np.ma.nomask:
            truth = truth.multiply(~np.ma.getmaskarray(self.scores)).tocsr()
        return np.asarray(truth.sum(axis=0), dtype=np.int64).ravel()


def make_tuning(scores: Any, y_true: Any, label_counts: Any, scale: Scale = "logit") -> Tuning:
    """Check what the user gave and bring it onto the scale of logits."""
    truth = sp.csr_matrix(y_true, copy=True)
    truth.sum_duplicates()
    truth.eliminate_zeros()
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
    return Tuning(to_logits(scores, scale, truth.shape), truth.astype(bool), counts)


def to_logits(scores: Any, scale: Scale, shape: tuple[int, int] | None = None) -> Any:
    """Checked scores on the scale of logits; order is kept, so decisions are the same."""
    if scale not in SCALES:
        raise InputError(f"scale must be 'logit' or 'probability', got {scale!r}.")
    if not sp.issparse(scores):
        scores = np.ma.asarray(scores) if np.ma.isMaskedArray(scores) else np.asarray(scores)
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
    matrix = sp.csr_matrix(scores) if sp.issparse(scores) else scores
    values = matrix.data if sp.issparse(matrix) else np.ma.MaskedArray(matrix).compressed()
    if sp.issparse(scores) or np.ma.isMaskedArray(scores):
        finite = bool(np.isfinite(values).all())
    else:
        values, finite = scores, all_finite(scores)
    if not finite:
        raise InputError("scores must be finite, got NaN or infinity. Check the training.")
    if scale == "logit":
        return matrix
    if values.size and not (values.min() >= 0 and values.max() <= 1):
        raise InputError(
            f"probabilities must lie in [0, 1], got {values.min():g} to {values.max():g}. If these "
            "are logits, say scale='logit'."
        )
    if sp.issparse(matrix):
        return sp.csr_matrix((logit(matrix.data), matrix.indices, matrix.indptr), matrix.shape)
    if np.ma.isMaskedArray(matrix):
        return np.ma.MaskedArray(logit(matrix.data), matrix.mask)
    return logit(matrix)


def all_finite(scores: NDArray[Any]) -> bool:
    """Without a mask as large as the scores."""
    step = max(1, BLOCK // max(1, scores.shape[1]))
    return all(bool(np.isfinite(scores[k : k + step]).all()) for k in range(0, len(scores), step))


def logit(probabilities: Any) -> NDArray[Any]:
    """log(p / (1 - p)); 0 and 1 become the ends of what the precision can tell apart."""
    values = np.asarray(probabilities)
    if values.dtype.kind != "f":
        values = values.astype(np.float64)
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
    padded = np.concatenate([[-np.inf], ordered])
    return Cuts(
        values.astype(np.float64),
        padded[first].astype(np.float64),
        (np.flatnonzero(last) + 1).astype(np.int64),
        len(ordered) - first,
    )


def between(above: float, below: float) -> float:
    """A threshold that lets `above` pass and stops `below`, in the middle where there is one."""
    if not np.isfinite(below):
        return float(above - 1.0)
    middle = (float(above) + float(below)) / 2
    return middle if below < middle <= above else float(above)
