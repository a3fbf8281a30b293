"""Triton kernels for losses that compare elements within documents or labels: zlpr, two-way.

A first pass sums exponentials per document (and label), online and per tile; a second one writes
the gradient, a softmax. Beyond it, only vectors are kept. All exponents are in base 2. Imported
only on a GPU, or by the tests under Triton's interpreter.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from longtail.losses.closed_form import Batch, SetTerms
from longtail.losses.kernel_parts import (
    BLOCK,
    WARPS,
    Tiles,
    address,
    cut,
    is_soft,
    known_elements,
    load_targets,
    log1p,
    place,
    plain,
    read_inputs,
    soft_targets,
    with_columns,
)

# Elements and warps per tile of sums, whose programs need many registers.
SIZE, SUM_WARPS = 1024, 4
# Programs wanted before two-way's tiles are wider than 128 labels; parts of a row summed at once.
PROGRAMS, CHUNK = 2048, 128
LOG2E = 1.4426950408889634


@triton.jit
def _log2(x):
    """log2, 0 for x <= 0; also for numbers so small that a GPU's logarithm takes them for 0."""
    is_small = x < 1e-30
    larger = tl.where(is_small, x * 18446744073709551616.0, x)
    return tl.where(x <= 0.0, 0.0, tl.log2(larger) - tl.where(is_small, 64.0, 0.0))


@triton.jit
def _exponents(z, raw, y, known, up, down, SOFT: tl.constexpr):
    """Exponents of an element as a negative and as a positive; -inf where it is none."""
    if SOFT:
        # In the exponent: a tiny factor must not round a sum to 0. NaN stays.
        rest = 1.0 - y
        below = z * up + _log2(rest)
        above = z * down + _log2(y)
        below = tl.where(known & ~(rest <= 0.0), below, float("-inf"))
        above = tl.where(known & ~(y <= 0.0), above, float("-inf"))
    else:
        below = tl.where(known & (raw == 0), z * up, float("-inf"))
        above = tl.where(known & (raw != 0), z * down, float("-inf"))
    return below, above


@triton.jit
def _weighted(exponents, weight_ptr, at, inside, AXIS: tl.constexpr):
    """Add the logarithms of weights along an axis; a weight of 0 hides even a NaN."""
    if weight_ptr is not None:
        weight = tl.load(weight_ptr + at, mask=inside, other=1.0)
        logarithm = tl.expand_dims(_log2(weight), AXIS)
        used = tl.expand_dims(weight, AXIS) > 0.0
        exponents = tl.where(used, exponents + logarithm, float("-inf"))
    return exponents


@triton.jit
def _add_exponents(top, total, exponents, AXIS: tl.constexpr):
    """Add a tile's exponentials along an axis to total * 2^top."""
    # Finite also without any exponent. A NaN is not the maximum, but enters the sum.
    higher = tl.maximum(top, tl.max(exponents, axis=AXIS))
    terms = tl.exp2(exponents - tl.expand_dims(higher, AXIS))
    return higher, total * tl.exp2(top - higher) + tl.sum(terms, axis=AXIS)


@triton.jit
def _log_of_sum(top, total, PLUS_ONE: tl.constexpr):
    """log(total * 2^top), 0 without a term, or log(1 + that)."""
    if PLUS_ONE:
        higher = tl.maximum(top, 0.0)
        rest = total * tl.exp2(top - higher)
        # Below 1, all digits of the sum count; the quotient corrects the rounding of 1 + sum.
        whole = 1.0 + rest
        exact = tl.where(whole == 1.0, rest, tl.log(whole) * (rest / (whole - 1.0)))
        large = higher * 0.6931471805599453 + tl.log(rest + tl.exp2(-higher))
        result = tl.where(higher > 0.0, large, exact)
    else:
        some = total != 0.0
        result = tl.where(some, top * 0.6931471805599453 + tl.log(tl.where(some, total, 1.0)), 0.0)
    return result


