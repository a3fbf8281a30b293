"""Mistakes against plain loops: confused pairs, labels never predicted, the worst documents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.analysis import Run, confused_pairs, never_predicted, worst_documents
from longtail.evaluation import evaluate
from longtail.labels import LabelStats
from longtail.thresholds import Thresholds

from .cases import STATS, VALUES, make


def by_hand(truth: np.ndarray, plain: np.ndarray, decided: np.ndarray) -> np.ndarray:
    """Missing scores count as the lowest one, infinite thresholds as the highest score."""
    reached = np.where(np.isfinite(VALUES), VALUES, np.nanmax(plain))
    above = np.where(np.isnan(plain), np.nanmin(plain), plain) - reached
    missed, wrong = (truth > decided) * -above, (truth < decided) * above
    total: np.ndarray = np.maximum(0, missed).sum(axis=1) + np.maximum(0, wrong).sum(axis=1)
    return total


@pytest.mark.parametrize("rule", [{}, {"max_labels": 1}, {"min_labels": 1}], ids=str)
@pytest.mark.parametrize("kind", ["dense", "sparse", "masked"])
def test_worst_documents_by_distance(kind: str, rule: dict[str, Any]) -> None:
    run, truth, plain = make(kind, rule)
    decided = run.evaluation.y_pred.toarray()
    error = by_hand(truth, plain, decided)
    worst = worst_documents(run, most=5)
    assert [each.error for each in worst] == pytest.approx(sorted(error)[::-1][:5])
    for each in worst_documents(run, most=40):
        assert each.error == pytest.approx(error[each.row])
        applies, given = truth[each.row] > 0, decided[each.row] > 0
        masks = applies & ~given, given & ~applies, given & applies
        for names, mask in zip((each.missed, each.wrong, each.right), masks, strict=True):
            assert names == tuple(str(k) for k in np.flatnonzero(mask))


def test_worst_documents_without_scores_have_most_wrong_decisions() -> None:
    dense, truth, _ = make("dense", {})
    nothing = sp.csr_matrix(truth.shape)
    empty = evaluate(truth, nothing, Thresholds(VALUES), STATS, n_resamples=0)
    for run in (Run(dense.evaluation), Run(empty, scores=nothing)):
        wrong = (truth != run.evaluation.y_pred.toarray()).sum(axis=1)
        worst = worst_documents(run, most=40)
        assert [each.error for each in worst] == sorted(wrong[wrong > 0].tolist())[::-1]
    stats = LabelStats.from_counts([1, 1], 2)
    right = evaluate(np.eye(2), np.eye(2), Thresholds([0.5] * 2), stats)
    assert worst_documents(Run(right)) == []


def test_never_predicted() -> None:
    truth = np.array([[1, 1, 0, 1], [0, 1, 0, 0], [1, 0, 0, 0]])
    scores = np.where(np.array([[1, 0, 0, 0]] * 3) > 0, 1.0, -1.0)
    stats = LabelStats.from_counts([8, 4, 2, 1], 10, ["a", "b", "c", "d"])
    result = never_predicted(evaluate(truth, scores, Thresholds(np.zeros(4)), stats))
    # c has no document, so there was nothing to predict.
    assert [tuple(each) for each in result] == [("b", 4, 2), ("d", 1, 1)]


def test_confused_pairs_count_missed_and_predicted() -> None:
    truth = sp.csr_matrix(np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]]))
    predicted = sp.csr_matrix(np.array([[0, 1, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]]))
    pairs = confused_pairs(truth, predicted, ["platinum", "gold", "copper"])
    assert [tuple(pair) for pair in pairs] == [("platinum", "gold", 2), ("gold", "copper", 1)]
    assert len(confused_pairs(truth, predicted, ["a", "b", "c"], most=1)) == 1
    assert confused_pairs(truth, truth, ["a", "b", "c"]) == []
