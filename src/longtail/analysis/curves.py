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


def precision_recall(run: Run) -> dict[str, Curve]:
    """Recall and precision of head, medium and tail as all thresholds move together.

    The curves go through the decisions of the evaluation, whose thresholds may differ by label.
    """
    groups, pairs = run.evaluation.masks, _Pairs(run)
    positives: dict[str, list[FloatArray]] = {name: [np.zeros(0)] for name in groups}
    always = dict.fromkeys(groups, False)
    for block in pairs.blocks(np.inf):
        for name, labels in groups.items():
            inside = labels[block.labels]
            positives[name].append(block.margins[block.applies & inside])
            always[name] |= bool(np.isposinf(block.margins[inside]).any())
    positive = {name: np.sort(np.concatenate(margins)) for name, margins in positives.items()}
    cuts = {name: _cuts(positive[name], always[name]) for name in groups}
    retrieved = {name: np.zeros(len(each), dtype=np.int64) for name, each in cuts.items()}
    lowest = min((each[0] for each in cuts.values() if len(each)), default=np.inf)
    for block in pairs.blocks(lowest):
        for name, labels in groups.items():
            margins = block.margins[labels[block.labels]]
            reached = np.searchsorted(cuts[name], margins, side="right")
            retrieved[name] += _at_least(np.bincount(reached, minlength=len(cuts[name]) + 1))
    curves = {}
    for name, labels in groups.items():
        hits = len(positive[name]) - np.searchsorted(positive[name], cuts[name])
        n_positive = max(1, int(run.evaluation.labels.actual[labels].sum()))
        curves[name] = Curve((hits / n_positive)[::-1], (hits / retrieved[name])[::-1])
    return curves


def f1_by_shift(run: Run) -> tuple[Curve, Curve]:
    """Micro- and macro-F1 if all thresholds were that much higher, as logits or margins."""
    pairs, actual = _Pairs(run), run.evaluation.labels.actual
    together = np.zeros(len(actual), dtype=np.int64)
    micro = _f1_at_steps(pairs, together, np.array([actual.sum()]))[0]
    total = np.zeros(STEPS)
    # A label that no document carries has an F1 of 0 whatever its threshold: it only counts.
    present = np.flatnonzero(actual)
    for part in row_blocks(len(present), STEPS + 1):
        chosen = present[part]
        numbers = np.full(len(actual), -1, dtype=np.int64)
        numbers[chosen] = np.arange(len(chosen))
        total += _f1_at_steps(pairs, numbers, actual[chosen]).sum(axis=0)
    return Curve(SHIFTS, micro), Curve(SHIFTS, total / len(actual))


class _Block(NamedTuple):
    """Some scored pairs of a document and a label: see `margins_of`."""

    margins: NDArray[Any]
    labels: NDArray[Any]
    applies: NDArray[Any]


class _Pairs:
    """All scored pairs in blocks, which can be read several times."""

    def __init__(self, run: Run) -> None:
        self.truth, _ = run.evaluation.decisions()
        self.rule, self.logits = run.evaluation.rule, run.logits
        if sp.issparse(self.logits):
            margins = self.rule.margins(self.logits)
            self.stored = _Block(margins.data, margins.indices, applies_to(self.truth, self.logits))

    def blocks(self, least: float) -> Iterator[_Block]:
        """Pairs with at least that margin, and those whose labels apply.

        Pairs that are never predicted, whatever the thresholds, are left out.
        """
        for block in self._all_blocks():
            near = ((block.margins >= least) | block.applies) & (block.margins > -np.inf)
            yield _Block(*(part[near] for part in block))

    def _all_blocks(self) -> Iterator[_Block]:
        if sp.issparse(self.logits):
            for some in row_blocks(self.logits.nnz, 1):
                yield _Block(*(part[some] for part in self.stored))
            return
        for rows in row_blocks(*self.logits.shape):
            margins = self.rule.margins(self.logits[rows])
            labels = np.broadcast_to(np.arange(margins.shape[1]), margins.shape)
            yield _Block(margins, labels, self.truth[rows].toarray().astype(np.bool_))


def _cuts(positive: FloatArray, always: bool) -> FloatArray:
    """Cuts at some of the positives; and at infinity if pairs are predicted even there."""
    finite = positive[np.isfinite(positive)]
    chosen = np.linspace(0, len(finite) - 1, min(N_POINTS, len(finite))).astype(np.int64)
    return np.append(np.unique(finite[chosen]), [np.inf] * always)


def _f1_at_steps(
    pairs: _Pairs, numbers: NDArray[np.int64], actual: NDArray[np.float64]
) -> FloatArray:
    """F1 at every shift (columns) of rows that labels are counted into; -1: into none."""
    width, n_cells = STEPS + 1, len(actual) * (STEPS + 1)
    predicted, hits = np.zeros((2, n_cells), dtype=np.int64)
    for block in pairs.blocks(-REACH):
        rows = numbers[block.labels]
        kept = rows >= 0
        cells = rows[kept] * width + np.searchsorted(SHIFTS, block.margins[kept], side="right")
        predicted += np.bincount(cells, minlength=n_cells)
        hits += np.bincount(cells[block.applies[kept]], minlength=n_cells)
    hits_at, predicted_at = (_at_least(each.reshape(-1, width)) for each in (hits, predicted))
    return label_f1(Counts(hits_at, predicted_at, actual[:, np.newaxis]))


def _at_least(histogram: NDArray[Any]) -> NDArray[Any]:
    """From how many reached exactly k steps to how many reached step k."""
    return np.asarray(histogram[..., ::-1].cumsum(axis=-1)[..., ::-1][..., 1:])
