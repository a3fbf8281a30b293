"""The curves in the report's figures: F1 over training count, precision over recall."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.analysis.runs import Run
from longtail.evaluation import Evaluation
from longtail.metrics.blocks import applies_to, row_blocks
from longtail.metrics.inputs import ratio, without_pairs

FloatArray = NDArray[np.float64]
N_BINS = 12
# Shifts of all thresholds, in logits or margins; includes 0.
SHIFTS = np.linspace(-8.0, 8.0, 161)


class Curve(NamedTuple):
    x: FloatArray
    y: FloatArray


def mean_f1_by_count(evaluation: Evaluation) -> Curve:
    """Mean F1 of labels with similar training counts, over labels present in the documents."""
    table = evaluation.labels
    present = table.actual > 0
    counts, f1 = np.maximum(table.train_count[present], 0.5), table.f1[present]
    if not len(counts):
        return Curve(np.zeros(0), np.zeros(0))
    # Labels with equal counts share a bin, so that their order does not matter.
    edges = np.unique(np.quantile(counts, np.linspace(0, 1, N_BINS + 1), method="lower"))
    bins = np.searchsorted(edges, counts, side="right")
    total = np.bincount(bins)
    kept = total > 0
    x = np.exp(np.bincount(bins, weights=np.log(counts))[kept] / total[kept])
    return Curve(x, np.bincount(bins, weights=f1)[kept] / total[kept])


def precision_recall(run: Run) -> dict[str, Curve]:
    """Recall and precision of head, medium and tail as all thresholds shift by SHIFTS.

    Thresholds may differ between labels, so the curves go through the decisions of the evaluation;
    `min_labels` and `max_labels` apply at every point.
    """
    groups = run.evaluation.masks
    histograms = {name: np.zeros((2, len(SHIFTS) + 1)) for name in groups}
    for margins, labels, applies in _blocks(run):
        steps = np.searchsorted(SHIFTS, margins, side="right")
        for name, mask in groups.items():
            for row, chosen in enumerate((mask[labels], mask[labels] & applies)):
                histograms[name][row] += np.bincount(steps[chosen], minlength=len(SHIFTS) + 1)
    curves = {}
    for name, counts in histograms.items():
        # Number of pairs that reach each shift, from the highest shift down.
        predicted, hits = counts[:, :0:-1].cumsum(axis=1)
        actual = np.full(len(hits), run.evaluation.labels.actual[groups[name]].sum())
        known = predicted > 0
        curves[name] = Curve(ratio(hits, actual)[known], ratio(hits, predicted)[known])
    return curves


def _blocks(run: Run) -> Iterator[tuple[NDArray[Any], ...]]:
    """Margin, label and whether it applies, for all pairs predicted at some shift."""
    truth, unknown, logits = run.evaluation.y_true, run.evaluation.unknown, run.logits
    n_documents, n_labels = logits.shape
    row_size = logits.nnz // n_documents if sp.issparse(logits) else n_labels
    for rows in row_blocks(n_documents, row_size):
        margins = run.evaluation.thresholds.margins(logits[rows])
        if unknown is not None:
            margins = without_pairs(margins, unknown[rows])
        if sp.issparse(margins):
            block = margins.data, margins.indices, applies_to(truth[rows], margins)
        else:
            labels = np.broadcast_to(np.arange(n_labels), margins.shape)
            block = margins, labels, truth[rows].toarray() > 0
        near = block[0] >= SHIFTS[0]
        yield tuple(part[near] for part in block)
