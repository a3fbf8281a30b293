"""Evaluation against loops by hand: groups, documents, intervals, comparison, calibration."""

from __future__ import annotations

import inspect
import json

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, f1_score, precision_score, recall_score

from longtail.errors import InputError
from longtail.evaluation import Evaluation, compare, evaluate
from longtail.evaluation.evaluator import calibration_of
from longtail.evaluation.groups import terciles
from longtail.labels import LabelStats, label_groups
from longtail.thresholds import Thresholds, fit_thresholds


def made(seed: int, n_documents: int = 60, n_labels: int = 9) -> tuple[sp.csr_matrix, np.ndarray]:
    rng = np.random.RandomState(seed)
    truth = (rng.rand(n_documents, n_labels) < np.linspace(0.6, 0.02, n_labels)).astype(float)
    return sp.csr_matrix(truth), truth * 2 - 1 + rng.randn(n_documents, n_labels)


STATS = LabelStats.from_counts([90, 60, 40, 20, 9, 7, 3, 2, 1], 100)


def judged(seed: int = 0, shift: float = 0.0, **settings: object) -> Evaluation:
    truth, scores = made(seed)
    at = Thresholds(np.full(9, shift))
    return evaluate(truth, scores, at, STATS, **settings)  # type: ignore[arg-type]


@given(st.integers(0, 500))
@settings(max_examples=30, deadline=None)
def test_groups_are_scikit_learns_on_those_columns(seed: int) -> None:
    truth, scores = made(seed)
    result = evaluate(truth, scores, Thresholds(np.zeros(9)), STATS, n_resamples=0)
    dense, decided = truth.toarray(), (scores >= 0).astype(int)
    masks = {"all": np.ones(9, dtype=bool), **label_groups(STATS.label_counts)}
    for name, group in result.groups().items():
        true, given_ = dense[:, masks[name]], decided[:, masks[name]]
        for average in ("micro", "macro"):
            for metric, score in (
                ("f1", f1_score), ("precision", precision_score), ("recall", recall_score)
            ):  # fmt: skip
                expected = score(true, given_, average=average, zero_division=0)
                assert getattr(group, f"{average}_{metric}") == pytest.approx(expected, abs=1e-12)
        assert (group.n_labels, group.n_documents) == (masks[name].sum(), 60)
        assert group.n_positive == true.sum()
    each = dense.sum(axis=1)
    for name, rows in (("single_label", each == 1), ("multi_label", each > 1)):
        group = result.by_labels_per_document[name]
        assert group.n_documents == rows.sum()
        if rows.any():
            expected = f1_score(dense[rows], decided[rows], average="macro", zero_division=0)
            assert group.macro_f1 == pytest.approx(expected, abs=1e-12)


def test_any_cuts_make_groups() -> None:
    result = judged(cuts=(5, 50), n_resamples=0)
    assert (result.head.n_labels, result.medium.n_labels, result.tail.n_labels) == (2, 4, 3)


def test_terciles_of_labels_per_document() -> None:
    each = np.array([5, 9, 9, 10, 12, 14, 15, 20, 30])
    groups = terciles(each)
    assert list(groups) == ["up to 9 labels", "10 to 14 labels", "15 or more labels"]
    assert [int(rows.sum()) for rows in groups.values()] == [3, 3, 3]
    assert terciles(np.array([1, 1, 1, 1, 2])) == {}
    assert terciles(np.array([], dtype=int)) == {}


def test_dense_masked_and_sparse_scores_decide_alike() -> None:
    truth, scores = made(3)
    stored = sp.csr_matrix(np.ones_like(scores))
    stored.data = scores[stored.nonzero()]
    forms = [scores, scores.astype(np.float32), np.ma.masked_array(scores), stored]
    at = Thresholds(np.linspace(-0.5, 0.5, 9))
    found = [evaluate(truth, form, at, STATS, n_resamples=5).to_dict() for form in forms]
    for other in found[1:]:
        assert other["overall"] == found[0]["overall"] and other["labels"] == found[0]["labels"]
        assert other["intervals"] == found[0]["intervals"]
        assert other["calibration"]["n_pairs"] == found[0]["calibration"]["n_pairs"]