@triton.jit
def _finish(
    low_top, low, high_top, high, outer, negative_temperature, positive_temperature,
    TWO_WAY: tl.constexpr,
):  # fmt: skip
    """From the sums of negatives and positives: the loss, whether there is a positive, and what the
    gradient subtracts from the exponents of negatives and positives."""
    below = _log_of_sum(low_top, low, not TWO_WAY)
    above = _log_of_sum(high_top, high, not TWO_WAY)
    share = _log2(outer)
    if TWO_WAY:
        joint = negative_temperature * below + positive_temperature * above
        # Keeps a NaN on one side even if the other side is empty.
        counts = ((low != 0.0) & (high != 0.0)) | (joint != joint)
        slope = log1p(tl.exp2(tl.abs(joint) * -1.4426950408889634))
        cost = tl.where(counts, tl.maximum(joint, 0.0) + slope, 0.0)
        share -= (tl.maximum(-joint, 0.0) + slope) * 1.4426950408889634
    else:
        cost = below + above
        counts = cost == cost
    # Without slope the exponents become -inf.
    is_used = (counts | (cost != cost)) & (outer > 0.0)
    low_level = tl.where(is_used, below * 1.4426950408889634 - share, float("inf"))
    high_level = tl.where(is_used, above * 1.4426950408889634 - share, float("inf"))
    return cost * outer, high != 0.0, low_level, high_level


@triton.jit(do_not_specialize=["n_rows", "n_blocks", "steps", "count"])
def _sums_kernel(
    parts_ptr, levels_ptr, label_sums_ptr, logits_ptr, logits_stride, targets_ptr, targets_stride,
    starts_ptr, labels_ptr, values_ptr, label_weight_ptr, sample_weight_ptr, mask_ptr, mask_stride,
    n_rows, n_labels, n_blocks, steps, count, up, down, negative_temperature, positive_temperature,
    BITS: tl.constexpr, HARD: tl.constexpr, TWO_WAY: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0) % n_blocks
    start = tl.program_id(0) // n_blocks * steps * ROWS
    stop = tl.minimum(start + steps * ROWS, n_rows)
    cols = block * BLOCK + tl.arange(0, BLOCK)
    inside_cols = cols < n_labels
    # Per label; used for two-way only.
    low_top, low = tl.full([BLOCK], -1e30, tl.float32), tl.zeros([BLOCK], tl.float32)
    high_top, high = low_top, low
    for row in range(start, stop, ROWS):
        rows = row + tl.arange(0, ROWS)
        inside_rows = rows < n_rows
        inside = inside_rows[:, None] & inside_cols[None, :]
        known = known_elements(inside, mask_ptr, mask_stride, rows, cols)
        z = tl.load(place(logits_ptr, logits_stride, rows, cols), inside, other=0.0)
        z = z.to(tl.float32)
        raw = load_targets(targets_ptr, targets_stride, known, rows, cols, BITS)
        below, above = _exponents(z, raw, z, known, up, down, False)
        if not HARD:
            if tl.max(is_soft(raw, BITS).to(tl.int32)) > 0:
                y = soft_targets(
                    raw, rows, cols, starts_ptr, labels_ptr, values_ptr, n_rows, count, BITS
                )
                below, above = _exponents(z, raw, y, known, up, down, True)
        top, total = tl.full([ROWS], -1e30, tl.float32), tl.zeros([ROWS], tl.float32)
        out = parts_ptr + rows.to(tl.int64) * n_blocks + block
        size = n_rows.to(tl.int64) * n_blocks
        of_labels = _weighted(below, label_weight_ptr, cols, inside_cols, 0)
        row_top, row_sum = _add_exponents(top, total, of_labels, 1)
        tl.store(out, row_top, mask=inside_rows)
        tl.store(out + size, row_sum, mask=inside_rows)
        row_top, row_sum = top, total
        if TWO_WAY:
            of_rows = _weighted(below, sample_weight_ptr, rows, inside_rows, 1)
            low_top, low = _add_exponents(low_top, low, of_rows, 0)
        # Most tiles of a large label set hold no label of their documents.
        if tl.max((raw != 0).to(tl.int32)) > 0:
            of_labels = _weighted(above, label_weight_ptr, cols, inside_cols, 0)
            row_top, row_sum = _add_exponents(top, total, of_labels, 1)
            if TWO_WAY:
                of_rows = _weighted(above, sample_weight_ptr, rows, inside_rows, 1)
                high_top, high = _add_exponents(high_top, high, of_rows, 0)
        tl.store(out + 2 * size, row_top, mask=inside_rows)
        tl.store(out + 3 * size, row_sum, mask=inside_rows)
    if TWO_WAY:
        outer = tl.full([BLOCK], 1.0, tl.float32)
        if label_weight_ptr is not None:
            outer = tl.load(label_weight_ptr + cols, mask=inside_cols, other=0.0)
        cost, present, low_level, high_level = _finish(
            low_top, low, high_top, high, outer, negative_temperature, positive_temperature, True
        )
        tl.store(levels_ptr + cols, low_level, mask=inside_cols)
        tl.store(levels_ptr + n_labels + cols, high_level, mask=inside_cols)
        tl.store(label_sums_ptr + block, tl.sum(tl.where(inside_cols, cost, 0.0), axis=0))
        present = (present & inside_cols).to(tl.float32)
        tl.store(label_sums_ptr + n_blocks + block, tl.sum(present, axis=0))


