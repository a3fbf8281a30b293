"""Squared hinge by dual coordinate descent: the optimum of the exact problem, whole or restricted
to the documents that matter, label by label, whatever the number of threads."""

from __future__ import annotations

import joblib
import numba
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from longtail.training import descent, hinge
from longtail.training.hinge import BIAS, solve_hinge

from .test_linear import X, Y, problem


def objective(weights: np.ndarray, features: sp.csr_matrix, y: np.ndarray, C: float) -> float:
    """That of one label: C x summed squared hinge + half the squared weights."""
    margins = np.where(y > 0, 1, -1) * (features @ weights + BIAS)
    return float(C * (np.maximum(0, 1 - margins) ** 2).sum() + weights @ weights / 2)


def optimum(features: sp.csr_matrix, y: np.ndarray, C: float) -> np.ndarray:
    """By a solver that has nothing in common with ours, in float64."""
    features, signs = features.astype(np.float64), np.where(y > 0, 1, -1)

    def value(weights: np.ndarray) -> tuple[float, np.ndarray]:
        slack = np.maximum(0, 1 - signs * (features @ weights + BIAS))
        gradient = weights - 2 * C * (features.T @ (signs * slack))
        return float(C * slack @ slack + weights @ weights / 2), gradient

    options = {"maxiter": 5000, "ftol": 1e-14, "gtol": 1e-9}
    start = np.zeros(features.shape[1])
    return np.asarray(minimize(value, start, jac=True, method="L-BFGS-B", options=options).x)


def assert_optimal(features: sp.csr_matrix, labels: sp.csr_matrix, C: float) -> None:
    """Within 2 % of the optimum on all documents, which are ranked alike."""
    weights = solve_hinge(features, labels, C).toarray()
    assert weights.shape == (labels.shape[1], features.shape[1])
    for row, y in zip(weights, labels.toarray().T, strict=True):
        best = optimum(features, y, C)
        limit = objective(best, features, y, C)
        assert objective(row, features, y, C) <= 1.02 * limit + 1e-6
        ours, theirs = features @ row, features @ best
        clear = theirs[:, None] > theirs[None, :] + 0.3
        assert not (clear & (ours[:, None] <= ours[None, :])).any()


@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
def test_the_whole_problem(C: float) -> None:
    assert_optimal(X, Y, C)


def clustered(
    n: int = 3000, n_labels: int = 6, seed: int = 0
) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Documents of words of Zipf's frequencies, and rare labels with words of their own."""
    rng = np.random.default_rng(seed)
    n_words, n_own = 400, 8
    share = 1 / np.arange(1, n_words + 1)
    words = sp.lil_matrix((n, n_words + n_own * n_labels), dtype=np.float32)
    labels = np.zeros((n, n_labels), dtype=np.float32)
    for row in range(n):
        words[row, rng.choice(n_words, 12, replace=False, p=share / share.sum())] = 1
        if rng.random() < 0.2:
            label = int(rng.integers(n_labels))
            labels[row, label] = rng.random() < 0.9
            own = n_words + n_own * label + rng.integers(n_own, size=3)
            words[row, own] = 1
    features = sp.csr_matrix(words)
    scaled = sp.diags(1 / np.sqrt(features.sum(axis=1).A1)) @ features
    return sp.csr_matrix(scaled, dtype=np.float32), sp.csr_matrix(labels)


@pytest.mark.parametrize("C", [1.0, 10.0])
def test_the_documents_that_matter_are_enough(C: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hinge, "EXACT_PAIRS", 0)
    features, labels = clustered()
    # Restricted to fewer than there are: the nearest, and what the solution gets wrong.
    most = max(hinge.FEWEST, hinge.PER_POSITIVE * labels.sum(axis=0).max())
    assert 2 * most < features.shape[0]
    assert_optimal(features, labels, C)


def test_labels_of_no_one_and_all_documents() -> None:
    dense = Y.toarray()[:, :4]
    dense[:, 0], dense[:, 1], dense[:, 2] = 0, 1, np.arange(len(dense)) == 7
    labels = sp.csr_matrix(dense)
    weights = solve_hinge(X, labels, 10.0)
    assert weights[0].nnz == 0
    scores = (X @ weights.T).toarray() + BIAS
    assert (scores[:, 1] > BIAS).all() and scores[:, 2].argmax() == 7
    assert_optimal(X, labels, 10.0)


