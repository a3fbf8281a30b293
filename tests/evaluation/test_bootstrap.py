"""Intervals and comparisons of every group of labels and documents, against plain loops."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.errors import InputError
from longtail.evaluation import Evaluation, Scores, compare, evaluate
from longtail.evaluation.bootstrap import resampled
from longtail.evaluation.results import document_groups
from longtail.labels import LabelStats
from longtail.metrics import Counts, count, macro_f1, micro_f1
from longtail.thresholds import Thresholds

STATS = LabelStats.from_counts([90, 60, 40, 20, 9, 7, 3, 2, 1], 100)
GROUPS = {"all", "head", "medium", "tail", "single_label", "multi_label"}


def draw(seed: int, n_documents: int = 60) -> tuple[sp.csr_matrix, np.ndarray]:
    rng = np.random.RandomState(seed)
    truth = (rng.rand(n_documents, 9) < np.linspace(0.6, 0.02, 9)).astype(float)
    return sp.csr_matrix(truth), truth * 2 - 1 + rng.randn(n_documents, 9)


def evaluated(seed: int = 0, at: float = 0.0, n_resamples: int = 30) -> Evaluation:
    truth, scores = draw(seed)
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
    found = evaluated(seed)
    other = evaluated(seed, at=0.8)
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


def test_intervals_hold_the_figure_and_shrink_with_documents() -> None:
    widths = []
    for n_documents in (40, 1600):
        truth, scores = draw(1, n_documents)
        result = evaluate(truth, scores, Thresholds(np.zeros(9)), STATS, n_resamples=200)
        for group, scores_of_group in result.groups().items():
            low, high = result.intervals[group]["micro_f1"]
            assert low <= scores_of_group.micro_f1 <= high
        low, high = result.intervals["all"]["micro_f1"]
        widths.append(high - low)
    assert widths[1] < widths[0] / 3
    first, again = (evaluate(truth, scores, Thresholds(np.zeros(9)), STATS) for _ in range(2))
    other = evaluate(truth, scores, Thresholds(np.zeros(9)), STATS, random_state=1)
    assert first.intervals == again.intervals != other.intervals
    assert evaluated(n_resamples=0).intervals == {}


def test_rare_labels_do_not_pull_the_interval_down() -> None:
    """Perfect decisions stay perfect in every resample, though a rare label is not in all."""
    truth = sp.csr_matrix(np.eye(9)[[0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7]])
    scores = truth.toarray() * 2 - 1
    result = evaluate(truth, scores, Thresholds(np.zeros(9)), STATS, n_resamples=50)
    assert result.intervals["medium"] == {"micro_f1": (1.0, 1.0), "macro_f1": (1.0, 1.0)}
    # Label 8 is in no document at all and counts 0 in the figure, so it does in the resamples.
    low, high = result.intervals["tail"]["macro_f1"]
    assert low <= result.tail.macro_f1 <= high < 1


def test_a_better_model_is_seen_and_an_equal_one_is_not() -> None:
    truth, scores = draw(2, 400)
    good = evaluate(truth, scores, Thresholds(np.zeros(9)), STATS, n_resamples=0)
    bad = evaluate(truth, scores, Thresholds(np.full(9, 1.5)), STATS, n_resamples=0)
    seen = compare(bad, good, n_resamples=300)["all"]["micro_f1"]
    assert seen.value == pytest.approx(good.overall.micro_f1 - bad.overall.micro_f1)
    assert 0 < seen.low < seen.value < seen.high and seen.p < 0.02
    same = compare(good, good, n_resamples=50)["tail"]["macro_f1"]
    assert (same.value, same.low, same.high, same.p) == (0, 0, 0, 1)
    back = compare(good, bad, n_resamples=300)["all"]["micro_f1"]
    assert (back.value, back.low) == (pytest.approx(-seen.value), pytest.approx(-seen.high))
    with pytest.raises(InputError, match="same documents and labels"):
        compare(good, evaluated(5))


def test_a_comparison_is_on_the_groups_of_the_first() -> None:
    truth, scores = draw(6, 200)
    one, two = (
        evaluate(truth, scores, Thresholds(np.zeros(9)), STATS, n_resamples=0, cuts=cuts)
        for cuts in ((10, 50), (5, 80))
    )
    assert one.head != two.head
    assert compare(one, two, n_resamples=20)["head"]["micro_f1"].value == 0


def test_documents_have_intervals_and_differences_as_labels_have() -> None:
    first, second = evaluated(2), evaluated(2, at=1.0)
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
    truth, scores = draw(5, 200)
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
    none = evaluate(sp.csr_matrix((0, 9)), np.zeros((0, 9)), Thresholds(np.zeros(9)), STATS)
    assert none.to_dict()["overall"]["micro_f1"] is None and none.overall.n_labels == 9


def test_what_no_resample_says_is_as_wide_as_can_be() -> None:
    """One document of two carries the only label of the head: a lone resample may miss it."""
    stats = LabelStats.from_counts([9, 5, 1], 10)
    truth = np.array([[1, 0, 0], [0, 1, 0]])
    found = [
        evaluate(
            truth, truth - 0.5, Thresholds(np.zeros(3)), stats, n_resamples=1, random_state=seed
        )
        for seed in range(12)
    ]
    assert {each.intervals["head"]["micro_f1"] for each in found} == {(0.0, 1.0), (1.0, 1.0)}
    heads = [compare(found[0], found[0], 1, seed)["head"]["micro_f1"] for seed in range(12)]
    assert {(head.low, head.high) for head in heads} == {(-1.0, 1.0), (0.0, 0.0)}


def test_own_groups_of_documents_and_decisions_one_by_one() -> None:
    found, other = evaluated(0), evaluated(0, at=0.8)
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
