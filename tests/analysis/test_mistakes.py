"""Mistakes against plain loops: confused pairs, labels never predicted, the worst documents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit

from longtail.analysis import confused_pairs, never_predicted, worst_documents
from longtail.errors import InputError
from longtail.evaluation import Evaluation, evaluate
from longtail.labels import LabelStats
from longtail.thresholds import Thresholds

VALUES = np.array([0.1, 0.4, -0.3, 0.2, np.inf, 0.0])
STATS = LabelStats.from_counts([30, 20, 10, 5, 4, 1], 40)


def scored(kind: str, of: Any = lambda scores: scores) -> tuple[np.ndarray, Any, np.ndarray]:
    """Labels, scores in some form, and the plain scores with NaN where there is none."""
    rng = np.random.RandomState(3)
    truth = (rng.rand(40, 6) < 0.3).astype(float)
    dense = np.round(truth + rng.randn(40, 6), 1)  # zeros among them
    known = np.ones(dense.shape, dtype=bool) if kind == "dense" else dense > -0.8
    plain, rows = np.where(known, dense, np.nan), known.nonzero()
    forms = {
        "dense": of(dense),
        "sparse": sp.csr_matrix((of(dense[rows]), rows), dense.shape),
        "masked": np.ma.masked_array(of(dense), ~known),
    }
    return truth, forms[kind], plain


def evaluated(truth: Any, scores: Any, **rule: Any) -> Evaluation:
    return evaluate(truth, scores, Thresholds(VALUES, **rule), STATS, n_resamples=0)


def by_hand(truth: np.ndarray, plain: np.ndarray, decided: np.ndarray) -> np.ndarray:
    """What is not scored has the lowest score; what is never predicted the highest as threshold."""
    reached = np.where(np.isfinite(VALUES), VALUES, np.nanmax(plain))
    above = np.where(np.isnan(plain), np.nanmin(plain), plain) - reached
    missed, wrong = (truth > decided) * -above, (truth < decided) * above
    total: np.ndarray = np.maximum(0, missed).sum(axis=1) + np.maximum(0, wrong).sum(axis=1)
    return total


@pytest.mark.parametrize("rule", [{}, {"max_labels": 1}, {"min_labels": 1}], ids=str)
@pytest.mark.parametrize("kind", ["dense", "sparse", "masked"])
def test_worst_documents_by_distance(kind: str, rule: dict[str, Any]) -> None:
    truth, scores, plain = scored(kind)
    result = evaluated(truth, scores, **rule)
    decided = result.decisions()[1].toarray()
    error = by_hand(truth, plain, decided)
    worst = worst_documents(result, scores, most=5)
    assert [each.error for each in worst] == pytest.approx(sorted(error)[::-1][:5])
    for each in worst_documents(result, scores, most=40):
        assert each.error == pytest.approx(error[each.row])
        applies, given = truth[each.row] > 0, decided[each.row] > 0
        masks = applies & ~given, given & ~applies, given & applies
        for names, mask in zip((each.missed, each.wrong, each.right), masks, strict=True):
            assert names == tuple(str(k) for k in np.flatnonzero(mask))
    # Probabilities have the errors of their logits.
    _, probability, _ = scored(kind, expit)
    again = worst_documents(result, probability, most=40, scale="probability")
    assert {each.row: each.error for each in again} == pytest.approx(
        {each.row: each.error for each in worst_documents(result, scores, most=40)}
    )


def test_scores_that_were_not_evaluated_are_refused() -> None:
    truth, scores, _ = scored("dense")
    result = evaluated(truth, expit(scores), scale="probability")
    with pytest.raises(InputError, match="probabilities must lie in"):
        worst_documents(result, scores)
    with pytest.raises(InputError, match=r"\(40, 6\).*\(40, 5\)"):
        worst_documents(result, np.zeros((40, 5)))


@pytest.mark.parametrize("scores", [None, sp.csr_matrix((40, 6))])
def test_worst_documents_without_scores_have_most_wrong_decisions(scores: Any) -> None:
    truth, dense, _ = scored("dense")
    result = evaluated(truth, dense)
    wrong = (truth != result.decisions()[1].toarray()).sum(axis=1)
    worst = worst_documents(result, scores, most=40)
    assert [each.error for each in worst] == sorted(wrong[wrong > 0].tolist())[::-1]
    stats = LabelStats.from_counts([1, 1], 2)
    assert worst_documents(evaluate(np.eye(2), np.eye(2), Thresholds([0.5] * 2), stats)) == []


def test_never_predicted() -> None:
    truth = np.array([[1, 1, 0, 1], [0, 1, 0, 0], [1, 0, 0, 0]])
    scores = np.where(np.array([[1, 0, 0, 0]] * 3) > 0, 1.0, -1.0)
    stats = LabelStats.from_counts([8, 4, 2, 1], 10, ["a", "b", "c", "d"])
    result = never_predicted(evaluate(truth, scores, Thresholds(np.zeros(4)), stats))
    # No document carries c: there was nothing to predict.
    assert [tuple(each) for each in result] == [("b", 4, 2), ("d", 1, 1)]


def test_confused_pairs_count_missed_and_predicted() -> None:
    truth = sp.csr_matrix(np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]]))
    predicted = sp.csr_matrix(np.array([[0, 1, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]]))
    pairs = confused_pairs(truth, predicted, ["platinum", "gold", "copper"])
    assert [tuple(pair) for pair in pairs] == [("platinum", "gold", 2), ("gold", "copper", 1)]
    assert len(confused_pairs(truth, predicted, ["a", "b", "c"], most=1)) == 1
    assert confused_pairs(truth, truth, ["a", "b", "c"]) == []
