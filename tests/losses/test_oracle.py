"""Agreement with the authors' own loss code, recorded in fixtures/oracle.json.

The scripts multiply the paper's formula by a factor per loss; their NTR-FL is another formula.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from longtail.labels import LabelStats
from longtail.losses import build_loss

from .cases import loss_and_grad

ORACLE: dict[str, Any] = json.loads(
    (Path(__file__).parent / "fixtures" / "oracle.json").read_text(encoding="utf-8")
)
STATS = LabelStats.from_counts(ORACLE["label_counts"], ORACLE["n_samples"])
LOGITS = torch.tensor(ORACLE["logits"], dtype=torch.float64)
TARGETS = torch.tensor(ORACLE["targets"])
CASES = [(case, name) for case, rows in ORACLE["cases"].items() for name in rows]
AGREEING = [(case, name) for case, name in CASES if name != "ntr-fl"]
# The scripts computed in float32; the gradient's elements are 54 times smaller than the loss's.
CLOSE_LOSS: dict[str, float] = {"rtol": 0.0, "atol": 2e-7}
CLOSE_GRAD: dict[str, float] = {"rtol": 0.0, "atol": 5e-9}


def ours(case: str, name: str, reduction: str, **overrides: Any) -> tuple[Tensor, Tensor]:
    loss = build_loss(
        name, STATS, constants=case, reduction=reduction, dtype=torch.float64, **overrides
    )
    value, grad = loss_and_grad(loss, LOGITS, TARGETS)
    if reduction == "none":
        value, grad = value.mean(), grad / value.numel()
    return value, grad


def check_equal(case: str, name: str, actual: tuple[Tensor, Tensor]) -> None:
    row = ORACLE["cases"][case][name]
    loss, grad = (torch.tensor(row[part], dtype=torch.float64) for part in ("loss", "grad"))
    torch.testing.assert_close(actual[0] * row["factor"], loss, **CLOSE_LOSS)
    torch.testing.assert_close(actual[1] * row["factor"], grad, **CLOSE_GRAD)


def test_the_fixture_holds_all_eight_rows_twice() -> None:
    eight = ["bce", "fl", "cb", "r-fl", "ntr-fl", "db-0fl", "cb-ntr", "db"]
    rows = {case: list(rows) for case, rows in ORACLE["cases"].items()}
    assert rows == {"reuters": eight, "pubmed": eight}


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize(("case", "name"), AGREEING)
def test_loss_and_gradient_equal_the_scripts(case: str, name: str, reduction: str) -> None:
    check_equal(case, name, ours(case, name, reduction))


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("case", ["reuters", "pubmed"])
def test_ntr_fl_equals_the_scripts_without_one_over_lambda(case: str, reduction: str) -> None:
    check_equal(case, "ntr-fl", ours(case, "ntr-fl", reduction, negative_scale=1.0))
    # By default it is the paper's formula, as test_random checks.
    row = ORACLE["cases"][case]["ntr-fl"]
    assert abs(ours(case, "ntr-fl", reduction)[0] - row["loss"] / row["factor"]) > 0.1
