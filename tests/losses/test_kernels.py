"""The Triton kernels against plain autograd: on a GPU where there is one, else interpreted.

In the interpreter the losses believe that their CPU tensors are on a GPU, so that all of a loss but
the compiler is tested.
"""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from longtail.errors import InputError
from longtail.labels import LabelStats
from longtail.losses import MultiLabelLoss, balanced, base, build_loss, closed_form, targets

from ..interpreted import DEVICE, INTERPRETED, ON_GPU, needs_kernels, run_interpreted
from ..interpreted import starts_interpreter as starts_interpreter
from .cases import NAMES, REDUCTIONS, loss_and_grad, to_csr, to_offsets
from .random_cases import defect
from .random_cases import make_case as random_case

pytest.importorskip("triton", reason="triton is not installed on this platform")

# The interpreter uses numpy, which warns about infinities.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
KINDS = ["bce", "fl", "cb-ntr", "db", "asl", "hill", "pw-bce", "squared-hinge", "zlpr", "two-way"]
WITH_KERNELS = [name for name in NAMES if name != "dice"]
# Odd sizes: one label, a tile of several rows, two blocks, rows and blocks beyond one program.
SHAPES = [(1, 1), (3, 7), (35, 90), (2, 2049)]


@starts_interpreter
def test_kernels_agree_when_interpreted() -> None:
    run_interpreted(__file__)