@settings(max_examples=min(40, settings.default.max_examples))
@given(
    n_documents=st.integers(1, 12),
    n_labels=st.integers(1, 5),
    C=st.sampled_from([0.01, 1.0, 100.0]),
    seed=st.integers(0, 999),
)
def test_odd_problems(n_documents: int, n_labels: int, C: float, seed: int) -> None:
    """Rows and columns of zeros, few documents; the labels do not depend on each other."""
    rng = np.random.default_rng(seed)
    features = sp.random(n_documents, 9, 0.3, format="csr", dtype=np.float32, random_state=seed)
    dense = rng.random((n_documents, n_labels)) < rng.choice([0, 0.4, 1], n_labels)
    labels = sp.csr_matrix(dense, dtype=np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hinge, "MIN_CHUNK", 2)
        together = solve_hinge(features, labels, C)
        together.check_format(full_check=True)
        assert np.isfinite(together.data).all() and together.has_canonical_format
        assert together.shape == (n_labels, 9) and together.dtype == np.float32
        for label in range(n_labels):
            alone = solve_hinge(features, labels[:, [label]], C)
            assert (alone != together[label]).nnz == 0


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = clustered(1200, 40)
    monkeypatch.setattr(hinge, "MIN_CHUNK", 3)
    solved, calls = [], []
    for threads in (1, 2, 5):
        monkeypatch.setattr(joblib, "cpu_count", lambda threads=threads: threads)
        solved.append(solve_hinge(features, labels, 1.0, calls.append))
    assert all((each != solved[0]).nnz == 0 for each in solved)
    assert [(c.done, c.total) for c in calls[:14]] == [(min(3 * k, 40), 40) for k in range(1, 15)]


def test_one_c_for_each_label() -> None:
    each = np.array([0.1, 1.0, 10.0, 0.0, 3.0])
    weights = solve_hinge(X, Y, each)
    for label, C in enumerate(each):
        expected = solve_hinge(X, Y[:, [label]], float(C)) if C else sp.csr_matrix((1, X.shape[1]))
        assert (weights[label] != expected).nnz == 0


def test_the_head_is_sparse() -> None:
    features, labels = problem(400, 3, 300)
    weights = solve_hinge(features, labels, 1.0)
    largest = abs(weights).max(axis=1).toarray().ravel()
    assert (
        abs(weights.data) > descent.SMALLEST * np.repeat(largest, np.diff(weights.indptr))
    ).all()


@pytest.mark.parametrize("pairs", [0, hinge.EXACT_PAIRS])
def test_a_start_from_another_c_ends_at_the_same_optimum(
    pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hinge, "EXACT_PAIRS", pairs)
    features, labels = clustered(1200)
    solutions: dict[float, hinge.Duals] = {}
    for C in (1.0, 10.0, 3.0, 0.1):
        started = solve_hinge(features, labels, C, duals=hinge.nearest_duals(solutions, C))
        alone = solve_hinge(features, labels, C)
        for row, other, y in zip(
            started.toarray(), alone.toarray(), labels.toarray().T, strict=True
        ):
            limit = objective(other, features, y, C)
            # Both are within the tolerance of the descent; at C=0.1 that is 4 %.
            assert objective(row, features, y, C) <= 1.05 * limit + 1e-6
    assert list(solutions) == [1.0, 10.0, 3.0, 0.1]


def test_labels_of_two_documents_in_a_large_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hinge, "EXACT_PAIRS", 0)
    features, _ = clustered(600)
    dense = np.zeros((600, 2), dtype=np.float32)
    dense[[3, 70], 0], dense[200, 1] = 1, 1
    scores = (features @ solve_hinge(features, sp.csr_matrix(dense), 10.0).T).toarray()
    assert set(np.argsort(-scores[:, 0])[:2]) == {3, 70} and scores[:, 1].argmax() == 200


@settings(max_examples=min(40, settings.default.max_examples))
@given(
    n_documents=st.integers(1, 60),
    limit=st.integers(1, 8),
    levels=st.integers(1, 40),
    floor=st.sampled_from([0.0, 0.1]),
    seed=st.integers(0, 999),
)
def test_the_nearest_documents_are_those_of_all_scores(
    n_documents: int, limit: int, levels: int, floor: float, seed: int
) -> None:
    """Also where many scores are equal, and without the documents to leave out."""
    rng = np.random.default_rng(seed)
    features = sp.random(n_documents, 5, 0.5, format="csr", dtype=np.float32, random_state=seed)
    features.data = np.ceil(features.data * levels).astype(np.float32)
    queries = rng.integers(-1, 3, size=(5, 3)).astype(np.float32)
    left_out = [np.flatnonzero(rng.random(n_documents) < 0.2).astype(np.int32) for _ in range(3)]
    found = descent.score_all(
        descent.Rows.of(features),
        n_documents,
        queries.ravel(),
        numba.typed.List(left_out),
        np.array([limit, 1, limit]),
        floor,
    )
    for k, most in enumerate((limit, 1, limit)):
        scores = features @ queries[:, k]
        scores[left_out[k]] = -1
        above = np.flatnonzero(scores > floor)
        if len(above) > most:
            above = above[scores[above] >= np.sort(scores[above])[-most]][:most]
        chosen = np.zeros(n_documents, np.int32)
        size = descent.append_highest(*found[k], chosen, 0, most)
        np.testing.assert_array_equal(chosen[:size], above)
