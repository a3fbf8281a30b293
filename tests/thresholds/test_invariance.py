"""Decisions do not depend on unit, scale, order of documents and labels, form or dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from longtail.thresholds import OBJECTIVES, fit_thresholds, list_methods

from .cases import KINDS, Case, long_tail

FOLDS = np.arange(150) % 4


def decisions(
    case: Case, counts: np.ndarray, method: str, objective: Any, folds: np.ndarray = FOLDS
) -> np.ndarray:
    thresholds = fit_thresholds(
        case.form, case.labels, counts, method, objective=objective, folds=folds
    )
    decided: np.ndarray = thresholds.apply(case.form).toarray()
    return decided


def example(seed: int, kind: str) -> tuple[Case, np.ndarray]:
    scores, labels, counts = long_tail(150, 10, seed)
    scored = np.random.default_rng(seed).random(scores.shape) < 0.9
    return Case(labels, scores, scored | (kind == "dense"), kind), counts


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("method", list_methods())
def test_unit_and_order(method: str, objective: str, kind: str) -> None:
    for seed in range(1 if method == "auto" else 3):
        case, counts = example(seed, kind)
        expected = decisions(case, counts, method, objective)
        rng = np.random.default_rng(seed)
        if method != "grid":  # which is on the scale of probabilities
            tripled = case._replace(scores=case.scores * 3 + 1)
            decided = decisions(tripled, counts, method, objective)
            np.testing.assert_array_equal(decided, expected, "unit")
        rows, columns = rng.permutation(150), rng.permutation(10)
        shuffled = Case(*(part[rows] for part in case[:3]), kind)
        decided = decisions(shuffled, counts, method, objective, FOLDS[rows])
        np.testing.assert_array_equal(decided, expected[rows], "order of documents")
        shuffled = Case(*(part[:, columns] for part in case[:3]), kind)
        decided = decisions(shuffled, counts[columns], method, objective)
        np.testing.assert_array_equal(decided, expected[:, columns], "order of labels")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", list_methods())
def test_logits_and_probabilities_decide_alike(method: str, kind: str) -> None:
    for seed in range(3):
        case, counts = example(seed, kind)
        chances = case._replace(scores=1 / (1 + np.exp(-case.scores)))
        logits = fit_thresholds(case.form, case.labels, counts, method)
        thresholds = fit_thresholds(chances.form, case.labels, counts, method, scale="probability")
        np.testing.assert_allclose(thresholds.values, logits.values, atol=1e-9)
        decided = thresholds.apply(chances.form, "probability")
        assert (decided != logits.apply(case.form)).nnz == 0


@pytest.mark.parametrize("method", list_methods())
def test_form_and_precision(method: str) -> None:
    scores, labels, counts = long_tail(300, 10, 7)
    everything = np.ones(scores.shape, dtype=bool)
    dense, *others = (
        fit_thresholds(Case(labels, scores, everything, kind).form, labels, counts, method)
        for kind in KINDS
    )
    for other in others:
        assert (other.values == dense.values).all() and other.method == dense.method
    for dtype, most in ((np.float16, 15), (np.float32, 0)):
        low = scores.astype(dtype)
        decided = fit_thresholds(low, labels, counts, method).apply(low)
        assert (decided != dense.apply(scores)).nnz <= most
