"""Which run leads, whether that is significant, and which group of labels decides."""

from __future__ import annotations

import numpy as np
import pytest

from longtail.analysis import compare_runs, leads, weakness
from longtail.evaluation import Evaluation, evaluate
from longtail.labels import LabelStats
from longtail.thresholds import Thresholds

TRUTH = (np.random.RandomState(0).rand(300, 6) < 0.3).astype(float)
STATS = LabelStats.from_counts([60, 50, 40, 30, 2, 1], 400)


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.analysis.runs.N_RESAMPLES", 200)


def wrong(shares: dict[int, float], end: bool = False) -> Evaluation:
    """A run with wrong decisions on the first (or last) documents: label -> share."""
    scores = 2 * TRUTH - 1
    for label, share in shares.items():
        n = int(300 * share)
        scores[slice(-n, None) if end else slice(n), label] *= -1
    return evaluate(TRUTH, scores, Thresholds(np.zeros(6)), STATS, n_resamples=0)


def test_the_deciding_group_is_the_one_that_adds_most() -> None:
    runs = {"worst": wrong({0: 0.4, 5: 0.5}), "second": wrong({0: 0.3, 5: 0.1}), "best": wrong({})}
    for names in (list(runs), list(reversed(runs))):
        evaluations = {name: runs[name] for name in names}
        for lead in leads(evaluations, compare_runs(evaluations)):
            assert (lead.best, lead.second, lead.deciding) == ("best", "second", "head")
            assert lead.is_significant and lead.differences["all"].value > 0
            value = getattr(runs["second"].overall, lead.measure)
            np.testing.assert_allclose(lead.value - value, lead.differences["all"].value)
            assert lead.differences["all"].low > 0


def test_groups_may_differ_where_all_labels_together_do_not() -> None:
    evaluations = {"head": wrong({4: 0.2, 5: 0.2}), "tail": wrong({0: 0.2, 1: 0.2}, end=True)}
    for lead in leads(evaluations, compare_runs(evaluations)):
        assert not lead.is_significant and lead.significant_groups == ["head", "tail"]
    other = evaluate(
        np.eye(2), np.eye(2), Thresholds(np.ones(2)), LabelStats.from_counts([1, 2], 3)
    )
    evaluations["other"] = other
    assert leads(evaluations, compare_runs(evaluations))[0].differences == {}


def test_where_a_run_is_weak() -> None:
    weak = weakness(wrong({2: 0.5}))
    assert (weak.group, weak.never, weak.n_carried) == ("medium", [], 6)
    silent = evaluate(TRUTH, np.full((300, 6), -1.0), Thresholds(np.zeros(6)), STATS, n_resamples=0)
    weak = weakness(silent)
    assert weak.group == "tail" and len(weak.never) == 6
    one = evaluate(np.eye(2), np.eye(2), Thresholds(np.ones(2)), LabelStats.from_counts([5, 5], 9))
    assert weakness(one).group is None
