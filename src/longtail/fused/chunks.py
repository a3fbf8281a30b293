"""A linear head and its loss, some labels at a time: product, loss and gradients of a chunk.

A chunk of logits stays small enough for a GPU's cache. Chunks are evaluated by torch or by the
Triton kernels of the losses, behind one signature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from longtail.losses.balanced import CHUNK_ELEMENTS
from longtail.losses.base import ElementwiseLoss
from longtail.losses.closed_form import Batch, gradient_dtype
from longtail.losses.targets import Targets

# Logits of a chunk on a GPU: in bf16 64 MiB, as is their gradient. On an H200 128 x 670,091 take
# 3.0 ms in chunks of 2^23, 2.8 of 2^25, 3.2 of 2^26; all at once, without chunks, 4.1. Elsewhere as
# the losses cut them: 4 MiB in float32.
ELEMENTS = 1 << 25
# Weights of a chunk per logit: in bf16 512 MiB on a GPU, as is their gradient in an update.
WEIGHTS = 8
# Labels of a chunk are a multiple of this, so that all rows of logits start at aligned addresses,
# also where the number of labels is odd: matrix products are made for that.
STEP = 1024

Leaves = tuple[Tensor, Tensor, Tensor | None]
"""Features, weight and bias."""
Span = tuple[int, int]
Update = Callable[[int, int, Tensor, Tensor], None]
"""Takes a span of labels, the gradient of their logits, and the features."""


class Job(NamedTuple):
    """What a head's outputs are compared with, and how."""

    loss: ElementwiseLoss
    batch: Batch
    """Its sample weights include the reduction's factor."""
    impl: str
    dtype: torch.dtype
    """Of the products and logits."""

    def scaled(self, factor: Tensor) -> Job:
        """Return the job of a loss that is multiplied by a number."""
        assert self.batch.sample_weight is not None
        weight = self.batch.sample_weight * factor
        return self._replace(batch=replace(self.batch, sample_weight=weight))


class Gradients(NamedTuple):
    """Gradients of features, weight and bias; None where none is wanted."""

    features: Tensor | None = None
    weight: Tensor | None = None
    bias: Tensor | None = None

    @classmethod
    def empty(cls, inputs: Leaves, wanted: tuple[bool, bool, bool]) -> Gradients:
        """Return memory for those that are wanted."""
        features, weight, bias = (
            x if x is not None and wants else None for x, wants in zip(inputs, wanted, strict=True)
        )
        return cls(
            # A sum over chunks, in at least float32.
            None if features is None else torch.zeros_like(features, dtype=_wide(features.dtype)),
            None if weight is None else torch.empty_like(weight, dtype=gradient_dtype(weight)),
            None if bias is None else torch.empty_like(bias, dtype=gradient_dtype(bias)),
        )


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def most_logits(device: torch.device) -> int:
    """Return the largest number of logits in memory at a time."""
    return ELEMENTS if device.type == "cuda" else CHUNK_ELEMENTS