@pytest.fixture(autouse=True)
def launches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the kernels run on CPU tensors; the calls that used them."""
    calls: list[str] = []
    if INTERPRETED and not ON_GPU:
        for module in (balanced, base, closed_form, targets):
            monkeypatch.setattr(module, "kernels_usable", usable)
    original = closed_form.differentiable

    def counted(*arguments: Any) -> Tensor:
        calls.append("call")
        return original(*arguments)

    for module in (balanced, closed_form):
        monkeypatch.setattr(module, "differentiable", counted)
    return calls


def usable(logits: Tensor) -> bool:
    return logits.dtype != torch.float64 and logits.numel() > 0


def on_device(loss: MultiLabelLoss):
    """The loss of tensors on the CPU, computed by the kernels."""
    there = copy.deepcopy(loss).to(DEVICE)

    def call(logits: Tensor, target: Any, **kw: Any) -> Tensor:
        kw = {key: value if value is None else value.to(DEVICE) for key, value in kw.items()}
        is_pair = isinstance(target, tuple)
        target = tuple(t.to(DEVICE) for t in target) if is_pair else target.to(DEVICE)
        return there(logits.to(DEVICE), target, **kw).cpu()

    return call


def make_case(shape: tuple[int, int], seed: int) -> tuple[Tensor, Tensor, LabelStats]:
    generator = torch.Generator().manual_seed(seed)
    rows, labels = shape
    logits = 4 * torch.randn(rows, labels, generator=generator)
    dense = (torch.rand(rows, labels, generator=generator) < 3 / labels).float()
    if rows > 1:
        dense[0] = 0  # a document without labels
    counts = torch.randint(0, 50, (labels,), generator=generator).numpy()
    return logits, dense, LabelStats.from_counts(counts, 60)


def check_agrees(name: str, logits: Tensor, target: Any, stats: LabelStats, **kw: Any) -> None:
    """`dense`: the target for the reference, if not in the same form."""
    plain_target = kw.pop("dense", target)
    settings = dict(label_weight=kw.pop("label_weight", None), reduction=kw.pop("reduction", "sum"))
    exact = build_loss(name, stats, dtype=torch.float64, **settings)
    expected, expected_grad = loss_and_grad(exact, logits.double(), plain_target, **kw)
    loss = on_device(build_loss(name, stats, **settings))
    value, grad = loss_and_grad(loss, logits, target, **kw)
    assert grad.dtype == logits.dtype and value.dtype == torch.float32
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-5)
    eps = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[grad.dtype]
    top = float(expected_grad.abs().max())
    torch.testing.assert_close(grad.double(), expected_grad, rtol=10 * eps, atol=eps * top + 1e-9)


@needs_kernels
@pytest.mark.parametrize("name", WITH_KERNELS)
def test_random_batches_agree_with_the_oracle(name: str, launches: list[str]) -> None:
    rng = random.Random(f"kernels {name}")
    for number in range(40):
        case = random_case(rng, name)
        assert defect(case, on_device(case.loss)) is None, f"case {number}"
    assert len(launches) > 8


@needs_kernels
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_loss_and_target(name: str, shape: tuple[int, int]) -> None:
    logits, dense, stats = make_case(shape, 2)
    check_agrees(name, logits, dense, stats)
    check_agrees(name, logits, to_offsets(dense, with_end=False), stats, dense=dense)
    others = (torch.bool, torch.uint8, torch.int64, torch.float16, torch.float64)
    for number, dtype in enumerate(others):
        if name == "db" or number == SHAPES.index(shape):
            check_agrees(name, logits, dense.to(dtype), stats, dense=dense)
            check_agrees(name, logits, to_csr(dense, dtype, torch.int32), stats, dense=dense)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize("name", KINDS)
def test_soft_targets_weights_and_mask(name: str, form: str, dtype: torch.dtype) -> None:
    logits, dense, stats = make_case((3, 1100), 3)
    generator = torch.Generator().manual_seed(4)
    soft = (dense * torch.rand(dense.shape, generator=generator)).to(dtype)
    assert 0.1 < soft[soft > 0].float().mean() < 0.9
    mask = torch.rand(dense.shape, generator=generator) < 0.7
    soft[0, :3], mask[0, :3] = -100.0, False  # masked values may be anything
    logits[0, 3], mask[0, 3] = float("nan"), False
    for reduction in REDUCTIONS[1:]:
        check_agrees(
            name,
            logits,
            to_csr(soft) if form == "csr" else soft,
            stats,
            dense=soft,
            mask=mask,
            reduction=reduction,
            sample_weight=torch.tensor([0.5, 2.0, 1.0]),
            label_weight=torch.rand(dense.shape[1], generator=generator),
        )


@needs_kernels
@pytest.mark.parametrize("steps", [1, 3, 16])
@pytest.mark.parametrize("name", ["db", "asl", "zlpr", "two-way"])
def test_programs_of_several_tiles(name: str, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from longtail.losses import kernel_parts

    monkeypatch.setattr(kernel_parts, "STEPS", steps)
    monkeypatch.setattr(kernel_parts, "PROGRAMS", 1)
    monkeypatch.setattr(kernel_parts, "ALONE", 0)
    kernel_parts.cut.cache_clear()
    for shape in ((7, 1500), (70, 200)):
        logits, dense, stats = make_case(shape, 5)
        soft = dense.clone()
        soft[5] *= 0.5  # in one program of several
        check_agrees(name, logits, soft, stats)
        check_agrees(name, logits, to_offsets(dense), stats, dense=dense)
    kernel_parts.cut.cache_clear()


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["db", "asl", "hill", "zlpr"])
def test_extreme_logits_types_and_strides(name: str, dtype: torch.dtype) -> None:
    logits, dense, stats = make_case((4, 300), 7)
    logits[0], logits[1] = 1e4, -1e4
    logits = logits.to(dtype)
    # A row stride that is not the width, and columns that are not contiguous.
    wide = torch.stack([logits, logits], dim=2)
    mask = torch.rand(300, 4) < 0.8
    for view in (torch.cat([logits, logits], dim=1)[:, :300], wide[:, :, 0]):
        check_agrees(name, view, dense, stats)
        check_agrees(name, view, dense.t().contiguous().t(), stats, mask=mask.t())


@needs_kernels
@pytest.mark.parametrize("name", ["bce", "fl", "db"])
def test_infinite_and_nan_logits(name: str) -> None:
    # Finite results at infinity equal those at 1e6.
    logits, dense, stats = make_case((6, 40), 21)
    loss = on_device(build_loss(name, stats, reduction="sum"))
    for sign in (1.0, -1.0):
        near, far = logits.clone(), logits.clone()
        near[::2, ::3], far[::2, ::3] = sign * 1e6, sign * float("inf")
        expected, expected_grad = loss_and_grad(loss, near, dense)
        value, grad = loss_and_grad(loss, far, dense)
        assert value == (float("inf") if expected > 1e5 else expected)
        torch.testing.assert_close(grad, expected_grad)
    for target in (0.0, 1.0, 0.5):
        logits[1, 2], dense[1, 2] = float("nan"), target
        assert loss(logits, dense).isnan()


@needs_kernels
def test_asymmetric_exponents_and_margins() -> None:
    logits, dense, _ = make_case((4, 60), 9)
    dense[1] *= 0.3
    for gammas in ((0.0, 0.0), (1.0, 1.0), (2.0, 2.0), (0.5, 2.5), (3.0, 0.5), (1.0, 4.0)):
        for margin in (0.0, 1e-4, 0.05, 0.5):
            results = []
            for dtype in (torch.float64, torch.float32):
                loss = build_loss(
                    "asl", gamma_positive=gammas[0], gamma_negative=gammas[1], margin=margin
                )
                results.append(loss_and_grad(on_device(loss), logits.to(dtype), dense))
            for exact, single in zip(*results, strict=True):
                torch.testing.assert_close(single.double(), exact, rtol=2e-5, atol=1e-8)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", ["db", "hill", "zlpr", "two-way"])
def test_backward_twice_scaled_and_guarded(name: str, dtype: torch.dtype) -> None:
    logits, dense, stats = make_case((8, 1200), 8)
    loss = build_loss(name, stats, reduction="batchmean").to(DEVICE)
    here = logits.to(DEVICE, dtype).requires_grad_()
    kept = here.detach().clone()
    value = loss(here, dense.to(DEVICE))
    (first,) = torch.autograd.grad(value, here, retain_graph=True)
    first = first.clone()
    (second,) = torch.autograd.grad(value, here, retain_graph=True)
    (tripled,) = torch.autograd.grad(3 * value, here, retain_graph=True)
    torch.testing.assert_close(second, first)
    torch.testing.assert_close(tripled, 3 * first, rtol=4 * torch.finfo(dtype).eps, atol=1e-6)
    assert torch.equal(here, kept)
    with pytest.raises(InputError, match="no second derivative"):
        torch.autograd.grad(value, here, create_graph=True)
    value = loss(here, dense.to(DEVICE))
    with torch.no_grad():
        here += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_multiplied_by_other_factors_than_one(dtype: torch.dtype) -> None:
    from longtail.losses import kernel_parts

    values = torch.arange(10_001.0, device=DEVICE).to(dtype)
    for factor in (1.0, 3.0, float("nan")):
        expected, actual = values * factor, values.clone()
        number = torch.tensor(factor, device=DEVICE)
        kernel_parts._scale_kernel[(3,)](actual, number, 10_001, BLOCK=4096)
        torch.testing.assert_close(actual, expected, equal_nan=True)


BAD_POSITIONS = {
    "lists label 4 twice": ([0, 4, 4, 1], [0, 1, 3, 4]),
    "must lie in 0..6": ([0, 7, 4, 1], [0, 1, 3, 4]),
    "label indices must": ([0, -1, 4, 1], [0, 1, 3, 4]),
    "must rise": ([0, 3, 4, 1], [0, 3, 1, 4]),
    "from 0": ([0, 3, 4, 1], [1, 1, 3, 4]),
    "number of label": ([0, 3, 4, 1], [0, 1, 3, 5]),
    r"number of label indices \(4\)": ([0, 3, 4, 1], [0, 1, 3, 3]),
}


@needs_kernels
@pytest.mark.parametrize("name", ["db", "bce", "zlpr", "two-way", "dice"])
def test_invalid_targets_are_refused(name: str) -> None:
    logits, dense, stats = make_case((3, 7), 8)
    loss = on_device(build_loss(name, stats))
    for bad in (2.0, -1.0, float("nan")):
        wrong = dense.clone()
        wrong[1, 2] = bad
        with pytest.raises(InputError, match="lie in"):
            loss(logits, wrong)
        with pytest.raises(InputError, match="lie in"):
            loss(logits, to_csr(wrong))
        mask = torch.ones(3, 7, dtype=torch.bool)
        mask[1, 2] = False
        for form in (wrong, to_csr(wrong)):
            assert loss(logits, form, mask=mask).isfinite()
    for message, (labels, starts) in BAD_POSITIONS.items():
        with pytest.raises(InputError, match=message):
            loss(logits, (torch.tensor(labels), torch.tensor(starts)))
    logits[0] = float("nan")
    assert loss(logits, dense).isnan()


@needs_kernels
def test_weights_that_need_a_gradient_take_the_plain_path(launches: list[str]) -> None:
    logits, dense, stats = make_case((3, 7), 8)
    for name in ("db", "asl", "zlpr"):
        weight = torch.ones(3, requires_grad=True)
        on_device(build_loss(name, stats))(logits, dense, sample_weight=weight).backward()
        assert weight.grad is not None
    assert not launches


@needs_kernels
def test_values_and_labels_that_are_not_side_by_side() -> None:
    logits, dense, stats = make_case((4, 60), 22)
    labels, offsets = to_offsets(dense)
    spread = torch.stack([labels, labels + 1], dim=1)[:, 0]
    check_agrees("db", logits, (spread, offsets), stats)


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


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
@pytest.mark.parametrize("name", ["db", "asl", "zlpr", "two-way"])
def test_large_batches_on_a_gpu(name: str) -> None:
    # More than 2^20 elements, whose gradient the kernel multiplies.
    logits, dense, stats = make_case((48, 30_011), 15)
    check_agrees(name, logits, dense, stats)
    check_agrees(name, logits, to_offsets(dense), stats, dense=dense)
    loss = build_loss(name, stats).to("cuda")
    one, five = (
        loss_and_grad(lambda z, y, k=k: k * loss(z, y), logits.cuda(), dense.cuda())[1]
        for k in (1, 5)
    )
    torch.testing.assert_close(five, 5 * one)


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
@pytest.mark.parametrize("name", ["db", "bce", "asl", "zlpr", "two-way"])
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
