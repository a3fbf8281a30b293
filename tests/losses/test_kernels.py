"""The Triton kernels against plain autograd: on a GPU where there is one, else interpreted."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pytest
import torch

from longtail.errors import InputError
from longtail.labels import LabelStats
from longtail.losses import BalancedLoss, build_loss
from longtail.losses.balanced import Batch, gradient_dtype, kernels_usable
from longtail.losses.targets import read_targets

from .cases import BALANCED, to_csr, to_offsets

pytest.importorskip("triton", reason="triton is not installed on this platform")

ON_GPU = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if ON_GPU else "cpu"
# Odd sizes: one label, one block and a bit, several blocks, one document.
SHAPES = [(1, 1), (3, 7), (2, 2049), (5, 4500)]

needs_kernels = pytest.mark.skipif(
    not (ON_GPU or INTERPRETED), reason="runs in the interpreted child process below"
)


@pytest.mark.skipif(ON_GPU or INTERPRETED, reason="the kernels run directly here")
def test_kernels_agree_when_interpreted() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0", __file__]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stdout + child.stderr
    assert "passed" in child.stdout


def kernel_results(
    loss: BalancedLoss, logits: torch.Tensor, target: object, **kw: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    from longtail.losses import kernels

    mask, sample_weight = kw.get("mask"), kw.get("sample_weight")
    targets = read_targets(logits, target, mask)
    terms = loss.terms(torch.float32)
    mass = None
    if terms.inverse_counts is not None:
        if targets.dense is not None:
            mass = kernels.document_mass(targets.dense, terms.inverse_counts, mask)
        else:
            mass = targets.row_sum(terms.inverse_counts.expand(logits.shape), mask)
    batch = Batch(targets, sample_weight, mask, mass)
    alone, nothing = kernels.sum_and_grad(logits, batch, terms, 3.0, None)
    dtype = gradient_dtype(logits)
    total, grad = kernels.sum_and_grad(logits, batch, terms, 3.0, dtype)
    assert nothing is None and (torch.equal(alone, total) or (alone.isnan() and total.isnan()))
    assert grad is not None and grad.dtype == dtype
    return total / 3, grad


def make_case(shape: tuple[int, int], seed: int):
    generator = torch.Generator().manual_seed(seed)
    rows, labels = shape
    logits = 4 * torch.randn(rows, labels, generator=generator)
    dense = (torch.rand(rows, labels, generator=generator) < 3 / labels).float()
    if rows > 1:
        dense[0] = 0  # a document without labels
    counts = torch.randint(0, 50, (labels,), generator=generator).numpy()
    return logits, dense, LabelStats.from_counts(counts, 60)


def check_agrees(name: str, logits: torch.Tensor, target: object, stats: LabelStats, **kw) -> None:
    """`dense`: the target for the reference, if not in the same form."""
    plain_target = kw.pop("dense", target)
    gamma = {"gamma": 1.5} if name == "fl" else {}
    gamma |= {"label_weight": kw.pop("label_weight", None)}
    loss = build_loss(name, stats, reduction="sum", **gamma)
    exact = build_loss(name, stats, reduction="none", dtype=torch.float64, **gamma)
    wide = logits.double().requires_grad_()
    expected = exact(wide, plain_target, **kw).sum()
    expected.backward()
    moved = {key: value.to(DEVICE) for key, value in kw.items()}
    is_pair = isinstance(target, tuple)
    there = tuple(t.to(DEVICE) for t in target) if is_pair else target.to(DEVICE)
    actual, grad = kernel_results(loss.to(DEVICE), logits.to(DEVICE), there, **moved)
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=1e-5, atol=1e-5)
    tolerance = {torch.float32: 2e-6, torch.bfloat16: 1.6e-2}[grad.dtype]
    torch.testing.assert_close(grad.cpu().double(), wide.grad, rtol=10 * tolerance, atol=tolerance)


@needs_kernels
@pytest.mark.parametrize(("name", "shape"), list(itertools.product(BALANCED, SHAPES[1:3])))
def test_every_row(name: str, shape: tuple[int, int]) -> None:
    logits, dense, stats = make_case(shape, 1)
    check_agrees(name, logits, dense, stats)
    if name in ("db", "ntr-fl"):
        check_agrees(name, logits, to_offsets(dense), stats)


@needs_kernels
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8])
def test_target_types_and_shapes(shape: tuple[int, int], dtype: torch.dtype) -> None:
    logits, dense, stats = make_case(shape, 2)
    check_agrees("db", logits, dense.to(dtype), stats)
    if dense.any():
        check_agrees("db", logits, to_csr(dense, dtype, torch.int32), stats, dense=dense)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize("name", ["db", "cb-ntr"])
def test_soft_targets_weights_and_mask(name: str, form: str, dtype: torch.dtype) -> None:
    logits, dense, stats = make_case((3, 1100), 3)
    generator = torch.Generator().manual_seed(4)
    soft = (dense * torch.rand(dense.shape, generator=generator)).to(dtype)
    assert 0.1 < soft[soft > 0].float().mean() < 0.9
    mask = torch.rand(dense.shape, generator=generator) < 0.7
    if form == "csr":
        soft[0, :3], mask[0, :3] = -100.0, False  # masked values may be anything
    check_agrees(
        name,
        logits,
        to_csr(soft) if form == "csr" else soft,
        stats,
        dense=soft,
        mask=mask,
        sample_weight=torch.tensor([0.5, 2.0, 1.0]),
        label_weight=torch.rand(dense.shape[1], generator=generator),
    )


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_extreme_logits_types_and_strides(dtype: torch.dtype) -> None:
    logits, dense, stats = make_case((4, 300), 7)
    logits[0], logits[1] = 1e4, -1e4
    logits = logits.to(dtype)
    # A row stride that is not the width, and columns that are not contiguous.
    wide = torch.stack([logits, logits], dim=2)
    for view in (torch.cat([logits, logits], dim=1)[:, :300], wide[:, :, 0]):
        check_agrees("db", view, dense, stats)


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
def test_the_module_uses_the_kernels_on_a_gpu() -> None:
    logits, dense, stats = make_case((8, 5000), 8)
    loss = build_loss("db", stats, reduction="batchmean").to("cuda")
    here = logits.cuda().requires_grad_()
    value = loss(here, dense.cuda())
    assert kernels_usable(here) and not kernels_usable(logits)
    value.backward(retain_graph=True)
    first, here.grad = here.grad, None
    value.backward()
    torch.testing.assert_close(here.grad, first)
    for bad in (2.0, float("nan")):
        with pytest.raises(InputError, match="lie in"):
            loss(here, dense.cuda() * bad + bad)
    reference = logits.clone().requires_grad_()
    expected = loss.to("cpu")(reference, dense)
    expected.backward()
    torch.testing.assert_close(value.cpu(), expected)
    torch.testing.assert_close(here.grad.cpu(), reference.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_large_weights_on_a_gpu(dtype: torch.dtype, form: str) -> None:
    # Weighted, an element's slope is beyond float16's 65504; the mean over the batch is not.
    logits, dense, stats = make_case((8, 3000), 14)
    logits, soft = logits.to(dtype), dense * 0.9
    weight = torch.full((3000,), 225000.0)
    grads = []
    for device in ("cpu", "cuda"):
        loss = build_loss("db", stats, label_weight=weight).to(device)
        wide = logits.float() if device == "cpu" else logits.cuda()
        leaf = wide.clone().requires_grad_()
        target = (to_csr(soft) if form == "csr" else soft).to(device)
        (grad,) = torch.autograd.grad(loss(leaf, target), leaf)
        grads.append(grad.cpu().float())
    assert grads[1].isfinite().all()
    rtol, atol = 1e-5 + 4 * torch.finfo(dtype).eps, 1e-4 * float(grads[0].abs().max())
    torch.testing.assert_close(grads[1], grads[0], rtol=rtol, atol=atol)


@needs_kernels
# The interpreter uses numpy, which warns about a discarded 0 times infinity.
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize("name", ["bce", "fl", "db"])
def test_infinite_and_nan_logits(name: str) -> None:
    # Finite results at infinity equal those at 1e6.
    logits, dense, stats = make_case((6, 40), 21)
    loss = build_loss(name, stats, reduction="sum").to(DEVICE)
    for sign in (1.0, -1.0):
        near, far = logits.clone(), logits.clone()
        near[::2, ::3], far[::2, ::3] = sign * 1e6, sign * float("inf")
        expected, expected_grad = kernel_results(loss, near.to(DEVICE), dense.to(DEVICE))
        value, grad = kernel_results(loss, far.to(DEVICE), dense.to(DEVICE))
        assert value == (float("inf") if expected > 1e5 else expected)
        torch.testing.assert_close(grad, expected_grad)
    for target in (0.0, 1.0, 0.5):
        logits[1, 2], dense[1, 2] = float("nan"), target
        assert kernel_results(loss, logits.to(DEVICE), dense.to(DEVICE))[0].isnan()


@needs_kernels
def test_values_and_labels_that_are_not_side_by_side() -> None:
    from longtail.losses import kernels

    logits, dense, stats = make_case((4, 60), 22)
    labels, offsets = to_offsets(dense)
    spread = torch.stack([labels, labels + 1], dim=1)[:, 0]
    check_agrees("db", logits, (spread, offsets), stats)
    assert kernels._bytes(torch.rand(labels.numel(), 2)[:, 0]).is_contiguous()


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
@pytest.mark.parametrize("name", ["db", "bce", "zlpr"])
def test_a_cuda_graph_of_sparse_targets(name: str) -> None:
    logits, _, stats = make_case((3, 5), 24)
    here = logits.cuda()
    loss = build_loss(name, stats).to("cuda")
    labels, starts = torch.tensor([0, 3, 4]).cuda(), torch.tensor([0, 2, 2, 3]).cuda()
    expected = loss(here, (labels, starts))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            loss(here, (labels, starts))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = loss(here, (labels, starts))
    graph.replay()
    torch.testing.assert_close(value, expected)
    here += 1
    graph.replay()
    torch.testing.assert_close(value, loss(here, (labels, starts)))
