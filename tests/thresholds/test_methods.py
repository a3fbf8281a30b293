"""Every method against its definition, written out slowly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.thresholds import METHODS, OBJECTIVES, fit_thresholds, methods
from longtail.thresholds.tuning import Column, cuts_of, make_tuning

from .cases import Case, cases, decide, earned, every_cut, f1, long_tail, property_test


def fit(case: Case, method: str, objective: Any = "mean", **options: Any) -> np.ndarray:
    counts = options.pop("counts", np.arange(case.labels.shape[1], 0, -1.0))
    return fit_thresholds(
        case.given(), case.labels, counts, method, objective=objective, **options
    ).values


# Per label


@given(cases())
@property_test
def test_no_cut_of_a_label_beats_its_own_without_shrinkage(case: Case) -> None:
    tuning = make_tuning(case.given(), case.labels, np.ones(case.labels.shape[1]))
    folds = np.zeros(len(case.labels), int)
    values, _ = methods.per_label(tuning, "mean", folds, shrinkage=0.0)
    curve, _ = methods.frequency(tuning, "mean", folds)
    decided = decide(case, values)
    for label in range(case.labels.shape[1]):
        truth, own = case.judged()[:, [label]], case.scores[:, [label]]
        scored = case.scored[:, [label]]
        if not (truth.astype(bool) & scored).any():
            assert values[label] == curve[label]
            continue
        cuts = every_cut(own[scored])
        best = max(earned(truth, (own >= cut) & scored, "macro") for cut in cuts)
        assert earned(truth, decided[:, [label]], "macro") == pytest.approx(best)


def test_a_positive_without_sparse_score_counts_as_missed() -> None:
    # Scored: hit, two misses, hit. With both known positives alone, one prediction earns 2/3 and
    # four earn 4/6, and the first is taken; eight more that are missed make it 2/11 against 4/14.
    scores = sp.csr_matrix(np.append([4.0, 3.0, 2.0, 1.0], np.zeros(8))[:, None])
    labels = np.array([1, 0, 0, 1] + [1] * 8)[:, None]
    tuning = make_tuning(scores, labels, [10])
    values, _ = methods.per_label(tuning, "macro", np.zeros(12, dtype=int), shrinkage=0.0)
    assert values[0] < 1


def test_shrinkage_weighs_by_positives() -> None:
    scores, labels, counts = long_tail(300, 12, 1)
    labels[:, 11] = 0
    tuning = make_tuning(scores, labels, counts)
    folds = np.zeros(300, dtype=int)
    own, _ = methods.per_label(tuning, "micro", folds, shrinkage=0.0)
    shared, said = methods.frequency(tuning, "micro", folds)
    values, details = methods.per_label(tuning, "micro", folds)
    n_positive = labels.sum(axis=0)
    weight = n_positive / (n_positive + methods.SHRINKAGE)
    np.testing.assert_allclose(values, weight * own + (1 - weight) * shared)
    assert values[11] == shared[11]
    assert details.items() <= {**said, "shrinkage": methods.SHRINKAGE}.items()
    almost, _ = methods.per_label(tuning, "micro", folds, shrinkage=1e12)
    np.testing.assert_allclose(almost, shared, atol=1e-6)


@pytest.mark.parametrize("value", [0.1, 1e15, -7.3])
@pytest.mark.parametrize("method", ["global", "per-label", "micromacro", "frequency"])
def test_a_constant_score_is_let_in_or_not_as_a_whole(method: str, value: float) -> None:
    # Means of equal thresholds must not drift above the score by their last bit.
    scores, labels = np.full((30, 3), value), np.ones((30, 3), dtype=int)
    found = fit_thresholds(scores, labels, [30, 30, 2], method, folds=np.arange(30) % 3)
    assert found.apply(scores).nnz == 90


# Grid


@given(cases(), st.sampled_from(OBJECTIVES))
@property_test
def test_grid_is_the_best_of_21(case: Case, objective: Any) -> None:
    # Probabilities, half of them on the grid itself, half between 0.35 and 0.65.
    chances = np.where(case.scores == case.scores.round(), case.scores / 10 + 0.5, 0.0)
    chances = np.where(chances > 0, chances, 0.5 + case.scores * 0.0375).round(4)
    case = case._replace(scores=chances)
    counts = np.ones(chances.shape[1])
    found = fit_thresholds(
        case.given(), case.labels, counts, "grid", objective=objective, scale="probability"
    )
    assert found.details["probability"] in methods.GRID
    decided = found.apply(case.given(), "probability").toarray()
    best = max(
        earned(case.judged(), decide(case, cut), objective)
        for cut in np.round(np.linspace(0.40, 0.60, 21), 2)
    )
    assert earned(case.judged(), decided, objective) == pytest.approx(best)
    np.testing.assert_array_equal(decided, decide(case, found.details["probability"]))


@given(cases(), st.sampled_from(OBJECTIVES))
@property_test
def test_grid_of_margins_is_the_best_of_21_shifts(case: Case, objective: Any) -> None:
    case = case._replace(scores=(case.scores * 0.3).round(2))
    counts = np.ones(case.scores.shape[1])
    found = fit_thresholds(
        case.given(), case.labels, counts, "grid", objective=objective, scale="margin"
    )
    shifts = np.round(np.linspace(-1, 1, 21), 1)
    assert found.details["shift"] in shifts and found.value == found.details["shift"]
    decided = found.apply(case.given()).toarray()
    best = max(earned(case.judged(), decide(case, cut), objective) for cut in shifts)
    assert earned(case.judged(), decided, objective) == pytest.approx(best)


def test_the_grid_is_the_papers() -> None:
    np.testing.assert_array_equal(methods.SHIFTS, np.round(np.linspace(-1, 1, 21), 1))
    assert len(methods.GRID) == 21
    assert methods.GRID[0] == 0.4 and methods.GRID[-1] == 0.6


# MICROMACRO


def slow_micromacro(case: Case, counts: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """Decisions of each turn as thresholds by document rank: means of the cuts of the turns."""
    n_labels = case.labels.shape[1]
    found: list[list[float]] = [[] for _ in range(n_labels)]
    turns = [folds != fold for fold in set(folds)] if len(set(folds)) > 1 else [folds >= 0]
    for rows in turns:
        hits = predicted = actual = 0
        for label in sorted(range(n_labels), key=lambda label: -counts[label]):
            truth = case.judged()[rows, label]
            known = case.scored[rows, label]
            values, applies = case.scores[rows, label][known], truth[known]
            actual += truth.sum()
            if not applies.any():
                continue
            low, high = values.min(), values.max()
            top = max(high + 1e-6 * (high - low), np.nextafter(high, np.inf))
            best, chosen = f1(hits, predicted, actual), (top, 0, 0)
            for cut in sorted(set(values), reverse=True):
                new_hits, new = int(applies[values >= cut].sum()), int((values >= cut).sum())
                reached = f1(hits + new_hits, predicted + new, actual)
                reached += f1(new_hits, new, truth.sum()) / n_labels
                if reached > best + 1e-13 or (chosen[2] == 0 and new_hits and reached >= best):
                    lower = values[values < cut]
                    below = lower.max() if lower.size else low - (high - low)
                    best, chosen = reached, ((cut + below) / 2, new_hits, new)
            found[label].append(chosen[0])
            hits, predicted = hits + chosen[1], predicted + chosen[2]
    return np.array([np.mean(turn) if turn else np.nan for turn in found])


@given(cases(), st.integers(1, 3), st.data())
@property_test
def test_micromacro_by_hand(case: Case, n_folds: int, data: st.DataObject) -> None:
    n_documents, n_labels = case.labels.shape
    folds = np.arange(n_documents) % n_folds
    counts = np.array(data.draw(st.permutations(range(1, n_labels + 1))), dtype=float)
    values = fit(case, "micromacro", counts=counts, folds=folds)
    expected = slow_micromacro(case, counts, folds)
    shared = fit(case, "global", counts=counts)
    np.testing.assert_allclose(values, np.where(np.isnan(expected), shared, expected), atol=1e-9)


@pytest.mark.parametrize("kind", ["dense", "masked", "csr"])
def test_sequence_and_labels_on_larger_data(kind: str) -> None:
    for seed in range(12):
        scores, labels, counts = long_tail(60, 6, seed, signal=1.0)
        scored = np.random.default_rng(seed).random(scores.shape) < 0.7
        scored[labels[:, 1] == 1, 1] = False  # no positive of label 1 is scored
        case = Case(labels, scores, scored | (kind == "dense"), kind)
        folds = np.arange(60) % 3
        expected = slow_micromacro(case, counts, folds)
        shared = fit(case, "global", counts=counts)
        expected = np.where(np.isnan(expected), shared, expected)
        found = fit(case, "micromacro", counts=counts, folds=folds)
        np.testing.assert_allclose(found, expected, atol=1e-9)
        tuning = make_tuning(case.given(), labels, counts)
        values, _ = methods.per_label(tuning, "mean", folds, shrinkage=0.0)
        for label in (0, 2, 3, 4, 5):
            truth, own = case.judged()[:, [label]], case.scored[:, [label]]
            reached = [
                earned(truth, (scores[:, [label]] >= cut) & own, "macro")
                for cut in (values[label], *every_cut(scores[:, label]))
            ]
            assert reached[0] == pytest.approx(max(reached))


def test_micromacro_starts_with_the_frequent() -> None:
    # Alone, the rare label would be cut at -1 (F1 2/3); after the frequent one's perfect micro-F1
    # its two false positives cost more than its F1 / 2 brings: not by labels' order, but counts'.
    labels = np.zeros((8, 2), dtype=int)
    labels[:4, 0] = 1
    labels[7, 1] = 1
    scores = np.column_stack([np.where(labels[:, 0], 1.0, -1.0), np.arange(8.0)[::-1]])
    folds = np.zeros(8)
    common = fit_thresholds(scores, labels, [9, 1], "micromacro", folds=folds)
    rare_first = fit_thresholds(scores, labels, [1, 9], "micromacro", folds=folds)
    assert common.apply(scores)[:, 1].nnz == 0
    assert rare_first.apply(scores)[:, 1].nnz == 8


# Frequency


@given(cases(), st.sampled_from(OBJECTIVES), st.data())
@property_test
def test_the_curve_never_earns_less_than_global(
    case: Case, objective: Any, data: st.DataObject
) -> None:
    size = case.labels.shape[1]
    counts = np.array(data.draw(st.lists(st.integers(0, 500), min_size=size, max_size=size)))
    found = fit_thresholds(case.given(), case.labels, counts, "frequency", objective=objective)
    single = fit(case, "global", objective)
    reached = earned(case.judged(), decide(case, found.values), objective)
    assert reached >= earned(case.judged(), decide(case, single), objective) - 1e-12
    assert found.details["earned_in_tuning"] == pytest.approx(reached, abs=1e-9)
    order = np.argsort(counts)
    assert (np.diff(found.values[order]) >= 0).all()


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("signal", [3.0, 0.0])
def test_the_curve_where_pairs_are_left_out(
    objective: Any, signal: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One label that nearly all documents carry, others that few do: with noise for scores the
    # best cut goes deeper than the pairs that are looked at first.
    rng = np.random.default_rng(0)
    labels = (rng.random((1500, 6)) < [0.97, 0.02, 0.01, 0.01, 0.0, 0.005]).astype(int)
    scores = rng.normal(size=labels.shape) + signal * labels
    counts = labels.sum(axis=0)
    every = fit_thresholds(scores, labels, counts, "frequency", objective=objective)
    monkeypatch.setattr(methods, "MANY_PAIRS", 100)
    tuning = make_tuning(scores, labels, counts)
    assert len(methods._best_pairs(tuning)[0]) < scores.size
    found = fit_thresholds(scores, labels, counts, "frequency", objective=objective)
    single = fit_thresholds(scores, labels, counts, "global", objective=objective)
    reached = earned(labels, found.apply(scores).toarray(), objective)
    assert reached >= earned(labels, single.apply(scores).toarray(), objective) - 1e-12
    assert found.details["earned_in_tuning"] == pytest.approx(reached)
    if signal:
        assert reached == pytest.approx(every.details["earned_in_tuning"], abs=0.01)


@pytest.mark.parametrize("kind", ["dense", "masked", "csr"])
@pytest.mark.parametrize("many", [100, 100_000])
def test_the_curve_falls_where_rare_labels_score_lower(
    many: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, labels, counts = long_tail(800, 30, 3)
    scores -= 1.5 * np.log(counts.max() / counts)
    case = Case(labels, scores, np.random.default_rng(0).random(scores.shape) < 0.95, kind)
    scores = case.given()
    monkeypatch.setattr(methods, "MANY_PAIRS", many)
    found = fit_thresholds(scores, labels, counts, "frequency", objective="macro")
    single = fit_thresholds(scores, labels, counts, "global", objective="macro")
    assert found.details["slope"] > 0
    assert found.details["earned_in_tuning"] > single.details["earned_in_tuning"] + 0.02


def test_the_best_pairs_are_some_and_never_masked_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "MANY_PAIRS", 100)
    rng = np.random.default_rng(0)
    labels = (rng.random((900, 4)) < [0.5, 0.02, 0.01, 0.0]).astype(int)
    # Most scores share a floor, as those of nearest neighbours do.
    scores = np.where(rng.random(labels.shape) < 0.05, rng.random(labels.shape), 0.0) + labels
    hidden = rng.random(labels.shape) < 0.2
    for scored, mask in ((scores, None), (np.ma.MaskedArray(scores, hidden), hidden)):
        tuning = make_tuning(scored, labels, [450, 18, 9, 0])
        values, columns, applies = methods._best_pairs(tuning)
        kept = np.bincount(columns, minlength=4)
        seen = labels if mask is None else labels * ~mask
        assert np.isfinite(values).all() and applies.sum() == seen.sum()
        assert kept[0] == (900 if mask is None else (~mask[:, 0]).sum())
        assert (kept[1:] <= 2 * (10 * seen.sum(axis=0) + 50)[1:]).all()


# Labels without a positive


@pytest.mark.parametrize("method", METHODS)
def test_a_label_without_positive_gets_the_documented_threshold(method: str) -> None:
    scores, labels, counts = long_tail(200, 8, 5)
    labels[:, [2, 7]] = 0
    found = fit_thresholds(scores, labels, counts, method)
    if method in ("frequency", "per-label"):
        slope, height, bend = (found.details[key] for key in ("slope", "height", "bend"))
        expected = height - slope * np.maximum(0, np.log(bend / counts))
        among = slice(None) if method == "frequency" else [2, 7]
        np.testing.assert_allclose(found.values[among], expected[among])
    elif method == "grid":
        assert found.value is not None
    else:
        shared = fit_thresholds(scores, labels, counts, "global").value
        assert found.values[2] == found.values[7] == shared


@pytest.mark.parametrize("method", [*METHODS, "auto"])
@pytest.mark.parametrize("kind", ["dense", "masked", "csr"])
def test_no_positive_at_all(method: str, kind: str) -> None:
    scores, labels, counts = long_tail(20, 4, 0)
    case = Case(np.zeros_like(labels), scores, scores > -1, kind)
    found = fit_thresholds(case.given(), case.labels, counts, method)
    assert np.isfinite(found.values).all()
    if method != "grid":  # the grid ends at 0.60
        assert found.apply(case.given()).nnz == 0
        assert (found.values > scores[case.scored | (kind == "dense")].max()).all()
    assert found.details.get("earned_in_tuning", 0.0) == 0.0


@pytest.mark.parametrize("method", [*METHODS, "auto"])
def test_all_positives(method: str) -> None:
    scores = np.random.default_rng(0).normal(size=(20, 4)) + 5
    found = fit_thresholds(scores, np.ones((20, 4)), [20] * 4, method)
    assert found.apply(scores).nnz == 80


@pytest.mark.parametrize("method", [*METHODS, "auto"])
def test_one_document(method: str) -> None:
    found = fit_thresholds([[2.0, -1.0]], [[1, 0]], [5, 1], method)
    assert found.apply([[2.0, -1.0]]).toarray().tolist() == [[1, 0]]


@pytest.mark.parametrize("method", [*METHODS, "auto"])
def test_nothing_scored(method: str) -> None:
    found = fit_thresholds(sp.csr_matrix((3, 2)), np.ones((3, 2)), [5, 1], method)
    assert np.isfinite(found.values).all()
    masked = np.ma.MaskedArray(np.full((3, 2), np.nan), True)
    found = fit_thresholds(masked, np.ones((3, 2)), [5, 1], method)
    assert np.isfinite(found.values).all()


def test_cuts_of_a_label() -> None:
    cuts = cuts_of(Column(0, np.array([1.0, 3, 3, 2, 1]), np.array([1, 0, 1, 0, 0], bool), 2))
    assert cuts.values.tolist() == [3, 1] and cuts.below.tolist() == [2, -1]
    assert cuts.hits.tolist() == [1, 2] and cuts.predicted.tolist() == [2, 5]
    assert [cuts.threshold(k) for k in (0, 1)] == [2.5, 0.0]
