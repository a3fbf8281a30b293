"""Unknown labels and weights of documents: what each solver and the loop learn is what they learn
without the unknown pairs, with documents repeated, or without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.labels import LabelStats
from longtail.losses import build_loss
from longtail.training import hinge
from longtail.training.encoded import DeviceFeed, HostFeed, Partial
from longtail.training.hinge import solve_hinge
from longtail.training.linear import solve_linear

from .cases import documents, make_network, train_tiny, trained
from .test_linear import X, Y, logits_of, problem

SEEDS = st.integers(0, 10_000)


def hidden_pairs(seed: int, labels: sp.csr_matrix = Y) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Labels, 0 where they are unknown, and the unknown pairs: none, some or most of a label."""
    rng = np.random.default_rng(seed)
    hidden = rng.random(labels.shape) < rng.choice([0.0, 0.2, 0.8], size=labels.shape[1])
    # Some label of each document is known, as others are left out before.
    hidden[:, -1] = False
    return sp.csr_matrix(labels.toarray() * ~hidden), sp.csr_matrix(hidden)


def head_of(
    loss: str, features: Any, labels: Any, unknown: Any = None, weights: Any = None
) -> np.ndarray:
    """The logits of all documents by a head that some of them taught."""
    labels, partial = sp.csr_matrix(labels), Partial(unknown, weights)
    if loss == "hinge":
        return np.asarray((X @ solve_hinge(features, labels, 1.0, partial=partial).T).toarray())
    stats = LabelStats.from_counts(np.full(labels.shape[1], 10), 100)
    criterion = build_loss(loss, stats, reduction="sum")
    return logits_of(
        X, solve_linear(features, labels, criterion, 5.0, tolerance=1e-5, partial=partial)
    )


@settings(max_examples=8)
@given(SEEDS, st.sampled_from(["hinge", "bce", "cb-ntr", "asl"]))
def test_an_unknown_pair_equals_leaving_the_document_out_for_the_label(
    seed: int, loss: str
) -> None:
    labels, unknown = hidden_pairs(seed)
    ours = head_of(loss, X, labels, unknown=unknown)
    for label in range(labels.shape[1]):
        known = unknown[:, [label]].toarray().ravel() == 0
        alone = head_of(loss, X[known], labels[known][:, [label]])
        tolerance = 1e-6 if loss == "hinge" else 0.02
        np.testing.assert_allclose(ours[:, [label]], alone, atol=tolerance)


@settings(max_examples=5)
@given(SEEDS)
def test_rebalanced_weights_stay_those_of_the_whole_document(seed: int) -> None:
    labels, unknown = hidden_pairs(seed)
    stats = LabelStats.from_matrix(Y)
    criterion = build_loss("db", stats, reduction="sum")
    head = solve_linear(X, labels, criterion, 5.0, tolerance=1e-5, partial=Partial(unknown))
    logits = torch.from_numpy(logits_of(X, head)).float().requires_grad_()
    known = torch.from_numpy(~unknown.toarray())
    criterion(logits, torch.from_numpy(labels.toarray()), mask=known).backward()
    # Where the gradient of the penalty and that of the masked loss cancel.
    rest = 5.0 * logits.grad.numpy().T @ X.toarray() + head.weight.numpy()
    assert np.abs(rest).max() < 0.01


@settings(max_examples=6)
@given(SEEDS, st.sampled_from(["hinge", "bce", "db", "zlpr"]))
def test_a_weight_equals_repeating_a_document(seed: int, loss: str) -> None:
    weights = np.random.default_rng(seed).integers(0, 3, X.shape[0]).astype(float)
    rows = np.repeat(np.arange(X.shape[0]), weights.astype(int))
    repeated = head_of(loss, X[rows], Y[rows])
    # Hinge stops at a wide tolerance, which repeated documents reach on another way.
    tolerance = 0.15 if loss == "hinge" else 0.02
    np.testing.assert_allclose(head_of(loss, X, Y, weights=weights), repeated, atol=tolerance)


