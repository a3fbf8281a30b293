"""Curves against plain loops: every form and scale of scores, top_k and at_least_one, any size."""

from __future__ import annotations

import tracemalloc
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import f1_score

from longtail.errors import InputError
from longtail.evaluation import Evaluation, evaluate
from longtail.labels import LabelStats
from longtail.metrics import blocks
from longtail.report.curves import SHIFTS, STEPS, f1_by_shift, mean_f1_by_count, precision_recall
from longtail.thresholds import Thresholds
from longtail.thresholds.scales import sigmoid

from .made import judged

KINDS = ("dense", "sparse", "masked")
RULES: tuple[dict[str, Any], ...] = (
    {},
    {"top_k": 2},
    {"at_least_one": True},
    {"top_k": 1, "at_least_one": True},
)


class Made(NamedTuple):
    evaluation: Evaluation
    scores: Any
    truth: np.ndarray
    dense: np.ndarray
    """The scores; what is not scored far below all."""
    rule: Thresholds

    def moved(self, shift: float) -> np.ndarray:
        """The decisions of thresholds that are higher by so much."""
        rule = Thresholds(
            self.rule.values + shift, top_k=self.rule.top_k, at_least_one=self.rule.at_least_one
        )
        return np.asarray(rule.apply(self.scores).toarray(), dtype=int)


