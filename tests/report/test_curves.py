"""Curves and mistakes against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import f1_score, precision_score, recall_score

from longtail.analysis import never_predicted, worst_documents
from longtail.evaluation import Evaluation, evaluate
from longtail.labels import LabelStats
from longtail.report.curves import (
    STEPS,
    f1_by_shift,
    mean_f1_by_count,
    precision_recall,
)
from longtail.thresholds import Thresholds

from .made import judged


def made(kind: str = "dense") -> tuple[Evaluation, object, np.ndarray, np.ndarray]:
    """An evaluation with a threshold for each label, one of them never predicted."""
    rng = np.random.RandomState(3)
    truth = (rng.rand(40, 6) < 0.3).astype(float)
    dense = np.round(truth + rng.randn(40, 6), 1)
    scores: object = dense
    if kind == "sparse":
        # Absent pairs are not scored; stored zeros are.
        rows, columns = np.nonzero(np.ones_like(dense, dtype=bool) & (dense > -0.8))
        scores = sp.csr_matrix((dense[rows, columns], (rows, columns)), dense.shape)
        dense = np.where(dense > -0.8, dense, -1e9)
    if kind == "masked":
        scores = np.ma.masked_less(dense, -0.8)
        dense = np.where(dense >= -0.8, dense, -1e9)
    values = np.array([0.1, 0.4, -0.3, 0.2, np.inf, 0.0])
    stats = LabelStats.from_counts([30, 20, 10, 5, 4, 1], 40)
    found = evaluate(truth, scores, Thresholds(values), stats, n_resamples=0)
    return found, scores, truth, dense - values


@pytest.mark.parametrize("kind", ["dense", "sparse", "masked"])
def test_precision_recall_is_that_of_moved_thresholds(kind: str) -> None:
    found, scores, truth, margins = made(kind)
    labels = np.array([True, False, True, True, True, False])
    curve = precision_recall(found, scores, labels)
    cuts = np.unique(margins[:, labels][truth[:, labels] > 0])
    expected = {
        (
            round(float(recall_score(truth[:, labels], decided, average="micro")), 9),
            round(float(precision_score(truth[:, labels], decided, average="micro")), 9),
        )
        for cut in cuts[cuts > -1e8]
        for decided in [(margins[:, labels] >= cut).astype(int)]
    }
    assert set(zip(curve.x.round(9), curve.y.round(9), strict=True)) == expected
    assert (np.diff(curve.x) >= 0).all()


@pytest.mark.parametrize("kind", ["dense", "sparse", "masked"])
def test_f1_by_shift(kind: str) -> None:
    found, scores, truth, margins = made(kind)
    micro, macro = f1_by_shift(found, scores)
    assert micro.y[STEPS // 2] == pytest.approx(found.overall.micro_f1)
    assert macro.y[STEPS // 2] == pytest.approx(found.overall.macro_f1)
    for k in (0, 20, 45, STEPS - 1):
        decided = (margins >= micro.x[k]).astype(int)
        for curve, average in ((micro, "micro"), (macro, "macro")):
            expected = f1_score(truth, decided, average=average, zero_division=0)
            assert curve.y[k] == pytest.approx(expected)


def test_means_by_count_keep_all_labels_and_ties() -> None:
    truth = np.eye(5)
    scores = np.where(np.eye(5) * [1, 1, 0, 0, 1] > 0, 1.0, -1.0)
    curve = mean_f1_by_count(judged(truth, scores, [1, 1, 1, 1, 50]))
    assert curve.x == pytest.approx([1, 50]) and curve.y.tolist() == [0.5, 1.0]
    # A label that no judged document carries says nothing.
    alone = mean_f1_by_count(judged(truth[:4], scores[:4], [1, 1, 1, 1, 50]))
    assert alone.x == pytest.approx([1])
    assert len(mean_f1_by_count(judged(np.zeros((2, 1)), np.zeros((2, 1)), [1])).x) == 0


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_worst_documents_by_distance(kind: str) -> None:
    found, scores, truth, _ = made(kind)
    decided = found.decisions()[1].toarray()
    stored = scores.data if sp.issparse(scores) else np.asarray(scores)  # type: ignore[attr-defined]
    # What is not scored has the lowest score; what is never predicted the highest as threshold.
    values = np.array([0.1, 0.4, -0.3, 0.2, stored.max(), 0.0])
    dense = scores.toarray() if sp.issparse(scores) else np.asarray(scores)  # type: ignore[attr-defined]
    scored = sp.csr_matrix(scores, copy=True)
    scored.data[:] = 1
    own = np.where(scored.toarray() > 0, dense, stored.min()) if kind == "sparse" else dense
    error = (np.abs(own - values) * (truth != decided)).sum(axis=1)
    worst = worst_documents(found, scores, most=5)
    assert [each.error for each in worst] == pytest.approx(sorted(error)[::-1][:5])
    for each in worst:
        assert each.error == pytest.approx(error[each.position])
        applies, given = truth[each.position] > 0, decided[each.position] > 0
        for names, mask in (
            (each.missed, applies & ~given),
            (each.given, given & ~applies),
            (each.right, given & applies),
        ):
            assert names == tuple(str(k) for k in np.flatnonzero(mask))


def test_worst_documents_without_scores_have_most_wrong_decisions() -> None:
    found, _, truth, _ = made()
    wrong = (truth != found.decisions()[1].toarray()).sum(axis=1)
    worst = worst_documents(found, most=40)
    assert [each.error for each in worst] == sorted(wrong[wrong > 0].tolist())[::-1]
    perfect = judged(np.eye(2), np.eye(2) - 0.5, [1, 1])
    assert worst_documents(perfect) == []


def test_never_predicted() -> None:
    truth = np.array([[1, 1, 0, 1], [0, 1, 0, 0], [1, 0, 0, 0]])
    scores = np.where(np.array([[1, 0, 0, 0]] * 3) > 0, 1.0, -1.0)
    found = never_predicted(judged(truth, scores, [8, 4, 2, 1], ["a", "b", "c", "d"]))
    # c is carried by no judged document: there was nothing to predict.
    assert [tuple(each) for each in found] == [("b", 4, 2), ("d", 1, 1)]
