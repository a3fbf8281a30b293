"""Curves against plain loops, for all forms of scores, limits on labels, and block sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.analysis import Run
from longtail.analysis.curves import SHIFTS, mean_f1_by_count, precision_recall
from longtail.evaluation import Evaluation, evaluate
from longtail.labels import LabelStats
from longtail.thresholds import Thresholds

from ..metrics.cases import block_size
from .cases import STATS, VALUES, make

RULES: tuple[dict[str, Any], ...] = (
    {},
    {"max_labels": 2},
    {"min_labels": 1},
    {"min_labels": 1, "max_labels": 1},
)
every_rule = pytest.mark.parametrize("rule", RULES, ids=str)
every_kind = pytest.mark.parametrize("kind", ["dense", "sparse", "masked"])


def moved(run: Run, rule: dict[str, Any], shift: float) -> np.ndarray:
    """Decisions with all thresholds raised by `shift`."""
    decided = Thresholds(VALUES + shift, **rule).apply(run.scores)
    return np.asarray(decided.toarray(), dtype=int)


@every_rule
@every_kind
def test_precision_recall_is_that_of_moved_thresholds(kind: str, rule: dict[str, Any]) -> None:
    run, truth, _ = make(kind, rule)
    expected: dict[str, list[tuple[float, float]]] = {name: [] for name in run.evaluation.masks}
    for shift in SHIFTS[::-1]:
        decided = moved(run, rule, shift) > 0
        for name, labels in run.evaluation.masks.items():
            now, applies = decided[:, labels], truth[:, labels] > 0
            if now.any():
                hits = int((now & applies).sum())
                expected[name].append((hits / applies.sum(), hits / now.sum()))
    for size in (1, 7, 2**22):
        with block_size(size):
            curves = precision_recall(run)
        assert list(curves) == ["head", "medium", "tail"]
        for name, curve in curves.items():
            assert np.transpose(curve) == pytest.approx(np.array(expected[name]), abs=1e-12)
            assert (np.diff(curve.x) >= 0).all()
    assert 0.0 in SHIFTS, "the curves go through the decisions"


@every_rule
def test_nothing_scored_and_nothing_positive(rule: dict[str, Any]) -> None:
    nothing = sp.csr_matrix((4, 6))
    for truth in (np.eye(4, 6), np.zeros((4, 6))):
        result = evaluate(truth, nothing, Thresholds(VALUES, **rule), STATS, n_resamples=0)
        run = Run(result, scores=nothing)
        assert all(len(curve.x) == 0 for curve in precision_recall(run).values())


def test_means_by_count_keep_all_labels_and_ties() -> None:
    def evaluated(truth: np.ndarray, scores: np.ndarray, counts: list[int]) -> Evaluation:
        stats = LabelStats.from_counts(counts, 100)
        return evaluate(truth, scores, Thresholds(np.zeros(len(counts))), stats, n_resamples=0)

    truth = np.eye(5)
    scores = np.where(np.eye(5) * [1, 1, 0, 0, 1] > 0, 1.0, -1.0)
    curve = mean_f1_by_count(evaluated(truth, scores, [1, 1, 1, 1, 50]))
    assert curve.x == pytest.approx([1, 50]) and curve.y.tolist() == [0.5, 1.0]
    # Labels without documents are left out.
    alone = mean_f1_by_count(evaluated(truth[:4], scores[:4], [1, 1, 1, 1, 50]))
    assert alone.x == pytest.approx([1])
    assert len(mean_f1_by_count(evaluated(np.zeros((2, 1)), np.zeros((2, 1)), [1])).x) == 0
