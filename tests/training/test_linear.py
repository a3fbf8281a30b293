"""The solver of linear heads: the right optimum, chunked or not, for every loss and odd labels."""

from __future__ import annotations

from collections.abc import Mapping
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
from longtail.losses import LOSSES, MultiLabelLoss, build_loss
from longtail.models.information import label_information
from longtail.training import linear
from longtail.training.linear import solve_linear

CPU = torch.device("cpu")


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


def loss_of(name: str, Y: sp.csr_matrix) -> MultiLabelLoss:
    return build_loss(name, LabelStats.from_matrix(Y), reduction="sum")


def objective(
    X: sp.csr_matrix, Y: sp.csr_matrix, name: str, C: float, weight: Any, bias: Any
) -> float:
    """In float64 and with dense targets, so by another way than the solver's."""
    loss = build_loss(name, LabelStats.from_matrix(Y), reduction="sum", dtype=torch.float64)
    wide, offset = np.asarray(weight, np.float64), np.asarray(bias, np.float64)
    cost = loss(torch.from_numpy(X.toarray() @ wide.T + offset), torch.from_numpy(Y.toarray()))
    return C * float(cost) + 0.5 * float((wide**2).sum() + (offset**2).sum())


class Kept:
    """A store in memory that counts what is asked of it."""

    def __init__(self) -> None:
        self.chunks: dict[str, tuple[dict[str, torch.Tensor], Any]] = {}
        self.loaded = 0

    def save(
        self, tensors: Mapping[str, torch.Tensor], facts: Any = None, name: str = "state"
    ) -> None:
        self.chunks[name] = ({key: value.clone() for key, value in tensors.items()}, facts)

    def load(self, name: str = "state") -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
        self.loaded += name in self.chunks
        return self.chunks.get(name)


@pytest.mark.parametrize("C", [0.5, 20.0])
def test_bce_finds_the_optimum_of_logistic_regression(C: float) -> None:
    X, Y = problem()
    weight, bias = solve_linear(
        X, Y, loss_of("bce", Y), C, device=CPU, tolerance=1e-5, informed=False
    )
    for label in range(Y.shape[1]):
        # liblinear, as it is the one that draws the bias towards 0 too.
        other = LogisticRegression(C=C, solver="liblinear", tol=1e-10, max_iter=10_000)
        other.fit(X.astype(np.float64), Y[:, [label]].toarray().ravel())
        np.testing.assert_allclose(weight[label], other.coef_[0], atol=2e-3 * (1 + C))
        np.testing.assert_allclose(bias[label], other.intercept_[0], atol=2e-3 * (1 + C))


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_ends_below_its_start_and_near_a_minimum(name: str) -> None:
    X, Y = problem()
    C = 10.0
    weight, bias = solve_linear(X, Y, loss_of(name, Y), C, device=CPU, informed=False)
    found = objective(X, Y, name, C, weight, bias)
    start = objective(X, Y, name, C, torch.zeros_like(weight), torch.zeros_like(bias))
    assert found < start
    rng = np.random.default_rng(0)
    size = 0.05 * float(weight.abs().mean())
    for _ in range(5):
        near = weight + size * torch.from_numpy(rng.standard_normal(weight.shape))
        assert objective(X, Y, name, C, near, bias) > found - 1e-3 * abs(found)


@pytest.mark.parametrize("name", ["db", "cb-ntr", "r-bce"])
def test_chunks_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = problem(n_labels=7)
    whole = solve_linear(X, Y, loss_of(name, Y), 10.0, device=CPU, tolerance=1e-5)
    monkeypatch.setattr(linear, "CHUNK_PAIRS", 2 * X.shape[0])
    parts = solve_linear(X, Y, loss_of(name, Y), 10.0, device=CPU, tolerance=1e-5)
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3)


def test_same_again_and_resumed_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = problem(n_labels=7)
    monkeypatch.setattr(linear, "CHUNK_PAIRS", 2 * X.shape[0])
    store, told = Kept(), []
    first = solve_linear(
        X, Y, loss_of("db", Y), 10.0, device=CPU, chunks=store, progress=lambda *t: told.append(t)
    )
    assert len(store.chunks) == 4 and [t[0] for t in told] == [2, 4, 6, 7]
    for name in list(store.chunks)[2:]:
        del store.chunks[name]
    second = solve_linear(X, Y, loss_of("db", Y), 10.0, device=CPU, chunks=store)
    assert store.loaded == 2
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


def test_a_stored_chunk_is_used_and_not_solved_again() -> None:
    X, Y = problem()
    store = Kept()
    solve_linear(X, Y, loss_of("db", Y), 10.0, device=CPU, chunks=store)
    ((tensors, _),) = store.chunks.values()
    tensors["bias"].fill_(123.0)
    assert solve_linear(X, Y, loss_of("db", Y), 10.0, device=CPU, chunks=store)[1][0] == 123.0


