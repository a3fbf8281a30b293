"""The numbers behind the report's figures: F1 by training count, and as all thresholds move.

`top_k` and `at_least_one` hold at every point of the curves, as they do in the decisions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.analysis.runs import Run
from longtail.evaluation import Evaluation
from longtail.metrics import Counts, label_f1
from longtail.metrics.blocks import applies_to, row_blocks

FloatArray = NDArray[np.float64]
N_BINS = 12
N_POINTS = 150
# By how much thresholds are moved, on the scale of the scores.
REACH, STEPS = 3.0, 61
SHIFTS = np.linspace(-REACH, REACH, STEPS)


class Curve(NamedTuple):
    x: FloatArray
    y: FloatArray


def mean_f1_by_count(evaluation: Evaluation) -> Curve:
    """Mean F1 of labels of similar training counts, over labels that documents carry."""
    table = evaluation.labels
    present = table.actual > 0
    counts, f1 = np.maximum(table.train_count[present], 0.5), table.f1[present]
    if not len(counts):
        return Curve(np.zeros(0), np.zeros(0))
    # Labels of one count stay in one bin, so the order of labels does not matter.
    edges = np.unique(np.quantile(counts, np.linspace(0, 1, N_BINS + 1), method="lower"))
    bins = np.searchsorted(edges, counts, side="right")
    total = np.bincount(bins)
    kept = total > 0
    x = np.exp(np.bincount(bins, weights=np.log(counts))[kept] / total[kept])
    return Curve(x, np.bincount(bins, weights=f1)[kept] / total[kept])


class Pairs(NamedTuple):
    """Pairs of a document and a label."""

    margins: NDArray[Any]
    labels: NDArray[Any]
    applies: NDArray[Any]


def precision_recall(run: Run) -> dict[str, Curve]:
    """Recall and precision of head, medium and tail as all thresholds move together.

    The curves go through the decisions of the evaluation, whose thresholds may differ by label.
    """
    groups = run.evaluation.masks
    positives: dict[str, list[FloatArray]] = {name: [np.zeros(0)] for name in groups}
    always = dict.fromkeys(groups, False)
    for margins, columns, applies in _blocks(run, np.inf):
        for name, labels in groups.items():
            inside = labels[columns]
            positives[name].append(margins[applies & inside])
            always[name] |= bool(np.isposinf(margins[inside]).any())
    positive = {name: np.sort(np.concatenate(margins)) for name, margins in positives.items()}
    cuts = {name: _cuts(positive[name], always[name]) for name in groups}
    retrieved = {name: np.zeros(len(each), dtype=np.int64) for name, each in cuts.items()}
    lowest = min((each[0] for each in cuts.values() if len(each)), default=np.inf)
    for margins, columns, _ in _blocks(run, lowest):
        for name, labels in groups.items():
            reached = np.searchsorted(cuts[name], margins[labels[columns]], side="right")
            retrieved[name] += _at_least(np.bincount(reached, minlength=len(cuts[name]) + 1))
    curves = {}
    for name, labels in groups.items():
        hits = len(positive[name]) - np.searchsorted(positive[name], cuts[name])
        n_positive = max(1, int(run.evaluation.labels.actual[labels].sum()))
        curves[name] = Curve((hits / n_positive)[::-1], (hits / retrieved[name])[::-1])
    return curves


def f1_by_shift(run: Run) -> tuple[Curve, Curve]:
    """Micro- and macro-F1 if all thresholds were that much higher, as logits or margins."""
    actual = run.evaluation.labels.actual
    together = np.zeros(len(actual), dtype=np.int64)
    micro = _f1_at_steps(run, together, np.array([actual.sum()]))[0]
    total = np.zeros(STEPS)
    # A label that no document carries has an F1 of 0 whatever its threshold: it only counts.
    present = np.flatnonzero(actual)
    for part in row_blocks(len(present), STEPS + 1):
        chosen = present[part]
        numbers = np.full(len(actual), -1, dtype=np.int64)
        numbers[chosen] = np.arange(len(chosen))
        total += _f1_at_steps(run, numbers, actual[chosen]).sum(axis=0)
    return Curve(SHIFTS, micro), Curve(SHIFTS, total / len(actual))


def _blocks(run: Run, least: float) -> Iterator[Pairs]:
    """Pairs of at least that margin, and those whose labels apply; see `Thresholds.margins`.

    Pairs that are never predicted, whatever the thresholds, are left out.
    """
    truth, logits = run.evaluation.decisions()[0], run.logits
    n_documents, n_labels = logits.shape
    sparse = sp.issparse(logits)
    for rows in row_blocks(n_documents, logits.nnz // n_documents if sparse else n_labels):
        margins = run.evaluation.rule.margins(logits[rows])
        if sparse:
            block = Pairs(margins.data, margins.indices, applies_to(truth[rows], margins))
        else:
            labels = np.broadcast_to(np.arange(n_labels), margins.shape)
            block = Pairs(margins, labels, truth[rows].toarray() > 0)
        near = ((block.margins >= least) | block.applies) & (block.margins > -np.inf)
        yield Pairs(*(part[near] for part in block))


def _cuts(positive: FloatArray, always: bool) -> FloatArray:
    """Cuts at some of the positives; and at infinity if pairs are predicted even there."""
    finite = positive[np.isfinite(positive)]
    chosen = np.linspace(0, len(finite) - 1, min(N_POINTS, len(finite))).astype(np.int64)
    return np.append(np.unique(finite[chosen]), [np.inf] * always)


def _f1_at_steps(run: Run, numbers: NDArray[np.int64], actual: FloatArray) -> FloatArray:
    """F1 at every shift (columns) of rows that labels are counted into; -1: into none."""
    width, n_cells = STEPS + 1, len(actual) * (STEPS + 1)
    predicted, hits = np.zeros((2, n_cells), dtype=np.int64)
    for margins, labels, applies in _blocks(run, -REACH):
        rows = numbers[labels]
        kept = rows >= 0
        cells = rows[kept] * width + np.searchsorted(SHIFTS, margins[kept], side="right")
        predicted += np.bincount(cells, minlength=n_cells)
        hits += np.bincount(cells[applies[kept]], minlength=n_cells)
    hits_at, predicted_at = (_at_least(each.reshape(-1, width)) for each in (hits, predicted))
    return label_f1(Counts(hits_at, predicted_at, actual[:, np.newaxis]))


def _at_least(histogram: NDArray[Any]) -> NDArray[Any]:
    """From how many reached exactly k steps to how many reached step k."""
    return np.asarray(histogram[..., ::-1].cumsum(axis=-1)[..., ::-1][..., 1:])
