"""The numbers behind the report's figures: F1 by training count, and precision over recall."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.analysis.runs import Run
from longtail.evaluation import Evaluation
from longtail.metrics.blocks import applies_to, row_blocks
from longtail.thresholds.tuning import Pairs

FloatArray = NDArray[np.float64]
N_BINS = 12
N_POINTS = 150


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

    The curves go through the decisions of the evaluation, whose thresholds may differ by label;
    `top_k` and `at_least_one` hold at every point, as they do there.
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
            n_reached = np.bincount(reached, minlength=len(cuts[name]) + 1)
            # From how many reached exactly k cuts to how many reached cut k.
            retrieved[name] += n_reached[::-1].cumsum()[::-1][1:]
    curves = {}
    for name, labels in groups.items():
        hits = len(positive[name]) - np.searchsorted(positive[name], cuts[name])
        n_positive = max(1, int(run.evaluation.labels.actual[labels].sum()))
        curves[name] = Curve((hits / n_positive)[::-1], (hits / retrieved[name])[::-1])
    return curves


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
        near = ((block.scores >= least) | block.applies) & (block.scores > -np.inf)
        yield Pairs(*(part[near] for part in block))


def _cuts(positive: FloatArray, always: bool) -> FloatArray:
    """Cuts at some of the positives; and at infinity if pairs are predicted even there."""
    finite = positive[np.isfinite(positive)]
    chosen = np.linspace(0, len(finite) - 1, min(N_POINTS, len(finite))).astype(np.int64)
    return np.append(np.unique(finite[chosen]), [np.inf] * always)
