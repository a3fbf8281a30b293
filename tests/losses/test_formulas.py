"""Every loss against its formula in plain Python floats (naive.py), and the four reductions.

The batch has a document without labels, and the labels one without any training document and one
that every training document carries.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from longtail.losses import build_loss
from longtail.losses.modules import MultiLabelLoss

from .cases import N_SAMPLES, NAMES, edge_stats, loss_and_grad, make_batch, to_csr
from .naive import NAIVE

N_LABELS = 6
STATS = edge_stats(N_LABELS)
EXACT = {"rtol": 1e-10, "atol": 1e-13}


def exact_loss(name: str, reduction: str = "none", **overrides: object) -> MultiLabelLoss:
    return build_loss(name, STATS, reduction=reduction, dtype=torch.float64, **overrides)


def naive_terms(name: str, logits: Tensor, target: Tensor) -> Tensor:
    terms = NAIVE[name](logits.tolist(), target.tolist(), STATS.label_counts.tolist(), N_SAMPLES)
    return torch.tensor(terms, dtype=torch.float64)


def test_every_row_has_its_formula() -> None:
    assert list(NAIVE) == NAMES


@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
@pytest.mark.parametrize("name", NAMES)
def test_terms_follow_the_formula(name: str, soft: bool) -> None:
    logits, target = make_batch(5, N_LABELS, seed=1, soft=soft)
    expected = naive_terms(name, logits, target)
    for form in (target, to_csr(target)):
        torch.testing.assert_close(exact_loss(name)(logits, form), expected, **EXACT)


@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
@pytest.mark.parametrize("name", NAMES)
def test_reductions_follow_the_formula(name: str, soft: bool) -> None:
    logits, target = make_batch(5, N_LABELS, seed=2, soft=soft)
    terms = naive_terms(name, logits, target)
    if name == "two-way":
        per_document, per_label = terms[:5], terms[5:]
        # A term counts where there is a positive; elsewhere it is 0.
        mean = per_document.sum() / (target > 0).any(1).sum()
        mean = mean + per_label.sum() / (target > 0).any(0).sum()
        expected = {"sum": terms.sum(), "mean": mean, "batchmean": mean}
    elif terms.dim() == 1:
        expected = {"sum": terms.sum(), "mean": terms.mean(), "batchmean": terms.mean()}
    else:
        expected = {
            "sum": terms.sum(),
            "mean": terms.mean(),
            "batchmean": terms.sum(dim=1).mean(),
        }
    for reduction, value in expected.items():
        actual = exact_loss(name, reduction)(logits, target)
        torch.testing.assert_close(actual, value, **EXACT)


@pytest.mark.parametrize("reduction", ["mean", "batchmean", "sum"])
@pytest.mark.parametrize("name", NAMES)
def test_masked_reductions_count_known_elements_only(name: str, reduction: str) -> None:
    logits, target = make_batch(5, N_LABELS, seed=3)
    mask = torch.rand(5, N_LABELS, generator=torch.Generator().manual_seed(4)) < 0.6
    mask[2] = False
    terms = exact_loss(name)(logits, target, mask=mask)
    positives = (target > 0) & mask
    if name == "two-way":
        ways = (terms[:5].sum() / positives.any(1).sum(), terms[5:].sum() / positives.any(0).sum())
        expected = terms.sum() if reduction == "sum" else ways[0] + ways[1]
    else:
        per_document = reduction == "batchmean" or terms.dim() == 1
        known = mask.any(dim=1).sum() if per_document else mask.sum()
        expected = terms.sum() / (1 if reduction == "sum" else known)
    actual = exact_loss(name, reduction)(logits, target, mask=mask)
    torch.testing.assert_close(actual, expected, **EXACT)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "two-way"])
def test_batchmean_does_not_depend_on_how_many_documents_repeat(name: str) -> None:
    logits, target = make_batch(3, N_LABELS, seed=5)
    loss = exact_loss(name, "batchmean")
    twice = loss(logits.repeat(2, 1), target.repeat(2, 1))
    torch.testing.assert_close(twice, loss(logits, target), **EXACT)


def test_bce_is_torch_binary_cross_entropy() -> None:
    logits, target = make_batch(4, N_LABELS, soft=True)
    ours, grad = loss_and_grad(build_loss("bce"), logits, target)
    leaf = logits.clone().requires_grad_()
    theirs = torch.nn.functional.binary_cross_entropy_with_logits(leaf, target)
    theirs.backward()
    torch.testing.assert_close(ours, theirs.detach(), **EXACT)
    torch.testing.assert_close(grad, leaf.grad, **EXACT)


@pytest.mark.parametrize(
    ("name", "overrides", "other"),
    [
        ("fl", {"gamma": 0}, "bce"),
        ("db", {"gamma": 0}, "db-0fl"),
        ("db", {"kappa": 0, "lambda_": 1}, "r-fl"),
        ("db", {"weighting": "class-balanced"}, "cb-ntr"),
        ("cb", {"cb_beta": 0}, "fl"),
        ("asl", {"gamma_positive": 2, "gamma_negative": 2, "margin": 0}, "fl"),
        ("logit-adjusted", {"tau": 0}, "bce"),
    ],
)
def test_relations_between_rows(name: str, overrides: dict[str, object], other: str) -> None:
    logits, target = make_batch(4, N_LABELS, soft=True)
    actual = exact_loss(name, **overrides)(logits, target)
    torch.testing.assert_close(actual, exact_loss(other)(logits, target), **EXACT)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 3.0])
def test_any_focal_exponent_agrees_on_the_fast_path(gamma: float) -> None:
    logits, target = make_batch(4, N_LABELS, soft=True)
    terms, grad = loss_and_grad(exact_loss("db", gamma=gamma), logits, target)
    total, fast_grad = loss_and_grad(exact_loss("db", "sum", gamma=gamma), logits, target)
    torch.testing.assert_close(total, terms.sum(), **EXACT)
    torch.testing.assert_close(fast_grad, grad, **EXACT)
