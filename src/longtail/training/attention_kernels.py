"""Triton kernels for attention over packed documents; see `attention` in training/packed.py.

A program computes one tile of queries (or keys) of one head, so that no two programs add to the
same number and results do not depend on their order. Imported only on a GPU, or by the tests under
Triton's interpreter.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from longtail.training.packed import BLOCK, lowest_kept

WARPS, STAGES = 4, 2
# The kernels work in base 2, whose exponential is an instruction; Triton reads no global numbers,
# so they repeat log2(e) and its inverse.
LOG2E = 1.4426950408889634


@triton.jit
def _kept(numbers, seed, least):
    x = (numbers ^ seed) * -1640531535 + seed
    x = (x ^ ((x >> 15) & 0x1FFFF)) * 0x7FEB352D
    return x >= least


@triton.jit
def _tile(pointer, row_stride, rows, head, end, SIZE: tl.constexpr):
    places = rows[:, None] * row_stride + head * SIZE + tl.arange(0, SIZE)[None, :]
    return tl.load(pointer + places, mask=rows[:, None] < end, other=0.0)


@triton.jit
def _weights(
    q, k, rows, columns, begin, end, head, total, bias_ptr, width, scale,
    HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Scores in base 2, less `total` of each row."""
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    inside = (rows[:, None] < end) & (columns[None, :] < end)
    if HAS_BIAS:
        # Padding may be longer than the bias; its states are not used.
        row = tl.minimum(rows - begin, width - 1)[:, None]
        column = columns[None, :] - begin
        place = (head * width + row) * width + column
        bias = tl.load(bias_ptr + place, mask=inside & (column < width), other=0.0)
        scores += bias.to(tl.float32) * 1.4426950408889634
    return tl.where(inside, scores - total, float("-inf"))


