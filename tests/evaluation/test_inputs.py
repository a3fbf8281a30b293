"""What `evaluate` and `compare` refuse, and why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from longtail.errors import InputError
from longtail.evaluation import compare, evaluate
from longtail.labels import LabelStats
from longtail.thresholds import Thresholds

TRUTH = np.array([[1, 0, 0], [0, 1, 1], [1, 0, 1]])
SCORES = TRUTH * 2.0 - 1
STATS = LabelStats.from_counts([9, 5, 2], 10)
AT = Thresholds(np.zeros(3))


def test_cuts_and_resamples() -> None:
    with pytest.raises(InputError, match="cuts: two, the first must not exceed"):
        evaluate(TRUTH, SCORES, AT, STATS, cuts=(5, 2))
    with pytest.raises(InputError, match=r"n_resamples must be a whole number of at least 0, got"):
        evaluate(TRUTH, SCORES, AT, STATS, n_resamples=-1)
    result = evaluate(TRUTH, SCORES, AT, STATS, n_resamples=0)
    with pytest.raises(InputError, match="at least 1, got 0"):
        compare(result, result, n_resamples=0)


@pytest.mark.parametrize(
    ("labels", "scores", "message"),
    [
        ([["a"], ["b", "c"], []], SCORES, r"labels must be .* shape \(3,\)\. Encode label names"),
        (
            np.array([[1, 0, None]] * 3),
            SCORES,
            "labels must be .* real numbers, got the type object",
        ),
        (SCORES, SCORES, "labels are 1 and -1 without any 0, and -1 means that a label is unknown"),
        (TRUTH[:, :2], SCORES, "labels of the training statistics, 3 of them, got 2 columns"),
        (TRUTH, None, r"scores must be a documents x labels .* the shape \(\)"),
        (TRUTH, TRUTH > 0, "scores must be .* real numbers, got the type bool"),
        (TRUTH, np.where(TRUTH, np.nan, 0), "scores must be finite, got NaN"),
        (TRUTH, SCORES[:2], r"labels of shape \(3, 3\) and scores of shape \(2, 3\) differ"),
    ],
)
def test_labels_are_0_and_1_and_scores_finite(labels: Any, scores: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluate(labels, scores, AT, STATS)


def test_thresholds_statistics_and_scale() -> None:
    with pytest.raises(InputError, match=r"expected Thresholds, got ndarray. Fit them"):
        evaluate(TRUTH, SCORES, np.zeros(3), STATS)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"expected LabelStats, got list"):
        evaluate(TRUTH, SCORES, AT, [9, 5, 2])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="for 2 labels, got scores of 3"):
        evaluate(TRUTH, SCORES, Thresholds(np.zeros(2)), STATS)
    with pytest.raises(InputError, match="scale must be one of logit, probability, margin"):
        evaluate(TRUTH, SCORES, AT, STATS, scale="odds")  # type: ignore[arg-type]
    one_document = evaluate(TRUTH[:1], SCORES[:1], AT, STATS)
    with pytest.raises(InputError, match="at least two documents, got 1"):
        compare(one_document, one_document)