def spans(n_documents: int, n_labels: int, n_features: int, device: torch.device) -> list[Span]:
    """Cut the labels into chunks of about the same size."""
    logits = most_logits(device)
    most = min(logits // max(1, n_documents), WEIGHTS * logits // max(1, n_features))
    most = max(STEP, most // STEP * STEP)
    n_chunks = max(1, -(-n_labels // most))
    size = -(-max(1, n_labels) // (n_chunks * STEP)) * STEP
    return [(start, min(start + size, n_labels)) for start in range(0, n_labels, size)]


@torch.no_grad()
def evaluate(
    inputs: Leaves,
    job: Job,
    wanted: tuple[bool, bool, bool] = (False, False, False),
    update: Update | None = None,
) -> tuple[Tensor, Gradients]:
    """Return the loss and its gradients; `update` changes weight and bias chunk by chunk."""
    features, weight, bias = inputs
    gradients = Gradients.empty(inputs, wanted)
    with_grad = any(wanted) or update is not None
    total = torch.zeros((), dtype=_wide(job.dtype), device=features.device)
    device = torch.cuda.device_of(features)  # type: ignore[no-untyped-call]
    with torch.autocast(features.device.type, enabled=False), device:
        x = features.to(job.dtype)
        parts = spans(len(features), len(weight), weight.shape[1], weight.device)
        chunks = (_TritonChunks if job.impl == "triton" else _TorchChunks)(job, parts, bias)
        for number, (start, stop) in enumerate(parts):
            w = weight[start:stop].to(job.dtype)
            value, slope = chunks(number, x, w, with_grad)
            total += value
            if slope is not None:
                if gradients.features is not None:
                    gradients.features.add_(slope @ w.to(slope.dtype))
                if update is not None:
                    update(start, stop, slope, x.to(slope.dtype))
                else:
                    _weight_gradients(slope, x.to(slope.dtype), slice(start, stop), gradients)
    return total, gradients


def _weight_gradients(slope: Tensor, x: Tensor, part: slice, gradients: Gradients) -> None:
    """Store the wanted gradients of the weights and biases of a chunk."""
    if gradients.weight is not None:
        out = gradients.weight[part]
        if out.dtype == slope.dtype:
            torch.mm(slope.t(), x, out=out)
        else:
            out.copy_(slope.t() @ x)
    if gradients.bias is not None:
        gradients.bias[part] = slope.sum(dim=0)


class _TorchChunks:
    """The loss of a chunk, and its gradient with respect to the logits, by torch."""

    def __init__(self, job: Job, parts: list[Span], bias: Tensor | None) -> None:
        self.job, self.parts, self.bias = job, parts, bias
        batch, targets = job.batch, job.batch.targets
        outline = torch.empty((), dtype=job.dtype, device=targets.positions()[0].device)
        # It depends on all labels of a document, not only on those of a chunk.
        mass = job.loss.document_mass(outline, targets, batch.mask)
        self.batch = replace(batch, document_mass=mass)
        self.targets = _split(targets, parts)

    def __call__(
        self, number: int, x: Tensor, w: Tensor, with_grad: bool
    ) -> tuple[Tensor, Tensor | None]:
        start, stop = self.parts[number]
        bias, mask = self.bias, self.batch.mask
        logits = F.linear(x, w, None if bias is None else bias[start:stop].to(w.dtype))
        batch = replace(
            self.batch,
            targets=self.targets[number],
            mask=None if mask is None else mask[:, start:stop],
        )
        loss = self.job.loss.part(start, stop)
        if not with_grad:
            return loss.total(logits, batch), None
        with torch.enable_grad():
            leaf = logits.to(_wide(logits.dtype)).requires_grad_()
            total = loss.total(leaf, batch)
        (slope,) = torch.autograd.grad(total, leaf)
        return total.detach(), slope.to(gradient_dtype(logits))


def _split(targets: Targets, parts: list[Span]) -> list[Targets]:
    """Return the targets of each chunk of labels."""
    rows, labels = targets.positions()
    starts = torch.tensor([start for start, _ in parts], device=labels.device)
    owner = torch.searchsorted(starts, labels, right=True) - 1
    # Stable: the documents of a chunk stay in order.
    order = owner.argsort(stable=True)
    counts = owner.bincount(minlength=len(parts)).tolist()
    return [
        Targets(
            (targets.shape[0], stop - start),
            rows=rows[places],
            labels=labels[places] - start,
            values=None if targets.values is None else targets.values[places],
        )
        for (start, stop), places in zip(parts, torch.split(order, counts), strict=True)
    ]


class _TritonChunks:
    """The same by the kernels of the losses, in buffers that all chunks share."""

    def __init__(self, job: Job, parts: list[Span], bias: Tensor | None) -> None:
        from longtail.losses.kernel_parts import plain, read_inputs
        from longtail.losses.kernels import document_mass

        self.parts, self.batch = parts, job.batch
        terms = job.loss.terms(torch.float32)
        assert terms is not None
        if bias is not None:
            # The kernels subtract the shift from the logits, in float32.
            shift = -bias.float() if terms.shift is None else terms.shift - bias.float()
            terms = terms._replace(shift=shift)
        self.terms = terms.map(plain)
        # Bits of all labels, and what depends on all labels of a document.
        targets, mask, inverse = job.batch.targets, job.batch.mask, self.terms.inverse_counts
        self.inputs = read_inputs(targets, mask, inverse)
        if targets.dense is not None and inverse is not None:
            mass = document_mass(targets.dense, inverse, mask)
            self.batch = replace(job.batch, document_mass=mass)
        size = max((stop - start for start, stop in parts), default=0)
        shape, device = (job.batch.targets.shape[0], size), self.inputs.matrix.device
        self.logits = torch.empty(shape, dtype=job.dtype, device=device)
        self.slope = torch.empty(shape, dtype=gradient_dtype(self.logits), device=device)

    def __call__(
        self, number: int, x: Tensor, w: Tensor, with_grad: bool
    ) -> tuple[Tensor, Tensor | None]:
        from longtail.losses.kernels import weighted_sum

        start, stop = self.parts[number]
        n_labels, mask = stop - start, self.batch.mask
        logits = torch.mm(x, w.t(), out=self.logits[:, :n_labels])
        slope = self.slope[:, :n_labels] if with_grad else None
        batch = replace(self.batch, mask=None if mask is None else mask[:, start:stop])
        terms = self.terms.map(lambda values: values[start:stop])
        total = weighted_sum(logits, self.inputs.columns(start, stop), batch, terms, 1.0, slope)
        return total, slope
