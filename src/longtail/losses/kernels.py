"""Triton kernels for the balanced loss: sum and gradient in one pass over the logits.

The gradient is the only output of the logits' size. Imported only on a GPU, or by the tests under
Triton's interpreter.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from longtail.losses.balanced import BalancedTerms, Batch

# Labels and warps per program: the fastest of a sweep on an H200.
BLOCK, WARPS = 1024, 4


@triton.jit
def _cost_and_slope(x, GAMMA: tl.constexpr):
    e = tl.exp(-tl.abs(x))
    r = 1.0 / (1.0 + e)
    s = tl.where(x >= 0, r, e * r)
    t = tl.where(x >= 0, e * r, r)
    # log(1 + e) loses all digits for small e; three terms of its series do not.
    log1p = tl.where(e < 0.01, e * (1.0 - e * (0.5 - e * 0.33333334)), tl.log(1.0 + e))
    cost = tl.maximum(x, 0.0) + log1p
    slope = s
    # An infinite cost times t = 0 would be NaN; the slope is 1.
    finite = tl.minimum(cost, 3e38)
    if GAMMA == 2.0:
        slope = s * s * (2.0 * t * finite + s)
        cost = s * s * cost
    elif GAMMA != 0.0:
        f = tl.exp(GAMMA * (tl.minimum(x, 0.0) - log1p))
        slope = f * (GAMMA * t * finite + s)
        cost = f * cost
    return cost, slope


@triton.jit
def _load_target(
    row, cols, inside, dense_ptr, dense_stride, starts_ptr, labels_ptr, values_ptr,
    DENSE: tl.constexpr, HAS_VALUES: tl.constexpr,
):  # fmt: skip
    if DENSE:
        y = tl.load(dense_ptr + row * dense_stride + cols, mask=inside, other=0).to(tl.float32)
    else:
        y = tl.zeros(cols.shape, dtype=tl.float32)
        first = tl.load(starts_ptr + row)
        last = tl.load(starts_ptr + row + 1)
        for position in range(first, last):
            label = tl.load(labels_ptr + position)
            value = 1.0
            if HAS_VALUES:
                value = tl.load(values_ptr + position).to(tl.float32)
            y = tl.where(cols == label, value, y)
    return y


@triton.jit
def _mass_kernel(
    out_ptr, inverse_ptr, mask_ptr, mask_stride, n_labels, n_blocks,
    dense_ptr, dense_stride, HAS_MASK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    row = (pid // n_blocks).to(tl.int64)
    cols = (pid % n_blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < n_labels
    y = tl.load(dense_ptr + row * dense_stride + cols, mask=inside, other=0).to(tl.float32)
    if HAS_MASK:
        y = tl.where(
            tl.load(mask_ptr + row * mask_stride + cols, mask=inside, other=0) != 0, y, 0.0
        )
    inverse = tl.load(inverse_ptr + cols, mask=inside, other=0.0)
    tl.store(out_ptr + pid, tl.sum(y * inverse, axis=0))


@triton.jit
def _pass_kernel(
    sum_ptr, grad_ptr, grad_stride, logits_ptr, logits_stride,
    dense_ptr, dense_stride, starts_ptr, labels_ptr, values_ptr,
    shift_ptr, label_weight_ptr, inverse_ptr, mass_ptr, sample_weight_ptr, mask_ptr, mask_stride,
    n_labels, n_blocks, lambda_, negative_scale, alpha, beta, mu, scale,
    GAMMA: tl.constexpr, WITH_GRAD: tl.constexpr, DENSE: tl.constexpr, HAS_VALUES: tl.constexpr,
    HAS_SHIFT: tl.constexpr, HAS_LABEL_WEIGHT: tl.constexpr, REBALANCED: tl.constexpr,
    HAS_SAMPLE_WEIGHT: tl.constexpr, HAS_MASK: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    row = (pid // n_blocks).to(tl.int64)
    cols = (pid % n_blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < n_labels
    z = tl.load(logits_ptr + row * logits_stride + cols, mask=inside, other=0.0).to(tl.float32)
    y = _load_target(
        row, cols, inside, dense_ptr, dense_stride, starts_ptr, labels_ptr, values_ptr,
        DENSE, HAS_VALUES,
    )  # fmt: skip
    if HAS_SHIFT:
        z = z - tl.load(shift_ptr + cols, mask=inside, other=0.0)
    cost, slope = _cost_and_slope(z * lambda_, GAMMA)
    cost = cost * negative_scale
    slope = slope * (negative_scale * lambda_)
    # Most blocks of a large label set hold no label of the document: skip the positive side.
    if tl.max((y != 0.0).to(tl.int32), axis=0) > 0:
        cost_here, slope_here = _cost_and_slope(-z, GAMMA)
        # 0 times an infinite cost is 0 here; a NaN target stays NaN.
        cost_here = tl.where(y == 0.0, 0.0, y * cost_here)
        cost = cost_here + tl.where(y == 1.0, 0.0, (1.0 - y) * cost)
        slope = (1.0 - y) * slope - y * slope_here
    weight = tl.full([BLOCK], 1.0, tl.float32)
    if REBALANCED:
        inverse = tl.load(inverse_ptr + cols, mask=inside, other=0.0)
        # Far below any mass, yet beta over it is finite.
        slant = beta / tl.maximum(tl.load(mass_ptr + row), 1e-30)
        weight = alpha + 1.0 / (1.0 + tl.exp(beta * mu - inverse * slant))
    if HAS_LABEL_WEIGHT:
        weight = weight * tl.load(label_weight_ptr + cols, mask=inside, other=0.0)
    if HAS_SAMPLE_WEIGHT:
        weight = weight * tl.load(sample_weight_ptr + row)
    if HAS_MASK:
        known = tl.load(mask_ptr + row * mask_stride + cols, mask=inside, other=0) != 0
        cost = tl.where(known, cost, 0.0)
        slope = tl.where(known, slope, 0.0)
        weight = tl.where(known, weight, 0.0)
    # An infinite cost of weight 0 counts 0, not NaN.
    cost = tl.where(weight == 0.0, 0.0, cost)
    if WITH_GRAD:
        place = grad_ptr + row * grad_stride + cols
        tl.store(place, (slope * weight).to(grad_ptr.dtype.element_ty), mask=inside)
    cost = tl.where(inside, cost * weight * scale, 0.0)
    if DENSE:
        # Targets outside [0, 1] make the sum NaN, which the caller checks.
        is_valid = (y >= 0.0) & (y <= 1.0)
        if HAS_MASK:
            is_valid = is_valid | (known == 0)
        cost = tl.where(is_valid, cost, float("nan"))
    tl.store(sum_ptr + pid, tl.sum(cost, axis=0))


def document_mass(dense: Tensor, inverse_counts: Tensor, mask: Tensor | None) -> Tensor:
    """Return the sum of 1/n over each document's labels, without a float copy of the targets."""
    # torch.mv is faster, but autocast would round 1/n and the sum to half precision.
    autocast = torch.is_autocast_enabled(dense.device.type)
    if mask is None and dense.dtype == inverse_counts.dtype and not autocast:
        return torch.mv(dense, inverse_counts)
    n_rows, n_labels = dense.shape
    n_blocks = triton.cdiv(n_labels, BLOCK)
    dense, mask = _bytes(dense), _bytes(mask)
    partial = inverse_counts.new_empty(n_rows, n_blocks, dtype=torch.float32)
    _mass_kernel[(n_rows * n_blocks,)](
        partial, inverse_counts, *_address(mask, dense), n_labels, n_blocks, *_address(dense),
        HAS_MASK=mask is not None, BLOCK=BLOCK,
    )  # fmt: skip
    return partial.sum(dim=1)


