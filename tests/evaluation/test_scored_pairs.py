"""A pair that is masked and a pair that is absent from a CSR matrix are the same: not scored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from longtail.evaluation import evaluate
from longtail.labels import LabelStats
from longtail.thresholds import Thresholds
from longtail.thresholds.scales import sigmoid

RULES: list[dict[str, Any]] = [{}, {"top_k": 1}, {"at_least_one": True}]


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Every number of a nested dict by its path."""
    if isinstance(value, dict):
        return {k: v for key in value for k, v in leaves(value[key], f"{path}/{key}").items()}
    if isinstance(value, (list, tuple)):
        return {k: v for i, x in enumerate(value) for k, v in leaves(x, f"{path}/{i}").items()}
    return {path: value}


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    shape = draw(st.tuples(st.integers(1, 7), st.integers(1, 5)))
    labels = draw(hnp.arrays(np.int64, shape, elements=st.integers(0, 1)))
    scores = draw(hnp.arrays(np.float64, shape, elements=st.integers(-3, 3).map(float)))
    return labels, scores, draw(hnp.arrays(bool, shape))


@given(cases(), st.sampled_from(RULES), st.sampled_from(["logit", "probability", "margin"]))
@settings(deadline=None, max_examples=120, database=None, derandomize=True)
def test_masked_is_absent_in_every_figure(
    case: tuple[np.ndarray, np.ndarray, np.ndarray], rule: dict[str, Any], scale: Any
) -> None:
    labels, scores, scored = case
    if scale == "probability":
        scores = sigmoid(scores)
    rows = scored.nonzero()
    absent = sp.csr_matrix((scores[rows], rows), scores.shape)
    # What stands under the mask must not matter.
    masked = np.ma.masked_array(np.where(scored, scores, np.nan), ~scored)
    n_labels = labels.shape[1]
    stats = LabelStats.from_counts(np.arange(n_labels) * 3, 40)
    at = Thresholds(np.linspace(-0.5, 0.5, n_labels), scale=scale, **rule)
    one, two = (evaluate(labels, each, at, stats, n_resamples=3) for each in (masked, absent))
    found, expected = leaves(one.to_dict()), leaves(two.to_dict())
    assert found.keys() == expected.keys()
    assert {"/metrics/micro_average_precision", "/metrics/precision@1"} <= found.keys()
    for path, value in expected.items():
        assert found[path] == pytest.approx(value, abs=1e-12), path
    assert (one.decisions()[1] != two.decisions()[1]).nnz == 0


@pytest.mark.parametrize("form", ["masked", "csr"])
def test_a_positive_that_is_not_scored_is_missed(form: str) -> None:
    labels = np.array([[1, 1], [0, 1]])
    scores: Any = np.ma.masked_array([[2.0, 5.0], [-2.0, 3.0]], [[False, True], [False, False]])
    if form == "csr":
        scores = sp.csr_matrix(([2.0, -2.0, 3.0], ([0, 1, 1], [0, 0, 1])), (2, 2))
    found = evaluate(labels, scores, Thresholds(np.zeros(2)), LabelStats.from_counts([2, 1], 3))
    assert found.labels.recall.tolist() == [1.0, 0.5] and found.overall.n_positive == 3
    assert found.overall.micro_f1 == pytest.approx(2 * 2 / (2 + 3))
    assert found.calibration is not None and sum(found.calibration.n_pairs) == 3
