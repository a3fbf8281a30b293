"""Triton kernels for losses with a term per element: sum and gradient in one pass.

The gradient is the only output of the logits' size. Imported only on a GPU, or by the tests under
Triton's interpreter.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from longtail.losses.balanced import ElementTerms
from longtail.losses.closed_form import Batch
from longtail.losses.kernel_parts import (
    WARPS,
    Inputs,
    address,
    cut,
    is_soft,
    known_elements,
    load_targets,
    log1p,
    place,
    plain,
    read_inputs,
    reciprocal,
    soft_targets,
    with_columns,
)

# Parts of a row in the pass that sums 1/n: enough programs for any GPU.
PARTS = 16


@triton.jit
def _focal(x, e, r, GAMMA: tl.constexpr):
    """sigmoid(x)^gamma softplus(x), its derivative, sigmoid(x) and sigmoid(-x).

    e = exp(-|x|), r = 1 / (1 + e).
    """
    small = e * r
    s = tl.where(x >= 0, r, small)
    t = tl.where(x >= 0, small, r)
    logarithm = log1p(e)
    cost = tl.maximum(x, 0.0) + logarithm
    slope = s
    # An infinite cost times t = 0 would be NaN; the slope is 1.
    finite = tl.minimum(cost, 3e38)
    if GAMMA != 0.0:
        if GAMMA == 1.0:
            f = s
        elif GAMMA == 2.0:
            f = s * s
        else:
            f = tl.exp(GAMMA * (tl.minimum(x, 0.0) - logarithm))
        slope = f * (GAMMA * t * finite + s)
        cost = f * cost
    return cost, slope, s, t


@triton.jit
def _margin_negative(s, t, margin, GAMMA: tl.constexpr):
    """-q^gamma log(1 - q) with q = max(s - margin, 0), and its derivative; t = 1 - s."""
    is_easy = s <= margin
    q = tl.where(is_easy, 0.5, s - margin)
    rest = tl.where(is_easy, 0.5, t + margin)
    inverse = 1.0 / rest
    # q / (1 - q) is at most 1 for the first; 1 - q keeps its digits in the second.
    logarithm = tl.where(q < 0.5, log1p(q * inverse), -tl.log(rest))
    cost = logarithm
    slope = inverse
    if GAMMA != 0.0:
        if GAMMA == 1.0:
            f = tl.full(q.shape, 1.0, tl.float32)
        elif GAMMA == 2.0:
            f = q
        elif GAMMA == 4.0:
            f = q * q * q
        else:
            f = tl.exp2((GAMMA - 1.0) * tl.log2(q))
        slope = f * (GAMMA * logarithm + q * inverse)
        cost = f * q * logarithm
    return tl.where(is_easy, 0.0, cost), tl.where(is_easy, 0.0, s * t * slope)


@triton.jit
def _cost_and_slope(
    z, positive, first, second,
    KIND: tl.constexpr, GAMMA: tl.constexpr, GAMMA_NEGATIVE: tl.constexpr,
):  # fmt: skip
    """Cost and derivative of logits whose labels apply or not; see ElementTerms for constants."""
    if KIND == "squared-hinge":
        x = tl.where(positive, 1.0 - z, 1.0 + z)
        x = tl.where(x < 0, 0.0, x)
        cost = x * x
        slope = tl.where(positive, -2.0 * x, 2.0 * x)
    else:
        if KIND == "balanced":
            x = tl.where(positive, -z, z * first)
        elif KIND == "hill":
            x = tl.where(positive, first - z, z)
        else:
            x = tl.where(positive, -z, z)
        e = tl.exp2(tl.abs(x) * -1.4426950408889634)
        r = reciprocal(1.0 + e)
        cost, slope, s, t = _focal(x, e, r, GAMMA)
        if KIND == "balanced":
            cost = tl.where(positive, cost, cost * second)
            slope = slope * tl.where(positive, -1.0, second * first)
        else:
            if KIND == "hill":
                other_cost = (second - s) * s * s
                other_slope = s * s * t * (2.0 * second - 3.0 * s)
            elif KIND == "asymmetric":
                other_cost, other_slope = _margin_negative(s, t, first, GAMMA_NEGATIVE)
            else:
                other_cost, other_slope, s, t = _focal(x, e, r, GAMMA_NEGATIVE)
            cost = tl.where(positive, cost, other_cost)
            slope = tl.where(positive, -slope, other_slope)
    return cost, slope


@triton.jit(do_not_specialize=["n_rows", "n_blocks"])
def _mass_kernel(
    out_ptr, inverse_ptr, targets_ptr, targets_stride, mask_ptr, mask_stride,
    n_rows, n_labels, n_blocks, PARTS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    part = tl.program_id(0) % PARTS
    rows = tl.program_id(0) // PARTS * ROWS + tl.arange(0, ROWS)
    each = (n_blocks + PARTS - 1) // PARTS
    mass = tl.zeros([ROWS, BLOCK], tl.float32)
    for block in range(part * each, tl.minimum((part + 1) * each, n_blocks)):
        cols = block * BLOCK + tl.arange(0, BLOCK)
        inside = (rows < n_rows)[:, None] & (cols < n_labels)[None, :]
        known = known_elements(inside, mask_ptr, mask_stride, rows, cols)
        y = load_targets(targets_ptr, targets_stride, known, rows, cols, False).to(tl.float32)
        mass += y * tl.load(inverse_ptr + cols, mask=cols < n_labels, other=0.0)[None, :]
    tl.store(out_ptr + rows * PARTS + part, tl.sum(mass, axis=1), mask=rows < n_rows)


@triton.jit
def _document_weights(
    raw, rows, inverse, mass_ptr, sample_weight_ptr, n_rows, alpha, beta, mu, scale,
    REBALANCED: tl.constexpr,
):  # fmt: skip
    """`scale` times the weights of a tile, or of its documents unless rebalanced."""
    weight = tl.zeros(rows.shape, tl.float32) + scale
    if sample_weight_ptr is not None:
        weight = weight * tl.load(sample_weight_ptr + rows, mask=rows < n_rows, other=0.0)
    weight = weight[:, None]
    if REBALANCED:
        if mass_ptr is None:
            mass = tl.sum(raw.to(tl.float32) * inverse[None, :], axis=1)
        else:
            mass = tl.load(mass_ptr + rows, mask=rows < n_rows, other=0.0)
        # Far below any mass, yet beta over it is finite. In base 2.
        slant = beta * 1.4426950408889634 / tl.maximum(mass, 1e-30)
        centre = beta * mu * 1.4426950408889634
        ratio = reciprocal(1.0 + tl.exp2(centre - inverse[None, :] * slant[:, None]))
        weight = ratio * weight + alpha * weight
    return weight


@triton.jit
def _mixed(
    z, y, factor, first, second, KIND: tl.constexpr, GAMMA: tl.constexpr, OTHER: tl.constexpr
):
    """Cost and slope of soft targets, whose positive part is multiplied by a factor."""
    ones = tl.full(z.shape, 1, tl.int1)
    cost, slope = _cost_and_slope(z, ones, first, second, KIND, GAMMA, OTHER)
    other_cost, other_slope = _cost_and_slope(z, ones == 0, first, second, KIND, GAMMA, OTHER)
    # 0 times an infinite cost is 0 here; a NaN target stays NaN.
    cost = tl.where(y == 0.0, 0.0, y * factor * cost) + tl.where(
        y == 1.0, 0.0, (1.0 - y) * other_cost
    )
    return cost, y * factor * slope + (1.0 - y) * other_slope


@triton.jit(do_not_specialize=["n_rows", "n_blocks", "steps", "count"])
def _element_kernel(
    sum_ptr, grad_ptr, grad_stride, logits_ptr, logits_stride, targets_ptr, targets_stride,
    starts_ptr, labels_ptr, values_ptr, state_ptr, shift_ptr, label_weight_ptr, inverse_ptr,
    positive_weight_ptr, mass_ptr, sample_weight_ptr, mask_ptr, mask_stride,
    n_rows, n_labels, n_blocks, steps, count,
    first, second, alpha, beta, mu, scale,
    KIND: tl.constexpr, GAMMA: tl.constexpr, GAMMA_NEGATIVE: tl.constexpr,
    BITS: tl.constexpr, HARD: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    start = pid // n_blocks * steps * ROWS
    stop = tl.minimum(start + steps * ROWS, n_rows)
    cols = pid % n_blocks * BLOCK + tl.arange(0, BLOCK)
    inside_cols = cols < n_labels
    shift, label_weight, inverse, positive_weight = cols, cols, cols, cols
    if shift_ptr is not None:
        shift = tl.load(shift_ptr + cols, mask=inside_cols, other=0.0)
    if label_weight_ptr is not None:
        label_weight = tl.load(label_weight_ptr + cols, mask=inside_cols, other=0.0)
    if inverse_ptr is not None:
        inverse = tl.load(inverse_ptr + cols, mask=inside_cols, other=0.0)
    if positive_weight_ptr is not None:
        positive_weight = tl.load(positive_weight_ptr + cols, mask=inside_cols, other=0.0)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    odd = tl.zeros([ROWS, BLOCK], tl.int32)
    flaw = tl.zeros([ROWS], tl.float32)
    repeat = 1
    # Targets are taken for 0 or 1 first, in one evaluation; only tiles with others are done again.
    for attempt in tl.static_range(1 if HARD else 2):
        if attempt == 1:
            repeat = tl.max(odd)
            if repeat > 0:
                total = tl.zeros([ROWS, BLOCK], tl.float32)
        if repeat > 0:
            for row in range(start, stop, ROWS):
                rows = row + tl.arange(0, ROWS)
                inside = (rows < n_rows)[:, None] & inside_cols[None, :]
                known = known_elements(inside, mask_ptr, mask_stride, rows, cols)
                z = tl.load(place(logits_ptr, logits_stride, rows, cols), inside, other=0.0)
                z = z.to(tl.float32)
                raw = load_targets(targets_ptr, targets_stride, known, rows, cols, BITS)
                weight = _document_weights(
                    raw, rows, inverse, mass_ptr, sample_weight_ptr, n_rows, alpha, beta, mu,
                    scale, inverse_ptr is not None,
                )  # fmt: skip
                if BITS:
                    # NaN if a position is invalid.
                    state = tl.load(state_ptr + rows, mask=rows < n_rows, other=0.0)
                    flaw += tl.where(state == state, 0.0, state)
                if label_weight_ptr is not None:
                    weight = weight * label_weight[None, :]
                if shift_ptr is not None:
                    z = z - shift[None, :]
                if attempt == 0:
                    if not HARD:
                        odd |= is_soft(raw, BITS).to(tl.int32)
                    cost, slope = _cost_and_slope(
                        z, raw != 0, first, second, KIND, GAMMA, GAMMA_NEGATIVE
                    )
                    if positive_weight_ptr is not None:
                        factor = tl.where(raw != 0, positive_weight[None, :], 1.0)
                        cost = cost * factor
                        slope = slope * factor
                else:
                    y = soft_targets(
                        raw, rows, cols, starts_ptr, labels_ptr, values_ptr, n_rows, count, BITS
                    )
                    factor = tl.full(y.shape, 1.0, tl.float32)
                    if positive_weight_ptr is not None:
                        factor = factor * positive_weight[None, :]
                    cost, slope = _mixed(z, y, factor, first, second, KIND, GAMMA, GAMMA_NEGATIVE)
                # An infinite cost of weight 0 counts 0, not NaN.
                total += tl.where(known & (weight != 0.0), cost * weight, 0.0)
                if grad_ptr is not None:
                    slope = slope * weight
                    if mask_ptr is not None:
                        slope = tl.where(known, slope, 0.0)
                    slope = slope.to(grad_ptr.dtype.element_ty)
                    tl.store(place(grad_ptr, grad_stride, rows, cols), slope, mask=inside)
    tl.store(sum_ptr + pid, tl.sum(total) + tl.sum(flaw, axis=0))


def document_mass(dense: Tensor, inverse_counts: Tensor, mask: Tensor | None) -> Tensor:
    """Return the sum of 1/n over each document's labels."""
    dense = with_columns(dense)
    n_rows, n_labels = dense.shape
    tiles = cut(n_rows, n_labels)
    parts = torch.empty((n_rows, PARTS), dtype=torch.float32, device=dense.device)
    _mass_kernel[(PARTS * triton.cdiv(n_rows, tiles.rows),)](
        parts, inverse_counts, dense, dense.stride(0), *address(mask), n_rows, n_labels,
        tiles.n_blocks, PARTS=PARTS, ROWS=tiles.rows, BLOCK=tiles.block, num_warps=WARPS,
    )  # fmt: skip
    return parts.sum(dim=1)


