"""Intervals and comparisons of every group of labels and documents, against plain loops."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.evaluation import Evaluation, Scores, compare, evaluate
from longtail.evaluation.bootstrap import resampled
from longtail.evaluation.groups import document_groups
from longtail.labels import LabelStats
from longtail.metrics import Counts, count, macro_f1, micro_f1
from longtail.thresholds import Thresholds

STATS = LabelStats.from_counts([90, 60, 40, 20, 9, 7, 3, 2, 1], 100)
GROUPS = {"all", "head", "medium", "tail", "single_label", "multi_label"}


def made(seed: int, n_documents: int = 60) -> tuple[sp.csr_matrix, np.ndarray]:
    rng = np.random.RandomState(seed)
    truth = (rng.rand(n_documents, 9) < np.linspace(0.6, 0.02, 9)).astype(float)
    return sp.csr_matrix(truth), truth * 2 - 1 + rng.randn(n_documents, 9)


def judged(seed: int = 0, at: float = 0.0, n_resamples: int = 30) -> Evaluation:
    truth, scores = made(seed)
    return evaluate(truth, scores, Thresholds(np.full(9, at)), STATS, n_resamples=n_resamples)


def scores_of(evaluation: Evaluation) -> dict[str, Scores]:
    return {**evaluation.groups(), **evaluation.by_labels_per_document}


def slow(truth: np.ndarray, decided: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> list:
    """Micro- and macro-F1 of drawn documents, without labels that only the resample lacks."""
    drawn = count(truth[rows], decided[rows])
    whole = truth.sum(axis=0)
    judged = labels & ((drawn.actual > 0) | (whole == 0))
    if not judged.any():
        return [np.nan, np.nan]
    one, two = (Counts(*(part[mask] for part in drawn)) for mask in (labels, judged))
    return [micro_f1(one), macro_f1(two)]


@pytest.mark.parametrize("seed", range(4))
def test_resamples_by_hand(seed: int) -> None:
    found = judged(seed)
    other = judged(seed, at=0.8)
    truth = found.decisions()[0]
    dense, n_documents = truth.toarray(), truth.shape[0]
    decided = [each.decisions()[1] for each in (found, other)]
    results = resampled(truth, decided, found.masks, 12, seed)
    documents = document_groups(truth)
    assert len(documents) == (5 if seed < 3 else 2)
    rng = np.random.RandomState(seed)
    for k in range(13):
        rows = rng.randint(0, n_documents, n_documents) if k else np.arange(n_documents)
        for own, result in zip(decided, results, strict=True):
            assert set(result) == GROUPS | set(documents)
            for group, measures in result.items():
                labels = found.masks.get(group, np.ones(9, dtype=bool))
                inside = documents.get(group, np.ones(n_documents, dtype=bool))
                # In a group of documents, absent means absent from the group.
                given = dense * inside[:, None], own.toarray() * inside[:, None]
                values = [measures["micro_f1"][k], measures["macro_f1"][k]]
                np.testing.assert_allclose(values, slow(*given, rows, labels), atol=1e-12)


def test_the_first_value_is_the_figure() -> None:
    found = judged(n_resamples=0)
    truth, decided = found.decisions()
    (result,) = resampled(truth, [decided], found.masks, 1, 0)
    for group, scores in scores_of(found).items():
        assert result[group]["micro_f1"][0] == pytest.approx(scores.micro_f1, abs=1e-12)
        assert result[group]["macro_f1"][0] == pytest.approx(scores.macro_f1, abs=1e-12)


def test_intervals_lie_around_the_figures_of_rare_labels_too() -> None:
    """Labels that a resample lacks are those with the lowest F1, which would raise macro-F1."""
    rng = np.random.RandomState(3)
    truth = (rng.rand(400, 60) < np.geomspace(0.3, 0.002, 60)).astype(float)
    found = truth * (rng.rand(400, 60) < 0.9)
    found[:, truth.sum(axis=0) < 5] = 0
    counts = LabelStats.from_counts(np.maximum(truth.sum(axis=0), 1), 400)
    whole = evaluate(sp.csr_matrix(truth), found, Thresholds(np.full(60, 0.5)), counts)
    truth_, decided = whole.decisions()
    (figures,) = resampled(truth_, [decided], whole.masks, 300, 0)
    drawn = figures["all"]["macro_f1"]
    assert (drawn[1:] > drawn[0]).mean() > 0.9, "the resamples themselves are too high"
    low, high = whole.intervals["all"]["macro_f1"]
    assert low < drawn[0] < high
    assert abs((low + high) / 2 - drawn[0]) < 0.2 * (high - low)


def test_documents_have_intervals_and_differences_as_labels_have() -> None:
    first, second = judged(2), judged(2, at=1.0)
    groups = set(scores_of(first))
    assert len(groups) == 9 and {"single_label", "multi_label"} < groups
    assert set(first.intervals) == groups
    for group, scores in scores_of(first).items():
        low, high = first.intervals[group]["micro_f1"]
        assert 0 <= low <= high <= 1 and low - 0.2 < scores.micro_f1 < high + 0.2
    compared = compare(first, second, n_resamples=200)
    assert set(compared) == groups
    for group, measures in compared.items():
        for measure, found in measures.items():
            one, two = (getattr(scores_of(each)[group], measure) for each in (first, second))
            assert found.value == pytest.approx(two - one, abs=1e-12)
            assert found.low <= found.high
    assert compared["multi_label"]["micro_f1"].p < 0.05 < compared["single_label"]["micro_f1"].p


def test_a_part_that_both_decide_alike_differs_by_exactly_nothing() -> None:
    """Sums of the same F1 among other labels must not leave a rest with a sign."""
    truth, scores = made(5, 200)
    worse = scores.copy()
    each = np.diff(truth.indptr)
    worse[each == 1] = -scores[each == 1]
    changed = [scores, worse]
    tail = scores.copy()
    tail[:, 6:] = -tail[:, 6:]
    first, second, third = (
        evaluate(truth, own, Thresholds(np.zeros(9)), STATS, n_resamples=0)
        for own in (*changed, tail)
    )
    same = compare(first, second, n_resamples=60)["multi_label"]
    assert {(d.value, d.low, d.high, d.p) for d in same.values()} == {(0, 0, 0, 1)}
    same = compare(first, third, n_resamples=60)["head"]
    assert {(d.value, d.low, d.high, d.p) for d in same.values()} == {(0, 0, 0, 1)}


def test_empty_groups_have_neither_and_are_null_in_json() -> None:
    truth = sp.csr_matrix(np.eye(9)[[0, 1, 2, 3]])  # no document has two labels
    flat = LabelStats.from_counts([5] * 9, 10)  # all labels are medium
    found = evaluate(truth, truth.toarray() - 0.5, Thresholds(np.zeros(9)), flat, n_resamples=5)
    assert set(found.intervals) == {"all", "medium", "single_label"}
    assert set(compare(found, found, n_resamples=5)) == {"all", "medium", "single_label"}
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    for empty in (plain["head"], plain["tail"], plain["by_labels_per_document"]["multi_label"]):
        sizes = {"n_labels", "n_documents", "n_positive"}
        assert all(value is None for key, value in empty.items() if key not in sizes)
        assert empty["n_labels"] * empty["n_documents"] == 0
    assert plain["medium"]["micro_f1"] == plain["overall"]["micro_f1"] == 1.0
    assert found.head.is_empty and found.multi_label.is_empty and not found.medium.is_empty
    # A group that has labels and documents, but nothing to find, has an F1 of 0 by definition.
    nothing = evaluate(sp.csr_matrix((4, 9)), np.ones((4, 9)), Thresholds(np.zeros(9)), STATS)
    assert nothing.to_dict()["head"]["micro_f1"] == 0.0


def test_without_documents_everything_is_null() -> None:
    none = evaluate(sp.csr_matrix((0, 9)), np.zeros((0, 9)), Thresholds(np.zeros(9)), STATS)
    plain = none.to_dict()
    assert plain["overall"]["micro_f1"] is None and plain["overall"]["n_labels"] == 9
    assert none.overall.micro_f1 == 0.0 and plain["intervals"] == {}


def test_what_no_resample_says_is_as_wide_as_can_be() -> None:
    """One document of two carries the only label of the head: a lone resample may miss it."""
    stats = LabelStats.from_counts([9, 5, 1], 10)
    truth = np.array([[1, 0, 0], [0, 1, 0]])
    found = [
        evaluate(truth, truth - 0.5, Thresholds(np.zeros(3)), stats, n_resamples=1, seed=seed)
        for seed in range(12)
    ]
    assert {each.intervals["head"]["micro_f1"] for each in found} == {(0.0, 1.0), (1.0, 1.0)}
    heads = [compare(found[0], found[0], 1, seed)["head"]["micro_f1"] for seed in range(12)]
    assert {(head.low, head.high) for head in heads} == {(-1.0, 1.0), (0.0, 0.0)}


def test_own_groups_of_documents_and_decisions_one_by_one() -> None:
    found, other = judged(0), judged(0, at=0.8)
    truth, first = found.decisions()
    second = other.decisions()[1]
    many = np.diff(truth.indptr) > 2
    groups = {"many labels": many, "none of them": np.zeros(len(many), dtype=bool)}
    both = resampled(truth, [first, second], found.masks, 5, 1, groups)
    assert set(both[0]) == {"all", "head", "medium", "tail", "many labels"}
    usual = resampled(truth, [first], {"many": np.ones(9, dtype=bool)}, 0, 1, {})
    assert set(usual[0]) == {"all", "many"}
    # The resamples depend on the seed alone, so that decisions may be judged at different times.
    for together, decided in zip(both, (first, second), strict=True):
        (alone,) = resampled(truth, [decided], found.masks, 5, 1, groups)
        for group, measures in together.items():
            for name, values in measures.items():
                assert alone[group][name] == pytest.approx(values, nan_ok=True)
    alone_many = Scores.of(count(truth[many], first[many]), int(many.sum()))
    assert both[0]["many labels"]["macro_f1"][0] == pytest.approx(alone_many.macro_f1)