@given(
    n_documents=st.integers(1, 12),
    n_labels=st.integers(1, 5),
    name=st.sampled_from(["bce", "db", "cb-ntr", "zlpr"]),
    seed=st.integers(0, 999),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_odd_labels_give_finite_weights(
    n_documents: int, n_labels: int, name: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    X = sp.random(n_documents, 9, 0.3, format="csr", dtype=np.float32, random_state=seed)
    # Some labels on no document, some on all.
    Y = sp.csr_matrix(rng.random((n_documents, n_labels)) < rng.choice([0, 0.4, 1], n_labels))
    Y = sp.csr_matrix(Y, dtype=np.float32)
    weight, bias = solve_linear(X, Y, loss_of(name, Y), 10.0, device=CPU)
    assert weight.shape == (n_labels, 9) and bias.shape == (n_labels,)
    assert torch.isfinite(weight).all() and torch.isfinite(bias).all()


def test_a_label_on_no_document_is_low_and_one_on_all_high() -> None:
    X, Y = problem()
    dense = Y.toarray()
    dense[:, 0], dense[:, 1] = 0, 1
    odd = sp.csr_matrix(dense)
    weight, bias = solve_linear(X, odd, loss_of("db", odd), 1000.0, device=CPU)
    logits = X @ np.asarray(weight).T + np.asarray(bias)
    assert logits[:, 0].max() < 0 < logits[:, 1].min()


def test_documents_without_features_get_the_bias() -> None:
    X, Y = problem()
    empty = sp.csr_matrix(X.shape, dtype=np.float32)
    weight, bias = solve_linear(empty, Y, loss_of("bce", Y), 1000.0, device=CPU)
    assert not weight.any()
    share = np.asarray(Y.mean(axis=0)).ravel()
    np.testing.assert_allclose(bias, np.log(share / (1 - share)), atol=0.01)


def test_ten_thousand_labels_of_one_document_each() -> None:
    rng = np.random.default_rng(0)
    dense = rng.random((100, 60)) * (rng.random((100, 60)) < 0.2)
    labels = np.arange(10_000)
    Y = sp.csr_matrix((np.ones(10_000, np.float32), (labels % 100, labels)), (100, 10_000))
    X = sp.csr_matrix(dense, dtype=np.float32)
    weight, bias = solve_linear(X, Y, loss_of("db", Y), 100.0, device=CPU)
    best = np.argmax(X @ np.asarray(weight).T + np.asarray(bias), axis=0)
    assert (best == labels % 100).mean() > 0.99


def test_what_cannot_be_solved_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = problem()
    with pytest.raises(LongtailError, match="Lower C"):
        solve_linear(X, Y, loss_of("bce", Y), 1e38, device=CPU)
    with pytest.raises(LongtailError, match="Lower C"):
        solve_linear(X, Y, loss_of("zlpr", Y), 1e38, device=CPU)
    with pytest.raises(InputError, match="reduction"):
        solve_linear(X, Y, build_loss("bce", reduction="mean"), 1.0, device=CPU)
    with pytest.raises(InputError, match="rows"):
        solve_linear(X[:-1], Y, loss_of("bce", Y), 1.0, device=CPU)
    monkeypatch.setattr(linear, "WHOLE_WEIGHTS", 10)
    with pytest.raises(InputError, match="max_features"):
        solve_linear(X, Y, loss_of("zlpr", Y), 1.0, device=CPU)


def test_informed_is_the_solution_of_scaled_features() -> None:
    X, Y = problem()
    scale = label_information(X, Y)
    scaled = sp.csr_matrix(X @ sp.diags(scale), dtype=np.float32)
    plain = solve_linear(scaled, Y, loss_of("db", Y), 10.0, device=CPU, informed=False)
    found = solve_linear(X, Y, loss_of("db", Y), 10.0, device=CPU)
    assert torch.equal(found[0], plain[0] * torch.from_numpy(scale))
    assert torch.equal(found[1], plain[1])


def test_bad_values_are_refused_and_stored_zeros_are_no_labels() -> None:
    X, Y = problem()
    loss = loss_of("bce", Y)
    for C in (0.0, -1.0, float("nan")):
        with pytest.raises(InputError, match="C must be"):
            solve_linear(X, Y, loss, C, device=CPU)
    with pytest.raises(InputError, match="0 or 1"):
        solve_linear(X, Y * 0.5, loss, 1.0, device=CPU)
    broken = X.copy()
    broken.data[0] = np.nan
    with pytest.raises(InputError, match="NaN"):
        solve_linear(broken, Y, loss, 1.0, device=CPU)
    stored = Y.copy()
    stored.data[::2] = 0
    clean = stored.copy()
    clean.eliminate_zeros()
    for one, other in zip(
        solve_linear(X, stored, loss, 1.0, device=CPU),
        solve_linear(X, clean, loss, 1.0, device=CPU),
        strict=True,
    ):
        assert torch.equal(one, other)
