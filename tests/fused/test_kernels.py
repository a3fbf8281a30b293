"""The fused loss by Triton kernels: on a GPU where there is one, else interpreted.

In the interpreter the losses believe that their CPU tensors are on a GPU.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from longtail.errors import InputError
from longtail.fused import LinearBalancedLoss, linear, sgd
from longtail.losses import balanced, base, closed_form, targets

from ..interpreted import DEVICE, INTERPRETED, ON_GPU, needs_kernels, run_interpreted
from ..interpreted import starts_interpreter as starts_interpreter
from ..losses.cases import to_csr
from .cases import ELEMENTWISE, Case, small_chunks

pytest.importorskip("triton", reason="triton is not installed on this platform")

# The interpreter uses numpy, which warns about overflow.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@starts_interpreter
def test_kernels_agree_when_interpreted() -> None:
    run_interpreted(__file__)


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small chunks, and kernels on CPU tensors."""
    small_chunks(monkeypatch)
    if INTERPRETED and not ON_GPU:
        for module in (balanced, base, closed_form, linear, targets):
            monkeypatch.setattr(
                module, "kernels_usable", lambda z: z.dtype != torch.float64 and z.numel() > 0
            )


def moved(case: Case, dtype: torch.dtype) -> list[Tensor]:
    return [x.detach().to(DEVICE, dtype, copy=True).requires_grad_() for x in case.head]


def there(target: Any) -> Any:
    if isinstance(target, tuple):
        return tuple(part.to(DEVICE) for part in target)
    return target.to(DEVICE)


def results(case: Case, name: str, dtype: torch.dtype, impl: str, target: Any, **kw: Any) -> Any:
    """Value and gradients, with a factor of the loss; impl "plain": of all logits."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    leaves = moved(case, dtype)
    loss = case.loss(name, dtype=wide, reduction=kw.pop("reduction", "batchmean")).to(DEVICE)
    kw = {key: there(value) for key, value in kw.items()}
    if impl == "plain":
        value = case.plain(loss, leaves, there(target), **kw)
    else:
        value = case.fused(loss, leaves, there(target), impl=impl, **kw)
    (3 * value).backward()
    assert [leaf.grad.dtype for leaf in leaves] == [dtype] * 3
    return [value.detach().double(), *(leaf.grad.double() for leaf in leaves)]


def check(case: Case, name: str, target: Any, **kw: Any) -> None:
    exact = results(case, name, torch.float64, "plain", target, **kw)
    fused = results(case, name, torch.float32, "triton", target, **kw)
    for got, expected in zip(fused, exact, strict=True):
        atol = 1e-5 * float(expected.abs().max()) + 1e-9
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=atol)


@needs_kernels
@pytest.mark.parametrize("reduction", ["mean", "batchmean", "sum"])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_kernels_equal_the_plain_loss(name: str, reduction: str) -> None:
    case = Case(3, 70)
    check(case, name, case.target, reduction=reduction)
    more = dict(mask=case.mask, sample_weight=case.sample_weight)
    check(case, name, case.target, reduction=reduction, **more)


@needs_kernels
@pytest.mark.parametrize("shape", [(1, 1), (3, 31), (2, 64), (2, 97)])
def test_kernels_for_odd_shapes_and_forms_of_targets(shape: tuple[int, int]) -> None:
    case = Case(*shape)
    case.target = case.dense
    for target in (case.dense, case.dense.bool(), to_csr(case.dense), case.soft, to_csr(case.soft)):
        check(case, "db", target)
        check(case, "db", target, mask=case.mask)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["db", "asl"])
def test_kernels_lose_no_more_than_the_plain_loss_in_half_precision(
    name: str, dtype: torch.dtype
) -> None:
    case = Case(40, 200, 32)
    case.head = [x.to(dtype).double() for x in case.head]
    exact = results(case, name, torch.float64, "plain", case.target)
    fused, plain = (
        [
            float((got - right).norm())
            for got, right in zip(results(case, name, dtype, impl, case.target), exact, strict=True)
        ]
        for impl in ("triton", "plain")
    )
    # The error of one number is a matter of luck; those of gradients are norms of many.
    assert fused[0] <= 1e-4 * float(exact[0])
    for number in range(1, 4):
        assert fused[number] <= 1.5 * plain[number], number


@needs_kernels
def test_kernels_refuse_wrong_positions() -> None:
    case = Case(3, 70)
    for labels, message in (([5, 70], "label indices"), ([5, 5], "twice")):
        target = (torch.tensor(labels), torch.tensor([0, 0, 0, 2]))
        with pytest.raises(InputError, match=message):
            results(case, "db", torch.float32, "triton", target)


@needs_kernels
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("momentum", [None, 0.9])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_kernel_of_the_step_equals_torch(
    dtype: torch.dtype, momentum: float | None, decay: float
) -> None:
    """Exactly in the interpreter; a GPU multiplies and adds with one rounding."""
    generator = torch.Generator().manual_seed(0)
    weight, velocity = (torch.randn(70, 33, generator=generator).to(dtype) for _ in range(2))
    weight[3, 4] = float("nan")
    outcomes = []
    for with_kernels in (False, True):
        mine = weight.to(DEVICE, copy=True)
        buffer = None if momentum is None else velocity.to(DEVICE, copy=True)
        for step in range(3):
            grad = torch.randn(70, 33, generator=torch.Generator().manual_seed(step)).to(dtype)
            seed = torch.tensor([step - 1], dtype=torch.int32, device=DEVICE)
            # Numbers beyond 32 bits.
            first = 2**32 * step + 2**31 - 100
            rates = sgd.Rates(0.01, momentum or 0.0, decay)
            sgd.sgd_step(mine, grad.to(DEVICE), buffer, rates, first, seed, with_kernels)
        outcomes.append([mine] if buffer is None else [mine, buffer])
    exact = dict(rtol=0.0, atol=0.0) if not ON_GPU else {}
    torch.testing.assert_close(outcomes[1], outcomes[0], equal_nan=True, **exact)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_kernels_update_in_backward(dtype: torch.dtype) -> None:
    case = Case(5, 70)
    heads = []
    for impl in ("torch", "triton"):
        torch.manual_seed(0)
        head = LinearBalancedLoss(
            6, 70, loss="db", stats=case.stats, impl=impl, update="in_backward",
            learning_rate=0.1, momentum=0.9, weight_decay=0.01, dtype=dtype, device=DEVICE,
        )  # fmt: skip
        for _ in range(3):
            value = head(case.head[0].to(DEVICE, dtype), there(case.target), mask=there(case.mask))
            (2 * value).backward(retain_graph=True)
        heads.append(head.state_dict())
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            value.backward()
    # Gradients differ in the last digits, so few of the random roundings in bf16 differ.
    tolerance = 1e-5 if dtype == torch.float32 else 0.03
    for name, value in heads[0].items():
        torch.testing.assert_close(heads[1][name], value, rtol=tolerance, atol=tolerance)


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
def test_kernels_in_a_cuda_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(5, 70)
    leaves = moved(case, torch.bfloat16)
    loss, target = (
        case.loss("db", dtype=torch.float32, check_targets=False).cuda(),
        there(case.target),
    )

    def step() -> list[Tensor]:
        value = case.fused(loss, leaves, target, impl="triton")
        return [value, *torch.autograd.grad(value, leaves)]

    expected = [x.clone() for x in step()]
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = step()
    graph.replay()
    torch.testing.assert_close(recorded, expected)
