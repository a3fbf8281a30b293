"""What `evaluate` and `compare` refuse, and why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.errors import InputError
from longtail.evaluation import compare, evaluate
from longtail.labels import LabelStats
from longtail.thresholds import Thresholds

TRUTH = np.array([[1, 0, 0], [0, 1, 1], [1, 0, 1]])
SCORES = TRUTH * 2.0 - 1
STATS = LabelStats.from_counts([9, 5, 2], 10)
AT = Thresholds(np.zeros(3))


@pytest.mark.parametrize(
    "cuts", [5, (5,), (1, 2, 3), (5, 2), (np.nan, 2), ("a", "b"), "12", (None, 3), object()]
)
def test_cuts_are_two_counts(cuts: Any) -> None:
    with pytest.raises(InputError, match=r"cuts? must"):
        evaluate(TRUTH, SCORES, AT, STATS, cuts=cuts)


@pytest.mark.parametrize("cuts", [[3, 6], np.array([3, 6]), (3.0, 6), (3, np.inf)])
def test_cuts_of_any_numbers(cuts: Any) -> None:
    found = evaluate(TRUTH, SCORES, AT, STATS, cuts=cuts, n_resamples=0)
    assert found.tail.n_labels == 1 and found.head.n_labels == int(cuts[1] == 6)


@pytest.mark.parametrize("n_resamples", [-1, 1.5, 20.0, "20", None, True, np.nan])
def test_resamples_are_a_whole_number(n_resamples: Any) -> None:
    with pytest.raises(InputError, match=r"n_resamples must be a whole number of at least 0, got"):
        evaluate(TRUTH, SCORES, AT, STATS, n_resamples=n_resamples)
    found = evaluate(TRUTH, SCORES, AT, STATS, n_resamples=np.int64(3))
    with pytest.raises(InputError, match=r"n_resamples must be a whole number of at least 1, got"):
        compare(found, found, n_resamples=n_resamples)
    with pytest.raises(InputError, match="at least 1, got 0"):
        compare(found, found, n_resamples=0)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[1, 0, 0], [0, 1]], "labels must be a documents x labels matrix, got rows of different"),
        ([["a", "b", "c"]] * 3, "labels must be real numbers, got the type <U1"),
        ([["a"], ["b"], ["c"]], "encode_labels"),
        ([["a"], ["b", "c"], []], "rows of different lengths"),
        (np.array([[1, 0, None]] * 3), "labels must be real numbers, got the type object"),
        ([1, 0, 0], r"matrix, got the shape \(3,\)"),
        (TRUTH * 2, "labels must be 0 or 1, got 2"),
        (np.where(TRUTH, np.nan, 0), "labels must be 0 or 1, got nan"),
        (SCORES, "labels must be 0 or 1, got -1.0"),
        (sp.csr_matrix(TRUTH * 3), "labels must be 0 or 1, got 3"),
        (TRUTH[:, :2], "expected the labels of the training statistics, 3 of them, got 2 columns"),
    ],
)
def test_labels_are_a_matrix_of_0_and_1(labels: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluate(labels, SCORES, AT, STATS)


def with_one(value: float) -> np.ndarray:
    scores = SCORES.copy()
    scores[1, 2] = value
    return scores


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([[1.0, 0, 0], [0, 1.0], [1]], "scores must be a .* matrix, got rows of different"),
        ([["a"] * 3] * 3, "scores must be real numbers, got the type <U1"),
        (None, r"scores must be a documents x labels matrix, got the shape \(\)"),
        ([0.0, 1.0, 2.0], r"got the shape \(3,\). For one document pass a matrix of one row"),
        (TRUTH > 0, "scores must be real numbers, got the type bool"),
        (SCORES + 1j, "scores must be real numbers, got the type complex128"),
        (with_one(np.nan), "scores must be finite, got NaN"),
        (with_one(-np.inf), "scores must be finite, got NaN or infinity"),
        (sp.csr_matrix(with_one(np.nan)), "scores must be finite, got NaN"),
        (np.ma.masked_array(with_one(np.nan)), "scores must be finite, got NaN"),
        (SCORES[:2], r"labels of shape \(3, 3\) and scores of shape \(2, 3\) differ"),
        (sp.csr_matrix(([1.0, 2.0], [0, 0], [0, 2, 2, 2]), shape=(3, 3)), "one score per document"),
    ],
)
def test_scores_are_a_matrix_of_finite_numbers(scores: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluate(TRUTH, scores, AT, STATS)


def test_thresholds_statistics_and_scale() -> None:
    with pytest.raises(InputError, match=r"expected Thresholds, got ndarray. Fit them"):
        evaluate(TRUTH, SCORES, np.zeros(3), STATS)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected Thresholds, got float"):
        evaluate(TRUTH, SCORES, 0.5, STATS)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"expected the LabelStats of the training part, got list"):
        evaluate(TRUTH, SCORES, AT, [9, 5, 2])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="for 2 labels, got scores of 3"):
        evaluate(TRUTH, SCORES, Thresholds(np.zeros(2)), STATS)
    for scale in ("odds", "", 1):
        with pytest.raises(InputError, match="scale must be one of logit, probability, margin"):
            evaluate(TRUTH, SCORES, AT, STATS, scale=scale)  # type: ignore[arg-type]


def test_one_document_is_too_few_to_compare() -> None:
    found = evaluate(TRUTH[:1], SCORES[:1], AT, STATS)
    with pytest.raises(InputError, match="at least two documents, got 1"):
        compare(found, found)
