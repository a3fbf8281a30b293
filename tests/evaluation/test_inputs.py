"""Arguments that `evaluate` and `compare` refuse."""

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
GOOD = {
    "y_true": TRUTH,
    "scores": SCORES,
    "thresholds": Thresholds(np.zeros(3)),
    "stats": LabelStats.from_counts([9, 5, 2], 10),
}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("y_true", [["a"], ["b", "c"], []], r"labels must be .* shape \(3,\)\. Encode label names"),
        ("y_true", SCORES, "labels are 1 and -1 without any 0, and -1 means .* unknown"),
        ("y_true", TRUTH[:, :2], "labels of the training statistics, 3 of them, got 2 columns"),
        ("scores", np.where(TRUTH, np.nan, 0), "scores must be finite, got NaN"),
        ("scores", SCORES[:2], r"labels of shape \(3, 3\) and scores of shape \(2, 3\) differ"),
        ("thresholds", np.zeros(3), "expected Thresholds, got ndarray. Fit them"),
        ("thresholds", Thresholds(np.zeros(2)), "for 2 labels, got scores of 3"),
        ("stats", [9, 5, 2], "expected LabelStats, got list"),
        ("scale", "odds", "scale must be one of logit, probability, margin"),
        ("cuts", (5, 2), "cuts must be two numbers in ascending order"),
        ("n_resamples", -1, "n_resamples must be a whole number of at least 0, got"),
    ],
)
def test_what_cannot_be_evaluated(name: str, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluate(**{**GOOD, name: value})


def test_what_cannot_be_compared() -> None:
    result = evaluate(**GOOD)
    with pytest.raises(InputError, match="at least 1, got 0"):
        compare(result, result, n_resamples=0)
    alone = evaluate(**{**GOOD, "y_true": TRUTH[:1], "scores": SCORES[:1]})
    with pytest.raises(InputError, match="at least two documents, got 1"):
        compare(alone, alone)