@triton.jit(do_not_specialize=["n_rows", "n_blocks"])
def _documents_kernel(
    levels_ptr, costs_ptr, parts_ptr, state_ptr, sample_weight_ptr, n_rows, n_blocks,
    scale, negative_temperature, positive_temperature,
    TWO_WAY: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    size = n_rows.to(tl.int64) * n_blocks
    low_tops = tl.full([CHUNK], -1e30, tl.float32)
    low_sums = tl.zeros([CHUNK], tl.float32)
    high_tops, high_sums = low_tops, low_sums
    for first in range(0, n_blocks, CHUNK):
        blocks = first + tl.arange(0, CHUNK)
        inside = blocks < n_blocks
        at = parts_ptr + row * n_blocks + blocks
        top, total = tl.load(at, inside, other=-1e30), tl.load(at + size, inside, other=0.0)
        higher = tl.maximum(low_tops, top)
        low_sums = low_sums * tl.exp2(low_tops - higher) + total * tl.exp2(top - higher)
        low_tops = higher
        at += 2 * size
        top, total = tl.load(at, inside, other=-1e30), tl.load(at + size, inside, other=0.0)
        higher = tl.maximum(high_tops, top)
        high_sums = high_sums * tl.exp2(high_tops - higher) + total * tl.exp2(top - higher)
        high_tops = higher
    low_top, high_top = tl.max(low_tops, axis=0), tl.max(high_tops, axis=0)
    low = tl.sum(low_sums * tl.exp2(low_tops - low_top), axis=0)
    high = tl.sum(high_sums * tl.exp2(high_tops - high_top), axis=0)
    outer = scale
    if sample_weight_ptr is not None:
        outer = scale * tl.load(sample_weight_ptr + row)
    cost, present, low_level, high_level = _finish(
        low_top, low, high_top, high, outer, negative_temperature, positive_temperature, TWO_WAY
    )
    if state_ptr is not None:
        # NaN if a position is invalid.
        state = tl.load(state_ptr + row)
        cost = tl.where(state == state, cost, state)
    tl.store(levels_ptr + row, low_level)
    tl.store(levels_ptr + n_rows + row, high_level)
    tl.store(costs_ptr + row, cost)
    if TWO_WAY:
        tl.store(costs_ptr + n_rows + row, present.to(tl.float32))


@triton.jit
def _sum_of(pointer, count, CHUNK: tl.constexpr):
    total = tl.zeros([CHUNK], tl.float32)
    for first in range(0, count, CHUNK):
        places = first + tl.arange(0, CHUNK)
        total += tl.load(pointer + places, mask=places < count, other=0.0)
    return tl.sum(total, axis=0)


@triton.jit(do_not_specialize=["n_rows", "n_blocks"])
def _total_kernel(
    total_ptr, documents_ptr, labels_ptr, n_rows, n_blocks, MEAN: tl.constexpr, CHUNK: tl.constexpr
):
    """The loss, and the factors of the gradients of document and label terms."""
    of_document, of_label = 1.0, 1.0
    if MEAN:
        of_document = 1.0 / tl.maximum(_sum_of(documents_ptr + n_rows, n_rows, CHUNK), 1.0)
        of_label = 1.0 / tl.maximum(_sum_of(labels_ptr + n_blocks, n_blocks, CHUNK), 1.0)
    total = _sum_of(documents_ptr, n_rows, CHUNK) * of_document
    tl.store(total_ptr, total + _sum_of(labels_ptr, n_blocks, CHUNK) * of_label)
    tl.store(total_ptr + 1, of_document)
    tl.store(total_ptr + 2, of_label)


@triton.jit
def _slope(z, raw, y, known, row_low, row_high, col_low, col_high, label_weight_ptr,
           sample_weight_ptr, rows, cols, inside_rows, inside_cols, of_document, of_label,
           up, down, SOFT: tl.constexpr, TWO_WAY: tl.constexpr):  # fmt: skip
    if SOFT:
        below, above = _exponents(z, raw, y, known, up, down, True)
        low = _weighted(below, label_weight_ptr, cols, inside_cols, 0)
        high = _weighted(above, label_weight_ptr, cols, inside_cols, 0)
        slope = tl.exp2(low - row_low[:, None]) - tl.exp2(high - row_high[:, None])
        if TWO_WAY:
            low = _weighted(below, sample_weight_ptr, rows, inside_rows, 1)
            high = _weighted(above, sample_weight_ptr, rows, inside_rows, 1)
            of_col = tl.exp2(low - col_low[None, :]) - tl.exp2(high - col_high[None, :])
            slope = slope * of_document + of_col * of_label
    else:
        positive = raw != 0
        x = tl.where(known, z * tl.where(positive, down, up), float("-inf"))
        level = tl.where(positive, row_high[:, None], row_low[:, None])
        slope = tl.exp2(_weighted(x, label_weight_ptr, cols, inside_cols, 0) - level)
        if TWO_WAY:
            level = tl.where(positive, col_high[None, :], col_low[None, :])
            of_col = tl.exp2(_weighted(x, sample_weight_ptr, rows, inside_rows, 1) - level)
            slope = slope * of_document + of_col * of_label
        slope = tl.where(positive, -slope, slope)
    return slope


@triton.jit(do_not_specialize=["n_rows", "n_blocks", "steps", "count"])
def _gradient_kernel(
    grad_ptr, total_ptr, document_levels_ptr, label_levels_ptr,
    logits_ptr, logits_stride, targets_ptr, targets_stride, starts_ptr, labels_ptr, values_ptr,
    label_weight_ptr, sample_weight_ptr, mask_ptr, mask_stride,
    n_rows, n_labels, n_blocks, steps, count, up, down,
    BITS: tl.constexpr, HARD: tl.constexpr, TWO_WAY: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0) // n_blocks * steps * ROWS
    stop = tl.minimum(start + steps * ROWS, n_rows)
    cols = tl.program_id(0) % n_blocks * BLOCK + tl.arange(0, BLOCK)
    inside_cols = cols < n_labels
    of_document, of_label, col_low, col_high = 1.0, 1.0, cols, cols
    if TWO_WAY:
        of_document, of_label = tl.load(total_ptr + 1), tl.load(total_ptr + 2)
        col_low = tl.load(label_levels_ptr + cols, mask=inside_cols, other=0.0)
        col_high = tl.load(label_levels_ptr + n_labels + cols, mask=inside_cols, other=0.0)
    odd = tl.zeros([ROWS, BLOCK], tl.int32)
    repeat = 1
    # As in the kernel for elements: tiles with soft targets are done again.
    for attempt in tl.static_range(1 if HARD else 2):
        if attempt == 1:
            repeat = tl.max(odd)
        if repeat > 0:
            for row in range(start, stop, ROWS):
                rows = row + tl.arange(0, ROWS)
                inside_rows = rows < n_rows
                inside = inside_rows[:, None] & inside_cols[None, :]
                known = known_elements(inside, mask_ptr, mask_stride, rows, cols)
                z = tl.load(place(logits_ptr, logits_stride, rows, cols), inside, other=0.0)
                z = z.to(tl.float32)
                raw = load_targets(targets_ptr, targets_stride, known, rows, cols, BITS)
                row_low = tl.load(document_levels_ptr + rows, mask=inside_rows, other=0.0)
                row_high = tl.load(document_levels_ptr + n_rows + rows, mask=inside_rows, other=0.0)
                y = z
                if attempt == 1:
                    y = soft_targets(
                        raw, rows, cols, starts_ptr, labels_ptr, values_ptr, n_rows, count, BITS
                    )
                elif not HARD:
                    odd |= is_soft(raw, BITS).to(tl.int32)
                slope = _slope(
                    z, raw, y, known, row_low, row_high, col_low, col_high, label_weight_ptr,
                    sample_weight_ptr, rows, cols, inside_rows, inside_cols, of_document, of_label,
                    up, down, attempt == 1, TWO_WAY,
                )  # fmt: skip
                if mask_ptr is not None:
                    # Also in the document or label of a NaN.
                    slope = tl.where(known, slope, 0.0)
                slope = slope.to(grad_ptr.dtype.element_ty)
                tl.store(place(grad_ptr, n_labels, rows, cols), slope, mask=inside)


def _cut(n_rows: int, n_labels: int, two_way: bool, single_rows: bool) -> Tiles:
    """Cut a matrix into tiles; for two-way, a program has all documents of its labels."""
    block = min(SIZE, max(32, triton.next_power_of_2(n_labels)))
    while two_way and block > 128 and triton.cdiv(n_labels, block) < PROGRAMS:
        block //= 2
    rows = 1 if single_rows and not two_way else min(SIZE // block, triton.next_power_of_2(n_rows))
    n_blocks, n_tiles = triton.cdiv(n_labels, block), triton.cdiv(n_rows, rows)
    steps = n_tiles if two_way else 1
    return Tiles(rows, block, n_blocks, steps, n_blocks * triton.cdiv(n_tiles, steps))


def sum_and_grad(
    logits: Tensor, batch: Batch, terms: SetTerms, scale: float, grad_dtype: torch.dtype | None
) -> tuple[Tensor, Tensor | None]:
    """Return `scale` times the sum of the terms, or for two-way means the loss; and its gradient.

    `grad_dtype`: None for no gradient.
    """
    logits = with_columns(logits)
    n_rows, n_labels = logits.shape
    inputs = read_inputs(batch.targets, batch.mask, None)
    tiles = _cut(n_rows, n_labels, terms.two_way, inputs.values is not None)

    def vectors(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=logits.device)

    parts = vectors(4, n_rows, tiles.n_blocks)
    costs, document_levels = vectors(2, n_rows), vectors(2, n_rows)
    total = label_levels = label_sums = None
    if terms.two_way:
        total, label_levels = vectors(3), vectors(2, n_labels)
        label_sums = vectors(2, tiles.n_blocks)
    label_weight, sample_weight = plain(terms.label_weight), plain(batch.sample_weight)
    data = (
        logits, logits.stride(0), inputs.matrix, inputs.stride, inputs.starts, inputs.labels,
        inputs.values, label_weight, sample_weight, *address(batch.mask), n_rows, n_labels,
    )  # fmt: skip
    count = 0 if inputs.labels is None else inputs.labels.numel()
    up, down = LOG2E / terms.negative_temperature, -LOG2E / terms.positive_temperature
    temperatures = (terms.negative_temperature, terms.positive_temperature)
    switches = dict(BITS=inputs.bits, HARD=inputs.hard, TWO_WAY=terms.two_way)
    _sums_kernel[(tiles.programs,)](
        parts, label_levels, label_sums, *data, tiles.n_blocks, tiles.steps, count, up, down,
        *temperatures, ROWS=tiles.rows, BLOCK=tiles.block, num_warps=SUM_WARPS, **switches,
    )  # fmt: skip
    _documents_kernel[(n_rows,)](
        document_levels, costs, parts, inputs.state, sample_weight, n_rows, tiles.n_blocks, scale,
        *temperatures, TWO_WAY=terms.two_way, CHUNK=CHUNK, num_warps=1,
    )  # fmt: skip
    del parts
    if total is not None:
        _total_kernel[(1,)](
            total, costs, label_sums, n_rows, tiles.n_blocks, MEAN=terms.mean, CHUNK=BLOCK
        )
    grad = None
    if grad_dtype is not None:
        grad = torch.empty((n_rows, n_labels), dtype=grad_dtype, device=logits.device)
        cuts = cut(n_rows, n_labels, inputs.values is not None)
        _gradient_kernel[(cuts.programs,)](
            grad, total, document_levels, label_levels, *data, cuts.n_blocks, cuts.steps, count,
            up, down, ROWS=cuts.rows, BLOCK=cuts.block, num_warps=WARPS, **switches,
        )  # fmt: skip
    return costs[0].sum() if total is None else total[0], grad
