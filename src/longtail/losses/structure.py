"""Where the labels of sparse targets lie, checked before anything indexes memory with them.

torch trusts the row starts of a CSR tensor: `repeat_interleave` with starts that do not end at the
number of stored elements writes past its buffer. Here rows come from a search, which cannot.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from longtail.errors import InputError

_INTEGERS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


class Positions(NamedTuple):
    """Document and label of every stored element, and whether they can be trusted."""

    rows: Tensor
    labels: Tensor
    good: Tensor | None = None
    """One boolean where nobody could look at the data; False: rows and labels are all 0."""


def csr_parts(target: Tensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Row starts, label indices and values of a CSR tensor whose sizes fit each other."""
    starts, labels, values = target.crow_indices(), target.col_indices(), target.values()
    expected = {
        "crow_indices": (starts, (shape[0] + 1,)),
        "col_indices": (labels, (values.shape[0] if values.dim() else 0,)),
        "values": (values, (labels.shape[0] if labels.dim() else 0,)),
    }
    for name, (part, size) in expected.items():
        whole = name == "values" or part.dtype in _INTEGERS
        if tuple(part.shape) != size or not whole or part.device != target.device:
            raise InputError(
                f"damaged CSR targets: expected {name} of shape {size}"
                f"{'' if name == 'values' else ' and an integer type'}, got {tuple(part.shape)} "
                f"of {part.dtype}. Make them with torch.sparse_csr_tensor(..., "
                "check_invariants=True)."
            )
    return starts, labels, values


def offset_parts(
    labels: Tensor, offsets: Tensor, shape: tuple[int, int], how: str
) -> tuple[Tensor, Tensor]:
    """Row starts with the end, and label indices, of a pair (label_indices, offsets)."""
    for name, part in (("label_indices", labels), ("offsets", offsets)):
        strided = not part.is_nested and part.layout == torch.strided
        if not strided or part.dim() != 1 or part.dtype not in _INTEGERS:
            size = tuple(part.shape) if strided else part.layout
            raise InputError(
                f"{name} must be a flat tensor of integers, got shape {size} of {part.dtype}. {how}"
            )
    if offsets.numel() not in (shape[0], shape[0] + 1):
        raise InputError(
            f"offsets must hold the start of each of the {shape[0]} documents in label_indices "
            f"(and, optionally, the end), got {offsets.numel()} numbers."
        )
    offsets = offsets.long()
    if offsets.numel() == shape[0]:
        offsets = torch.cat([offsets, offsets.new_full((1,), labels.numel())])
    return offsets, labels


def find_positions(
    starts: Tensor, labels: Tensor, shape: tuple[int, int], name: str, look: bool, distinct: bool
) -> Positions:
    """Positions of all stored elements.

    Args:
        starts, labels: where each document begins in `labels`, with the end; label indices.
        name: what the caller calls the starts, for messages.
        look: read the data and raise if an index is out of range. Otherwise, as a compiler or a
            CUDA graph must, return `good`: indices that could leave the batch are then all 0.
        distinct: raise, too, if a document lists a label twice (this sorts all positions).
    """
    count = labels.numel()
    # Side by side: the kernels address them by number.
    starts, labels = starts.long().contiguous(), labels.long().contiguous()
    if count and 0 in shape:
        raise InputError(f"targets with {count} labels do not fit logits of shape {shape}.")
    places = torch.arange(count, device=labels.device)
    rows = torch.searchsorted(starts[1:], places, right=True)
    if not look:
        rises = (starts.diff() >= 0).all() & (starts[0] == 0) & (starts[-1] == count)
        good = rises & ((labels >= 0) & (labels < shape[1])).all()
        return Positions(torch.where(good, rows, 0), torch.where(good, labels, 0), good)
    _check(rows, labels, starts, shape, name, distinct)
    return Positions(rows, labels)


def _check(
    rows: Tensor,
    labels: Tensor,
    starts: Tensor,
    shape: tuple[int, int],
    name: str,
    distinct: bool,
) -> None:
    """Raise unless the starts rise and the labels exist (and each is listed once)."""
    # One look at the device for all questions.
    steps = starts.diff() if shape[0] else starts
    answers = [starts[0], starts[-1], steps.min()]
    keys = twice = labels
    if labels.numel():
        answers += torch.aminmax(labels)
        if distinct:
            keys = (rows * shape[1] + labels).sort().values
            twice = keys[1:] == keys[:-1]
            answers.append(twice.any().long())
    found = [*torch.stack(answers).tolist(), 0, 0, 0]
    first, last, least, low, high, repeated = found[:6]
    if first != 0 or last != labels.numel() or least < 0:
        raise InputError(
            f"{name} must rise from 0 to the number of label indices ({labels.numel()}), got "
            f"{starts.tolist()[:8]}{'...' if starts.numel() > 8 else ''}."
        )
    if low < 0 or (labels.numel() and high >= shape[1]):
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
