"""Every loss against its formula in plain Python floats (naive.py), and the four reductions.

The batch has a document without labels, and the labels one without any training document and one
that every training document carries.
"""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from longtail.labels import LabelStats
from longtail.losses import BalancedLoss, build_loss
from longtail.losses.modules import MultiLabelLoss

from .cases import NAMES, edge_stats, loss_and_grad, make_batch, naive_terms, to_csr
from .naive import NAIVE

N_LABELS = 6
STATS = edge_stats(N_LABELS)
EXACT = {"rtol": 1e-10, "atol": 1e-13}


def exact_loss(name: str, reduction: str = "none", **overrides: object) -> MultiLabelLoss:
    return build_loss(name, STATS, reduction=reduction, dtype=torch.float64, **overrides)


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
def test_weighted_and_masked_reductions_count_known_elements(name: str, reduction: str) -> None:
    logits, target = make_batch(5, N_LABELS, seed=3)
    mask = torch.rand(5, N_LABELS, generator=torch.Generator().manual_seed(4)) < 0.6
    mask[2] = False
    weights = {"label_weight": torch.linspace(0.5, 2, N_LABELS, dtype=torch.float64)}
    call = {"mask": mask, "sample_weight": torch.tensor([1.0, 0.25, 3.0, 0.5, 2.0])}
    terms = naive_terms(name, logits, target, **call, **weights)
    positives = (target > 0) & mask
    if name == "two-way":
        ways = (terms[:5].sum() / positives.any(1).sum(), terms[5:].sum() / positives.any(0).sum())
        expected = terms.sum() if reduction == "sum" else ways[0] + ways[1]
    else:
        per_document = reduction == "batchmean" or terms.dim() == 1
        known = mask.any(dim=1).sum() if per_document else mask.sum()
        expected = terms.sum() / (1 if reduction == "sum" else known)
    actual = exact_loss(name, reduction, **weights)(logits, target, **call)
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


@pytest.mark.parametrize("cb_beta", [0.5, 0.9, 1 - 1e-4, 1 - 1e-9, 1 - 1e-13])
def test_the_class_balanced_weight_keeps_its_digits(cb_beta: float) -> None:
    # (1 - b) / (1 - b^n) = 1 / (1 + b + ... + b^(n-1)), exactly, in fractions.
    counts = [1, 2, 3, 10, 77]
    beta = Fraction(cb_beta)
    expected = [float(1 / sum(beta**k for k in range(count))) for count in counts]
    # A label of no document counts as half a one: (1 - b) / (1 - sqrt(b)) = 1 + sqrt(b).
    expected.append(1 + cb_beta**0.5)
    stats = LabelStats.from_counts([*counts, 0], 100)
    loss = build_loss("cb", stats, cb_beta=cb_beta, dtype=torch.float64)
    assert isinstance(loss, BalancedLoss) and loss.class_weight is not None
    assert loss.class_weight.tolist() == pytest.approx(expected, rel=1e-13, abs=0)
