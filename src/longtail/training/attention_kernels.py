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

from longtail.losses.kernel_parts import mix
from longtail.training.packed import BLOCK, lowest_kept

# The kernels work in base 2, whose exponential is an instruction; Triton reads no global numbers,
# so they repeat log2(e) and its inverse.
LOG2E = 1.4426950408889634


@triton.jit
def _kept(numbers, seed, threshold):
    return mix(numbers, seed) >= threshold


@triton.jit
def _tile(pointer, stride, rows, end, SIZE: tl.constexpr):
    """Rows of one head; those past the end are 0."""
    # More than 2^31 numbers are a batch of long texts only.
    places = rows[:, None].to(tl.int64) * stride + tl.arange(0, SIZE)[None, :]
    return tl.load(pointer + places, mask=rows[:, None] < end, other=0.0)


@triton.jit
def _scores(
    q, k, rows, columns, bias_ptr, width, scale,
    HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Scores in base 2."""
    if HAS_BIAS:
        # A table of distances stays in the fastest cache, as pairs of positions would not. Padding
        # may be longer than the table; its states are not used.
        column = columns[None, :] - rows[:, None] + width // 2
        bias = tl.load(bias_ptr + tl.minimum(tl.maximum(column, 0), width - 1))
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
        return scores + bias * 1.4426950408889634
    return tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale


@triton.jit
def _forward_kernel(
    out_ptr, lse_ptr, qkv_ptr, tiles_ptr, bias_ptr, width, seed_ptr, scale,
    n_heads, n_tokens, threshold, dropout_scale,
    HAS_BIAS: tl.constexpr, DROPOUT: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    tile, head = tl.program_id(0), tl.program_id(1)
    first = tl.load(tiles_ptr + 3 * tile)
    begin = tl.load(tiles_ptr + 3 * tile + 1)
    end = tl.load(tiles_ptr + 3 * tile + 2)
    if first >= end:
        return
    stride = n_heads * SIZE
    q_ptr = qkv_ptr + head * SIZE
    k_ptr, v_ptr = q_ptr + stride, q_ptr + 2 * stride
    bias_ptr += head * width
    rows = first + tl.arange(0, BLOCK)
    q = _tile(q_ptr, 3 * stride, rows, end, SIZE)
    seed = tl.load(seed_ptr)
    numbers = (rows * n_heads + head) * n_tokens
    row_max = tl.full([BLOCK], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK], tl.float32)
    result = tl.zeros([BLOCK, SIZE], tl.float32)
    for start in range(begin, end, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        k = _tile(k_ptr, 3 * stride, columns, end, SIZE)
        v = _tile(v_ptr, 3 * stride, columns, end, SIZE)
        scores = _scores(q, k, rows, columns, bias_ptr, width, scale, HAS_BIAS, PRECISION)
        scores += tl.where(columns < end, 0.0, float("-inf"))[None, :]
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_max[:, None])
        rescale = tl.exp2(row_max - new_max)
        row_sum = row_sum * rescale + tl.sum(weights, axis=1)
        if DROPOUT:
            keep = _kept(numbers[:, None] + columns[None, :], seed, threshold)
            weights = tl.where(keep, weights, 0.0)
        result = result * rescale[:, None]
        result += tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
        row_max = new_max
    inside = rows < end
    result = result * (dropout_scale / row_sum)[:, None]
    places = rows[:, None].to(tl.int64) * stride + head * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(out_ptr + places, result.to(out_ptr.dtype.element_ty), mask=inside[:, None])
    tl.store(lse_ptr + head * n_tokens + rows, row_max + tl.log2(row_sum), mask=inside)


@triton.jit
def _query_kernel(
    grad_qkv_ptr, delta_ptr, grad_ptr, out_ptr, lse_ptr,
    qkv_ptr, tiles_ptr, bias_ptr, width, seed_ptr, scale,
    n_heads, n_tokens, threshold, dropout_scale,
    HAS_BIAS: tl.constexpr, DROPOUT: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    tile, head = tl.program_id(0), tl.program_id(1)
    first = tl.load(tiles_ptr + 3 * tile)
    begin = tl.load(tiles_ptr + 3 * tile + 1)
    end = tl.load(tiles_ptr + 3 * tile + 2)
    if first >= end:
        return
    stride = n_heads * SIZE
    q_ptr = qkv_ptr + head * SIZE
    k_ptr, v_ptr = q_ptr + stride, q_ptr + 2 * stride
    bias_ptr += head * width
    rows = first + tl.arange(0, BLOCK)
    inside = rows < end
    q = _tile(q_ptr, 3 * stride, rows, end, SIZE)
    grad = _tile(grad_ptr + head * SIZE, stride, rows, end, SIZE)
    out = _tile(out_ptr + head * SIZE, stride, rows, end, SIZE)
    delta = tl.sum(grad.to(tl.float32) * out.to(tl.float32), axis=1)
    tl.store(delta_ptr + head * n_tokens + rows, delta, mask=inside)
    lse = tl.load(lse_ptr + head * n_tokens + rows, mask=inside, other=0.0)
    seed = tl.load(seed_ptr)
    numbers = (rows * n_heads + head) * n_tokens
    result = tl.zeros([BLOCK, SIZE], tl.float32)
    for start in range(begin, end, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        k = _tile(k_ptr, 3 * stride, columns, end, SIZE)
        v = _tile(v_ptr, 3 * stride, columns, end, SIZE)
        scores = _scores(q, k, rows, columns, bias_ptr, width, scale, HAS_BIAS, PRECISION)
        grad_scores = tl.dot(grad, tl.trans(v), input_precision=PRECISION)
        if DROPOUT:
            keep = _kept(numbers[:, None] + columns[None, :], seed, threshold)
            grad_scores = tl.where(keep, grad_scores * dropout_scale, 0.0)
        # The score of a key past the end is 0, which may be far above all others.
        scores += tl.where(columns < end, 0.0, float("-inf"))[None, :]
        grad_scores = tl.exp2(scores - lse[:, None]) * (grad_scores - delta[:, None])
        result += tl.dot(grad_scores.to(k.dtype), k, input_precision=PRECISION)
    places = rows[:, None].to(tl.int64) * (3 * stride) + head * SIZE + tl.arange(0, SIZE)[None, :]
    result = result * (scale * 0.6931471805599453)
    kind = grad_qkv_ptr.dtype.element_ty
    tl.store(grad_qkv_ptr + places, result.to(kind), mask=inside[:, None])


@triton.jit
def _key_kernel(
    grad_qkv_ptr, delta_ptr, grad_ptr, lse_ptr,
    qkv_ptr, tiles_ptr, bias_ptr, width, seed_ptr, scale,
    n_heads, n_tokens, threshold, dropout_scale,
    HAS_BIAS: tl.constexpr, DROPOUT: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    tile, head = tl.program_id(0), tl.program_id(1)
    first = tl.load(tiles_ptr + 3 * tile)
    begin = tl.load(tiles_ptr + 3 * tile + 1)
    end = tl.load(tiles_ptr + 3 * tile + 2)
    if first >= end:
        return
    stride = n_heads * SIZE
    q_ptr = qkv_ptr + head * SIZE
    bias_ptr += head * width
    columns = first + tl.arange(0, BLOCK)
    k = _tile(q_ptr + stride, 3 * stride, columns, end, SIZE)
    v = _tile(q_ptr + 2 * stride, 3 * stride, columns, end, SIZE)
    seed = tl.load(seed_ptr)
    grad_k = tl.zeros([BLOCK, SIZE], tl.float32)
    grad_v = tl.zeros([BLOCK, SIZE], tl.float32)
    for start in range(begin, end, BLOCK):
        # Queries past the end, their deltas and the gradient are 0 and add nothing.
        rows = start + tl.arange(0, BLOCK)
        q = _tile(q_ptr, 3 * stride, rows, end, SIZE)
        grad = _tile(grad_ptr + head * SIZE, stride, rows, end, SIZE)
        places = head * n_tokens + rows
        lse = tl.load(lse_ptr + places, mask=rows < end, other=0.0)
        delta = tl.load(delta_ptr + places, mask=rows < end, other=0.0)
        scores = _scores(q, k, rows, columns, bias_ptr, width, scale, HAS_BIAS, PRECISION)
        scores += tl.where(columns < end, 0.0, float("-inf"))[None, :]
        weights = tl.exp2(scores - lse[:, None])
        grad_scores = tl.dot(grad, tl.trans(v), input_precision=PRECISION)
        dropped = weights
        if DROPOUT:
            numbers = (rows * n_heads + head) * n_tokens
            keep = _kept(numbers[:, None] + columns[None, :], seed, threshold)
            dropped = tl.where(keep, weights, 0.0)
            grad_scores = tl.where(keep, grad_scores * dropout_scale, 0.0)
        grad_v += tl.dot(tl.trans(dropped.to(grad.dtype)), grad, input_precision=PRECISION)
        grad_scores = weights * (grad_scores - delta[:, None])
        grad_k += tl.dot(tl.trans(grad_scores.to(q.dtype)), q, input_precision=PRECISION)
    places = columns[:, None].to(tl.int64) * (3 * stride) + stride + head * SIZE
    places += tl.arange(0, SIZE)[None, :]
    mask = columns[:, None] < end
    kind = grad_qkv_ptr.dtype.element_ty
    grad_k = grad_k * (scale * 0.6931471805599453)
    tl.store(grad_qkv_ptr + places, grad_k.to(kind), mask=mask)
    tl.store(grad_qkv_ptr + places + stride, (grad_v * dropout_scale).to(kind), mask=mask)


def forward(
    qkv: Tensor, tiles: Tensor, bias: Tensor | None, seed: Tensor, rate: float
) -> tuple[Tensor, Tensor]:
    """Return the result, and the base-2 logarithm of the sum of weights."""
    n_tokens, _, n_heads, size = qkv.shape
    result = qkv.new_empty((n_tokens, n_heads, size))
    lse = qkv.new_empty((n_heads, n_tokens), dtype=torch.float32)
    parts, options = _arguments(qkv, tiles, bias, seed, rate)
    with torch.cuda.device_of(qkv):
        _forward_kernel[(len(tiles), n_heads)](result, lse, *parts, **options)
    return result, lse


def backward(
    grad: Tensor,
    qkv: Tensor,
    result: Tensor,
    lse: Tensor,
    tiles: Tensor,
    bias: Tensor | None,
    seed: Tensor,
    rate: float,
) -> Tensor:
    """Return the gradient of `qkv`."""
    grads, delta = torch.empty_like(qkv), torch.empty_like(lse)
    parts, options = _arguments(qkv, tiles, bias, seed, rate)
    grid = (len(tiles), qkv.shape[2])
    with torch.cuda.device_of(qkv):
        # The second kernel reads the deltas that the first one writes.
        _query_kernel[grid](grads, delta, grad, result, lse, *parts, **options)
        _key_kernel[grid](grads, delta, grad, lse, *parts, **options)
    return grads


def _arguments(
    qkv: Tensor, tiles: Tensor, bias: Tensor | None, seed: Tensor, rate: float
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments that all kernels share."""
    n_tokens, _, n_heads, size = qkv.shape
    # `qkv` stands for a bias that is never read.
    table, width = (qkv, 0)
    if bias is not None:
        table, width = bias.float().contiguous(), bias.shape[1]
    scale, threshold, dropout_scale = LOG2E / size**0.5, lowest_kept(rate), 1 / (1 - rate)
    parts = [qkv, tiles, table, width, seed, scale, n_heads, n_tokens, threshold, dropout_scale]
    # Loading ahead gains on an H200, but takes shared memory, of which other GPUs have less.
    is_small = bias is None and qkv.element_size() == 2 and size <= 64
    options = dict(
        HAS_BIAS=bias is not None, DROPOUT=rate > 0, SIZE=size, BLOCK=BLOCK,
        PRECISION="ieee" if qkv.dtype == torch.float32 else "tf32",
        num_warps=4, num_stages=3 if is_small else 1,
    )  # fmt: skip
    return parts, options
