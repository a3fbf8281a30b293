"""The numbers behind the figures: means over counts, and what moving all thresholds would do.

`top_k` and `at_least_one` hold at every point of the curves, as they do in the decisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.evaluation import Evaluation
from longtail.metrics import Counts, label_f1
from longtail.metrics.blocks import applies_to, row_blocks
from longtail.thresholds.scales import Scale, to_logits

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
N_BINS = 12
N_POINTS = 150
# How far thresholds are moved, on the scale of the scores.
REACH, STEPS = 3.0, 61
SHIFTS = np.linspace(-REACH, REACH, STEPS)


class Curve(NamedTuple):
    x: FloatArray
    y: FloatArray


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


def precision_recall(
    evaluation: Evaluation,
    scores: Any,
    groups: Mapping[str, BoolArray] | None = None,
    scale: Scale | None = None,
) -> dict[str, Curve]:
    """Recall and precision of groups of labels as all thresholds move together.

    The curves go through the decisions of the evaluation, whose thresholds may differ by label.

    Args:
        evaluation: of `evaluate`.
        scores: those that it judged: dense, masked or CSR.
        groups: name -> which labels; default: head, medium and tail.
        scale: `logit`, `probability` or `margin`; default: as they were judged.
    """
    groups = evaluation.masks if groups is None else groups
    pairs = _Pairs(evaluation, scores, scale)
    found: dict[str, list[FloatArray]] = {name: [np.zeros(0)] for name in groups}
    always = dict.fromkeys(groups, False)
    for block in pairs.blocks(np.inf):
        for name, labels in groups.items():
            own = labels[block.labels]
            found[name].append(block.margins[block.applies & own])
            always[name] |= bool(np.isposinf(block.margins[own]).any())
    positive = {name: np.sort(np.concatenate(margins)) for name, margins in found.items()}
    cuts = {name: _cuts(positive[name], always[name]) for name in groups}
    retrieved = {name: np.zeros(len(own), dtype=np.int64) for name, own in cuts.items()}
    lowest = min((own[0] for own in cuts.values() if len(own)), default=np.inf)
    for block in pairs.blocks(lowest):
        for name, labels in groups.items():
            margins = block.margins[labels[block.labels]]
            reached = np.searchsorted(cuts[name], margins, side="right")
            retrieved[name] += _at_least(np.bincount(reached, minlength=len(cuts[name]) + 1))
    curves = {}
    for name, labels in groups.items():
        hits = len(positive[name]) - np.searchsorted(positive[name], cuts[name])
        n_positive = max(1, int(evaluation.labels.actual[labels].sum()))
        curves[name] = Curve((hits / n_positive)[::-1], (hits / retrieved[name])[::-1])
    return curves


def f1_by_shift(
    evaluation: Evaluation, scores: Any, scale: Scale | None = None
) -> tuple[Curve, Curve]:
    """Micro- and macro-F1 if all thresholds were that much higher, as logits or margins.

    Args:
        evaluation: of `evaluate`.
        scores: those that it judged: dense, masked or CSR.
        scale: `logit`, `probability` or `margin`; default: as they were judged.
    """
    pairs = _Pairs(evaluation, scores, scale)
    actual = evaluation.labels.actual
    together = np.zeros(len(actual), dtype=np.int64)
    micro = _f1_at_steps(pairs, together, np.array([actual.sum()]))[0]
    total = np.zeros(STEPS)
    # A label that no judged document carries has an F1 of 0 wherever it is cut: it only counts.
    present = np.flatnonzero(actual)
    for part in row_blocks(len(present), STEPS + 1):
        chosen = present[part]
        numbers = np.full(len(actual), -1, dtype=np.int64)
        numbers[chosen] = np.arange(len(chosen))
        total += _f1_at_steps(pairs, numbers, actual[chosen]).sum(axis=0)
    return Curve(SHIFTS, micro), Curve(SHIFTS, total / len(actual))


class _Block(NamedTuple):
    """Some scored pairs of a document and a label: see `margins_of`."""

    margins: FloatArray
    labels: NDArray[Any]
    applies: BoolArray


class _Pairs:
    """All scored pairs, some at a time, as often as they are asked for."""

    def __init__(self, evaluation: Evaluation, scores: Any, scale: Scale | None) -> None:
        self.truth, _ = evaluation.decisions()
        self.rule = evaluation.rule
        scale = evaluation.scale if scale is None else scale
        self.logits = to_logits(scores, scale, self.truth)
        if sp.issparse(self.logits):
            margins = self.rule.margins(self.logits)
            applies = applies_to(self.truth, self.logits)
            self.stored = _Block(margins.data, margins.indices, applies)

    def blocks(self, least: float) -> Iterator[_Block]:
        """Pairs with at least that margin, and those whose labels apply.

        Pairs that are never predicted, whatever the thresholds, are left out.
        """
        if sp.issparse(self.logits):
            for part in row_blocks(self.logits.nnz, 1):
                margins, applies = self.stored.margins[part], self.stored.applies[part]
                near = _near(margins, applies, least)
                yield _Block(margins[near], self.stored.labels[part][near], applies[near])
            return
        for rows in row_blocks(*self.logits.shape):
            margins = self.rule.margins(self.logits[rows])
            applies = self.truth[rows].toarray().astype(np.bool_)
            near = _near(margins, applies, least)
            yield _Block(margins[near], near.nonzero()[1], applies[near])


def _near(margins: FloatArray, applies: BoolArray, least: float) -> BoolArray:
    return ((margins >= least) | applies) & (margins > -np.inf)


def _cuts(positive: FloatArray, always: bool) -> FloatArray:
    """Where to cut: at some of the positives; and at infinity if pairs are predicted even there."""
    finite = positive[np.isfinite(positive)]
    places = np.linspace(0, len(finite) - 1, min(N_POINTS, len(finite))).astype(np.int64)
    return np.append(np.unique(finite[places]), [np.inf] * always)


def _f1_at_steps(
    pairs: _Pairs, numbers: NDArray[np.int64], actual: NDArray[np.float64]
) -> FloatArray:
    """F1 at every shift (columns) of rows that labels are counted into; -1: into none."""
    width, n_cells = STEPS + 1, len(actual) * (STEPS + 1)
    predicted, hits = np.zeros((2, n_cells), dtype=np.int64)
    for block in pairs.blocks(-REACH):
        own = numbers[block.labels]
        kept = own >= 0
        steps = np.searchsorted(SHIFTS, block.margins[kept], side="right")
        place = own[kept] * width + steps
        predicted += np.bincount(place, minlength=n_cells)
        hits += np.bincount(place[block.applies[kept]], minlength=n_cells)
    right, given = (_at_least(each.reshape(-1, width)) for each in (hits, predicted))
    return label_f1(Counts(right, given, actual[:, np.newaxis]))


def _at_least(histogram: NDArray[Any]) -> NDArray[Any]:
    """From how many reached exactly k steps to how many reached step k."""
    return np.asarray(histogram[..., ::-1].cumsum(axis=-1)[..., ::-1][..., 1:])
