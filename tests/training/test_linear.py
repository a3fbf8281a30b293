"""The solver of linear heads: the right optimum, chunked or not, for every loss and odd labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from longtail.errors import InputError, LongtailError
from longtail.labels import LabelStats
from longtail.losses import LOSSES, build_loss
from longtail.models.information import label_information
from longtail.training import linear
from longtail.training.linear import Linear, solve_linear

from .cases import states_in


def problem(
    n_documents: int = 80, n_labels: int = 5, n_features: int = 40, seed: int = 0
) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Documents whose labels follow from their features, with some noise."""
    rng = np.random.default_rng(seed)
    dense = rng.random((n_documents, n_features)) * (rng.random((n_documents, n_features)) < 0.2)
    scores = dense @ rng.standard_normal((n_features, n_labels))
    noisy = scores + 0.3 * rng.standard_normal(scores.shape)
    labels = noisy > np.quantile(noisy, 0.8, axis=0)
    return sp.csr_matrix(dense, dtype=np.float32), sp.csr_matrix(labels, dtype=np.float32)


X, Y = problem()


def solve(
    features: sp.csr_matrix, labels: sp.csr_matrix, loss: str, C: float = 10.0, **options: Any
) -> Linear:
    criterion = build_loss(loss, LabelStats.from_matrix(labels), reduction="sum")
    return solve_linear(features, labels, criterion, C, **options)


def logits_of(features: sp.csr_matrix, head: Linear) -> np.ndarray:
    return np.asarray(features @ np.asarray(head.weight).T + np.asarray(head.bias))


def objective(loss: str, C: float, weight: Any, bias: Any) -> float:
    """In float64 and with dense targets, unlike the solver."""
    double = build_loss(loss, LabelStats.from_matrix(Y), reduction="sum", dtype=torch.float64)
    weight, bias = np.asarray(weight, np.float64), np.asarray(bias, np.float64)
    cost = double(torch.from_numpy(X.toarray() @ weight.T + bias), torch.from_numpy(Y.toarray()))
    return C * float(cost) + 0.5 * float((weight**2).sum() + (bias**2).sum())


def assert_equal(first: Linear, second: Linear) -> None:
    assert torch.equal(first.weight, second.weight) and torch.equal(first.bias, second.bias)


@pytest.mark.parametrize("C", [0.5, 20.0])
def test_bce_is_logistic_regression(C: float) -> None:
    head = solve(X, Y, "bce", C, tolerance=1e-5)
    for label in range(Y.shape[1]):
        # liblinear regularises the bias too.
        other = LogisticRegression(C=C, solver="liblinear", tol=1e-10, max_iter=10_000)
        other.fit(X.astype(np.float64), Y[:, [label]].toarray().ravel())
        np.testing.assert_allclose(head.weight[label], other.coef_[0], atol=2e-3 * (1 + C))
        np.testing.assert_allclose(head.bias[label], other.intercept_[0], atol=2e-3 * (1 + C))


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_ends_near_a_minimum(loss: str) -> None:
    C = 10.0
    weight, bias = solve(X, Y, loss, C)
    value = objective(loss, C, weight, bias)
    assert value < objective(loss, C, torch.zeros_like(weight), torch.zeros_like(bias))
    rng = np.random.default_rng(0)
    size = 0.05 * float(weight.abs().mean())
    for _ in range(5):
        near = weight + size * torch.from_numpy(rng.standard_normal(weight.shape))
        assert objective(loss, C, near, bias) > value - 1e-3 * abs(value)