def test_probabilities_by_argument() -> None:
    truth, scores = made(4)
    probability = 1 / (1 + np.exp(-scores))
    at = Thresholds(np.full(9, 0.3))
    one = evaluate(truth, scores, at, STATS, n_resamples=0)
    two = evaluate(truth, probability, at, STATS, n_resamples=0, scale="probability")
    assert one.overall == two.overall
    assert one.calibration is not None and two.calibration is not None
    assert one.calibration.expected_error == pytest.approx(two.calibration.expected_error)
    margin = evaluate(truth, scores, at, STATS, n_resamples=0, scale="margin")
    assert margin.calibration is None and margin.overall == one.overall
    with pytest.raises(InputError, match="If these are logits"):
        evaluate(truth, scores, at, STATS, scale="probability")


def test_calibration_by_hand() -> None:
    truth = sp.csr_matrix(np.array([[1.0, 0.0], [1.0, 1.0]]))
    probability = np.array([[0.9, 0.1], [0.8, 0.3]])
    logits = np.log(probability / (1 - probability))
    found = calibration_of(truth, logits, n_bins=2)
    assert found.n_pairs == (2, 2)
    assert found.mean_probability == pytest.approx((0.2, 0.85))
    assert found.share_that_applies == pytest.approx((0.5, 1.0))
    assert found.expected_error == pytest.approx((2 * 0.3 + 2 * 0.15) / 4)
    certain = calibration_of(truth, np.array([[50.0, -50.0], [50.0, 50.0]]))
    assert certain.expected_error == pytest.approx(0, abs=1e-9)
    assert certain.mean_probability[7] is None


def test_intervals_hold_the_figure_and_shrink_with_documents() -> None:
    small, large = made(1, 40), made(1, 1600)
    widths = []
    for truth, scores in (small, large):
        result = evaluate(truth, scores, Thresholds(np.zeros(9)), STATS, n_resamples=200)
        for group, scores_of in result.groups().items():
            low, high = result.intervals[group]["micro_f1"]
            assert low <= scores_of.micro_f1 <= high
        low, high = result.intervals["all"]["micro_f1"]
        widths.append(high - low)
    assert widths[1] < widths[0] / 3
    assert judged(n_resamples=30).intervals == judged(n_resamples=30).intervals
    assert judged(n_resamples=30, seed=1).intervals != judged(n_resamples=30).intervals
    assert judged(n_resamples=0).intervals == {}


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
    truth, scores = made(2, 400)
    good = evaluate(truth, scores, Thresholds(np.zeros(9)), STATS, n_resamples=0)
    bad = evaluate(truth, scores, Thresholds(np.full(9, 1.5)), STATS, n_resamples=0)
    found = compare(bad, good, n_resamples=300)
    seen = found["all"]["micro_f1"]
    assert seen.value == pytest.approx(good.overall.micro_f1 - bad.overall.micro_f1)
    assert 0 < seen.low < seen.value < seen.high and seen.p < 0.02
    same = compare(good, good, n_resamples=50)["tail"]["macro_f1"]
    assert (same.value, same.low, same.high, same.p) == (0, 0, 0, 1)
    back = compare(good, bad, n_resamples=300)["all"]["micro_f1"]
    assert (back.value, back.low) == (pytest.approx(-seen.value), pytest.approx(-seen.high))
    with pytest.raises(InputError, match="same documents and labels"):
        compare(good, judged(5))


def test_per_label_table_and_json() -> None:
    result = judged(n_resamples=10)
    rows = result.labels.rows()
    assert [row["train_count"] for row in rows] == STATS.label_counts.tolist()
    assert rows[0]["f1"] == pytest.approx(
        2 * rows[0]["hits"] / (rows[0]["predicted"] + rows[0]["actual"])
    )
    plain = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert plain["overall"]["micro_f1"] == result.overall.micro_f1
    assert plain["metrics"]["precision@1"] == result.metrics["precision@1"]
    truth, scores = made(0)
    expected = average_precision_score(truth.toarray(), scores, average="micro")
    assert plain["metrics"]["micro_average_precision"] == pytest.approx(expected, abs=1e-12)
    assert "labels" not in result.to_dict(per_label=False)


def test_evaluate_cannot_tune() -> None:
    """No leak by signature: it receives thresholds, and nothing to choose them by."""
    names = set(inspect.signature(evaluate).parameters)
    assert "thresholds" in names
    assert not names & {"method", "objective", "folds", "shrinkage", "top_k", "validation"}


