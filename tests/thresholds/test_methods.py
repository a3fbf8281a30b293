"""Every method against its definition, written out slowly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.thresholds import METHODS, OBJECTIVES, fit_thresholds, list_methods, methods
from longtail.thresholds.cuts import best_cut
from longtail.thresholds.tuning import make_tuning

from .cases import KINDS, Case, cases, decide, f1, f1_of, long_tail

DOCUMENT = Path(__file__).parents[2] / "docs" / "evaluation.md"


def fit(case: Case, method: str, counts: np.ndarray | None = None, **options: Any) -> Any:
    counts = np.ones(case.labels.shape[1]) if counts is None else counts
    return fit_thresholds(case.form, case.labels, counts, method, **options)


@pytest.mark.parametrize("method", METHODS)
def test_the_documentation_has_the_first_line_of_every_method(method: str) -> None:
    first = (METHODS[method].__doc__ or "").split("\n\n")[0]
    summary = " ".join(first.split()).removesuffix(".")
    assert f"\n| `{method}` | {summary}" in DOCUMENT.read_text("utf-8")


@given(cases(), st.sampled_from(OBJECTIVES))
def test_no_cut_of_a_label_beats_its_threshold_without_shrinkage(
    case: Case, objective: Any
) -> None:
    tuning = make_tuning(case.form, case.labels, np.ones(case.labels.shape[1]))
    values, _ = methods.per_label(tuning, objective, shrinkage=0.0)
    curve, _ = methods.frequency(tuning, objective)
    for label in range(case.labels.shape[1]):
        positive = case.truth[:, label].astype(bool) & case.scored[:, label]
        if not positive.any():
            assert values[label] == curve[label]
            continue
        # All other labels have their thresholds on the curve, which does not affect macro-F1.
        reached = {}
        for cut in (values[label], *np.unique(case.scores[positive, label])):
            decided = decide(case, np.where(np.arange(len(curve)) == label, cut, curve))
            reached[cut] = f1_of(case.truth, decided, objective)
        assert reached[values[label]] == pytest.approx(max(reached.values()), abs=1e-12)


def test_shrinkage_weighs_by_positives() -> None:
    scores, labels, counts = long_tail(300, 12, 1)
    labels[:, 11] = 0
    tuning = make_tuning(scores, labels, counts)
    unshrunk, _ = methods.per_label(tuning, "micro", shrinkage=0.0)
    curve, curve_details = methods.frequency(tuning, "micro")
    values, details = methods.per_label(tuning, "micro")
    n_positive = labels.sum(axis=0)
    weight = n_positive / (n_positive + methods.SHRINKAGE)
    np.testing.assert_allclose(values, weight * unshrunk + (1 - weight) * curve)
    assert values[11] == curve[11]
    assert details.items() <= {**curve_details, "shrinkage": methods.SHRINKAGE}.items()


@pytest.mark.parametrize("value", [0.1, 1e15, -7.3])
@pytest.mark.parametrize("method", ["global", "per-label", "micromacro", "frequency"])
def test_a_constant_score_is_predicted_for_all_documents(method: str, value: float) -> None:
    # The mean of equal thresholds must not exceed the score by rounding.
    scores, labels = np.full((30, 3), value), np.ones((30, 3), dtype=int)
    thresholds = fit_thresholds(scores, labels, [30, 30, 2], method, folds=np.arange(30) % 3)
    assert thresholds.apply(scores).nnz == 90


@pytest.mark.parametrize(
    ("scale", "name", "grid"),
    [
        ("probability", "probability", np.round(np.linspace(0.40, 0.60, 21), 2)),
        ("margin", "shift", np.round(np.linspace(-1, 1, 21), 1)),
    ],
)
@given(cases(), st.sampled_from(OBJECTIVES))
def test_grid_is_the_best_of_21(
    scale: Any, name: str, grid: np.ndarray, case: Case, objective: Any
) -> None:
    scores = (case.scores * 0.3).round(2)
    if scale == "probability":  # half of them on the grid itself, half between 0.35 and 0.65
        on_grid = np.where(case.scores == case.scores.round(), case.scores / 10 + 0.5, 0.0)
        scores = np.where(on_grid > 0, on_grid, 0.5 + case.scores * 0.0375).round(4)
    case = case._replace(scores=scores)
    thresholds = fit(case, "grid", objective=objective, scale=scale)
    chosen = thresholds.details[name]
    assert chosen in grid
    decided = thresholds.apply(case.form).toarray()
    np.testing.assert_array_equal(decided, decide(case, chosen))
    best = max(f1_of(case.truth, decide(case, cut), objective) for cut in grid)
    assert f1_of(case.truth, decided, objective) == pytest.approx(best)


def slow_micromacro(case: Case, counts: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """Means over the fits, each of which tries every cut of every label."""
    n_labels = case.labels.shape[1]
    fits: list[list[float]] = [[] for _ in range(n_labels)]
    parts = [folds != fold for fold in set(folds)] if len(set(folds)) > 1 else [folds >= 0]
    for rows in parts:
        hits = predicted = actual = 0
        for label in sorted(range(n_labels), key=lambda label: -counts[label]):
            truth, known = case.truth[rows, label], case.scored[rows, label]
            values, applies = case.scores[rows, label][known], truth[known]
            actual += truth.sum()
            if not applies.any():
                continue
            low, high = values.min(), values.max()
            top = max(high + 1e-6 * (high - low), np.nextafter(high, np.inf))
            best, chosen = f1(hits, predicted, actual), (top, 0, 0)
            for cut in sorted(set(values), reverse=True):
                new_hits, new = int(applies[values >= cut].sum()), int((values >= cut).sum())
                value = f1(hits + new_hits, predicted + new, actual)
                value += f1(new_hits, new, truth.sum()) / n_labels
                if value > best + 1e-13 or (chosen[2] == 0 and new_hits and value >= best):
                    lower = values[values < cut]
                    below = lower.max() if lower.size else low - (high - low)
                    best, chosen = value, ((cut + below) / 2, new_hits, new)
            fits[label].append(chosen[0])
            hits, predicted = hits + chosen[1], predicted + chosen[2]
    shared = fit(case, "global", counts).values[0]
    return np.array([np.mean(values) if values else shared for values in fits])


@given(cases(), st.integers(1, 3), st.data())
def test_micromacro_by_hand(case: Case, n_folds: int, data: st.DataObject) -> None:
    n_documents, n_labels = case.labels.shape
    folds = np.arange(n_documents) % n_folds
    counts = np.array(data.draw(st.permutations(range(1, n_labels + 1))), dtype=float)
    values = fit(case, "micromacro", counts, folds=folds).values
    np.testing.assert_allclose(values, slow_micromacro(case, counts, folds), atol=1e-9)


@given(cases(), st.sampled_from(OBJECTIVES), st.data())
def test_the_curve_is_never_worse_than_global(
    case: Case, objective: Any, data: st.DataObject
) -> None:
    size = case.labels.shape[1]
    counts = np.array(data.draw(st.lists(st.integers(0, 500), min_size=size, max_size=size)))
    curve, single = (
        fit(case, method, counts, objective=objective) for method in ("frequency", "global")
    )
    reached = f1_of(case.truth, decide(case, curve.values), objective)
    assert reached >= f1_of(case.truth, decide(case, single.values), objective) - 1e-12
    assert curve.details["tuning_f1"] == pytest.approx(reached, abs=1e-9)
    assert (np.diff(curve.values[np.argsort(counts)]) >= 0).all()


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("signal", [3.0, 0.0])
def test_levels_hardly_change_the_best_curve(objective: Any, signal: float) -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random((1500, 6)) < [0.97, 0.02, 0.01, 0.01, 0.0, 0.005]).astype(int)
    scores = rng.normal(size=labels.shape) + signal * labels
    counts = np.maximum(1, labels.sum(axis=0))
    tuning = make_tuning(scores, labels, counts)
    spread, reached = scores[labels > 0].std(), []
    for bend in np.quantile(counts, methods.BENDS):
        rarity = np.maximum(0, np.log(bend / counts))
        for drop in methods.DROPS:
            offsets = drop * spread * rarity / max(rarity.max(), 1e-9)
            reached.append(best_cut(tuning, objective, offsets)[1])
    curve = fit_thresholds(scores, labels, counts, "frequency", objective=objective)
    assert max(reached) - 0.003 < curve.details["tuning_f1"] <= max(reached) + 1e-12
    assert curve.details["tuning_f1"] >= best_cut(tuning, objective)[1]


@pytest.mark.parametrize("method", METHODS)
def test_a_label_without_positive_gets_the_documented_threshold(method: str) -> None:
    scores, labels, counts = long_tail(200, 8, 5)
    labels[:, [2, 7]] = 0
    thresholds = fit_thresholds(scores, labels, counts, method)
    if method in ("frequency", "per-label"):
        slope, height, bend = (thresholds.details[key] for key in ("slope", "height", "bend"))
        expected = height - slope * np.maximum(0, np.log(bend / counts))
        among = slice(None) if method == "frequency" else [2, 7]
        np.testing.assert_allclose(thresholds.values[among], expected[among])
    elif method == "grid":
        assert len(set(thresholds.values)) == 1
    else:
        shared = fit_thresholds(scores, labels, counts, "global").values[0]
        assert thresholds.values[2] == thresholds.values[7] == shared


@pytest.mark.parametrize("method", list_methods())
@pytest.mark.parametrize("kind", KINDS)
def test_no_positive_at_all(method: str, kind: str) -> None:
    scores, labels, counts = long_tail(20, 4, 0)
    case = Case(np.zeros_like(labels), scores, (scores > -1) | (kind == "dense"), kind)
    thresholds = fit(case, method, counts)
    assert np.isfinite(thresholds.values).all()
    if method != "grid":  # the grid ends at 0.60
        assert (thresholds.values > scores[case.scored].max()).all()
    assert thresholds.details.get("tuning_f1", 0.0) == 0.0


@pytest.mark.parametrize("method", list_methods())
def test_all_positives_one_document_nothing_scored(method: str) -> None:
    scores = np.random.default_rng(0).normal(size=(20, 4)) + 5
    thresholds = fit_thresholds(scores, np.ones((20, 4)), [20] * 4, method)
    assert thresholds.apply(scores).nnz == 80
    thresholds = fit_thresholds([[2.0, -1.0]], [[1, 0]], [5, 1], method)
    assert thresholds.apply([[2.0, -1.0]]).toarray().tolist() == [[1, 0]]
    for scores in (sp.csr_matrix((3, 2)), np.ma.MaskedArray(np.full((3, 2), np.nan), True)):
        thresholds = fit_thresholds(scores, np.ones((3, 2)), [5, 1], method)
        assert np.isfinite(thresholds.values).all()