def sum_and_grad(
    logits: Tensor, batch: Batch, terms: ElementTerms, scale: float, grad_dtype: torch.dtype | None
) -> tuple[Tensor, Tensor | None]:
    """Return `scale` times the sum of weight * cost, and its gradient.

    `grad_dtype`: None for no gradient.
    """
    inverse = plain(terms.inverse_counts)
    inputs = read_inputs(
        batch.targets, batch.mask, None if batch.document_mass is not None else inverse
    )
    grad = None
    if grad_dtype is not None:
        grad = torch.empty(logits.shape, dtype=grad_dtype, device=logits.device)
    return weighted_sum(logits, inputs, batch, terms, scale, grad), grad


def weighted_sum(
    logits: Tensor,
    inputs: Inputs,
    batch: Batch,
    terms: ElementTerms,
    scale: float,
    grad: Tensor | None,
) -> Tensor:
    """Return `scale` times the sum of weight * cost; its gradient goes to `grad`.

    `inputs`: what `read_inputs` made of the targets, whose form in `batch` plays no part.
    """
    logits = with_columns(logits)
    n_rows, n_labels = logits.shape
    inverse = plain(terms.inverse_counts)
    # Values of sparse targets are searched row by row.
    tiles = cut(n_rows, n_labels, inputs.values is not None)
    alone = tiles.programs == 1
    shape = () if alone else (tiles.programs,)
    total = torch.empty(shape, dtype=torch.float32, device=logits.device)
    mass = None
    if inverse is not None:
        mass = _mass(inputs, batch, inverse, tiles.n_blocks)
    first, second = terms.constants()
    _element_kernel[(tiles.programs,)](
        total, *address(grad), logits, logits.stride(0), inputs.matrix, inputs.stride,
        inputs.starts, inputs.labels, inputs.values, inputs.state,
        plain(terms.shift), plain(terms.label_weight), inverse, plain(terms.positive_weight),
        mass, plain(batch.sample_weight),
        *address(batch.mask), n_rows, n_labels, tiles.n_blocks, tiles.steps,
        0 if inputs.labels is None else inputs.labels.numel(),
        first, second, terms.alpha, terms.beta, terms.mu, scale,
        KIND=terms.kind, GAMMA=terms.gamma, GAMMA_NEGATIVE=terms.gamma_negative,
        BITS=inputs.bits, HARD=inputs.hard, ROWS=tiles.rows, BLOCK=tiles.block, num_warps=WARPS,
    )  # fmt: skip
    return total if alone else total.sum()


def _mass(inputs: Inputs, batch: Batch, inverse: Tensor, n_blocks: int) -> Any:
    """Return the documents' sums of 1/n; None if a tile holds all labels."""
    if batch.document_mass is not None:
        return plain(batch.document_mass)
    if inputs.state is not None or n_blocks == 1:
        return inputs.state
    assert batch.targets.dense is not None
    return document_mass(batch.targets.dense, inverse, batch.mask)
