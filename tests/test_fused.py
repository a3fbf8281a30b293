"""The fused head and loss equals the head followed by the loss, in value and all gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from longtail import LabelStats, build_loss
from longtail.errors import InputError
from longtail.fused import linear_loss
from longtail.losses import LOSSES, BalancedLoss

BALANCED = [name for name, row in LOSSES.items() if row.module is BalancedLoss]


def make(
    seed: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, LabelStats]:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    weight = torch.randn(11, 4, generator=generator, dtype=torch.float64)
    bias = torch.randn(11, generator=generator, dtype=torch.float64)
    target = (torch.rand(5, 11, generator=generator) < 0.3).double()
    counts = torch.randint(0, 30, (11,), generator=generator).numpy()
    return features, weight, bias, target, LabelStats.from_counts(counts, 40)


@pytest.mark.parametrize("name", BALANCED)
@pytest.mark.parametrize("reduction", ["mean", "batchmean", "sum"])
@pytest.mark.parametrize("chunk_labels", [1, 4, 100])
def test_equals_head_then_loss(name: str, reduction: str, chunk_labels: int) -> None:
    features, weight, bias, target, stats = make()
    loss = build_loss(name, stats, reduction=reduction, dtype=torch.float64)
    rows, labels = target.nonzero(as_tuple=True)
    offsets = torch.searchsorted(rows, torch.arange(6))
    results = []
    for form in ("plain", "dense", "sparse"):
        inputs = [tensor.clone().requires_grad_() for tensor in (features, weight, bias)]
        if form == "plain":
            value = loss(F.linear(*inputs), target)
        else:
            wanted = target if form == "dense" else (labels, offsets)
            value = linear_loss(*inputs, wanted, loss, chunk_labels=chunk_labels)
        value.backward()
        results.append([value.detach(), *(tensor.grad for tensor in inputs)])
    for other in results[1:]:
        for expected, actual in zip(results[0], other, strict=True):
            torch.testing.assert_close(actual, expected)


def test_unusable_arguments_are_refused() -> None:
    features, weight, bias, target, stats = make()
    loss = build_loss("db", stats, dtype=torch.float64)
    with pytest.raises(InputError, match="BalancedLoss"):
        linear_loss(features, weight, bias, target, build_loss("zlpr"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"bias of shape \(11,\), got \(12,\)"):
        linear_loss(features, weight, torch.zeros(12), target, loss)
    for chunk in (0, -1):
        with pytest.raises(InputError, match="at least 1"):
            linear_loss(features, weight, bias, target, loss, chunk_labels=chunk)
    with pytest.raises(InputError, match=r"weight \(labels, width\)"):
        linear_loss(features, weight.T, bias, target, loss)
    with pytest.raises(InputError, match=r"\[0, 1\]"):
        linear_loss(features, weight, bias, target * 3, loss)


@pytest.mark.parametrize("name", BALANCED)
@pytest.mark.parametrize("n_labels", [1, 10, 12])
def test_a_loss_of_other_labels_is_refused(name: str, n_labels: int) -> None:
    # One label's constants would fit any number of labels by broadcasting.
    features, weight, bias, target, _ = make()
    stats = LabelStats.from_counts([3] * n_labels, 40)
    by_stats = build_loss(name, stats)
    by_weight = build_loss("bce", label_weight=torch.ones(n_labels))
    for loss in (by_stats, by_weight):
        assert isinstance(loss, BalancedLoss)
        with pytest.raises(InputError, match=f"built for {n_labels} labels.* 11 columns"):
            linear_loss(features, weight, bias, target, loss)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
def test_targets_that_want_a_gradient_are_refused() -> None:
    features, weight, bias, target, stats = make()
    loss = build_loss("db", stats, dtype=torch.float64)
    assert isinstance(loss, BalancedLoss)
    soft = (0.9 * target).requires_grad_()
    for form in (soft, soft.to_sparse_csr()):
        with pytest.raises(InputError, match=r"no gradient.* target\.detach\(\)"):
            linear_loss(features, weight, bias, form, loss)
    value = linear_loss(features, weight, bias, soft.detach(), loss)
    torch.testing.assert_close(value, loss(F.linear(features, weight, bias), soft).detach())


def test_targets_on_another_device_are_refused() -> None:
    features, weight, bias, target, stats = make()
    loss = build_loss("db", stats)
    assert isinstance(loss, BalancedLoss)
    with pytest.raises(InputError, match="targets are on meta, the logits on cpu"):
        linear_loss(features, weight, bias, target.to("meta"), loss)


@pytest.mark.parametrize("chunk", ["8", 2.5, None, True, float("nan")])
def test_chunks_that_are_no_whole_number_are_refused(chunk: Any) -> None:
    features, weight, bias, target, stats = make()
    loss = build_loss("db", stats)
    with pytest.raises(InputError, match="chunk_labels must be a whole number of at least 1, got"):
        linear_loss(features, weight, bias, target, loss, chunk_labels=chunk)


def test_wrong_tensors_are_refused() -> None:
    features, weight, bias, target, stats = make()
    loss: Any = build_loss("db", stats)
    for arguments, message in (
        ((None, weight, bias), "features must be a tensor, got NoneType"),
        ((features, weight.numpy(), bias), "weight must be a tensor, got ndarray"),
        ((features, weight, [0.0]), "bias must be a tensor, got list"),
        ((features, weight.float(), bias), r"weight is torch\.float32 on cpu.*float64 on cpu"),
        ((features, weight, bias.to("meta")), r"bias is torch\.float64 on meta.* one type"),
        ((features.to_sparse_csr(), weight, bias), "features must be a dense tensor"),
        ((features.long(), weight.long(), bias.long()), "floating-point"),
    ):
        with pytest.raises(InputError, match=message):
            linear_loss(*arguments, target, loss)
    # Under autocast their types may differ.
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear_loss(features.float(), weight.bfloat16(), None, target, loss).isfinite()


def test_nan_and_infinite_logits_show() -> None:
    features, weight, bias, target, stats = make()
    loss = build_loss("db", stats, dtype=torch.float64)
    for wrong in (float("nan"), float("inf"), -float("inf")):
        broken = bias.clone()
        broken[3] = wrong
        expected = loss(F.linear(features, weight, broken), target)
        torch.testing.assert_close(
            linear_loss(features, weight, broken, target, loss, chunk_labels=4),  # type: ignore[arg-type]
            expected,
            equal_nan=True,
        )
        assert not expected.isfinite()
