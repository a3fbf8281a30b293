"""Targets of the losses: a dense matrix, a CSR tensor, or label indices with offsets.

`read_targets` checks them against the logits before anything indexes memory with them: torch trusts
the row starts of a CSR tensor and would write past its buffers. Sparse targets stay sparse.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from longtail.errors import InputError

_HOW = (
    "Pass a (documents, labels) tensor of 0/1 or values in [0, 1], a sparse CSR tensor of that "
    "shape, or a pair (label_indices, offsets)."
)
HAS_TRITON = find_spec("triton") is not None
INTEGERS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
NUMBERS = {torch.bool} | INTEGERS | FLOATS


def check_tensor(
    name: str, value: Any, dtypes: Collection[torch.dtype], shape: Any, device: Any, hint: str
) -> None:
    """Raise unless the value is a dense tensor of one of these types on this device.

    `shape`: per dimension its size, or a name for any size.
    """
    got = type(value).__name__
    if isinstance(value, Tensor):
        form = "nested" if value.is_nested else value.layout
        if form == torch.strided:
            # The loop is slower, and only for sizes of any number.
            fits = value.shape == shape or _fits(value.shape, shape)
            if fits and value.dtype in dtypes and value.device == device:
                return
            form = f"of shape {tuple(value.shape)}"
        got = f"{value.dtype} {form} on {value.device}"
    sizes = ", ".join(map(str, shape))
    kinds = {len(INTEGERS): "integers", len(FLOATS): "floating-point numbers", 1: "booleans"}
    raise InputError(
        f"{name} must be a dense tensor of {kinds.get(len(dtypes), 'numbers')} of shape ({sizes}) "
        f"on {device}, got {got}. {hint}"
    )


def _fits(sizes: Any, shape: Any) -> bool:
    """Return whether sizes equal those of a shape that are numbers."""
    return len(sizes) == len(shape) and all(
        isinstance(expected, str) or expected == size
        for expected, size in zip(shape, sizes, strict=True)
    )


@dataclass(frozen=True)
class Targets:
    """The targets of a batch: `dense`, or the positions of the non-zero elements."""

    shape: tuple[int, int]
    dense: Tensor | None = None
    rows: Tensor | None = None
    labels: Tensor | None = None
    values: Tensor | None = None
    """Values at the positions; None if all are 1."""
    starts: Tensor | None = None
    """The start of each document in `labels`, and the end; `rows` may then be None."""
    unchecked: bool = False
    """Whether values or positions remain to be checked, by `checked`."""

    def checked(self, mask: Tensor | None) -> Targets:
        """Return targets that are 0 where masked; raise if values or positions are invalid."""
        if self.dense is None:
            return self if self.rows is not None else self._checked_positions(mask)
        dense = self.dense if mask is None else self.dense.masked_fill(~mask, 0)
        if self.unchecked:
            _check_bounds(dense)
        return Targets(self.shape, dense=dense)

    def _checked_positions(self, mask: Tensor | None) -> Targets:
        rows, labels = self.positions()
        values = self.values
        if self.unchecked:
            assert self.starts is not None
            name = "offsets" if values is None else "crow_indices"
            _check_positions(self.starts, rows, labels, self.shape, name)
        if values is not None:
            if mask is not None:
                # Masked elements may have any value.
                values = torch.where(mask[rows, labels], values, torch.zeros_like(values))
            if self.unchecked and values.numel():
                _check_bounds(values)
        return Targets(self.shape, rows=rows, labels=labels, values=values, starts=self.starts)

    def positions(self) -> tuple[Tensor, Tensor]:
        """Return the document and the label of every position."""
        assert self.labels is not None
        if self.rows is not None:
            return self.rows, self.labels
        assert self.starts is not None
        # `repeat_interleave` would write past its buffer for wrong starts.
        places = torch.arange(self.labels.numel(), device=self.labels.device)
        return torch.searchsorted(self.starts[1:], places, right=True), self.labels

    def row_starts(self) -> Tensor:
        """Return the start of each document in `labels`, and the end."""
        if self.starts is not None:
            return self.starts
        rows, _ = self.positions()
        return torch.searchsorted(rows, torch.arange(self.shape[0] + 1, device=rows.device))

    def position_values(self, dtype: torch.dtype) -> Tensor:
        rows, _ = self.positions()
        if self.values is None:
            return torch.ones(rows.shape, dtype=dtype, device=rows.device)
        return self.values.to(dtype)

    def sparse(self) -> Targets:
        """Return the targets as positions of non-zero elements."""
        if self.dense is None:
            return self
        # The kernels address contiguous elements.
        rows, labels = self.dense.nonzero().T.contiguous()
        values = None if self.dense.dtype == torch.bool else self.dense[rows, labels]
        return Targets(self.shape, rows=rows, labels=labels, values=values)

    def row_sum(
        self, elements: Tensor, mask: Tensor | None = None, squared: bool = False
    ) -> Tensor:
        """Return the sum of elements * y (or y^2) per document, without masked elements."""
        if self.dense is not None:
            y = self.dense.to(elements.dtype)
            y = y if mask is None else torch.where(mask, y, 0.0)
            # Autocast would round torch.mv to half precision on a GPU.
            return (elements * (y * y if squared else y)).sum(dim=1)
        rows, labels = self.positions()
        y = self.position_values(elements.dtype)
        picked = elements[rows, labels] * (y * y if squared else y)
        picked = picked if mask is None else torch.where(mask[rows, labels], picked, 0.0)
        return picked.new_zeros(self.shape[0]).index_add(0, rows, picked)


def read_targets(
    logits: Tensor, target: Any, mask: Tensor | None = None, check_values: bool = True
) -> Targets:
    """Check targets of any accepted form against the logits, and convert them to Targets.

    Values are checked too: label indices here, or on a GPU like the range of dense targets later by
    `checked`. Not while a compiler or CUDA graph records, where a check of data cannot raise:
    indices out of range are then up to torch.
    """
    shape, device = (logits.shape[0], logits.shape[1]), logits.device
    check_values = check_values and not recording(logits)
    values = None
    if isinstance(target, (tuple, list)) and len(target) == 2:
        labels, starts = target
        check_tensor("label_indices", labels, INTEGERS, ("labels",), device, _HOW)
        has_end = isinstance(starts, Tensor) and starts.numel() == shape[0] + 1
        check_tensor("offsets", starts, INTEGERS, (shape[0] + has_end,), device, _HOW)
        starts = starts.long()
        if not has_end:
            starts = torch.cat([starts, starts.new_full((1,), len(labels))])
    elif isinstance(target, Tensor) and not target.is_nested and target.layout == torch.sparse_csr:
        labels, values = target.col_indices(), target.values()
        starts = target.crow_indices()
        if tuple(target.shape) != shape:
            raise InputError(
                f"target must have the shape {shape} of the logits, got {tuple(target.shape)}. "
                f"{_HOW}"
            )
        how = "Make CSR targets with torch.sparse_csr_tensor(..., check_invariants=True)."
        check_tensor("crow_indices", starts, INTEGERS, (shape[0] + 1,), device, how)
        check_tensor("values", values, NUMBERS, ("elements",), device, how)
        check_tensor("col_indices", labels, INTEGERS, (len(values),), device, how)
    else:
        check_tensor("target", target, NUMBERS, shape, device, _HOW)
        _check_no_gradient(target)
        unchecked = check_values and target.dtype != torch.bool and target.numel() > 0
        return Targets(shape, dense=target, unchecked=unchecked)
    # The kernels address contiguous elements.
    starts, labels = starts.long().contiguous(), labels.long().contiguous()
    if values is not None:
        _check_no_gradient(values)
    targets = Targets(shape, labels=labels, values=values, starts=starts, unchecked=check_values)
    # The kernels check positions in their own pass and make the loss NaN if any is invalid.
    return targets if kernels_usable(logits) else targets.checked(mask)


def _check_no_gradient(target: Tensor) -> None:
    if target.requires_grad and torch.is_grad_enabled():
        raise InputError("the losses do not differentiate targets. Pass target.detach().")


def kernels_usable(logits: Tensor) -> bool:
    """Return whether the Triton kernels can run: an NVIDIA or AMD GPU, not float64."""
    fits = logits.is_cuda and logits.dtype != torch.float64 and logits.numel() > 0
    return fits and HAS_TRITON


def recording(logits: Tensor) -> bool:
    """Return whether a compiler or CUDA graph is recording, where checks of values cannot raise."""
    compiling = torch.compiler.is_compiling()
    return compiling or (logits.is_cuda and torch.cuda.is_current_stream_capturing())


def _check_bounds(values: Tensor) -> None:
    low, high = torch.stack(torch.aminmax(values)).tolist()
    if not (low >= 0 and high <= 1):
        raise InputError(
            f"targets must lie in [0, 1], got values from {low:g} to {high:g}. "
            "Use 1 where the label applies and 0 where it does not; mark unknown labels with mask."
        )


def _check_positions(
    starts: Tensor, rows: Tensor, labels: Tensor, shape: tuple[int, int], name: str
) -> None:
    """Raise unless all indices are in range and no document lists a label twice."""
    count = labels.numel()
    is_ascending = (starts.diff() >= 0).all() & (starts[0] == 0) & (starts[-1] == count)
    is_inside = ((labels >= 0) & (labels < shape[1])).all()
    keys = (rows * shape[1] + labels).sort().values
    repeats = keys[1:] == keys[:-1]
    # One synchronisation for all checks.
    if bool(is_ascending & is_inside & ~repeats.any()):
        return
    if not is_ascending:
        raise InputError(
            f"{name} must rise from 0 to the number of label indices ({count}), got "
            f"{starts.tolist()[:8]}{'...' if starts.numel() > 8 else ''}."
        )
    if not is_inside:
        low, high = torch.stack(torch.aminmax(labels)).tolist()
        raise InputError(
            f"label indices must lie in 0..{shape[1] - 1} for {shape[1]} labels, got values from "
            f"{low} to {high}."
        )
    key = int(keys[:-1][repeats][0])
    raise InputError(
        f"document {key // shape[1]} lists label {key % shape[1]} twice. "
        "List each label of a document once."
    )
