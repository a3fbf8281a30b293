"""Different computations of the same loss: forms of targets, chunks, autocast."""

from __future__ import annotations

import pytest
import torch

from longtail.labels import LabelStats
from longtail.losses import build_loss

from .cases import (
    BALANCED,
    EXACT,
    NAMES,
    check_same,
    csr_tensor,
    loss_and_grad,
    make_batch,
    make_loss,
    make_mask,
    to_offsets,
)


@pytest.mark.parametrize("name", NAMES)
def test_stored_zeros_and_strided_labels_are_fine(name: str) -> None:
    logits, target = make_batch(3, 6, seed=5)
    starts = torch.tensor([0, 6, 12, 18])
    with_zeros = csr_tensor(starts, torch.arange(6).repeat(3), target.reshape(-1), (3, 6))
    labels, offsets = to_offsets(target)
    # Indices that are not contiguous.
    spread = torch.stack([labels, labels + 100], dim=1)[:, 0]
    for reduction in ("none", "mean"):
        loss = make_loss(name, 6, reduction=reduction)
        check_same(loss, logits, target, with_zeros, (spread, offsets))


@pytest.mark.parametrize("offsets_dtype", [torch.uint8, torch.int16, torch.int64])
@pytest.mark.parametrize("labels_dtype", [torch.uint8, torch.int32, torch.int64])
@pytest.mark.parametrize("name", ["db", "asl", "zlpr", "two-way", "dice"])
def test_label_indices_of_any_integer_type(
    name: str, labels_dtype: torch.dtype, offsets_dtype: torch.dtype
) -> None:
    # 400 indices of three documents: the last offset does not fit in a byte.
    logits, target = make_batch(3, 250, seed=15)
    target[0], target[1] = 0, 1
    target[2] = torch.arange(250) < 150
    for with_end in [False] if offsets_dtype == torch.uint8 else [False, True]:
        labels, offsets = to_offsets(target, with_end)
        pair = (labels.to(labels_dtype), offsets.to(offsets_dtype))
        for reduction in ("none", "mean"):
            check_same(make_loss(name, 250, reduction=reduction), logits, target, pair)


def test_more_rows_than_fit_in_one_chunk() -> None:
    # Small logits: torch cuts softplus off at 20, which autograd shows in the ninth digit.
    logits, target = make_batch(7, 90_000, seed=8, scale=1.0)
    target *= make_mask(7, 90_000, 0.001)
    mask = make_mask(7, 90_000, 0.9, seed=10)
    terms, total = (make_loss("db", 90_000, reduction=r) for r in ("none", "sum"))
    plain, grad = loss_and_grad(terms, logits, target, mask=mask)
    actual = loss_and_grad(total, logits, target, mask=mask)
    torch.testing.assert_close(actual, (plain.sum(), grad), **EXACT)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("name", NAMES)
def test_autocast_does_not_reach_into_the_loss(
    name: str, reduction: str, dtype: torch.dtype
) -> None:
    logits, target = make_batch(3, 5)
    loss = make_loss(name, 5, reduction=reduction)
    with torch.autocast("cpu", dtype=dtype):
        value, grad = loss_and_grad(loss, logits.to(dtype), target)
    expected, expected_grad = loss_and_grad(loss, logits.to(dtype), target)
    assert grad.dtype == dtype and value.dtype == torch.float32
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(grad, expected_grad)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_autocast_on_a_gpu_does_not_round_the_counts(reduction: str) -> None:
    # 1/n of a frequent label underflows in float16, to which autocast casts torch.mv.
    stats = LabelStats.from_counts([10_000_000, 9_000_000, 20], n_samples=10_000_000)
    loss = build_loss("db", stats, reduction=reduction, constants="reuters").to("cuda")
    logits, target = torch.zeros(1, 3, device="cuda"), torch.tensor([[1.0, 1, 0]], device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        inside = loss(logits, target)
    torch.testing.assert_close(inside, loss(logits, target))


def test_the_fast_path_is_taken_where_it_should_be() -> None:
    logits = torch.zeros(2, 5, requires_grad=True)
    for name in NAMES:
        loss = make_loss(name, 5, reduction="sum")
        fast = "_ClosedForm" in type(loss(logits, torch.zeros(2, 5)).grad_fn).__name__
        assert fast == (name in BALANCED)
