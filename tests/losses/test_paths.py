"""Different ways to the same number: forms of targets, fast and plain computation, autocast."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from longtail.errors import InputError
from longtail.labels import LabelStats
from longtail.losses import LOSSES, BalancedLoss, build_loss
from longtail.losses.modules import MultiLabelLoss

from .cases import NAMES, loss_and_grad, make_batch, make_loss, sparse_forms, to_csr, to_offsets
from .strategies import LOGIT_DTYPES, Batch, exact_batches, property_test

BALANCED = [name for name, row in LOSSES.items() if row.module is BalancedLoss]
REDUCTIONS = ["none", "mean", "batchmean", "sum"]
EXACT = {"rtol": 1e-9, "atol": 1e-12}


def check_same(loss: MultiLabelLoss, batch: Batch, forms: dict[str, object]) -> None:
    expected, expected_grad = loss_and_grad(loss, batch.logits, batch.target, **batch.call)
    for name, form in forms.items():
        value, grad = loss_and_grad(loss, batch.logits, form, **batch.call)
        torch.testing.assert_close(value, expected, **EXACT, msg=lambda m, n=name: f"{n}: {m}")
        torch.testing.assert_close(grad, expected_grad, **EXACT, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("name", NAMES)
@property_test
@given(
    batch=st.one_of(exact_batches(scale=3.0), exact_batches(scale=300.0)),
    reduction=st.sampled_from(REDUCTIONS),
)
def test_sparse_targets_equal_dense_ones(name: str, batch: Batch, reduction: str) -> None:
    loss = make_loss(name, batch.n_labels, reduction=reduction, label_weight=batch.label_weight)
    check_same(loss, batch, sparse_forms(batch.target))


@pytest.mark.parametrize("name", NAMES)
@property_test
@given(batch=exact_batches(soft=True), reduction=st.sampled_from(REDUCTIONS))
def test_soft_csr_targets_equal_dense_ones(name: str, batch: Batch, reduction: str) -> None:
    loss = make_loss(name, batch.n_labels, reduction=reduction, label_weight=batch.label_weight)
    check_same(loss, batch, {"csr": to_csr(batch.target)})


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
@pytest.mark.parametrize("name", NAMES)
def test_stored_zeros_and_unsorted_labels_are_fine(name: str) -> None:
    logits, target = make_batch(3, 6, seed=5)
    loss = make_loss(name, 6, reduction="none")
    expected, expected_grad = loss_and_grad(loss, logits, target)
    every = torch.arange(6).repeat(3).flip(0)
    rows = torch.arange(3).repeat_interleave(6)
    with_zeros = torch.sparse_csr_tensor(
        torch.tensor([0, 6, 12, 18]),
        torch.arange(6).repeat(3),
        target.reshape(-1),
        (3, 6),
        check_invariants=True,
    )
    kept = target[rows, every] > 0
    offsets = torch.searchsorted(rows[kept], torch.arange(4))
    for form in (with_zeros, (every[kept], offsets)):
        value, grad = loss_and_grad(loss, logits, form)
        torch.testing.assert_close(value, expected, **EXACT)
        torch.testing.assert_close(grad, expected_grad, **EXACT)


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("name", NAMES)
def test_csr_targets_of_any_type(name: str, reduction: str) -> None:
    logits, target = make_batch(4, 5, seed=11)
    mask = torch.rand(4, 5, generator=torch.Generator().manual_seed(12)) < 0.7
    types = (torch.bool, torch.uint8, torch.int64, torch.float16)
    forms = {str(dtype): to_csr(target, dtype, torch.int32) for dtype in types}
    for known in (None, mask):
        batch = Batch(logits, target, known, None, None)
        check_same(make_loss(name, 5, reduction=reduction), batch, forms)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int16, torch.float32])
@pytest.mark.parametrize("name", NAMES)
def test_unknown_elements_of_a_csr_target_may_be_anything(name: str, dtype: torch.dtype) -> None:
    logits, target = make_batch(4, 5, seed=13)
    mask = torch.rand(4, 5, generator=torch.Generator().manual_seed(14)) < 0.6
    marked = torch.where(mask, target, -100.0).to(dtype)
    for reduction in ("none", "mean"):
        loss = make_loss(name, 5, reduction=reduction)
        batch = Batch(logits, target, mask, None, None)
        check_same(loss, batch, {"dense": marked, "csr": to_csr(marked)})
        with pytest.raises(InputError, match=r"lie in \[0, 1\], got values from -100"):
            loss(logits, to_csr(marked))


@pytest.mark.parametrize("offsets_dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("labels_dtype", [torch.uint8, torch.int32, torch.int64])
@pytest.mark.parametrize("name", ["db", "bce", "asl", "zlpr", "two-way", "dice"])
def test_label_indices_of_any_integer_type(
    name: str, labels_dtype: torch.dtype, offsets_dtype: torch.dtype
) -> None:
    # 400 indices of three documents: where the last one ends does not fit a byte.
    logits, target = make_batch(3, 250, seed=15)
    target[0], target[1] = 0, 1
    target[2] = torch.arange(250) < 150
    for with_end in [False] if offsets_dtype == torch.uint8 else [False, True]:
        labels, offsets = to_offsets(target, with_end)
        pair = (labels.to(labels_dtype), offsets.to(offsets_dtype))
        for reduction in ("none", "mean"):
            loss = make_loss(name, 250, reduction=reduction)
            check_same(loss, Batch(logits, target, None, None, None), {"pair": pair})


@pytest.mark.parametrize("name", BALANCED)
@property_test
@given(
    batch=exact_batches(soft=True),
    dtype=st.sampled_from(LOGIT_DTYPES),
    reduction=st.sampled_from(["mean", "batchmean", "sum"]),
    sparse=st.booleans(),
)
def test_the_analytic_gradient_is_that_of_autograd(
    name: str, batch: Batch, dtype: torch.dtype, reduction: str, sparse: bool
) -> None:
    logits = batch.logits.to(dtype)
    target = to_csr(batch.target) if sparse else batch.target
    shared = {"label_weight": batch.label_weight}
    fast = make_loss(name, batch.n_labels, reduction=reduction, **shared)
    plain = make_loss(name, batch.n_labels, reduction="none", **shared)
    leaf = logits.clone().requires_grad_()
    expected = _reduce(plain(leaf, target, **batch.call), batch, reduction)
    expected.backward()
    value, grad = loss_and_grad(fast, logits, target, **batch.call)
    wide = torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(value, expected.detach(), rtol=64 * torch.finfo(wide).eps, atol=1e-6)
    # Half gradients are rounded once more where they are scaled; 6e-8 is float16's smallest step.
    tolerance = {"rtol": 64 * torch.finfo(wide).eps, "atol": 1e-7}
    if dtype != wide:
        tolerance = {"rtol": 4 * torch.finfo(dtype).eps, "atol": 2e-7}
    torch.testing.assert_close(grad, leaf.grad, **tolerance)


def _reduce(terms: Tensor, batch: Batch, reduction: str) -> Tensor:
    mask = batch.mask if batch.mask is not None else torch.ones_like(batch.logits).bool()
    if reduction == "sum":
        return terms.sum()
    count = mask.sum() if reduction == "mean" else mask.any(dim=1).sum()
    return terms.sum() / count.clamp(min=1)


def test_more_rows_than_fit_in_one_chunk() -> None:
    # Small logits: torch cuts softplus off at 20, which autograd shows in the ninth digit.
    logits, target = make_batch(7, 90_000, seed=8, scale=1.0)
    target *= torch.rand(target.shape, generator=torch.Generator().manual_seed(9)) < 0.001
    mask = torch.rand(target.shape, generator=torch.Generator().manual_seed(10)) < 0.9
    terms, total = (make_loss("db", 90_000, reduction=way) for way in ("none", "sum"))
    plain, grad = loss_and_grad(terms, logits, target, mask=mask)
    whole, fast = loss_and_grad(total, logits, target, mask=mask)
    torch.testing.assert_close(whole, plain.sum(), **EXACT)
    torch.testing.assert_close(fast, grad, **EXACT)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [2.0**16, 2.0**-16])
def test_a_loss_scale_beyond_float16_keeps_the_gradient(name: str, scale: float) -> None:
    # What GradScaler does: the scale itself does not fit float16, the scaled gradient does.
    logits, target = make_batch(3, 5, scale=0.5)
    loss = make_loss(name, 5, reduction="sum" if scale > 1 else "mean")
    weak = torch.full((3,), 0.1 if scale > 1 else 1.0)
    wide = logits.half().float().requires_grad_()
    (loss(wide, target, sample_weight=weak) * scale).backward()
    leaf = logits.half().requires_grad_()
    (loss(leaf, target, sample_weight=weak) * scale).backward()
    assert leaf.grad is not None and leaf.grad.isfinite().all()
    torch.testing.assert_close(leaf.grad.float(), wide.grad, rtol=3e-3, atol=2e-7)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("name", NAMES)
def test_autocast_does_not_reach_into_the_loss(
    name: str, reduction: str, dtype: torch.dtype
) -> None:
    layer = torch.nn.Linear(4, 5)
    features = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    _, target = make_batch(3, 5)
    loss = make_loss(name, 5, reduction=reduction)
    with torch.autocast("cpu", dtype=dtype):
        logits = layer(features)
        value = loss(logits, target)
    assert logits.dtype == dtype and value.dtype == torch.float32
    torch.testing.assert_close(value, loss(logits, target), rtol=1e-6, atol=1e-7)
    value.sum().backward()
    grad = layer.weight.grad
    assert grad is not None and grad.dtype == torch.float32 and grad.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_soft_targets_may_carry_gradient(name: str) -> None:
    # Distillation: the teacher's probabilities are part of the graph.
    logits, target = make_batch(3, 5, seed=6, soft=True)
    loss = make_loss(name, 5, reduction="mean", dtype=torch.float64)
    leaf = (0.1 + 0.8 * target).requires_grad_()
    assert torch.autograd.gradcheck(lambda y: loss(logits, y), (leaf,))


@pytest.mark.parametrize("name", ["zlpr", "two-way"])
def test_an_unknown_label_does_not_drown_the_known_ones(name: str) -> None:
    # Its stand-in logit of 0 is e^100 above the known label's term, which would round to nothing.
    logits, target = torch.tensor([[0.0, 400.0, 420.0]]), torch.tensor([[1.0, 1.0, 0.0]])
    mask = torch.tensor([[False, True, True]])
    batch = Batch(logits, target, mask, None, None)
    check_same(make_loss(name, 3, reduction="none"), batch, sparse_forms(target))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_autocast_on_a_gpu_does_not_round_the_counts(reduction: str) -> None:
    # 1/n of a frequent label is below float16's smallest step, and autocast halves torch.mv.
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
        fast = "_BalancedSum" in type(loss(logits, torch.zeros(2, 5)).grad_fn).__name__
        assert fast == (name in BALANCED)
