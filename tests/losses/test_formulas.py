"""Relations between the rows, and weights whose exact values are known; see test_random.py for all
values and gradients."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from longtail.labels import LabelStats
from longtail.losses import BalancedLoss, MultiLabelLoss, build_loss

from .cases import loss_and_grad, make_batch, make_loss

N_LABELS = 6
EXACT = {"rtol": 1e-10, "atol": 1e-13}


def exact_loss(name: str, reduction: str = "none", **overrides: object) -> MultiLabelLoss:
    return make_loss(name, N_LABELS, reduction=reduction, dtype=torch.float64, **overrides)


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
    torch.testing.assert_close((total, fast_grad), (terms.sum(), grad), **EXACT)


@pytest.mark.parametrize("cb_beta", [0.5, 0.9, 1 - 1e-4, 1 - 1e-9, 1 - 1e-13])
def test_the_class_balanced_weight_keeps_its_digits(cb_beta: float) -> None:
    # (1 - b) / (1 - b^n) = 1 / (1 + b + ... + b^(n-1)), exactly, in fractions.
    counts = [1, 2, 3, 10, 77]
    beta = Fraction(cb_beta)
    expected = [float(1 / sum(beta**k for k in range(count))) for count in counts]
    # A count of 0 is read as 0.5: (1 - b) / (1 - sqrt(b)) = 1 + sqrt(b).
    expected.append(1 + cb_beta**0.5)
    stats = LabelStats.from_counts([*counts, 0], 100)
    loss = build_loss("cb", stats, cb_beta=cb_beta, dtype=torch.float64)
    assert isinstance(loss, BalancedLoss) and loss.class_weight is not None
    assert loss.class_weight.tolist() == pytest.approx(expected, rel=1e-13, abs=0)
