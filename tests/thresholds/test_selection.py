"""Cross-validated F1 of methods, the choice among them, and no access to test data."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.errors import InputError, UnknownNameError
from longtail.thresholds import (
    METHODS,
    OBJECTIVES,
    Thresholds,
    cross_validated_decisions,
    cross_validated_score,
    fit_thresholds,
    list_methods,
    selection,
)
from longtail.thresholds.tuning import make_tuning

from .cases import KINDS, Case, f1_of, long_tail


def parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters)


def test_no_function_that_tunes_can_see_test_data() -> None:
    known = {"scores", "y_true", "label_counts", "method", "objective", "scale", "folds"}
    known.add("random_state")
    limited = known | {"min_labels", "max_labels"}
    assert parameters(fit_thresholds) == parameters(cross_validated_decisions) == limited
    assert parameters(cross_validated_score) == known
    for method in METHODS.values():
        assert parameters(method) - {"shrinkage"} == {"tuning", "objective"}
    assert not hasattr(Thresholds, "fit")
    assert parameters(Thresholds.apply) == {"self", "scores", "scale"}


@pytest.mark.parametrize("limits", [{}, {"min_labels": 1, "max_labels": 1}, {"min_labels": 2}])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_cross_validation_by_hand(method: str, kind: str, limits: dict[str, int]) -> None:
    scores, labels, counts = long_tail(90, 6, 1)
    case = Case(labels, scores, np.random.default_rng(1).random(scores.shape) < 0.8, kind)
    folds = np.repeat([7, 3, 5], 30)  # any names
    decided = np.zeros(labels.shape)
    for fold in (3, 5, 7):
        rest, held_out = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        rule: dict[str, Any] = {"folds": folds[rest], **limits}
        fitted = fit_thresholds(case.form[rest], labels[rest], counts, method, **rule)
        decided[held_out] = fitted.apply(case.form[held_out]).toarray()
    rule = {"folds": folds, **limits}
    decisions = cross_validated_decisions(case.form, labels, counts, method.upper(), **rule)
    np.testing.assert_array_equal(decisions.toarray() > 0, decided > 0)
    if limits:
        return
    result = cross_validated_score(case.form, labels, counts, method, folds=folds)
    for objective in OBJECTIVES:
        assert result.of(objective) == pytest.approx(f1_of(case.truth, decided, objective))
    assert result == (result.of("micro"), result.of("macro"))


def test_auto_is_nested_in_cross_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, labels, counts = long_tail(100, 6, 1)
    folds = np.arange(100) % 4
    calls = []
    choose = selection._choose

    def recorded(tuning: Any, objective: Any) -> Any:
        calls.append((len(tuning.folds), sorted(set(tuning.folds))))
        return choose(tuning, objective)

    monkeypatch.setattr(selection, "_choose", recorded)
    cross_validated_score(scores, labels, counts, "auto", folds=folds)
    assert calls == [(75, [1, 2, 3]), (75, [0, 2, 3]), (75, [0, 1, 3]), (75, [0, 1, 2])]
    calls.clear()
    two = cross_validated_score(scores, labels, counts, "auto", folds=folds % 2)
    # Of two folds one is left, on which no choice can be cross-validated.
    assert calls == []
    assert two == cross_validated_score(scores, labels, counts, "global", folds=folds % 2)


def test_folds_are_checked() -> None:
    scores, labels, counts = long_tail(10, 3, 0)
    for function in (fit_thresholds, cross_validated_score):
        with pytest.raises(InputError, match=r"one fold per document, 10 in all, .*\(2,\)"):
            function(scores, labels, counts, "global", folds=[0, 1])
    with pytest.raises(InputError, match="at least two documents in two folds"):
        cross_validated_score(scores, labels, counts, "global", folds=[0] * 10)
    with pytest.raises(InputError, match="at least two documents in two folds"):
        cross_validated_score([[1.0]], [[1]], [1], "global")
    assert fit_thresholds(scores, labels, counts, "auto", folds=[0] * 10).method == "global"


def test_folds_by_random_state() -> None:
    data = np.zeros((103, 1)), np.zeros((103, 1)), [1]
    first, again, other = (make_tuning(*data, random_state=seed).folds for seed in (0, 0, 1))
    assert (first == again).all() and (first != other).any()
    assert sorted(np.bincount(first)) == [20, 20, 21, 21, 21]


@pytest.mark.parametrize("function", [fit_thresholds, cross_validated_score])
def test_unusable_arguments_are_refused(function: Any) -> None:
    scores, labels, counts = long_tail(10, 3, 0)
    with pytest.raises(UnknownNameError, match=r"threshold method 'globl'.*'global'"):
        function(scores, labels, counts, "globl")
    with pytest.raises(UnknownNameError, match=r"objective 'makro'.*'macro'"):
        function(scores, labels, counts, "global", objective="makro")
    with pytest.raises(InputError, match="scale must be"):
        function(scores, labels, counts, "global", scale="auto")
    nothing, invalid = np.zeros((0, 3)), np.where(scores == scores.max(), np.nan, scores)
    for arguments, message in (
        ((scores[:9], labels, counts), r"\(10, 3\).*\(9, 3\)"),
        ((scores, labels, counts[:2]), "3 finite training counts, one per label"),
        ((scores, scores, counts), "labels must be 0 or 1"),
        ((nothing, nothing, counts), "at least one document"),
        ((invalid, labels, counts), "NaN"),
        *(((scores, labels, [1, 1, bad]), "finite training") for bad in (-1.0, np.nan, np.inf)),
    ):
        with pytest.raises(InputError, match=message):
            function(*arguments, "global")


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_noise_leads_to_the_default_method(objective: Any) -> None:
    chosen = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        labels = (rng.random((200, 15)) < 0.1).astype(int)
        scores = rng.normal(size=labels.shape)
        auto = fit_thresholds(scores, labels, labels.sum(axis=0), objective=objective)
        chosen.append(auto.method)
    assert chosen.count("per-label") >= 9, chosen


def test_a_clear_gain_is_taken_and_reported() -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random((600, 8)) < 0.3).astype(int)
    scores = rng.normal(size=labels.shape) + 3 * labels + np.linspace(-6, 6, 8)
    auto = fit_thresholds(scores, labels, [100] * 8)
    assert auto.method == "micromacro"
    table = auto.details["cross_validated_f1"]
    assert table == {
        method: list(cross_validated_score(scores, labels, [100] * 8, method))
        for method in selection.CANDIDATES
    }
    assert sum(table[auto.method]) > sum(table["global"]) + 0.2


@pytest.mark.parametrize(("gain", "taken"), [(0.02, False), (0.06, False), (0.07, True)])
def test_a_gain_must_exceed_three_standard_errors(
    gain: float, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, labels, counts = long_tail(200, 8, 0)
    scores += np.linspace(-6, 6, 8)
    monkeypatch.setattr(selection, "_gain", lambda *arguments: (gain, 0.02))
    assert (fit_thresholds(scores, labels, counts).method != "per-label") is taken


def test_the_standard_error_of_a_gain() -> None:
    labels = np.ones((100, 1), dtype=int)
    right = sp.csr_matrix(np.repeat([[1.0], [0.0]], [50, 50], axis=0))
    none = sp.csr_matrix((100, 1))
    tuning = make_tuning(np.zeros((100, 1)), labels, [1])
    gain, error = selection._gain(tuning, none, right, "micro")
    assert gain == pytest.approx(2 * 50 / 150)
    # F1 = 2h / (h + 100), h binomial(100, 1/2): derivative 200 / 150^2 times a deviation of 5.
    assert error == pytest.approx(5 * 200 / 150**2, rel=0.2)
    assert selection._gain(tuning, right, right, "mean") == (0.0, 0.0)


@pytest.mark.parametrize("method", list_methods())
def test_masked_pairs_and_their_labels_are_ignored(method: str) -> None:
    scores, labels, counts = long_tail(200, 6, 4)
    folds = np.arange(200) % 4
    # Label 5 has documents in fold 0 only: its model of fold 0 was trained without any, and gives
    # a constant.
    labels[:, 5] = 0
    labels[folds == 0, 5] = np.arange(50) < 8
    scores[folds == 0, 5] = 9.0
    mask = np.zeros(scores.shape, dtype=bool)
    mask[folds == 0, 5] = True
    masked = np.ma.MaskedArray(scores, mask)
    unmasked = fit_thresholds(scores, labels, counts, method, folds=folds)
    thresholds = fit_thresholds(masked, labels, counts, method, folds=folds)
    assert thresholds.apply(masked)[folds == 0][:, 5].nnz == 0
    otherwise = np.ma.MaskedArray(np.where(mask, -1e9, scores), mask), np.where(mask, 0, labels)
    other = fit_thresholds(*otherwise, counts, method, folds=folds)
    np.testing.assert_array_equal(other.values, thresholds.values)
    if method == "per-label":
        curve = fit_thresholds(masked, labels, counts, "frequency", folds=folds)
        assert thresholds.values[5] == curve.values[5] != unmasked.values[5]
    elif method == "global":
        score = cross_validated_score(masked, labels, counts, method, folds=folds)
        assert score == cross_validated_score(*otherwise, counts, method, folds=folds)