def sum_and_grad(
    logits: Tensor, batch: Batch, terms: BalancedTerms, scale: float, grad_dtype: torch.dtype | None
) -> tuple[Tensor, Tensor | None]:
    """Return `scale` times the sum of weight * cost, and the gradient of the unscaled sum.

    `grad_dtype`: None for no gradient.
    """
    targets = batch.targets
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    n_rows, n_labels = logits.shape
    n_blocks = triton.cdiv(n_labels, BLOCK)
    partial = logits.new_empty(n_rows * n_blocks, dtype=torch.float32)
    grad = None
    if grad_dtype is not None:
        grad = torch.empty(logits.shape, dtype=grad_dtype, device=logits.device)
    dense, mask = _bytes(targets.dense), _bytes(batch.mask)
    starts = labels = values = None
    if dense is None:
        rows, labels = targets.positions()
        starts = torch.searchsorted(rows, torch.arange(n_rows + 1, device=rows.device))
        values = _bytes(targets.values)
    vectors = (
        terms.shift, terms.label_weight, terms.inverse_counts,
        batch.document_mass, batch.sample_weight,
    )  # fmt: skip
    # `logits` stands for pointers that a disabled branch never reads.
    sparse = [logits if part is None else part for part in (starts, labels, values)]
    floats = [logits if v is None else v.detach().float().contiguous() for v in vectors]
    _pass_kernel[(n_rows * n_blocks,)](
        partial, *_address(grad, logits), *_address(logits), *_address(dense, logits), *sparse,
        *floats, *_address(mask, logits), n_labels, n_blocks,
        terms.lambda_, terms.negative_scale, terms.alpha, terms.beta, terms.mu, scale,
        GAMMA=terms.gamma, WITH_GRAD=grad is not None, DENSE=dense is not None,
        HAS_VALUES=values is not None, HAS_SHIFT=terms.shift is not None,
        HAS_LABEL_WEIGHT=terms.label_weight is not None,
        REBALANCED=terms.inverse_counts is not None,
        HAS_SAMPLE_WEIGHT=batch.sample_weight is not None,
        HAS_MASK=mask is not None, BLOCK=BLOCK, num_warps=WARPS,
    )  # fmt: skip
    return partial.sum(), grad


def _address(matrix: Tensor | None, unused: Tensor | None = None) -> tuple[Tensor | None, int]:
    """Return a matrix and its row stride; for None, an unused pointer and 0."""
    return (unused, 0) if matrix is None else (matrix, matrix.stride(0))


def _bytes(matrix: Tensor | None) -> Any:
    """Return Booleans as bytes, with contiguous columns, for the kernels to address."""
    if matrix is None:
        return None
    if matrix.stride(-1) != 1:
        matrix = matrix.contiguous()
    return matrix.view(torch.uint8) if matrix.dtype == torch.bool else matrix
