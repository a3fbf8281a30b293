"""Packed documents: layout, attention against plain softmax, and the Triton kernels interpreted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from longtail.training.packed import BLOCK, Layout, attention, dropout, kept, tile_count

from ..interpreted import DEVICE, needs_kernels, run_interpreted, starts_interpreter

NO_SEED = torch.zeros(1, dtype=torch.int32, device=DEVICE)
# One token; a tile and a token; several tiles; padding of 0 and of more than a tile.
LENGTHS = [([1], 1), ([5, BLOCK + 1, 3], 73), ([150, 1, 64, 7], 300)]


@given(st.lists(st.integers(0, 200), min_size=1, max_size=8), st.integers(0, 150))
def test_layout(lengths: list[int], padding: int) -> None:
    """Every token is in exactly one tile, and tiles do not cross documents."""
    total = sum(lengths) + padding
    layout = Layout.of(torch.tensor(lengths), total, tile_count(total, len(lengths)))
    document = np.repeat(np.arange(len(lengths) + 1), [*lengths, padding])
    assert layout.document.tolist() == document.tolist()
    assert layout.position.tolist() == [k for n in [*lengths, padding] for k in range(n)]
    covered = []
    for first, start, end in layout.tiles.tolist():
        tokens = list(range(first, min(first + BLOCK, end)))
        assert len({document[token] for token in tokens}) <= 1
        if tokens:
            assert document[start] == document[end - 1] == document[first]
            assert (start == 0 or document[start - 1] != document[start]) and (
                end == total or document[end] != document[start]
            )
        covered += tokens
    assert sorted(covered) == list(range(total))


def test_mean_leaves_padding_out() -> None:
    layout = Layout.of(torch.tensor([2, 1]), 5, tile_count(5, 2))
    states = torch.tensor([[1.0], [3.0], [5.0], [100.0], [100.0]])
    assert layout.mean(states).tolist() == [[2.0], [5.0]]


def make_case(lengths: list[int], total: int, size: int, seed: int) -> tuple[list[Tensor], Layout]:
    generator = torch.Generator().manual_seed(seed)
    # Queries, keys and values; a gradient of the result.
    parts = [torch.randn(total, 3, 3, size, generator=generator)]
    parts.append(torch.randn(total, 3, size, generator=generator))
    layout = Layout.of(torch.tensor(lengths), total, tile_count(total, len(lengths)))
    return parts, layout


def plain(parts: list[Tensor], layout: Layout, bias: Tensor | None) -> list[Tensor]:
    """torch's attention, document by document, and the gradient of its inputs."""
    qkv = parts[0].clone().requires_grad_()
    outputs = []
    for document in range(int(layout.document.max()) + 1):
        rows = (layout.document == document).nonzero().squeeze(1)
        if len(rows) == 0:
            continue
        mask = None
        if bias is not None:
            place = torch.arange(len(rows))
            mask = bias[:, place - place.unsqueeze(1) + bias.shape[1] // 2]
        mine = (part.transpose(0, 1) for part in qkv[rows].unbind(1))
        outputs.append(
            torch.nn.functional.scaled_dot_product_attention(*mine, attn_mask=mask).transpose(0, 1)
        )
    result = torch.cat(outputs)
    return [result.detach(), *torch.autograd.grad(result, qkv, parts[1])]


@pytest.mark.parametrize(("lengths", "total"), LENGTHS)
@pytest.mark.parametrize("with_bias", [False, True])
def test_attention_stays_within_documents(lengths: list[int], total: int, with_bias: bool) -> None:
    parts, layout = make_case(lengths, total, 16, 0)
    bias = torch.randn(3, 2 * total - 1, generator=torch.Generator().manual_seed(1))
    qkv = parts[0].to(DEVICE).requires_grad_()
    table = bias.to(DEVICE) if with_bias else None
    result = attention(qkv, layout.tiles.to(DEVICE), table, NO_SEED, 0.0)
    grads = torch.autograd.grad(result, qkv, parts[1].to(DEVICE))
    expected = plain(parts, layout, bias if with_bias else None)
    for here, there in zip((result, *grads), expected, strict=True):
        assert torch.allclose(here.cpu(), there, atol=1e-5)


def test_attention_can_be_compiled_and_checked() -> None:
    """Shapes and aliasing as torch expects of an operator."""
    parts, layout = make_case([5, 9], 16, 16, 0)
    qkv = parts[0].to(DEVICE).requires_grad_()
    more = (layout.tiles.to(DEVICE), None, NO_SEED, 0.25)
    torch.library.opcheck(torch.ops.longtail.attention, (qkv, *more))


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_drops_its_share(rate: float) -> None:
    numbers = torch.arange(100_000, dtype=torch.int32)
    seeds = [torch.tensor([seed], dtype=torch.int32) for seed in (0, 1, -5)]
    masks = [kept(numbers, seed, rate) for seed in seeds]
    for mask in masks:
        assert mask.float().mean().item() == pytest.approx(1 - rate, abs=0.005)
        # Neighbours are independent.
        both = (mask[1:] & mask[:-1]).float().mean().item()
        assert both == pytest.approx((1 - rate) ** 2, abs=0.005)
    both = (masks[0] & masks[1]).float().mean().item()
    assert both == pytest.approx((1 - rate) ** 2, abs=0.005)
    x = torch.ones(100_000)
    dropped = dropout(x, rate, seeds[0])
    assert torch.equal(dropped != 0, masks[0])
    assert dropped.mean().item() == pytest.approx(1, abs=0.01)
    assert dropout(x, 0.0, seeds[0]) is x


@starts_interpreter
def test_kernels_agree_when_interpreted() -> None:
    run_interpreted(__file__)


@needs_kernels
@pytest.mark.parametrize(("lengths", "total"), LENGTHS)
@pytest.mark.parametrize("size", [16, 64])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_kernels_equal_plain_torch(
    lengths: list[int], total: int, size: int, with_bias: bool, rate: float
) -> None:
    """The same values and gradients, with the same weights dropped."""
    from longtail.training import attention_kernels

    parts, layout = make_case(lengths, total, size, 2)
    bias = torch.randn(3, 2 * total - 1) if with_bias else None
    seed = torch.tensor([12345], dtype=torch.int32)
    qkv = parts[0].clone().requires_grad_()
    result = attention(qkv, layout.tiles, bias, seed, rate)
    (grads,) = torch.autograd.grad(result, qkv, parts[1])
    there = [part.to(DEVICE) for part in parts]
    more = (layout.tiles.to(DEVICE), None if bias is None else bias.to(DEVICE), seed.to(DEVICE))
    out, total = attention_kernels.forward(there[0], *more, rate)
    theirs = attention_kernels.backward(there[1], there[0], out, total, *more, rate)
    for ours, kernel in ((result.detach(), out), (grads, theirs)):
        assert torch.allclose(ours, kernel.cpu(), atol=2e-5)


@needs_kernels
def test_kernels_with_scores_far_below_zero() -> None:
    """Keys past the end of a document score 0, which is then far above all others."""
    from longtail.training import attention_kernels

    parts, layout = make_case([5, 70], 75, 16, 3)
    qkv = 0.1 * parts[0]
    qkv[:, 0] += 20.0
    qkv[:, 1] -= 20.0
    (expected,) = torch.autograd.grad(
        attention(qkv.requires_grad_(), layout.tiles, None, NO_SEED.cpu(), 0.0),
        qkv,
        parts[1],
    )
    there = [part.detach().to(DEVICE) for part in (qkv, parts[1], layout.tiles)]
    out, total = attention_kernels.forward(there[0], there[2], None, NO_SEED, 0.0)
    assert total.max() < -128
    grad = attention_kernels.backward(there[1], there[0], out, total, there[2], None, NO_SEED, 0.0)
    torch.testing.assert_close(grad.cpu(), expected, atol=2e-3, rtol=1e-3)
