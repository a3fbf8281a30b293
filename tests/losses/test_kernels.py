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
from longtail.losses import LOSSES, BalancedLoss, build_loss
from longtail.losses.analytic import BatchWeights, kernels_usable
from longtail.losses.targets import read_targets

pytest.importorskip("triton", reason="triton is not installed on this platform")

ON_GPU = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if ON_GPU else "cpu"
BALANCED = [name for name, row in LOSSES.items() if row.module is BalancedLoss]
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

    targets = read_targets(logits, target)
    mask, sample_weight = kw.get("mask"), kw.get("sample_weight")
    terms = loss.terms(torch.float32)
    mass = None
    if terms.inverse_counts is not None:
        if targets.dense is not None:
            mass = kernels.document_mass(targets.dense, terms.inverse_counts, mask)
        else:
            mass = targets.label_mass(terms.inverse_counts, mask)
    weights = BatchWeights(mass, sample_weight, mask)
    alone, nothing = kernels.sum_and_grad(logits, targets, terms, weights, 3.0, with_grad=False)
    total, grad = kernels.sum_and_grad(logits, targets, terms, weights, 3.0, with_grad=True)
    assert nothing is None and torch.equal(alone, total)
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
    gamma = {"gamma": 1.5} if name == "fl" else {}
    loss = build_loss(
        name, stats, reduction="sum", label_weight=kw.pop("label_weight", None), **gamma
    )
    exact = build_loss(name, stats, reduction="none", dtype=torch.float64, **gamma)
    if loss.label_weight is not None:
        exact.label_weight = loss.label_weight.double()
    wide = logits.double().requires_grad_()
    wide_target = target.double() if isinstance(target, torch.Tensor) else target
    expected = exact(wide, wide_target, **kw).sum()
    expected.backward()
    moved = {key: value.to(DEVICE) for key, value in kw.items()}
    there = (
        target.to(DEVICE)
        if isinstance(target, torch.Tensor)
        else tuple(t.to(DEVICE) for t in target)
    )
    actual, grad = kernel_results(loss.to(DEVICE), logits.to(DEVICE), there, **moved)
    assert grad.dtype == logits.dtype
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=1e-5, atol=1e-5)
    tolerance = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[logits.dtype]
    torch.testing.assert_close(grad.cpu().double(), wide.grad, rtol=10 * tolerance, atol=tolerance)


@needs_kernels
@pytest.mark.parametrize(("name", "shape"), list(itertools.product(BALANCED, SHAPES[1:3])))
def test_dense_targets(name: str, shape: tuple[int, int]) -> None:
    logits, dense, stats = make_case(shape, 1)
    check_agrees(name, logits, dense, stats)


@needs_kernels
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_target_types_and_shapes(shape: tuple[int, int], dtype: torch.dtype) -> None:
    logits, dense, stats = make_case(shape, 2)
    check_agrees("db", logits, dense.to(dtype), stats)


@needs_kernels
@pytest.mark.parametrize("name", ["db", "cb-ntr", "bce"])
def test_soft_targets_weights_and_mask(name: str) -> None:
    logits, dense, stats = make_case((3, 2500), 3)
    generator = torch.Generator().manual_seed(4)
    soft = dense * torch.rand(dense.shape, generator=generator)
    mask = torch.rand(dense.shape, generator=generator) < 0.7
    sample_weight = torch.tensor([0.5, 2.0, 1.0])
    label_weight = torch.rand(dense.shape[1], generator=generator)
    check_agrees(
        name, logits, soft, stats, mask=mask, sample_weight=sample_weight, label_weight=label_weight
    )


@needs_kernels
@pytest.mark.parametrize("name", ["db", "ntr-fl"])
def test_sparse_targets(name: str) -> None:
    logits, dense, stats = make_case((4, 2100), 5)
    rows, labels = dense.nonzero(as_tuple=True)
    offsets = torch.searchsorted(rows, torch.arange(5))
    check_agrees(name, logits, (labels, offsets), stats)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits(dtype: torch.dtype) -> None:
    logits, dense, stats = make_case((3, 300), 6)
    check_agrees("db", logits.to(dtype), dense, stats)


@needs_kernels
def test_extreme_logits_and_strides() -> None:
    logits, dense, stats = make_case((4, 300), 7)
    logits[0], logits[1] = 1e4, -1e4
    # A row stride that is not the width, and columns that are not side by side.
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
