"""The fused head and loss equals the head followed by the loss, in value and all gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from longtail import LabelStats, build_loss
from longtail.errors import InputError
from longtail.fused import linear_loss

from .losses.cases import BALANCED, to_offsets

GENERATOR = torch.Generator().manual_seed(0)
FEATURES, WEIGHT, BIAS = (
    torch.randn(size, generator=GENERATOR, dtype=torch.float64) for size in ((5, 4), (11, 4), (11,))
)
TARGET = (torch.rand(5, 11, generator=GENERATOR) < 0.3).double()
STATS = LabelStats.from_counts(torch.randint(0, 30, (11,), generator=GENERATOR).numpy(), 40)
DB: Any = build_loss("db", STATS, dtype=torch.float64)


@pytest.mark.parametrize("name", BALANCED)
@pytest.mark.parametrize("reduction", ["mean", "batchmean", "sum"])
@pytest.mark.parametrize("chunk_labels", [1, 4, 100])
def test_equals_head_then_loss(name: str, reduction: str, chunk_labels: int) -> None:
    loss: Any = build_loss(name, STATS, reduction=reduction, dtype=torch.float64)
    results = []
    for form in ("plain", "dense", "sparse"):
        inputs = [tensor.clone().requires_grad_() for tensor in (FEATURES, WEIGHT, BIAS)]
        if form == "plain":
            value = loss(F.linear(*inputs), TARGET)
        else:
            wanted = TARGET if form == "dense" else to_offsets(TARGET)
            value = linear_loss(*inputs, wanted, loss, chunk_labels=chunk_labels)
        value.backward()
        results.append([value.detach(), *(tensor.grad for tensor in inputs)])
    for other in results[1:]:
        torch.testing.assert_close(other, results[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": build_loss("zlpr")}, "needs a BalancedLoss with a reduction to a number"),
        ({"loss": build_loss("bce", reduction="none")}, "with a reduction to a number"),
        ({"features": None}, "features must be a tensor, got NoneType"),
        ({"weight": WEIGHT.numpy()}, "weight must be a tensor, got ndarray"),
        ({"bias": [0.0]}, "bias must be a tensor, got list"),
        ({"weight": WEIGHT.float()}, r"weight is torch\.float32 on cpu.*float64 on cpu"),
        ({"weight": WEIGHT.T}, r"features \(documents, width\) and weight \(labels, width\)"),
        ({"bias": torch.zeros(12)}, r"bias of shape \(11,\), got \(12,\)"),
        ({"bias": BIAS.to("meta")}, r"bias is torch\.float64 on meta.* one type"),
        ({"features": FEATURES.to_sparse_coo()}, "features must be a dense tensor"),
        ({"features": FEATURES.long(), "weight": WEIGHT.long(), "bias": None}, "floating-point"),
        ({"target": 3 * TARGET}, r"lie in \[0, 1\]"),
        ({"target": TARGET.to("meta")}, "targets are on meta, the logits on cpu"),
        *[
            ({"chunk_labels": chunk}, "chunk_labels must be a whole number of at least 1, got")
            for chunk in (0, -1, "8", 2.5, None, True, float("nan"))
        ],
    ],
)
def test_bad_arguments_are_refused(change: dict[str, Any], message: str) -> None:
    good = {"features": FEATURES, "weight": WEIGHT, "bias": BIAS, "target": TARGET, "loss": DB}
    with pytest.raises(InputError, match=message):
        linear_loss(**good | change)


def test_types_may_differ_under_autocast() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear_loss(FEATURES.float(), WEIGHT.bfloat16(), None, TARGET, DB).isfinite()


@pytest.mark.parametrize("name", BALANCED)
@pytest.mark.parametrize("n_labels", [1, 10, 12])
def test_a_loss_of_other_labels_is_refused(name: str, n_labels: int) -> None:
    # One label's constants would fit any number of labels by broadcasting.
    stats = LabelStats.from_counts([3] * n_labels, 40)
    by_stats = build_loss(name, stats)
    by_weight = build_loss("bce", label_weight=torch.ones(n_labels))
    for loss in (by_stats, by_weight):
        with pytest.raises(InputError, match=f"built for {n_labels} labels.* 11 columns"):
            linear_loss(FEATURES, WEIGHT, BIAS, TARGET, loss)


@pytest.mark.filterwarnings("ignore:.*[Ss]parse:UserWarning")
def test_targets_that_want_a_gradient_are_refused() -> None:
    soft = (0.9 * TARGET).requires_grad_()
    for form in (soft, soft.to_sparse_csr()):
        with pytest.raises(InputError, match=r"no gradient.* target\.detach\(\)"):
            linear_loss(FEATURES, WEIGHT, BIAS, form, DB)
    value = linear_loss(FEATURES, WEIGHT, BIAS, soft.detach(), DB)
    torch.testing.assert_close(value, DB(F.linear(FEATURES, WEIGHT, BIAS), soft).detach())


def test_nan_and_infinite_logits_show() -> None:
    for wrong in (float("nan"), float("inf"), -float("inf")):
        broken = BIAS.clone()
        broken[3] = wrong
        expected = DB(F.linear(FEATURES, WEIGHT, broken), TARGET)
        torch.testing.assert_close(
            linear_loss(FEATURES, WEIGHT, broken, TARGET, DB, chunk_labels=4),
            expected,
            equal_nan=True,
        )
        assert not expected.isfinite()