@pytest.mark.parametrize("loss", ["db", "cb-ntr", "r-bce"])
def test_chunks_change_nothing_and_are_resumed(
    loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y = problem(n_labels=7)
    whole = solve(X, Y, loss, tolerance=1e-5)
    monkeypatch.setattr(linear, "CHUNK_PAIRS", 2 * X.shape[0])
    store, calls, solved, minimise = states_in(tmp_path), [], [], linear.minimise

    def recorded(problem: Any, zeros: Any, tolerance: float) -> Any:
        solved.append(zeros.shape[1])
        return minimise(problem, zeros, tolerance)

    monkeypatch.setattr(linear, "minimise", recorded)
    parts = solve(X, Y, loss, tolerance=1e-5, chunks=store, progress=calls.append)
    torch.testing.assert_close(parts, whole, atol=1e-3, rtol=1e-3)
    assert [(call.done, call.total) for call in calls] == [(k, 7) for k in (2, 4, 6, 7)]
    assert sorted(solved) == [1, 2, 2, 2]
    for name in ("labels-2-4", "labels-6-7"):
        (tmp_path / f"{name}.safetensors").unlink()
    # What is stored is not solved again.
    assert_equal(parts, solve(X, Y, loss, tolerance=1e-5, chunks=store))
    assert sorted(solved[4:]) == [1, 2]


@given(
    n_documents=st.integers(1, 12),
    n_labels=st.integers(1, 5),
    loss=st.sampled_from(["bce", "db", "cb-ntr", "zlpr"]),
    seed=st.integers(0, 999),
)
@settings(max_examples=min(40, settings.default.max_examples))
def test_odd_labels_give_finite_weights(
    n_documents: int, n_labels: int, loss: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    features = sp.random(n_documents, 9, 0.3, format="csr", dtype=np.float32, random_state=seed)
    # Some labels on no document, some on all.
    dense = rng.random((n_documents, n_labels)) < rng.choice([0, 0.4, 1], n_labels)
    weight, bias = solve(features, sp.csr_matrix(dense, dtype=np.float32), loss)
    assert weight.shape == (n_labels, 9) and bias.shape == (n_labels,)
    assert torch.isfinite(weight).all() and torch.isfinite(bias).all()


def test_a_label_on_no_document_scores_low_and_one_on_all_high() -> None:
    dense = Y.toarray()
    dense[:, 0], dense[:, 1] = 0, 1
    logits = logits_of(X, solve(X, sp.csr_matrix(dense), "db", 1000.0))
    assert logits[:, 0].max() < 0 < logits[:, 1].min()


def test_documents_without_features_get_the_bias() -> None:
    head = solve(sp.csr_matrix(X.shape, dtype=np.float32), Y, "bce", 1000.0)
    assert not head.weight.any()
    share = np.asarray(Y.mean(axis=0)).ravel()
    np.testing.assert_allclose(head.bias, np.log(share / (1 - share)), atol=0.01)


def test_a_thousand_labels_of_one_document_each() -> None:
    features, _ = problem(100, 1, 60)
    labels = np.arange(1000)
    Y = sp.csr_matrix((np.ones(1000, np.float32), (labels % 100, labels)), (100, 1000))
    best = np.argmax(logits_of(features, solve(features, Y, "db", 100.0)), axis=0)
    assert (best == labels % 100).mean() > 0.99


@pytest.mark.parametrize("n_documents", [50, 3000])
def test_information_equals_the_plain_sum(n_documents: int) -> None:
    rng = np.random.default_rng(0)
    features = sp.random(n_documents, 30, 0.2, format="csr", random_state=0, dtype=np.float32)
    dense = rng.random((n_documents, 6)) < [0, 0.02, 0.1, 0.3, 0.9, 1]
    # Feature 0 is on all documents, feature 1 on those of label 3.
    features = sp.hstack([np.ones((n_documents, 1)), dense[:, [3]], features], format="csr")
    weight = label_information(features, sp.csr_matrix(dense.astype(np.float32)))
    energy = np.asarray(features.multiply(features).sum(axis=0)).ravel()
    assert (energy * weight**2).sum() == pytest.approx(energy.sum(), rel=1e-4)
    present = (features.toarray() > 0).astype(float)
    share = np.clip(dense.mean(axis=0), 0.5 / n_documents, 1 - 0.5 / (n_documents + 1))
    both, df = present.T @ dense, present.sum(axis=0)
    p = np.clip((both + 3 * share) / (df[:, None] + 3), 1e-12, 1 - 1e-9)
    divergence = p * np.log(p / share) + (1 - p) * np.log((1 - p) / (1 - share))
    plain = np.maximum(divergence.sum(axis=1), 1e-3) ** 0.25
    np.testing.assert_allclose(weight / weight[1], plain / plain[1], rtol=1e-4)
    assert weight.argmax() == 1 and weight[0] < weight[2:].mean()


@pytest.mark.parametrize("loss", ["bce", "zlpr"])
def test_unsolvable_problems_are_refused(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LongtailError, match="Lower C"):
        solve(X, Y, loss, 1e38)
    if loss == "zlpr":
        monkeypatch.setattr(linear, "WHOLE_WEIGHTS", 10)
        with pytest.raises(InputError, match="max_features"):
            solve(X, Y, loss)
