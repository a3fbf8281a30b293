"""Evaluation against scikit-learn and by hand: groups, documents, forms of scores, calibration."""

from __future__ import annotations

import inspect
import json
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import expit
from sklearn.metrics import average_precision_score, f1_score, precision_score, recall_score

from longtail.errors import InputError
from longtail.evaluation import Evaluation, evaluate
from longtail.evaluation.evaluator import calibration_of
from longtail.evaluation.results import document_groups
from longtail.labels import LabelStats, label_groups
from longtail.thresholds import Thresholds

from .cases import STATS, ZERO, draw

RULES: list[dict[str, Any]] = [{}, {"max_labels": 1}, {"min_labels": 1}]


@given(st.integers(0, 500))
def test_groups_are_scikit_learns_on_those_columns(seed: int) -> None:
    truth, scores = draw(seed)
    result = evaluate(truth, scores, ZERO, STATS, n_resamples=0)
    dense, decided = truth.toarray(), (scores >= 0).astype(int)
    masks = {"all": np.ones(9, dtype=bool), **label_groups(STATS.label_counts)}
    metrics = {"f1": f1_score, "precision": precision_score, "recall": recall_score}
    for name, group in result.groups().items():
        true, predicted = dense[:, masks[name]], decided[:, masks[name]]
        for average in ("micro", "macro"):
            for metric, score in metrics.items():
                expected = score(true, predicted, average=average, zero_division=0)
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


def test_terciles_of_labels_per_document() -> None:
    def terciles(*n_labels: int) -> dict[str, int]:
        truth = sp.csr_matrix(np.arange(30) < np.reshape(n_labels, (-1, 1)))
        return {name: int(rows.sum()) for name, rows in [*document_groups(truth).items()][2:]}

    names = ("up to 9 labels", "10 to 14 labels", "15 or more labels")
    assert terciles(5, 9, 9, 10, 12, 14, 15, 20, 30) == dict.fromkeys(names, 3)
    assert terciles(1, 1, 1, 1, 2) == terciles() == {}
    assert list(terciles(0, 1, 2, 3)) == ["up to 1 label", "2 labels", "3 or more labels"]
    # Documents with one label are a group already.
    assert list(terciles(1, 2, 3)) == ["2 labels", "3 or more labels"]


def assert_same(one: Evaluation, two: Evaluation) -> None:
    """All results up to rounding, and all decisions."""
    first, second = (
        json.loads(json.dumps(each.to_dict()), parse_float=lambda text: round(float(text), 11))
        for each in (one, two)
    )
    assert first == second
    assert {"micro_average_precision", "precision@1"} <= first["metrics"].keys()
    assert (one.y_pred != two.y_pred).nnz == 0


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    shape = draw(st.tuples(st.integers(1, 7), st.integers(1, 5)))
    labels = draw(hnp.arrays(np.int64, shape, elements=st.integers(0, 1)))
    scores = draw(hnp.arrays(np.float64, shape, elements=st.integers(-3, 3).map(float)))
    return labels, scores, draw(hnp.arrays(bool, shape))


@given(cases(), st.sampled_from(RULES), st.sampled_from(["logit", "probability", "margin"]))
def test_masked_is_absent_and_unmasked_is_dense_in_every_figure(
    case: tuple[np.ndarray, np.ndarray, np.ndarray], rule: dict[str, Any], scale: Any
) -> None:
    labels, scores, scored = case
    if scale == "probability":
        scores = expit(scores)
    n_labels = labels.shape[1]
    stats = LabelStats.from_counts(np.arange(n_labels) * 3, 40)
    at = Thresholds(np.linspace(-0.5, 0.5, n_labels), scale=scale, **rule)
    for known in (scored, np.ones_like(scored)):
        rows = known.nonzero()
        absent = sp.csr_matrix((scores[rows], rows), scores.shape)
        # Values under the mask must not matter.
        masked = np.ma.masked_array(np.where(known, scores, np.nan), ~known)
        one, two = (evaluate(labels, each, at, stats, n_resamples=3) for each in (masked, absent))
        assert_same(one, two)
    assert_same(evaluate(labels, scores, at, stats, n_resamples=3), one)


def test_a_positive_that_is_not_scored_is_missed() -> None:
    labels = np.array([[1, 1], [0, 1]])
    scores = sp.csr_matrix(([2.0, -2.0, 3.0], ([0, 1, 1], [0, 0, 1])), (2, 2))
    result = evaluate(labels, scores, Thresholds(np.zeros(2)), LabelStats.from_counts([2, 1], 3))
    assert result.labels.recall.tolist() == [1.0, 0.5] and result.overall.n_positive == 3
    assert result.overall.micro_f1 == pytest.approx(2 * 2 / (2 + 3))
    assert result.calibration is not None and sum(result.calibration.n_pairs) == 3


def test_probabilities_and_margins() -> None:
    truth, scores = draw(4)
    at = Thresholds(np.full(9, 0.3))
    one = evaluate(truth, scores, at, STATS, n_resamples=0)
    two = evaluate(truth, expit(scores), at, STATS, n_resamples=0, scale="probability")
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
    calibration = calibration_of(truth, np.log(probability / (1 - probability)), n_bins=2)
    assert calibration.edges == (0.0, 0.5, 1.0) and calibration.n_pairs == (2, 2)
    assert calibration.mean_probability == pytest.approx((0.2, 0.85))
    assert calibration.share_that_applies == pytest.approx((0.5, 1.0))
    assert calibration.expected_error == pytest.approx((2 * 0.3 + 2 * 0.15) / 4)
    certain = calibration_of(truth, np.array([[50.0, -50.0], [50.0, 50.0]]))
    assert certain.expected_error == pytest.approx(0, abs=1e-9)
    assert certain.mean_probability[7] is None


def test_per_label_table_and_json() -> None:
    truth, scores = draw(0)
    result = evaluate(truth, scores, ZERO, STATS, n_resamples=10)
    rows = result.labels.rows()
    assert [row["train_count"] for row in rows] == STATS.label_counts.tolist()
    assert [row["name"] for row in rows] == list("012345678")
    for k, row in enumerate(rows):
        f1 = f1_score(truth.toarray()[:, k], scores[:, k] >= 0, zero_division=0)
        assert row["f1"] == pytest.approx(f1) and row["hits"] <= row["predicted"]
    plain = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert plain["labels"] == rows
    assert plain["overall"]["micro_f1"] == result.overall.micro_f1
    assert plain["metrics"]["precision@1"] == result.metrics["precision@1"]
    expected = average_precision_score(truth.toarray(), scores, average="micro")
    assert plain["metrics"]["micro_average_precision"] == pytest.approx(expected, abs=1e-12)
    assert "labels" not in result.to_dict(per_label=False)


def test_evaluate_cannot_tune() -> None:
    """Its signature takes thresholds, and nothing to choose them by."""
    parameters = inspect.signature(evaluate).parameters
    assert parameters["thresholds"].default is inspect.Parameter.empty
    assert not {"method", "objective", "folds", "min_labels", "max_labels"} & set(parameters)
