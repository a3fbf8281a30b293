"""One threshold for all labels: the exact best cut, with and without sorting all scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.thresholds import OBJECTIVES, cuts, fit_thresholds
from longtail.thresholds.tuning import Pairs, make_tuning

from .cases import KINDS, Case, cases, decide, every_cut, f1_of, long_tail


@given(cases(), st.sampled_from(OBJECTIVES))
def test_no_single_cut_beats_global(case: Case, objective: Any) -> None:
    thresholds = fit_thresholds(
        case.form, case.labels, np.ones(case.labels.shape[1]), "global", objective=objective
    )
    f1 = f1_of(case.truth, decide(case, thresholds.values), objective)
    candidates = every_cut(case.scores[case.scored])
    best = max(f1_of(case.truth, decide(case, cut), objective) for cut in candidates)
    assert f1 == pytest.approx(best, abs=1e-12)
    assert thresholds.details["tuning_f1"] == pytest.approx(f1, abs=1e-12)


def test_cuts_of_a_label() -> None:
    scores, applies = np.array([1.0, 3, 3, 2, 1]), np.array([1, 0, 1, 0, 0], bool)
    thresholds, hits, predicted = cuts.cuts_of(scores, applies)
    assert thresholds.tolist() == [2.5, 0.0]
    assert hits.tolist() == [1, 2] and predicted.tolist() == [2, 5]


@pytest.mark.parametrize("above", [1.0, np.nextafter(1.0, 2), -3.5, 1e15])
def test_a_threshold_between_neighbouring_numbers(above: float) -> None:
    below = np.nextafter(above, -np.inf)
    assert below < cuts.between(above, below) <= above


@given(cases(), st.sampled_from(OBJECTIVES), st.booleans(), st.data())
def test_the_fast_path_gives_the_same_cut(
    case: Case, objective: Any, with_offsets: bool, data: st.DataObject
) -> None:
    size = case.labels.shape[1]
    tuning = make_tuning(case.form, case.labels, np.ones(size))
    drawn = np.array(data.draw(st.lists(st.floats(-2, 2), min_size=size, max_size=size)))
    offsets = drawn if with_offsets else None
    slow = cuts.best_cut(tuning, objective, offsets)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuts, "LARGE", 1)
        patch.setattr(cuts, "SAMPLE", 4)
        assert cuts.best_cut(tuning, objective, offsets) == slow


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("share", "signal", "digits"),
    [(0.01, 4.0, 9), (0.01, 4.0, 1), (0.002, 2.0, 0), (0.05, 3.0, 2), (0.01, 0.0, 5)],
)
def test_the_fast_path_is_taken_and_exact(
    dtype: Any, share: float, signal: float, digits: int, objective: Any, kind: str
) -> None:
    n_taken = [0, 0]
    for seed in range(4):
        rng = np.random.default_rng(seed)
        labels = rng.random((300, 40)) < share
        scores = (rng.normal(size=labels.shape) + signal * labels).round(digits).astype(dtype)
        case = Case(labels.astype(int), scores, rng.random(labels.shape) < 0.9, kind)
        tuning = make_tuning(case.form, case.labels, np.ones(40))
        offsets = rng.normal(size=40) if seed % 2 else None
        slow = cuts.best_cut(tuning, objective, offsets)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cuts, "SAMPLE", 1000)
            fast = cuts._best_cut_of_many(tuning, objective, offsets)
        assert fast in (slow, None)
        n_taken[seed % 2] += fast is not None
    assert min(n_taken) or signal < 3 or kind == "csr"


def test_the_fast_path_gives_up_where_the_sample_misleads(monkeypatch: pytest.MonkeyPatch) -> None:
    # The one document of the sample has false positives above the last twentieth of the positives:
    # there seem to be far more than there are, and too few scores are kept to be sure.
    labels = np.zeros((400, 20), dtype=int)
    labels[1:, 0] = 1
    scores = np.random.default_rng(0).normal(size=labels.shape)
    scores[1:, 0] = np.where(np.arange(399) < 379, 10, np.linspace(5, 5.9, 399))
    scores[0] = 6
    tuning = make_tuning(scores, labels, np.ones(20))
    slow = cuts.best_cut(tuning, "micro")
    monkeypatch.setattr(cuts, "LARGE", 1)
    monkeypatch.setattr(cuts, "SAMPLE", 20)
    assert cuts.best_cut(tuning, "micro") == slow


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_best_cut_that_predicts_exactly_the_positives(
    objective: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The bound is then reached, but for rounding, and the next lower score must not be lost.
    monkeypatch.setattr(cuts, "LARGE", 1000)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        scores = np.minimum(rng.standard_normal((200, 30), dtype=np.float32), 2.9)
        labels = np.zeros(scores.shape, dtype=np.int8)
        rows, columns = rng.integers(0, 200, 15), rng.integers(0, 5, 15)
        labels[rows, columns] = 1
        scores[rows, columns] = rng.uniform(4, 12, 15)
        thresholds = fit_thresholds(scores, labels, np.ones(30), "global", objective=objective)
        assert thresholds.apply(scores).nnz == labels.sum()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_approximate_f1_is_nearly_the_best(objective: Any) -> None:
    for seed in range(5):
        scores, labels, counts = long_tail(300, 12, seed)
        tuning = make_tuning(scores * 10.0 ** (4 * seed - 8), labels, counts)
        pairs, n_positive = tuning.pairs(), tuning.n_positive
        steps = cuts.f1_steps(pairs, n_positive)
        exact = cuts.best_cut_of(pairs, n_positive, objective)[1]
        near = cuts.approximate_f1(pairs, n_positive, objective, steps)
        assert exact - 0.01 < near < exact + 1e-9
    same = Pairs(np.zeros(8), np.zeros(8, dtype=int), np.ones(8, dtype=bool))
    assert cuts.approximate_f1(same, np.array([8]), objective, np.full(8, 1 / 8)) == 1