@pytest.mark.parametrize("loss", ["hinge", "bce", "zlpr"])
def test_a_weight_of_0_equals_leaving_the_document_out(loss: str) -> None:
    labels, unknown = hidden_pairs(3)
    weights = np.where(np.arange(X.shape[0]) % 4, 0.7, 0.0)
    kept = weights > 0
    without = head_of(loss, X[kept], labels[kept], unknown=unknown[kept], weights=weights[kept])
    with_all = head_of(loss, X, labels, unknown=unknown, weights=weights)
    np.testing.assert_allclose(with_all, without, atol=1e-6 if loss == "hinge" else 0.02)


def test_the_restricted_problem_also_leaves_out_unknown_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The restricted problem, in which others are added round by round."""
    monkeypatch.setattr(hinge, "EXACT_PAIRS", 0)
    features, labels = problem(n_documents=4000, n_labels=4, seed=2)
    labels, unknown = hidden_pairs(1, labels)
    weights = solve_hinge(features, labels, 1.0, partial=Partial(unknown))
    for label in (0, 1, 2):
        known = unknown[:, [label]].toarray().ravel() == 0
        alone = solve_hinge(features[known], labels[known][:, [label]], 1.0)
        ours, theirs = (features @ each.toarray()[0] for each in (weights[label], alone))
        assert np.corrcoef(ours, theirs)[0, 1] > 0.98


def test_feeds_have_the_same_masks_and_weights() -> None:
    encoded, labels = documents()
    labels, unknown = hidden_pairs(5, labels)
    weights, rows = np.linspace(0, 2, labels.shape[0]), np.array([7, 0, 19])
    host = HostFeed(encoded, labels, torch.device("cpu"), Partial(unknown, weights))
    device = DeviceFeed(encoded, labels, torch.device("cpu"), Partial(unknown, weights))
    _, (_, *first) = host.batch(rows, None)
    _, (_, *second) = device.batch(torch.from_numpy(rows), device.width(rows))
    assert torch.equal(first[0], torch.from_numpy(~unknown[rows].toarray()))
    assert torch.equal(first[1], torch.from_numpy(weights[rows]).float())
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))
    sizes = (
        DeviceFeed.n_bytes(encoded, labels),
        DeviceFeed.n_bytes(encoded, labels, Partial(unknown)),
    )
    assert sizes[1] - sizes[0] == 8 * labels.shape[0] * np.diff(unknown.indptr).max()


def test_a_network_learns_nothing_about_a_label_that_is_unknown() -> None:
    before = make_network().head
    hidden = np.zeros((20, 3), dtype=bool)
    hidden[:, 1] = True
    encoded, labels = documents()
    labels = sp.csr_matrix(labels.toarray() * ~hidden)
    after = trained(data=(encoded, labels), partial=Partial(sp.csr_matrix(hidden)))
    moved = (after["head.weight"] - before.weight).abs().amax(dim=1) > 1e-4
    assert moved.tolist() == [True, False, True]


def test_a_network_weighs_documents() -> None:
    encoded, labels = documents()
    weights = np.arange(20) % 3.0
    rows = np.repeat(np.arange(20), weights.astype(int))
    options: dict[str, Any] = dict(batch_size=64, loss=build_loss("bce", reduction="sum"))
    weighted = trained(data=(encoded, labels), partial=Partial(weights=weights), **options)
    repeated = trained(data=(encoded.select(rows), labels[rows]), **options)
    for name, value in weighted.items():
        torch.testing.assert_close(value, repeated[name], atol=1e-4, rtol=1e-3)


def test_accumulation_with_masks_and_weights() -> None:
    encoded, labels = documents()
    labels, unknown = hidden_pairs(5, labels)
    partial = Partial(unknown, np.linspace(0.5, 2, 20))
    first, second = make_network(), make_network()
    for network, micro in ((first, 8), (second, 3)):
        train_tiny(network, data=(encoded, labels), micro_batch=micro, partial=partial)
    for name, value in first.state_dict().items():
        torch.testing.assert_close(value, second.state_dict()[name], atol=1e-4, rtol=1e-3)
