"""One threshold for all labels: the exact best cut, with and without sorting everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.thresholds import OBJECTIVES, curves, fit_thresholds
from longtail.thresholds.tuning import make_tuning

from .cases import Case, cases, decide, earned, every_cut, long_tail, property_test


@given(cases(), st.sampled_from(OBJECTIVES))
@property_test
def test_no_single_cut_beats_global(case: Case, objective: Any) -> None:
    found = fit_thresholds(
        case.given(), case.labels, np.ones(case.labels.shape[1]), "global", objective=objective
    )
    reached = earned(case.judged(), decide(case, found.values), objective)
    cuts = every_cut(case.scores[case.scored])
    best = max(earned(case.judged(), decide(case, cut), objective) for cut in cuts)
    assert reached == pytest.approx(best, abs=1e-12)
    assert found.details["earned_in_tuning"] == pytest.approx(reached, abs=1e-12)


@given(cases(), st.sampled_from(OBJECTIVES), st.booleans(), st.data())
@property_test
def test_without_sorting_all_the_cut_is_the_same(
    case: Case, objective: Any, lifted: bool, data: st.DataObject
) -> None:
    size = case.labels.shape[1]
    tuning = make_tuning(case.given(), case.labels, np.ones(size))
    lift = np.array(data.draw(st.lists(st.floats(-2, 2), min_size=size, max_size=size)))
    given_lift = lift if lifted else None
    slow = curves.best_cut(tuning, objective, given_lift)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "LARGE", 0)
        patch.setattr(curves, "SAMPLE", 4)
        assert curves.best_cut(tuning, objective, given_lift) == slow


@pytest.mark.parametrize("kind", ["dense", "masked", "csr"])
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("share", "signal", "digits"),
    [(0.01, 4.0, 9), (0.01, 4.0, 1), (0.002, 2.0, 0), (0.05, 3.0, 2), (0.01, 0.0, 5)],
)
def test_the_fast_way_is_taken_and_exact(
    dtype: Any,
    share: float,
    signal: float,
    digits: int,
    objective: Any,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = {False: 0, True: 0}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        labels = rng.random((300, 40)) < share
        scores = (rng.normal(size=labels.shape) + signal * labels).round(digits).astype(dtype)
        case = Case(labels.astype(int), scores, rng.random(labels.shape) < 0.9, kind)
        tuning = make_tuning(case.given(), case.labels, np.ones(40))
        lift = rng.normal(size=40) if seed % 2 else None
        slow = curves.best_cut(tuning, objective, lift)
        monkeypatch.setattr(curves, "LARGE", 1000)
        monkeypatch.setattr(curves, "SAMPLE", 1000)
        assert curves.best_cut(tuning, objective, lift) == slow
        taken[lift is None] += curves._best_of_many(tuning, objective, lift) is not None
        monkeypatch.undo()
    assert min(taken.values()) or signal < 3 or kind == "csr"


@pytest.mark.parametrize("value", [-3.0, 0.0, 0.1])
def test_the_fast_way_with_equal_scores(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.full((30, 10), value, dtype=np.float32)
    labels = np.zeros((30, 10), dtype=int)
    labels[3, 4] = 1
    monkeypatch.setattr(curves, "LARGE", 1)
    found, reached = curves.best_cut(make_tuning(scores, labels, np.ones(10)), "micro")
    assert found <= np.float32(value) and reached == pytest.approx(2 / 301)


def test_the_fast_way_with_one_positive_below_all(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.random.default_rng(0).normal(size=(30, 10))
    labels = np.zeros((30, 10), dtype=int)
    for rank, hits in ((0, 1), (3, 1), (299, 1)):
        place = np.argsort(-scores.ravel())[rank]
        labels[:] = 0
        labels.ravel()[place] = 1
        tuning = make_tuning(scores, labels, np.ones(10))
        slow = curves.best_cut(tuning, "micro")
        monkeypatch.setattr(curves, "LARGE", 1)
        assert curves.best_cut(tuning, "micro") == slow
        monkeypatch.undo()
        assert slow[1] == pytest.approx(2 * hits / (rank + 2))


def test_the_fast_way_gives_up_where_the_sample_misleads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The one document of the sample has false positives above the last twentieth of the positives:
    # there seem to be far more than there are, and too few scores are kept to be sure.
    labels = np.zeros((400, 20), dtype=int)
    labels[1:, 0] = 1
    scores = np.random.default_rng(0).normal(size=labels.shape)
    scores[1:, 0] = np.where(np.arange(399) < 379, 10, np.linspace(5, 5.9, 399))
    scores[0] = 6
    tuning = make_tuning(scores, labels, np.ones(20))
    slow = curves.best_cut(tuning, "micro")
    monkeypatch.setattr(curves, "LARGE", 1)
    monkeypatch.setattr(curves, "SAMPLE", 20)
    for attempts in (1, 3):
        monkeypatch.setattr(curves, "ATTEMPTS", attempts)
        assert curves.best_cut(tuning, "micro") == slow


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_where_the_best_cut_lets_in_the_positives_and_nothing_else(objective: Any) -> None:
    # The bound is then reached, but for rounding, and the next lower score must not be lost.
    rng = np.random.default_rng(44)
    scores = np.minimum(rng.standard_normal((4200, 500), dtype=np.float32), 2.9)
    labels = np.zeros(scores.shape, dtype=np.int8)
    rows, columns = rng.integers(0, 4200, 15), rng.integers(0, 5, 15)
    labels[rows, columns] = 1
    scores[rows, columns] = rng.uniform(4, 12, 15)
    for method in ("global", "frequency"):
        found = fit_thresholds(scores, labels, labels.sum(axis=0), method, objective=objective)
        assert found.apply(scores).nnz == labels.sum()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_steps_instead_of_sorting_are_nearly_the_best(objective: Any) -> None:
    for seed in range(5):
        scores, labels, counts = long_tail(300, 12, seed)
        tuning = make_tuning(scores * 10.0 ** (4 * seed - 8), labels, counts)
        values, columns, applies = tuning.events()
        n_positive = tuning.positives()
        steps = curves.f1_steps(values, columns, applies, n_positive)
        exact = curves.best_of_events(values, columns, applies, n_positive, objective)[1]
        near = curves.nearly_best(values, applies, n_positive, objective, steps)
        assert exact - 0.01 < near < exact + 1e-9
    same = np.zeros(8)
    assert curves.nearly_best(same, same == 0, np.array([8]), objective, np.full(8, 1 / 8)) == 1