def made(kind: str = "dense", tied: bool = True, **rule: Any) -> Made:
    """An evaluation with a threshold for each label, one of them never predicted."""
    rng = np.random.RandomState(3)
    truth = (rng.rand(40, 6) < 0.3).astype(float)
    dense = truth + rng.randn(40, 6)
    if tied:  # in quarters, so that shifts by 0.5 or 3 are exact
        dense = np.round(4 * dense) / 4
    scored = dense > -0.8 if kind != "dense" else np.ones(dense.shape, dtype=bool)
    scored[7] &= kind == "dense"  # a document without any score
    scores: Any = dense
    if kind == "sparse":
        # Absent pairs are not scored; stored zeros are.
        rows, columns = scored.nonzero()
        scores = sp.csr_matrix((dense[rows, columns], (rows, columns)), dense.shape)
    if kind == "masked":
        scores = np.ma.masked_array(np.where(scored, dense, np.inf), ~scored)
    thresholds = Thresholds(np.array([0.25, 0.5, -0.25, 0.75, np.inf, 0.0]), **rule)
    stats = LabelStats.from_counts([30, 20, 10, 5, 4, 1], 40)
    found = evaluate(truth, scores, thresholds, stats, n_resamples=0)
    return Made(found, scores, truth, np.where(scored, dense, -1e9), thresholds)


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_precision_recall_is_that_of_moved_thresholds(kind: str, rule: dict[str, Any]) -> None:
    case = made(kind, **rule)
    labels = np.array([True, False, True, True, True, False])
    applies = case.truth[:, labels] > 0
    expected = set()
    shifts = np.arange(-8, 8.25, 0.25)
    decided = [case.moved(shift)[:, labels] > 0 for shift in shifts]
    for own, higher in zip(decided, [*decided[1:], None], strict=True):
        # A cut pays where it lets a positive in; at the highest only the fallback is left.
        if own.any() and (higher is None or (own != higher)[applies].any()):
            hits = int((own & applies).sum())
            expected.add((round(hits / applies.sum(), 9), round(hits / own.sum(), 9)))
    # The best label of every document, and no other, is given wherever thresholds are.
    assert len(expected) == 1 if len(rule) == 2 else len(expected) > 3
    for size in (1, 7, 2**22):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(blocks, "BLOCK", size)
            curve = precision_recall(case.evaluation, case.scores, {"some": labels})["some"]
        assert set(zip(curve.x.round(9), curve.y.round(9), strict=True)) == expected
        assert (np.diff(curve.x) >= 0).all()


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_the_curve_goes_through_the_decisions(kind: str, rule: dict[str, Any]) -> None:
    """Where nothing wrong lies between the threshold and the next positive above it."""
    case = made(kind, **rule)
    curves = precision_recall(case.evaluation, case.scores)
    assert list(curves) == ["head", "medium", "tail"]
    for group, curve in curves.items():
        scores = case.evaluation.groups()[group]
        best = curve.y[np.isclose(curve.x, scores.micro_recall)].max(initial=0)
        assert best >= scores.micro_precision - 1e-12 or scores.micro_recall == 0


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_f1_by_shift(kind: str, rule: dict[str, Any]) -> None:
    case = made(kind, **rule)
    micro, macro = f1_by_shift(case.evaluation, case.scores)
    assert micro.y[STEPS // 2] == pytest.approx(case.evaluation.overall.micro_f1, abs=1e-12)
    assert macro.y[STEPS // 2] == pytest.approx(case.evaluation.overall.macro_f1, abs=1e-12)
    for shift in (-3.0, -1.5, -0.5, 0.5, 1.0, 3.0):
        decided, k = case.moved(shift), int(np.argmin(np.abs(SHIFTS - shift)))
        for curve, average in ((micro, "micro"), (macro, "macro")):
            expected = f1_score(case.truth, decided, average=average, zero_division=0)
            assert curve.y[k] == pytest.approx(expected, abs=1e-12), (shift, average)
    for size in (1, 130):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(blocks, "BLOCK", size)
            again = f1_by_shift(case.evaluation, case.scores)
        for one, two in zip((micro, macro), again, strict=True):
            assert one.y == pytest.approx(two.y, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_give_the_curves_of_their_logits(kind: str) -> None:
    case = made(kind, tied=False)  # rounding would part equal scores
    if kind == "sparse":
        parts = sigmoid(case.scores.data), case.scores.indices, case.scores.indptr
        probability: Any = sp.csr_matrix(parts, case.scores.shape)
    elif kind == "masked":
        mask = np.ma.getmaskarray(case.scores)
        probability = np.ma.masked_array(sigmoid(case.scores.filled(0)), mask)
    else:
        probability = sigmoid(case.scores)
    values = case.rule.values
    stats = LabelStats.from_counts(case.evaluation.labels.train_count, 40)
    on = {"n_resamples": 0, "cuts": (5, 15)}
    logit = evaluate(case.truth, case.scores, Thresholds(values), stats, **on)
    given = Thresholds(values, scale="probability")
    own = evaluate(case.truth, probability, given, stats, **on)
    assert (logit.scale, own.scale) == ("logit", "probability")
    expected = f1_by_shift(logit, case.scores)
    # By argument; and by default as they were judged.
    for found in (f1_by_shift(logit, probability, "probability"), f1_by_shift(own, probability)):
        for one, two in zip(expected, found, strict=True):
            assert one.y == pytest.approx(two.y)
    curves = precision_recall(logit, case.scores)
    for found_curves in (
        precision_recall(logit, probability, scale="probability"),
        precision_recall(own, probability),
    ):
        for group, curve in curves.items():
            assert curve.x == pytest.approx(found_curves[group].x)
            assert curve.y == pytest.approx(found_curves[group].y)
    with pytest.raises(InputError, match="probabilities must lie in"):
        f1_by_shift(own, case.scores)


def test_scores_of_other_shape_or_scale_are_refused() -> None:
    case = made()
    for curve in (f1_by_shift, precision_recall):
        with pytest.raises(InputError, match=r"\(40, 6\).*\(40, 5\)"):
            curve(case.evaluation, case.scores[:, :5])
        with pytest.raises(InputError, match="scale must be one of"):
            curve(case.evaluation, case.scores, scale="odds")  # type: ignore[operator]
        with pytest.raises(InputError, match="finite"):
            curve(case.evaluation, np.full((40, 6), np.nan))


def test_nothing_scored_and_nothing_positive() -> None:
    stats = LabelStats.from_counts([3, 2, 1], 5)
    nothing = sp.csr_matrix((4, 3))
    for truth in (np.eye(4)[:, :3], np.zeros((4, 3))):
        for rule in RULES:
            found = evaluate(truth, nothing, Thresholds(np.zeros(3), **rule), stats, n_resamples=0)
            assert not any(curve.y.any() for curve in f1_by_shift(found, nothing))
            assert all(len(c.x) == 0 for c in precision_recall(found, nothing).values())


def test_a_million_labels_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels x steps in one piece would be 0.5 GiB for each of several arrays."""
    rng = np.random.default_rng(0)
    n_documents, n_labels, n_scored = 3000, 1_000_000, 30
    columns = np.sort(rng.integers(0, n_labels, (n_documents, n_scored)), axis=1)
    starts = np.arange(n_documents + 1) * n_scored
    values = rng.normal(size=columns.size).astype(np.float32)
    scores = sp.csr_matrix((values, columns.ravel(), starts), (n_documents, n_labels))
    scores.sum_duplicates()
    truth = scores.copy()
    truth.data = (truth.data > -1).astype(np.float32)  # most labels are carried by some document
    stats = LabelStats.from_counts(np.arange(n_labels) % 50, 100)
    rule = Thresholds(np.zeros(n_labels), top_k=5, at_least_one=True)
    found = evaluate(truth, scores, rule, stats, n_resamples=0)
    assert found.rule.n_labels == n_labels  # read from its plain form before memory is measured
    monkeypatch.setattr(blocks, "BLOCK", 2**18)
    tracemalloc.start()
    micro, macro = f1_by_shift(found, scores)
    curves = precision_recall(found, scores)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * 2**20, peak
    assert micro.y[STEPS // 2] == pytest.approx(found.overall.micro_f1)
    assert macro.y[STEPS // 2] == pytest.approx(found.overall.macro_f1)
    assert all(len(curve.x) > 100 for curve in curves.values())


def test_means_by_count_keep_all_labels_and_ties() -> None:
    truth = np.eye(5)
    scores = np.where(np.eye(5) * [1, 1, 0, 0, 1] > 0, 1.0, -1.0)
    curve = mean_f1_by_count(judged(truth, scores, [1, 1, 1, 1, 50]))
    assert curve.x == pytest.approx([1, 50]) and curve.y.tolist() == [0.5, 1.0]
    # A label that no judged document carries says nothing.
    alone = mean_f1_by_count(judged(truth[:4], scores[:4], [1, 1, 1, 1, 50]))
    assert alone.x == pytest.approx([1])
    assert len(mean_f1_by_count(judged(np.zeros((2, 1)), np.zeros((2, 1)), [1])).x) == 0
