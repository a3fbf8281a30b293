"""What the losses accept as targets: a dense matrix, a CSR tensor, or label indices with offsets.

`read_targets` checks them once against the logits; sparse ones are never made dense.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from longtail.errors import InputError
from longtail.losses.structure import csr_parts, find_positions, offset_parts

_HOW = (
    "Pass a (documents, labels) tensor of 0/1 or values in [0, 1], a sparse CSR tensor of that "
    "shape, or a pair (label_indices, offsets)."
)

TARGET_DTYPES = {
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
}  # fmt: skip


@dataclass(frozen=True)
class Targets:
    """The targets of one batch: either `dense`, or the positions of the non-zero elements."""

    shape: tuple[int, int]
    dense: Tensor | None = None
    rows: Tensor | None = None
    labels: Tensor | None = None
    values: Tensor | None = None
    """Values at the positions; None where all are 1."""
    unchecked: bool = False
    """Dense targets whose values nobody has looked at yet: see `check_values`."""

    @classmethod
    def of(cls, target: Tensor | Targets) -> Targets:
        """Dense targets as they are, unchecked by wish of the caller; Targets pass through."""
        if isinstance(target, Targets):
            return target
        return cls((target.shape[0], target.shape[1]), dense=target)

    def check_values(self, *others: Tensor) -> list[float]:
        """Raise unless dense targets lie in [0, 1]; the numbers `others`, read in the same look."""
        bounds: list[Tensor] = []
        if self.unchecked and self.dense is not None:
            bounds += torch.aminmax(self.dense.detach())
        read = _read_numbers([*bounds, *others])
        if bounds:
            _check_bounds(*read[:2])
        return read[len(bounds) :]

    def known(self, mask: Tensor | None) -> Targets:
        """The same targets with 0 at unknown dense elements: what stands there may be anything."""
        if mask is None or self.dense is None:
            return self
        dense = self.dense.masked_fill(~mask, 0)
        return Targets(self.shape, dense=dense, unchecked=self.unchecked)

    def positions(self) -> tuple[Tensor, Tensor]:
        assert self.rows is not None and self.labels is not None
        return self.rows, self.labels

    def position_values(self, dtype: torch.dtype) -> Tensor:
        rows, _ = self.positions()
        if self.values is None:
            return torch.ones(rows.shape, dtype=dtype, device=rows.device)
        return self.values.to(dtype)

    def sparse(self) -> Targets:
        """The same targets as positions (of a dense matrix: its non-zero elements)."""
        if self.dense is None:
            return self
        rows, labels = _positions_of(self.dense)
        values = None if self.dense.dtype == torch.bool else self.dense[rows, labels]
        return Targets(self.shape, rows=rows, labels=labels, values=values)

    def columns(self, start: int, stop: int) -> Targets:
        """The targets of the labels start..stop-1."""
        if self.dense is not None:
            return Targets((self.shape[0], stop - start), dense=self.dense[:, start:stop])
        rows, labels = self.positions()
        keep = (labels >= start) & (labels < stop)
        values = None if self.values is None else self.values[keep]
        shape = (self.shape[0], stop - start)
        return Targets(shape, rows=rows[keep], labels=labels[keep] - start, values=values)

    def label_mass(self, label_values: Tensor, mask: Tensor | None = None) -> Tensor:
        """Per document, the sum of `label_values` over its labels; masked elements do not count."""
        dtype = label_values.dtype
        if self.dense is not None:
            y = self.dense.to(dtype)
            y = y if mask is None else torch.where(mask, y, 0.0)
            # Not torch.mv, which autocast would round to half precision on a GPU.
            return (y * label_values).sum(dim=1)
        rows, labels = self.positions()
        mass = label_values[labels] * self.position_values(dtype)
        if mask is not None:
            mass = torch.where(mask[rows, labels], mass, 0.0)
        return label_values.new_zeros(self.shape[0]).index_add(0, rows, mass)

    def row_sum(self, elements: Tensor, squared: bool = False) -> Tensor:
        """Per document, the sum of elements * y, or of elements * y^2."""
        if self.dense is not None:
            y = self.dense.to(elements.dtype)
            return (elements * (y * y if squared else y)).sum(dim=1)
        rows, labels = self.positions()
        y = self.position_values(elements.dtype)
        picked = elements[rows, labels] * (y * y if squared else y)
        return picked.new_zeros(self.shape[0]).index_add(0, rows, picked)


def _positions_of(dense: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of the non-zero elements, row by row.

    On the CPU eight elements are looked at together, three times as fast as `nonzero`: few
    documents have more than a few labels.
    """
    flags = dense.bool().flatten()
    if dense.device.type != "cpu" or flags.numel() < 1024:
        rows, labels = dense.nonzero(as_tuple=True)
        return rows, labels
    # Words of eight want flags that lie side by side from a multiple of eight on.
    if not flags.is_contiguous() or flags.storage_offset() % 8:
        flags = flags.clone(memory_format=torch.contiguous_format)
    even = flags.numel() // 8 * 8
    words = flags[:even].view(torch.int64).nonzero()
    inside = (words * 8 + torch.arange(8)).flatten()
    rest = torch.arange(even, flags.numel())
    places = torch.cat([inside, rest])
    places = places[flags[places]]
    return places // dense.shape[1], places % dense.shape[1]


