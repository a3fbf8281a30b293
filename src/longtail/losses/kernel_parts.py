"""What the kernels share: tiles of targets and masks, sparse targets as bits, scaling, a hash.

A kernel works on tiles of ROWS documents x BLOCK labels, one per program. None in place of a
pointer switches off what needs it when the kernel is compiled. Imported only on a GPU, or by the
tests under Triton's interpreter.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from longtail.losses.targets import Targets

# Labels and warps per program; elements per tile where there are fewer labels.
BLOCK, WARPS, TILE = 1024, 8, 2048
# Maximum number of rows per program, as long as there are at least PROGRAMS programs.
STEPS, PROGRAMS = 16, 2048
# Maximum number of tiles for a single program, whose sum needs no second launch.
ALONE = 4
POSITIONS = 128


@triton.jit
def log1p(e):
    """log(1 + e) for e in [0, 1], by a minimax polynomial: a relative error of 2e-7."""
    p = 0.0052326880395412445
    p = p * e - 0.029505213722586632
    p = p * e + 0.07822591066360474
    p = p * e - 0.13663242757320404
    p = p * e + 0.19106005132198334
    p = p * e - 0.2484298199415207
    p = p * e + 0.3331909775733948
    p = p * e - 0.4999949336051941
    p = p * e + 0.9999999403953552
    return p * e


@triton.jit
def reciprocal(x):
    """1 / x for x of at least 1: two instructions in place of a division's six; exact to 3e-7."""
    root = tl.rsqrt(x)
    return root * root


@triton.jit
def mix(numbers, seed):
    """The hash `random_bits.mix`."""
    x = (numbers ^ seed) * -1640531535 + seed
    return (x ^ ((x >> 15) & 0x1FFFF)) * 0x7FEB352D


@triton.jit
def place(pointer, stride, rows, cols):
    """Addresses of a tile; the offset of a row may exceed 32 bits."""
    return (pointer + rows.to(tl.int64) * stride)[:, None] + cols[None, :]


@triton.jit
def known_elements(inside, mask_ptr, mask_stride, rows, cols):
    known = inside
    if mask_ptr is not None:
        known = inside & (tl.load(place(mask_ptr, mask_stride, rows, cols), inside, other=0) != 0)
    return known


@triton.jit
def load_targets(targets_ptr, targets_stride, known, rows, cols, BITS: tl.constexpr):
    """Targets in their own type, 0 where unknown. BITS: 1 where one is stored."""
    if BITS:
        word = tl.load(place(targets_ptr, targets_stride, rows, cols >> 5), known, other=0)
        raw = (word >> (cols & 31)[None, :]) & 1
    else:
        raw = tl.load(place(targets_ptr, targets_stride, rows, cols), known, other=0)
    return raw


@triton.jit
def soft_targets(
    raw, rows, cols, starts_ptr, labels_ptr, values_ptr, n_rows, count, BITS: tl.constexpr
):
    """Targets of a tile in float32; NaN, which the caller checks, if not in [0, 1]."""
    if BITS:
        y = tl.zeros(raw.shape, dtype=tl.float32)
        first = tl.load(starts_ptr + rows, mask=rows < n_rows, other=count)
        last = tl.load(starts_ptr + rows + 1, mask=rows < n_rows, other=count)
        # Invalid starts make the loss NaN, but must not lead outside the arrays.
        begin = tl.maximum(tl.min(first, axis=0), 0)
        end = tl.minimum(tl.max(tl.where(rows < n_rows, last, 0), axis=0), count)
        for position in range(begin, end):
            label = tl.load(labels_ptr + position)
            value = tl.load(values_ptr + position).to(tl.float32)
            row = (first <= position) & (position < last)
            y = tl.where(row[:, None] & (cols == label)[None, :], value, y)
        y = tl.where(raw != 0, y, 0.0)
    else:
        y = raw.to(tl.float32)
    return tl.where((y >= 0.0) & (y <= 1.0), y, float("nan"))


@triton.jit
def is_soft(raw, BITS: tl.constexpr):
    """Which targets may be other than 0 and 1."""
    if BITS:
        soft = raw != 0
    else:
        soft = (raw != 0) & (raw != 1)
    return soft