@triton.jit
def _forward_kernel(
    out_ptr, total_ptr, q_ptr, q_stride, k_ptr, k_stride, v_ptr, v_stride,
    tiles_ptr, bias_ptr, width, seed_ptr, scale, n_heads, n_tokens, least, growth,
    HAS_BIAS: tl.constexpr, DROPOUT: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    tile, head = tl.program_id(0), tl.program_id(1)
    first = tl.load(tiles_ptr + 3 * tile)
    begin = tl.load(tiles_ptr + 3 * tile + 1)
    end = tl.load(tiles_ptr + 3 * tile + 2)
    if first >= end:
        return
    rows = first + tl.arange(0, BLOCK)
    q = _tile(q_ptr, q_stride, rows, head, end, SIZE)
    seed = tl.load(seed_ptr)
    most = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    result = tl.zeros([BLOCK, SIZE], tl.float32)
    for start in range(begin, end, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        k = _tile(k_ptr, k_stride, columns, head, end, SIZE)
        v = _tile(v_ptr, v_stride, columns, head, end, SIZE)
        scores = _weights(
            q, k, rows, columns, begin, end, head, 0.0, bias_ptr, width, scale, HAS_BIAS, PRECISION
        )
        # Rows past the end have no score at all; any finite maximum keeps them finite.
        higher = tl.maximum(tl.maximum(most, tl.max(scores, axis=1)), -1e30)
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(most - higher)
        total = total * shrink + tl.sum(weights, axis=1)
        if DROPOUT:
            numbers = (rows[:, None] * n_heads + head) * n_tokens + columns[None, :]
            weights = tl.where(_kept(numbers, seed, least), weights * growth, 0.0)
        result = result * shrink[:, None]
        result += tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
        most = higher
    inside = rows < end
    result = result / tl.where(inside, total, 1.0)[:, None]
    places = (rows[:, None] * n_heads + head) * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(out_ptr + places, result.to(out_ptr.dtype.element_ty), mask=inside[:, None])
    logarithm = (most + tl.log2(tl.where(inside, total, 1.0))) * 0.6931471805599453
    tl.store(total_ptr + head * n_tokens + rows, logarithm, mask=inside)


@triton.jit
def _query_kernel(
    grad_q_ptr, slope_ptr, grad_ptr, out_ptr, total_ptr,
    q_ptr, q_stride, k_ptr, k_stride, v_ptr, v_stride,
    tiles_ptr, bias_ptr, width, seed_ptr, scale, n_heads, n_tokens, least, growth,
    HAS_BIAS: tl.constexpr, DROPOUT: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    tile, head = tl.program_id(0), tl.program_id(1)
    first = tl.load(tiles_ptr + 3 * tile)
    begin = tl.load(tiles_ptr + 3 * tile + 1)
    end = tl.load(tiles_ptr + 3 * tile + 2)
    if first >= end:
        return
    rows = first + tl.arange(0, BLOCK)
    inside = rows < end
    stride = n_heads * SIZE
    q = _tile(q_ptr, q_stride, rows, head, end, SIZE)
    grad = _tile(grad_ptr, stride, rows, head, end, SIZE)
    out = _tile(out_ptr, stride, rows, head, end, SIZE)
    slope = tl.sum(grad.to(tl.float32) * out.to(tl.float32), axis=1)
    tl.store(slope_ptr + head * n_tokens + rows, slope, mask=inside)
    total = tl.load(total_ptr + head * n_tokens + rows, mask=inside, other=0.0)
    total = total * 1.4426950408889634
    seed = tl.load(seed_ptr)
    result = tl.zeros([BLOCK, SIZE], tl.float32)
    for start in range(begin, end, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        k = _tile(k_ptr, k_stride, columns, head, end, SIZE)
        v = _tile(v_ptr, v_stride, columns, head, end, SIZE)
        weights = tl.exp2(_weights(
            q, k, rows, columns, begin, end, head, total[:, None], bias_ptr, width, scale, HAS_BIAS,
            PRECISION,
        ))  # fmt: skip
        rise = tl.dot(grad, tl.trans(v), input_precision=PRECISION)
        if DROPOUT:
            numbers = (rows[:, None] * n_heads + head) * n_tokens + columns[None, :]
            rise = tl.where(_kept(numbers, seed, least), rise * growth, 0.0)
        rise = weights * (rise - slope[:, None])
        result += tl.dot(rise.to(k.dtype), k, input_precision=PRECISION)
    places = (rows[:, None] * n_heads + head) * SIZE + tl.arange(0, SIZE)[None, :]
    result = result * (scale * 0.6931471805599453)
    tl.store(grad_q_ptr + places, result.to(grad_q_ptr.dtype.element_ty), mask=inside[:, None])


@triton.jit
def _key_kernel(
    grad_k_ptr, grad_v_ptr, slope_ptr, grad_ptr, total_ptr,
    q_ptr, q_stride, k_ptr, k_stride, v_ptr, v_stride,
    tiles_ptr, bias_ptr, width, seed_ptr, scale, n_heads, n_tokens, least, growth,
    HAS_BIAS: tl.constexpr, DROPOUT: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    tile, head = tl.program_id(0), tl.program_id(1)
    first = tl.load(tiles_ptr + 3 * tile)
    begin = tl.load(tiles_ptr + 3 * tile + 1)
    end = tl.load(tiles_ptr + 3 * tile + 2)
    if first >= end:
        return
    columns = first + tl.arange(0, BLOCK)
    k = _tile(k_ptr, k_stride, columns, head, end, SIZE)
    v = _tile(v_ptr, v_stride, columns, head, end, SIZE)
    seed = tl.load(seed_ptr)
    grad_k = tl.zeros([BLOCK, SIZE], tl.float32)
    grad_v = tl.zeros([BLOCK, SIZE], tl.float32)
    for start in range(begin, end, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        inside = rows < end
        q = _tile(q_ptr, q_stride, rows, head, end, SIZE)
        grad = _tile(grad_ptr, n_heads * SIZE, rows, head, end, SIZE)
        total = tl.load(total_ptr + head * n_tokens + rows, mask=inside, other=0.0)
        total = total * 1.4426950408889634
        slope = tl.load(slope_ptr + head * n_tokens + rows, mask=inside, other=0.0)
        weights = tl.exp2(_weights(
            q, k, rows, columns, begin, end, head, total[:, None], bias_ptr, width, scale, HAS_BIAS,
            PRECISION,
        ))  # fmt: skip
        rise = tl.dot(grad, tl.trans(v), input_precision=PRECISION)
        used = weights
        if DROPOUT:
            numbers = (rows[:, None] * n_heads + head) * n_tokens + columns[None, :]
            keep = _kept(numbers, seed, least)
            used = tl.where(keep, weights * growth, 0.0)
            rise = tl.where(keep, rise * growth, 0.0)
        grad_v += tl.dot(tl.trans(used).to(grad.dtype), grad, input_precision=PRECISION)
        rise = weights * (rise - slope[:, None])
        grad_k += tl.dot(tl.trans(rise).to(q.dtype), q, input_precision=PRECISION)
    places = (columns[:, None] * n_heads + head) * SIZE + tl.arange(0, SIZE)[None, :]
    mask = columns[:, None] < end
    grad_k = grad_k * (scale * 0.6931471805599453)
    tl.store(grad_k_ptr + places, grad_k.to(grad_k_ptr.dtype.element_ty), mask=mask)
    tl.store(grad_v_ptr + places, grad_v.to(grad_v_ptr.dtype.element_ty), mask=mask)


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tiles: Tensor,
    bias: Tensor | None,
    seed: Tensor,
    rate: float,
) -> tuple[Tensor, Tensor]:
    """Return the result and the logarithm of the sum of weights."""
    n_tokens, n_heads, _ = query.shape
    result = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    total = torch.empty((n_heads, n_tokens), dtype=torch.float32, device=query.device)
    parts, options = _arguments(query, key, value, tiles, bias, seed, rate)
    _forward_kernel[(len(tiles), n_heads)](result, total, *parts, **options)
    return result, total


def backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    result: Tensor,
    total: Tensor,
    tiles: Tensor,
    bias: Tensor | None,
    seed: Tensor,
    rate: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of query, key and value."""
    grads = [torch.empty(query.shape, dtype=query.dtype, device=query.device) for _ in range(3)]
    slope = torch.empty_like(total)
    parts, options = _arguments(query, key, value, tiles, bias, seed, rate)
    grid = (len(tiles), query.shape[1])
    # The second kernel reads the slopes that the first one writes.
    _query_kernel[grid](grads[0], slope, grad, result, total, *parts, **options)
    _key_kernel[grid](grads[1], grads[2], slope, grad, total, *parts, **options)
    return grads[0], grads[1], grads[2]


def _arguments(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tiles: Tensor,
    bias: Tensor | None,
    seed: Tensor,
    rate: float,
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments that all kernels share."""
    n_tokens, n_heads, size = query.shape
    bias = None if bias is None else bias.contiguous()
    parts = [item for part in (query, key, value) for item in (part, part.stride(0))]
    # `query` stands for a bias that is never read.
    table, width = (query, 0) if bias is None else (bias, bias.shape[1])
    least, growth = lowest_kept(rate), 1 / (1 - rate)
    parts += [tiles, table, width, seed, LOG2E / size**0.5, n_heads, n_tokens, least, growth]
    options = dict(
        HAS_BIAS=bias is not None, DROPOUT=rate > 0, SIZE=size, BLOCK=BLOCK,
        PRECISION="ieee" if query.dtype == torch.float32 else "tf32",
        num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return parts, options
