"""What must not change the decisions: unit, scale, order of documents and of labels, form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from longtail.thresholds import METHODS, OBJECTIVES, fit_thresholds

from .cases import Case, long_tail

ALL = (*METHODS, "auto")
SEEDS = range(3)
FOLDS = np.arange(150) % 4


def decisions(
    case: Case, counts: np.ndarray, method: str, objective: Any, folds: np.ndarray = FOLDS
) -> np.ndarray:
    found = fit_thresholds(
        case.given(), case.labels, counts, method, objective=objective, folds=folds
    )
    decided: np.ndarray = found.apply(case.given()).toarray()
    return decided


def example(seed: int, kind: str) -> tuple[Case, np.ndarray]:
    scores, labels, counts = long_tail(150, 10, seed)
    scored = np.random.default_rng(seed).random(scores.shape) < 0.9
    return Case(labels, scores, scored | (kind == "dense"), kind), counts


@pytest.mark.parametrize("kind", ["dense", "masked", "csr"])
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("method", ALL)
def test_what_does_not_matter(method: str, objective: str, kind: str) -> None:
    for seed in SEEDS[:1] if method == "auto" else SEEDS:
        case, counts = example(seed, kind)
        expected = decisions(case, counts, method, objective)
        rng = np.random.default_rng(seed)
        if method != "grid":  # which is on the scale of probabilities
            tripled = case._replace(scores=case.scores * 3 + 1)
            np.testing.assert_array_equal(
                decisions(tripled, counts, method, objective), expected, "unit"
            )
        documents = rng.permutation(150)
        shuffled = Case(*(part[documents] for part in case[:3]), kind)
        found = decisions(shuffled, counts, method, objective, FOLDS[documents])
        np.testing.assert_array_equal(found, expected[documents], "order of documents")
        labels = rng.permutation(10)
        turned = Case(*(part[:, labels] for part in case[:3]), kind)
        found = decisions(turned, counts[labels], method, objective)
        np.testing.assert_array_equal(found, expected[:, labels], "order of labels")


@pytest.mark.parametrize("kind", ["dense", "masked", "csr"])
@pytest.mark.parametrize("method", ALL)
def test_logits_and_probabilities_decide_alike(method: str, kind: str) -> None:
    for seed in SEEDS:
        case, counts = example(seed, kind)
        chances = case._replace(scores=1 / (1 + np.exp(-case.scores)))
        logits = fit_thresholds(case.given(), case.labels, counts, method)
        found = fit_thresholds(chances.given(), case.labels, counts, method, scale="probability")
        np.testing.assert_allclose(found.values, logits.values, atol=1e-9)
        decided = found.apply(chances.given(), "probability")
        assert (decided != logits.apply(case.given())).nnz == 0


@pytest.mark.parametrize("method", ALL)
def test_full_masked_and_sparse_scores_are_dense_scores(method: str) -> None:
    scores, labels, counts = long_tail(150, 10, 7)
    everything = np.ones(scores.shape, dtype=bool)
    dense, *others = (
        fit_thresholds(Case(labels, scores, everything, kind).given(), labels, counts, method)
        for kind in ("dense", "masked", "csr")
    )
    for other in others:
        assert (other.values == dense.values).all() and other.method == dense.method


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("method", ALL)
def test_lower_precision_decides_nearly_alike(method: str, dtype: Any) -> None:
    scores, labels, counts = long_tail(300, 10, 7)
    exact = fit_thresholds(scores, labels, counts, method).apply(scores)
    low = scores.astype(dtype)
    found = fit_thresholds(low, labels, counts, method).apply(low)
    assert (found != exact).nnz <= (0 if dtype == np.float32 else 15)
