"""What the losses accept as targets: a dense matrix, a CSR tensor, or label indices with offsets.

`read_targets` checks them once against the logits; sparse ones are never made dense.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from longtail.errors import InputError

_HOW = (
    "Pass a (documents, labels) tensor of 0/1 or values in [0, 1], a sparse CSR tensor of that "
    "shape, or a pair (label_indices, offsets)."
)


_DTYPES = {
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

    def check_values(self) -> None:
        """Raise unless dense targets lie in [0, 1]."""
        if self.unchecked and self.dense is not None:
            low, high = torch.aminmax(self.dense.detach())
            _check_bounds(float(low), float(high))

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

    def positive_logsumexp(
        self, scores: Tensor, weight: Tensor | None, dim: int, log_zero: float
    ) -> Tensor:
        """log of the sum of weight * y * e^score along `dim`; `log_zero` where it is empty."""
        if self.dense is not None:
            factor = self.dense.to(scores.dtype)
            return _weighted_logsumexp(
                scores, factor if weight is None else factor * weight, dim, log_zero
            )
        rows, labels = self.positions()
        segments = rows if dim == 1 else labels
        factor = self.position_values(scores.dtype)
        if weight is not None:
            factor = factor * weight.expand(self.shape)[rows, labels]
        # The factor joins in the exponent: an element of weight 0 must not become the top.
        picked = _weighted_scores(scores[rows, labels], factor, log_zero)
        empty = scores.new_full((self.shape[1 - dim],), log_zero)
        top = empty.scatter_reduce(0, segments, picked.detach(), "amax")
        terms = torch.exp(picked - top[segments])
        total = torch.zeros_like(empty).index_add(0, segments, terms)
        return torch.where(total > 0, top + torch.log(torch.where(total > 0, total, 1.0)), log_zero)

    def negative_logsumexp(
        self, scores: Tensor, weight: Tensor | None, dim: int, log_zero: float
    ) -> Tensor:
        """log of the sum of weight * (1 - y) * e^score along `dim`."""
        if self.dense is not None:
            factor = 1 - self.dense.to(scores.dtype)
            return _weighted_logsumexp(
                scores, factor if weight is None else factor * weight, dim, log_zero
            )
        rows, labels = self.positions()
        rest = 1 - self.position_values(scores.dtype)
        usable = rest > 0
        lowered = torch.where(
            usable, scores[rows, labels] + torch.log(torch.where(usable, rest, 1.0)), log_zero
        )
        remaining = scores.index_put((rows, labels), lowered)
        if weight is not None:
            return _weighted_logsumexp(remaining, weight.expand(self.shape), dim, log_zero)
        return _floor_logsumexp(remaining, dim, log_zero)


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


def _weighted_logsumexp(scores: Tensor, weight: Tensor, dim: int, log_zero: float) -> Tensor:
    return _floor_logsumexp(_weighted_scores(scores, weight, log_zero), dim, log_zero)


def _weighted_scores(scores: Tensor, weight: Tensor, log_zero: float) -> Tensor:
    usable = weight > 0
    logs = torch.log(torch.where(usable, weight, 1.0))
    return torch.where(usable, scores + logs, log_zero)


def _floor_logsumexp(scores: Tensor, dim: int, log_zero: float) -> Tensor:
    if scores.shape[dim] == 0:
        return scores.sum(dim=dim) + log_zero
    return torch.logsumexp(scores, dim=dim)


def read_targets(
    logits: Tensor, target: Any, mask: Tensor | None = None, check_values: bool = True
) -> Targets:
    """Check targets of any accepted form against the logits and give them one shape.

    Values are checked too (label indices and duplicates here, the range of dense targets by the
    caller with `check_values`) unless a compiler or a CUDA graph is recording, where a check that
    depends on data cannot raise.
    """
    shape = (logits.shape[0], logits.shape[1])
    check_values = check_values and not recording(logits)
    if isinstance(target, (tuple, list)) and [isinstance(t, Tensor) for t in target] == [True] * 2:
        for part in target:
            _check_device(part, logits)
        return _from_offsets(target[0], target[1], shape, check_values)
    if not isinstance(target, Tensor):
        raise InputError(f"expected a target tensor, got {type(target).__name__}. {_HOW}")
    _check_device(target, logits)
    if target.dtype not in _DTYPES:
        raise InputError(f"targets of {target.dtype} are not supported. {_HOW}")
    if target.layout == torch.sparse_csr:
        return _from_csr(target, shape, mask, check_values)
    if target.layout != torch.strided:
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


def _check_bounds(low: float, high: float) -> None:
    if not (low >= 0 and high <= 1):
        raise InputError(
            f"targets must lie in [0, 1], got values from {low:g} to {high:g}. "
            "Use 1 where the label applies and 0 where it does not; mark unknown labels with mask."
        )


def _from_csr(
    target: Tensor, shape: tuple[int, int], mask: Tensor | None, check_values: bool
) -> Targets:
    if tuple(target.shape) != shape:
        raise InputError(
            f"CSR targets of shape {tuple(target.shape)} do not fit logits of shape {shape}. {_HOW}"
        )
    values, labels = target.values(), target.col_indices().long()
    rows = _rows(target.crow_indices(), labels.numel())
    if check_values:
        _check_positions(rows, labels, shape)
    if mask is not None:
        # Unknown elements may hold anything.
        values = torch.where(mask[rows, labels], values, torch.zeros_like(values))
    if check_values and values.numel():
        _check_bounds(*(float(bound) for bound in torch.aminmax(values.detach())))
    return Targets(shape, rows=rows, labels=labels, values=values)


def _from_offsets(labels: Tensor, offsets: Tensor, shape: tuple[int, int], check: bool) -> Targets:
    for name, part in (("label_indices", labels), ("offsets", offsets)):
        whole = not (part.is_floating_point() or part.is_complex() or part.dtype == torch.bool)
        if part.dim() != 1 or not whole:
            raise InputError(
                f"{name} must be a flat tensor of integers, got shape {tuple(part.shape)} of "
                f"{part.dtype}. {_HOW}"
            )
    if offsets.numel() not in (shape[0], shape[0] + 1):
        raise InputError(
            f"offsets must hold the start of each of the {shape[0]} documents in label_indices "
            f"(and, optionally, the end), got {offsets.numel()} numbers."
        )
    labels, offsets = labels.long(), offsets.long()
    if offsets.numel() == shape[0]:
        offsets = torch.cat([offsets, offsets.new_full((1,), labels.numel())])
    if check and offsets.numel():
        rises = (offsets.diff() >= 0).all() & (offsets[0] == 0) & (offsets[-1] == labels.numel())
        if not bool(rises):
            raise InputError(
                f"offsets must rise from 0 to the number of label indices ({labels.numel()}), got "
                f"{offsets.tolist()[:8]}{'...' if offsets.numel() > 8 else ''}."
            )
    rows = _rows(offsets, labels.numel())
    if check:
        _check_positions(rows, labels, shape)
    return Targets(shape, rows=rows, labels=labels)


def _rows(starts: Tensor, n_positions: int) -> Tensor:
    documents = torch.arange(starts.numel() - 1, device=starts.device)
    return torch.repeat_interleave(documents, starts.diff().long(), output_size=n_positions)


def _check_positions(rows: Tensor, labels: Tensor, shape: tuple[int, int]) -> None:
    if labels.numel() == 0:
        return
    keys = (rows * shape[1] + labels).sort().values
    twice = keys[1:] == keys[:-1]
    # One look at the device for all three questions.
    low, high, repeated = torch.stack(
        [labels.min().long(), labels.max().long(), twice.any().long()]
    ).tolist()
    if low < 0 or high >= shape[1]:
        raise InputError(
            f"label indices must lie in 0..{shape[1] - 1} for {shape[1]} labels, got values from "
            f"{low} to {high}."
        )
    if repeated:
        key = int(keys[:-1][twice][0])
        raise InputError(
            f"document {key // shape[1]} lists label {key % shape[1]} twice. "
            "List each label of a document once."
        )
