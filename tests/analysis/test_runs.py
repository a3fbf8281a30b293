"""Runs: scores are checked against the evaluation, labels are matched by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit

from longtail.analysis import Run, compare_runs
from longtail.analysis.runs import label_rows, same_groups
from longtail.data import TextData
from longtail.errors import InputError
from longtail.evaluation import Evaluation, evaluate
from longtail.labels import LabelStats
from longtail.thresholds import Thresholds

RNG = np.random.RandomState(1)
TRUTH = (RNG.rand(50, 6) < 0.3).astype(float)
LOGITS = 2 * TRUTH - 1 + RNG.randn(50, 6)
STATS = LabelStats.from_counts([30, 20, 10, 5, 4, 1], 40)
ROWS = np.ones(LOGITS.shape, dtype=bool).nonzero()
FORMS = {
    "dense": lambda scores: scores,
    "masked": np.ma.masked_array,
    "sparse": lambda scores: sp.csr_matrix((scores[ROWS], ROWS), scores.shape),
}


def evaluated(scores: Any, **rule: Any) -> Evaluation:
    at = Thresholds(np.linspace(-0.2, 0.3, 6), **rule)
    return evaluate(TRUTH, scores, at, STATS, n_resamples=5)


@pytest.mark.parametrize(
    ("form", "rule"),
    [("dense", {}), ("masked", {"max_labels": 1}), ("sparse", {"min_labels": 1})],
    ids=str,
)
def test_probabilities_become_the_logits_of_their_run(form: str, rule: dict[str, Any]) -> None:
    logits, probability = FORMS[form](LOGITS), FORMS[form](expit(LOGITS))
    of_logits = evaluated(logits, **rule)
    of_probability = evaluated(probability, scale="probability", **rule)
    for run in (
        Run(of_logits, scores=logits),
        Run(of_probability, scores=probability),
        Run(of_logits, scores=probability, scale="probability"),
        Run(of_probability, scores=logits, scale="logit"),
    ):
        result = run.logits.toarray() if form == "sparse" else run.logits
        np.testing.assert_allclose(result, LOGITS, atol=1e-9)
    assert Run(of_logits).logits is None


def test_other_scores_than_the_evaluated_are_refused() -> None:
    result = evaluated(LOGITS)
    for scores, settings, message in (
        (expit(LOGITS), {}, r"as logits these lead to other decisions \(\d+ differ\)"),
        (LOGITS, {"scale": "probability"}, "probabilities must lie in"),
        (LOGITS, {"scale": "odds"}, "scale must be one of"),
        (-LOGITS, {}, "expected the scores that were evaluated"),
        (np.full((50, 6), np.nan), {}, "finite"),
        (LOGITS[:, :5], {}, r"shape \(50, 6\), got \(50, 5\)"),
        (LOGITS.tolist(), {}, r"\(50, 6\), got list"),
        (None, {"data": TextData.from_lists(["x"] * 3, [[]] * 3)}, "50 evaluated documents, got 3"),
    ):
        with pytest.raises(InputError, match=message):
            Run(result, scores=scores, **settings)  # type: ignore[arg-type]


def named(labels: list[list[int]], counts: list[int], names: list[str]) -> Evaluation:
    stats = LabelStats.from_counts(counts, 100, names)
    at = Thresholds(np.zeros(len(counts)))
    return evaluate(np.array(labels), np.array([[1.0, -1], [-1, 1]]), at, stats, n_resamples=0)


def test_labels_of_runs_meet_by_name() -> None:
    one = named([[1, 0], [0, 1]], [5, 3], ["a", "b"])
    two = named([[1, 0], [1, 0]], [9, 5], ["c", "a"])
    rows = {row["name"]: row for row in label_rows({"one": one, "two": two})}
    assert list(rows) == ["c", "a", "b"]
    assert rows["a"]["figures"]["f1"] == [1.0, 0.0] and rows["a"]["train_count"] == 5
    assert rows["b"]["figures"]["f1"] == [1.0, None] and rows["c"]["figures"]["f1"][0] is None
    assert (rows["a"]["group"], rows["a"]["documents"]) == ("head", 1)
    assert rows["a"]["figures"]["predicted"] == [1.0, 1.0]
    assert [row["name"] for row in label_rows({"one": one, "two": two}, 2)] == ["c", "a"]


def test_comparisons_and_groups() -> None:
    one = named([[1, 0], [0, 1]], [5, 3], ["a", "b"])
    swapped = named([[1, 0], [0, 1]], [3, 5], ["a", "b"])
    other = named([[1, 0], [0, 1]], [3, 5], ["b", "a"])
    assert same_groups(one, one) and same_groups(one, other) and not same_groups(one, swapped)
    stats = LabelStats.from_counts([5, 3], 100, ["a", "b"])
    fewer = evaluate(np.eye(2)[:1], np.eye(2)[:1], Thresholds(np.ones(2)), stats)
    result = compare_runs({"one": one, "two": swapped, "three": other, "four": fewer})
    assert result["two"]["all"]["micro_f1"].value == 0  # type: ignore[index]
    assert result["three"] == "they know different labels."
    assert str(result["four"]).startswith("two evaluations can be compared only on the same")