def read_targets(
    logits: Tensor, target: Any, mask: Tensor | None = None, check_values: bool = True
) -> Targets:
    """Check targets of any accepted form against the logits and give them one shape.

    Values are checked too (label indices and duplicates here, the range of dense targets by the
    caller with `check_values`) unless a compiler or a CUDA graph is recording, where a check that
    depends on data cannot raise. Indices out of range never reach memory: they raise on the CPU
    even if values are not to be checked, and make the loss NaN where nobody can look.
    """
    shape = (logits.shape[0], logits.shape[1])
    is_recording = recording(logits)
    check_values = check_values and not is_recording
    # The CPU reads its own memory for nothing; of a GPU it would have to wait.
    look = check_values or (logits.device.type == "cpu" and not is_recording)
    if isinstance(target, (tuple, list)) and [isinstance(t, Tensor) for t in target] == [True] * 2:
        for part in target:
            _check_device(part, logits)
        starts, labels = offset_parts(target[0], target[1], shape, _HOW)
        found = find_positions(starts, labels, shape, "offsets", look, check_values)
        values = None
        if found.good is not None:
            ones = torch.ones(labels.shape, device=labels.device)
            values = torch.where(found.good, ones, math.nan)
        return Targets(shape, rows=found.rows, labels=found.labels, values=values)
    if not isinstance(target, Tensor):
        raise InputError(f"expected a target tensor, got {type(target).__name__}. {_HOW}")
    _check_device(target, logits)
    if target.dtype not in TARGET_DTYPES:
        raise InputError(f"targets of {target.dtype} are not supported. {_HOW}")
    if target.layout == torch.sparse_csr:
        return _from_csr(target, shape, mask, check_values, look)
    if target.is_nested or target.layout != torch.strided:
        raise InputError(
            f"targets of layout {target.layout} are not supported. "
            "Convert them with target.to_sparse_csr()."
        )
    if tuple(target.shape) != shape:
        raise InputError(
            f"targets of shape {tuple(target.shape)} do not fit logits of shape {shape}. {_HOW}"
        )
    unchecked = check_values and target.dtype != torch.bool and target.numel() > 0
    return Targets(shape, dense=target, unchecked=unchecked)


def recording(logits: Tensor) -> bool:
    """Whether a compiler or a CUDA graph is recording, where no check of values can raise."""
    if torch.compiler.is_compiling():
        return True
    return logits.is_cuda and torch.cuda.is_current_stream_capturing()


def _check_device(target: Tensor, logits: Tensor) -> None:
    if target.device != logits.device:
        raise InputError(
            f"the targets are on {target.device}, the logits on {logits.device}. "
            "Move them with target.to(logits.device)."
        )


def _read_numbers(numbers: list[Tensor]) -> list[float]:
    """The values of 0-d tensors; on a GPU at the cost of one synchronisation for all of them."""
    if not numbers or numbers[0].device.type == "cpu":
        return [float(number) for number in numbers]
    # Apple's GPUs have no float64.
    wide = torch.float32 if numbers[0].device.type == "mps" else torch.float64
    values: list[float] = torch.stack([n.detach().to(wide) for n in numbers]).tolist()
    return values


def _check_bounds(low: float, high: float) -> None:
    if not (low >= 0 and high <= 1):
        raise InputError(
            f"targets must lie in [0, 1], got values from {low:g} to {high:g}. "
            "Use 1 where the label applies and 0 where it does not; mark unknown labels with mask."
        )


def _from_csr(
    target: Tensor, shape: tuple[int, int], mask: Tensor | None, check_values: bool, look: bool
) -> Targets:
    if tuple(target.shape) != shape:
        raise InputError(
            f"CSR targets of shape {tuple(target.shape)} do not fit logits of shape {shape}. {_HOW}"
        )
    starts, labels, values = csr_parts(target, shape)
    rows, labels, good = find_positions(starts, labels, shape, "crow_indices", look, check_values)
    if mask is not None:
        # Unknown elements may hold anything.
        values = torch.where(mask[rows, labels], values, torch.zeros_like(values))
    if good is not None:
        wide = torch.promote_types(values.dtype, torch.float32)
        values = torch.where(good, values.to(wide), math.nan)
    if check_values and values.numel():
        _check_bounds(*(float(bound) for bound in torch.aminmax(values.detach())))
    return Targets(shape, rows=rows, labels=labels, values=values)