@pytest.mark.parametrize("n_documents", [0, 1])
def test_few_documents(n_documents: int) -> None:
    truth = sp.csr_matrix((n_documents, 9))
    result = evaluate(truth, np.zeros((n_documents, 9)), Thresholds(np.zeros(9)), STATS)
    assert result.overall.n_documents == n_documents and result.overall.micro_f1 == 0
    assert result.intervals == {}


def test_all_positive_and_none() -> None:
    ones = sp.csr_matrix(np.ones((4, 9)))
    perfect = evaluate(ones, np.ones((4, 9)), Thresholds(np.zeros(9)), STATS)
    assert perfect.overall.micro_f1 == perfect.tail.macro_f1 == 1
    nothing = evaluate(sp.csr_matrix((4, 9)), np.ones((4, 9)), Thresholds(np.zeros(9)), STATS)
    assert nothing.overall.micro_f1 == 0
    json.dumps(nothing.to_dict(), allow_nan=False)


def test_masked_pairs_are_neither_predicted_nor_ranked() -> None:
    truth = sp.csr_matrix(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
    scores = np.ma.masked_array([[1.0, 9.0, -2.0], [0.5, 2.0, 7.0]], [[0, 1, 0], [0, 0, 1]])
    stats = LabelStats.from_counts([1, 1, 0], 2)
    result = evaluate(truth, scores, Thresholds(np.full(3, 0.9)), stats, n_resamples=0)
    assert result.overall.micro_f1 == 1.0 and result.metrics["precision@1"] == 1.0
    assert result.calibration is not None and sum(result.calibration.n_pairs) == 4


def test_an_empty_group_of_labels_has_a_row() -> None:
    flat = LabelStats.from_counts([5] * 9, 10)
    truth, scores = made(0)
    result = evaluate(truth, scores, Thresholds(np.zeros(9)), flat)
    assert (result.head.n_labels, result.head.micro_f1, result.head.macro_f1) == (0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (np.full((60, 9), np.nan), "NaN"),
        (np.zeros((60, 8)), r"\(60, 9\).*\(60, 8\)"),
        (np.zeros((59, 9)), r"\(59, 9\)"),
        (np.array([["a"] * 9] * 60), "matrix of numbers"),
    ],
)
def test_bad_scores(scores: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluate(made(0)[0], scores, Thresholds(np.zeros(9)), STATS)


def test_other_labels_than_in_training() -> None:
    with pytest.raises(InputError, match="9 of them, got 3 columns"):
        evaluate(sp.csr_matrix((2, 3)), np.zeros((2, 3)), Thresholds(np.zeros(3)), STATS)


def test_a_comparison_is_on_the_groups_of_the_first() -> None:
    truth, scores = made(6, 200)
    at = Thresholds(np.zeros(9))
    one = evaluate(truth, scores, at, STATS, n_resamples=0, cuts=(10, 50))
    two = evaluate(truth, scores, at, STATS, n_resamples=0, cuts=(5, 80))
    assert one.head != two.head
    assert compare(one, two, n_resamples=20)["head"]["micro_f1"].value == 0


def test_stored_zeros_are_no_labels() -> None:
    truth = sp.csr_matrix((np.array([1.0, 0.0, 1.0]), [0, 1, 1], [0, 2, 3]), shape=(2, 9))
    result = evaluate(truth, np.zeros((2, 9)), Thresholds(np.ones(9)), STATS, n_resamples=0)
    assert (result.single_label.n_documents, result.multi_label.n_documents) == (2, 0)


def test_thresholds_remember_their_scale() -> None:
    truth, scores = made(7)
    probability = 1 / (1 + np.exp(-scores))
    fitted = fit_thresholds(
        probability, truth, STATS.label_counts, "global", scale="probability", objective="micro"
    )
    assert (fitted.apply(probability) != fitted.apply(scores, "logit")).nnz == 0
    again = Thresholds.from_dict(json.loads(json.dumps(fitted.to_dict())))
    result = evaluate(truth, probability, again, STATS, n_resamples=0)
    assert result.overall.micro_f1 == pytest.approx(fitted.details["earned_in_tuning"])