@triton.jit(do_not_specialize=["n_rows", "count"])
def _position_kernel(
    bits_ptr, n_words, state_ptr, starts_ptr, labels_ptr, values_ptr, inverse_ptr,
    mask_ptr, mask_stride, n_rows, n_labels, count, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    start, stop = tl.load(starts_ptr + row).to(tl.int64), tl.load(starts_ptr + row + 1).to(tl.int64)
    bad = (start > stop) | (start < 0) | (stop > count)
    bad = bad | ((row == 0) & (start != 0)) | ((row == n_rows - 1) & (stop != count))
    if bad:
        stop = start
    wrong = tl.zeros([BLOCK], tl.int32)
    mass = tl.zeros([BLOCK], tl.float32)
    for first in range(start, stop, BLOCK):
        places = first + tl.arange(0, BLOCK)
        inside = places < stop
        label = tl.load(labels_ptr + places, mask=inside, other=0).to(tl.int64)
        good = inside & (label >= 0) & (label < n_labels)
        wrong = wrong | (inside & (good == 0)).to(tl.int32)
        bit = (tl.full([BLOCK], 1, tl.int32)) << (label & 31).to(tl.int32)
        known = good
        if mask_ptr is not None:
            known = good & (tl.load(mask_ptr + row * mask_stride + label, mask=good, other=0) != 0)
        # Masked positions too, to detect a label listed twice; targets are 0 where masked.
        before = tl.atomic_or(bits_ptr + row * n_words + (label >> 5), bit, mask=good)
        wrong = wrong | (good & ((before & bit) != 0)).to(tl.int32)
        value = tl.full([BLOCK], 1.0, tl.float32)
        if values_ptr is not None:
            value = tl.load(values_ptr + places, mask=known, other=0).to(tl.float32)
            valid = (value >= 0.0) & (value <= 1.0)
            wrong = wrong | (known & (valid == 0)).to(tl.int32)
        if inverse_ptr is not None:
            inverse = tl.load(inverse_ptr + label, mask=known, other=0.0)
            mass += tl.where(known, inverse * value, 0.0)
    state = tl.sum(mass, axis=0)
    bad = bad | (tl.max(wrong, axis=0) > 0)
    tl.store(state_ptr + row, tl.where(bad, float("nan"), state))


@triton.jit(do_not_specialize=["count"])
def _scale_kernel(values_ptr, factor_ptr, count, BLOCK: tl.constexpr):
    factor = tl.load(factor_ptr).to(tl.float32)
    if factor != 1.0:
        places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        values = tl.load(values_ptr + places, mask=places < count).to(tl.float32)
        values = (values * factor).to(values_ptr.dtype.element_ty)
        tl.store(values_ptr + places, values, mask=places < count)


class Tiles(NamedTuple):
    """How a matrix is cut into tiles, and tiles are dealt to programs."""

    rows: int
    block: int
    n_blocks: int
    """Tiles side by side."""
    steps: int
    """Tiles below each other per program."""
    programs: int


@lru_cache(maxsize=256)
def cut(n_rows: int, n_labels: int, single_rows: bool = False) -> Tiles:
    """Cut a matrix into tiles: of one row, or of several where a row is shorter than BLOCK."""
    block = min(BLOCK, max(32, triton.next_power_of_2(n_labels)))
    rows = min(TILE // block if block < BLOCK else 1, triton.next_power_of_2(n_rows))
    if single_rows:
        rows = 1
    n_blocks, n_tiles = triton.cdiv(n_labels, block), triton.cdiv(n_rows, rows)
    # What belongs to labels is read once for all steps, if enough programs remain.
    steps = max(1, min(STEPS, n_tiles * n_blocks // PROGRAMS))
    if n_blocks == 1 and n_tiles <= ALONE:
        steps = n_tiles
    return Tiles(rows, block, n_blocks, steps, n_blocks * triton.cdiv(n_tiles, steps))


class Inputs(NamedTuple):
    """Targets as the kernels read them."""

    matrix: Tensor
    """Dense targets, or a bit per element in 32-bit words: 1 where a target is stored."""
    stride: int
    bits: bool
    hard: bool
    """Whether all targets are 0 or 1 by their type."""
    starts: Tensor | None = None
    labels: Tensor | None = None
    values: Tensor | None = None
    state: Tensor | None = None
    """Per document, the sum of 1/n over its labels (0 without counts); NaN if a position is
    invalid."""

    def columns(self, start: int, stop: int) -> Inputs:
        """Return the targets of some labels, from a multiple of 32 on; shares their memory."""
        if not self.bits:
            return self._replace(matrix=self.matrix[:, start:stop])
        matrix = self.matrix[:, start // 32 : -(-stop // 32)]
        labels = self.labels
        # Only the search for values reads them.
        if labels is not None and self.values is not None:
            labels = labels - start
        return self._replace(matrix=matrix, labels=labels)


def read_inputs(targets: Targets, mask: Tensor | None, inverse: Tensor | None) -> Inputs:
    """Return dense targets as they are, and sparse ones as bits: 1/32 of the logits' memory."""
    dense = targets.dense
    if dense is not None:
        dense = with_columns(dense)
        return Inputs(dense, dense.stride(0), False, dense.dtype == torch.bool)
    starts, labels, values = targets.row_starts(), targets.labels, targets.values
    assert labels is not None
    n_rows, n_labels = targets.shape
    n_words = triton.cdiv(n_labels, 32)
    bits = torch.zeros((n_rows, n_words), dtype=torch.int32, device=labels.device)
    state = torch.empty(n_rows, dtype=torch.float32, device=labels.device)
    _position_kernel[(n_rows,)](
        bits, n_words, state, starts, labels, values, inverse, *address(mask),
        n_rows, n_labels, labels.numel(), BLOCK=POSITIONS, num_warps=1,
    )  # fmt: skip
    return Inputs(bits, n_words, True, values is None, starts, labels, values, state)


def multiply(values: Tensor, factor: Tensor) -> None:
    """Multiply in place by a number on the device; by 1 without touching the memory."""
    if values.numel() <= 1 << 20:
        values.mul_(factor)
        return
    grid = (triton.cdiv(values.numel(), 4 * BLOCK),)
    _scale_kernel[grid](values, factor, values.numel(), BLOCK=4 * BLOCK, num_warps=WARPS)


def with_columns(matrix: Tensor) -> Tensor:
    """Return a matrix whose columns are side by side."""
    return matrix if matrix.stride(1) == 1 else matrix.contiguous()


def address(matrix: Tensor | None) -> tuple[Tensor | None, int]:
    """Return a matrix and its row stride, for kernels."""
    if matrix is None:
        return None, 0
    matrix = with_columns(matrix)
    return matrix, matrix.stride(0)


def plain(vector: Tensor | None) -> Any:
    """Return a vector in contiguous float32."""
    if vector is None or (vector.dtype == torch.float32 and vector.is_contiguous()):
        return vector
    return vector.detach().float().contiguous()
