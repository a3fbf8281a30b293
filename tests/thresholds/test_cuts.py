"""One threshold for all labels: the exact best cut, whatever the number of levels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.thresholds import OBJECTIVES, cuts, fit_thresholds
from longtail.thresholds.tuning import make_tuning

from .cases import Case, cases, decide, every_cut, f1_of, long_tail


def test_cuts_of_every_label() -> None:
    scores = np.array([[1.0, 3, 3, 2, 1], [5, 4, 3, 2, 1], [7, 7, 7, 7, 7]]).T
    labels = np.array([[1, 0, 1, 0, 0], [0, 0, 0, 0, 0], [0, 1, 1, 0, 0]]).T
    all_cuts = cuts.cuts_of(make_tuning(scores, labels, np.ones(3)))
    assert all_cuts.labels.tolist() == [0, 0, 2]
    assert all_cuts.thresholds.tolist() == [2.5, 0.0, 7.0]
    assert all_cuts.hits.tolist() == [1, 2, 2] and all_cuts.predicted.tolist() == [2, 5, 5]


@pytest.mark.parametrize("above", [1.0, np.nextafter(1.0, 2), -3.5, 1e15])
def test_a_threshold_between_neighbouring_numbers(above: float) -> None:
    below = np.nextafter(above, -np.inf)
    assert below < cuts.between(above, below) <= above


@given(cases(), st.sampled_from(OBJECTIVES), st.sampled_from([2, 3, 7, 1 << 13]), st.data())
def test_the_best_cut_with_offsets_by_hand(
    case: Case, objective: Any, levels: int, data: st.DataObject
) -> None:
    size = case.labels.shape[1]
    offsets = np.array(data.draw(st.lists(st.floats(-2, 2), min_size=size, max_size=size)))
    tuning = make_tuning(case.form, case.labels, np.ones(size))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuts, "LEVELS", levels)
        threshold, reached = cuts.best_cut(tuning, objective, offsets)
    shifted = case._replace(scores=case.scores + offsets)
    candidates = every_cut(shifted.scores[case.scored])
    best = max(f1_of(case.truth, decide(shifted, cut), objective) for cut in candidates)
    assert reached == pytest.approx(best, abs=1e-12)
    assert f1_of(case.truth, decide(shifted, threshold), objective) == pytest.approx(best)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("outlier", [-1e300, 1e300, -1e9])
def test_one_positive_far_from_all_others(objective: Any, outlier: float) -> None:
    scores, labels, counts = long_tail(200, 8, 0)
    labels[7, 2], scores[7, 2] = 1, outlier
    thresholds = fit_thresholds(scores, labels, counts, "global", objective=objective)
    best = max(f1_of(labels, scores >= cut, objective) for cut in every_cut(scores))
    assert f1_of(labels, scores >= thresholds.values, objective) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_best_cut_that_predicts_exactly_the_positives(objective: Any) -> None:
    # The next lower score is then in another level and must not be missed.
    for seed in range(20):
        rng = np.random.default_rng(seed)
        scores = np.minimum(rng.standard_normal((200, 30), dtype=np.float32), 2.9)
        labels = np.zeros(scores.shape, dtype=np.int8)
        rows, columns = rng.integers(0, 200, 15), rng.integers(0, 5, 15)
        labels[rows, columns] = 1
        scores[rows, columns] = rng.uniform(4, 12, 15)
        thresholds = fit_thresholds(scores, labels, np.ones(30), "global", objective=objective)
        assert thresholds.apply(scores).nnz == labels.sum()
