"""Intervals and comparisons for all groups, against plain loops."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.errors import InputError
from longtail.evaluation import Difference, Evaluation, Scores, compare, evaluate
from longtail.evaluation.bootstrap import difference, interval, resampled
from longtail.evaluation.results import document_groups
from longtail.labels import LabelStats
from longtail.metrics import Counts, count, precision_recall_f1
from longtail.thresholds import Thresholds

from .cases import STATS, ZERO, draw

GROUPS = {"all", "head", "medium", "tail", "single_label", "multi_label"}
SAME = {(0, 0, 0, 1)}


def evaluated(seed: int = 0, at: float = 0.0, n_resamples: int = 30) -> Evaluation:
    truth, scores = draw(seed)
    return evaluate(truth, scores, Thresholds(np.full(9, at)), STATS, n_resamples=n_resamples)


def scores_of(evaluation: Evaluation) -> dict[str, Scores]:
    return {**evaluation.groups(), **evaluation.by_labels_per_document}


def slow(truth: np.ndarray, decided: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> list:
    """Micro- and macro-F1 of a resample, without labels absent only from it."""
    drawn = count(truth[rows], decided[rows])
    counted = labels & ((drawn.actual > 0) | (truth.sum(axis=0) == 0))
    if not counted.any():
        return [np.nan, np.nan]
    one, two = (Counts(*(part[mask] for part in drawn)) for mask in (labels, counted))
    return [precision_recall_f1(one).f1, precision_recall_f1(two, "macro").f1]


def plain(differences: dict[str, Difference]) -> set[tuple[float, ...]]:
    return {(each.value, each.low, each.high, each.p) for each in differences.values()}


@pytest.mark.parametrize("seed", range(4))
def test_resamples_by_hand(seed: int) -> None:
    one, two = evaluated(seed), evaluated(seed, at=0.8)
    truth = one.y_true
    dense, n_documents = truth.toarray(), truth.shape[0]
    decided = [each.y_pred for each in (one, two)]
    results = resampled(truth, decided, one.masks, 12, seed)
    documents = document_groups(truth)
    assert len(documents) == (5 if seed < 3 else 2)
    rng = np.random.RandomState(seed)
    for k in range(13):
        rows = rng.randint(0, n_documents, n_documents) if k else np.arange(n_documents)
        for matrix, result in zip(decided, results, strict=True):
            assert set(result) == GROUPS | set(documents)
            for group, measures in result.items():
                labels = one.masks.get(group, np.ones(9, dtype=bool))
                inside = documents.get(group, np.ones(n_documents, dtype=bool))
                # In a group of documents, absent means absent from the group.
                given = dense * inside[:, None], matrix.toarray() * inside[:, None]
                values = [measures["micro_f1"][k], measures["macro_f1"][k]]
                np.testing.assert_allclose(values, slow(*given, rows, labels), atol=1e-12)


def test_intervals_lie_around_the_figures_of_rare_labels_too() -> None:
    """Labels absent from resamples have low F1, so skipping them would raise macro-F1."""
    rng = np.random.RandomState(3)
    truth = (rng.rand(400, 60) < np.geomspace(0.3, 0.002, 60)).astype(float)
    predicted = truth * (rng.rand(400, 60) < 0.9)
    predicted[:, truth.sum(axis=0) < 5] = 0
    counts = LabelStats.from_counts(np.maximum(truth.sum(axis=0), 1), 400)
    whole = evaluate(truth, predicted, Thresholds(np.full(60, 0.5)), counts)
    decided = whole.y_true, whole.y_pred
    (figures,) = resampled(decided[0], [decided[1]], whole.masks, 300, 0)
    drawn = figures["all"]["macro_f1"]
    assert (drawn[1:] > drawn[0]).mean() > 0.9, "the resamples themselves are too high"
    other = evaluate(truth, predicted, Thresholds(np.full(60, 0.5)), counts, random_state=1)
    assert whole.intervals != other.intervals
    low, high = whole.intervals["all"]["macro_f1"]
    assert low < drawn[0] < high
    assert abs((low + high) / 2 - drawn[0]) < 0.2 * (high - low)


def test_intervals_and_differences_by_hand() -> None:
    drawn = np.array([0.0, 0.4, np.nan, 0.5, 0.7])
    # Shifted by 0.1, as their mean is 0.4.
    ends = np.percentile([0.1, 0.5, 0.6, 0.8], (2.5, 97.5))
    assert interval(np.append(0.5, drawn), (0.0, 1.0)) == pytest.approx(tuple(ends))
    assert interval(np.append(0.5, drawn), (0.2, 0.7)) == pytest.approx((0.2, 0.7))
    result = difference(np.append(0.1, [-0.1, 0.1, 0.2, 0.2]))
    assert (result.value, result.p) == (0.1, pytest.approx(2 * 2 / 5))
    assert (result.low, result.high) == pytest.approx((-0.085, 0.2))
    assert difference(np.append(-0.1, [-0.1] * 99)).p == pytest.approx(2 / 100)


def test_a_better_model_is_seen_and_an_equal_one_is_not() -> None:
    truth, scores = draw(2, 400)
    good = evaluate(truth, scores, ZERO, STATS, n_resamples=0)
    bad = evaluate(truth, scores, Thresholds(np.full(9, 1.5)), STATS, n_resamples=0)
    seen = compare(bad, good, n_resamples=300)["all"]["micro_f1"]
    assert seen.value == pytest.approx(good.overall.micro_f1 - bad.overall.micro_f1)
    assert 0 < seen.low < seen.value < seen.high and seen.p < 0.02
    assert plain(compare(good, good, n_resamples=50)["tail"]) == SAME
    back = compare(good, bad, n_resamples=300)["all"]["micro_f1"]
    assert (back.value, back.low) == (pytest.approx(-seen.value), pytest.approx(-seen.high))
    with pytest.raises(InputError, match="same documents and labels"):
        compare(good, evaluated(5))


def test_a_comparison_is_on_the_groups_of_the_first() -> None:
    truth, scores = draw(6, 200)
    one, two = (
        evaluate(truth, scores, ZERO, STATS, n_resamples=0, cuts=cuts)
        for cuts in ((10, 50), (5, 80))
    )
    assert one.head != two.head
    assert compare(one, two, n_resamples=20)["head"]["micro_f1"].value == 0


def test_a_part_that_both_decide_alike_differs_by_exactly_nothing() -> None:
    """Rounding of sums of the same F1 must not look like a difference."""
    truth, scores = draw(5, 200)
    single = np.where(np.diff(truth.indptr)[:, None] == 1, -scores, scores)
    tail = np.where(np.arange(9) >= 6, -scores, scores)
    first, second, third = (
        evaluate(truth, each, ZERO, STATS, n_resamples=0) for each in (scores, single, tail)
    )
    assert plain(compare(first, second, n_resamples=60)["multi_label"]) == SAME
    assert plain(compare(first, third, n_resamples=60)["head"]) == SAME


def test_empty_groups_have_neither_and_are_null_in_json() -> None:
    truth = sp.csr_matrix(np.eye(9)[[0, 1, 2, 3]])  # no document has two labels
    flat = LabelStats.from_counts([5] * 9, 10)  # all labels are medium
    result = evaluate(truth, truth.toarray() - 0.5, ZERO, flat, n_resamples=5)
    assert set(result.intervals) == {"all", "medium", "single_label"}
    assert set(compare(result, result, n_resamples=5)) == {"all", "medium", "single_label"}
    saved = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    for empty in (saved["head"], saved["tail"], saved["by_labels_per_document"]["multi_label"]):
        sizes = {"n_labels", "n_documents", "n_positive"}
        assert all(value is None for key, value in empty.items() if key not in sizes)
        assert empty["n_labels"] * empty["n_documents"] == 0
    assert saved["medium"]["micro_f1"] == saved["overall"]["micro_f1"] == 1.0
    assert (
        result.head.is_empty
        and result.by_labels_per_document["multi_label"].is_empty
        and not result.medium.is_empty
    )
    # A group with labels and documents but no positives has an F1 of 0 by definition.
    nothing = evaluate(sp.csr_matrix((4, 9)), np.ones((4, 9)), ZERO, STATS)
    assert nothing.to_dict()["head"]["micro_f1"] == 0.0
    none = evaluate(sp.csr_matrix((0, 9)), np.zeros((0, 9)), ZERO, STATS)
    assert none.to_dict()["overall"]["micro_f1"] is None and none.overall.n_labels == 9


def test_given_groups_of_documents_and_decisions_one_by_one() -> None:
    result = evaluated(0)
    truth, first = result.y_true, result.y_pred
    second = evaluated(0, at=0.8).y_pred
    many = np.diff(truth.indptr) > 2
    groups = {"many labels": many, "none of them": np.zeros(len(many), dtype=bool)}
    both = resampled(truth, [first, second], result.masks, 5, 1, groups)
    assert set(both[0]) == {"all", "head", "medium", "tail", "many labels"}
    # Resamples depend only on the random state: decisions may be evaluated separately.
    for together, decided in zip(both, (first, second), strict=True):
        (alone,) = resampled(truth, [decided], result.masks, 5, 1, groups)
        for group, measures in together.items():
            for name, values in measures.items():
                assert alone[group][name] == pytest.approx(values, nan_ok=True)
