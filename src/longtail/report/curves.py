"""The numbers behind the figures: means over counts, and what moving all thresholds would do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.evaluation import Evaluation
from longtail.metrics import Counts, macro_f1, micro_f1
from longtail.thresholds import Thresholds

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
N_BINS = 12
N_POINTS = 150
# Pairs looked at in one step, to bound temporary memory.
BLOCK = 1 << 22
# How far thresholds are moved, on the scale of the scores.
REACH, STEPS = 3.0, 61


class Curve(NamedTuple):
    x: FloatArray
    y: FloatArray


def thresholds_of(evaluation: Evaluation) -> FloatArray:
    """One per label; infinity: never predicted."""
    return Thresholds.from_dict(evaluation.thresholds).values


def mean_f1_by_count(evaluation: Evaluation) -> Curve:
    """Mean F1 of labels of like training counts, over labels that judged documents carry."""
    table = evaluation.labels
    judged = table.actual > 0
    counts, f1 = np.maximum(table.train_count[judged], 0.5), table.f1[judged]
    if not len(counts):
        return Curve(np.zeros(0), np.zeros(0))
    # Labels of one count stay in one bin, so the order of labels does not matter.
    edges = np.unique(np.quantile(counts, np.linspace(0, 1, N_BINS + 1), method="lower"))
    place = np.searchsorted(edges, counts, side="right")
    total = np.bincount(place)
    kept = total > 0
    x = np.exp(np.bincount(place, weights=np.log(counts))[kept] / total[kept])
    return Curve(x, np.bincount(place, weights=f1)[kept] / total[kept])


def precision_recall(evaluation: Evaluation, scores: Any, labels: BoolArray) -> Curve:
    """Recall and precision of a group of labels as all thresholds move together.

    The curve goes through the decisions of the evaluation, whose thresholds may differ by label.
    """
    truth, _ = evaluation.decisions()
    thresholds = thresholds_of(evaluation)
    n_positive = int(truth[:, np.flatnonzero(labels)].nnz)
    columns = np.flatnonzero(labels & np.isfinite(thresholds))
    truth, thresholds = truth[:, columns], thresholds[columns]
    blocks = [(truth[rows], scores[rows][:, columns]) for rows in _row_blocks(*truth.shape)]
    found = [_positives(*block, thresholds).margins for block in blocks]
    positive = np.sort(np.concatenate([*found, np.zeros(0)]))
    if not len(positive):
        return Curve(np.zeros(0), np.zeros(0))
    cuts = np.unique(positive[np.linspace(0, len(positive) - 1, N_POINTS).astype(np.int64)])
    retrieved = np.zeros(len(cuts), dtype=np.int64)
    for _, part in blocks:
        reached = np.searchsorted(cuts, _pairs(part, thresholds, cuts[0]).margins, side="right")
        retrieved += _at_least(np.bincount(reached, minlength=len(cuts) + 1))
    hits = len(positive) - np.searchsorted(positive, cuts)
    return Curve((hits / n_positive)[::-1], (hits / retrieved)[::-1])


def f1_by_shift(evaluation: Evaluation, scores: Any) -> tuple[Curve, Curve]:
    """Micro- and macro-F1 if all thresholds were that much higher."""
    truth, _ = evaluation.decisions()
    n_labels = truth.shape[1]
    thresholds = thresholds_of(evaluation)
    shifts = np.linspace(-REACH, REACH, STEPS)
    predicted, hits = np.zeros((2, n_labels, STEPS + 1))
    for rows in _row_blocks(*truth.shape):
        own = truth[rows], scores[rows]
        predicted += _histogram(_pairs(own[1], thresholds, -REACH), shifts, n_labels)
        hits += _histogram(_positives(*own, thresholds), shifts, n_labels)
    actual = np.bincount(truth.indices, minlength=n_labels).astype(np.float64)
    by_shift = zip(_at_least(hits).T, _at_least(predicted).T, strict=True)
    counts = [Counts(right, given, actual) for right, given in by_shift]
    micro, macro = (np.array([f1(each) for each in counts]) for f1 in (micro_f1, macro_f1))
    return Curve(shifts, micro), Curve(shifts, macro)


class Pairs(NamedTuple):
    """Scored pairs of a document and a label: how far above the threshold, and which label."""

    margins: FloatArray
    labels: NDArray[np.int64]


def _pairs(scores: Any, thresholds: FloatArray, least: float) -> Pairs:
    """Those that lie at least so far above their thresholds."""
    if sp.issparse(scores):
        margins, labels = scores.data - thresholds[scores.indices], scores.indices
        near = margins >= least
        return Pairs(margins[near], labels[near])
    margins = scores - thresholds
    near = np.ma.filled(margins >= least, False)
    return Pairs(np.ma.getdata(margins)[near], near.nonzero()[1])


def _positives(truth: sp.csr_matrix, scores: Any, thresholds: FloatArray) -> Pairs:
    """Those whose label applies."""
    rows, labels = truth.nonzero()
    if sp.issparse(scores):
        keys = _rows(scores) * truth.shape[1] + scores.indices
        applies = np.isin(keys, rows * truth.shape[1] + labels)
        labels = scores.indices[applies]
        return Pairs(scores.data[applies] - thresholds[labels], labels)
    scored = ~np.ma.getmaskarray(scores)[rows, labels]
    rows, labels = rows[scored], labels[scored]
    return Pairs(np.ma.getdata(scores)[rows, labels] - thresholds[labels], labels)


def _histogram(pairs: Pairs, steps: FloatArray, n_labels: int) -> FloatArray:
    """Labels x number of steps reached: how many pairs."""
    width = len(steps) + 1
    place = pairs.labels * width + np.searchsorted(steps, pairs.margins, side="right")
    return np.bincount(place, minlength=n_labels * width).reshape(n_labels, width).astype(float)


def _at_least(histogram: NDArray[Any]) -> NDArray[Any]:
    """From how many reached exactly k steps to how many reached step k."""
    return np.asarray(histogram[..., ::-1].cumsum(axis=-1)[..., ::-1][..., 1:])


def _row_blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    step = max(1, BLOCK // max(1, n_columns))
    return (slice(start, start + step) for start in range(0, n_rows, step))


def _rows(matrix: sp.csr_matrix) -> NDArray[np.int64]:
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
