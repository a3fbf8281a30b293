"""Base classes of the losses: checks, masks, weights, reductions, the bridge to Hugging Face.

A subclass adds its maths per element (`ElementwiseLoss`) or per document (`DocumentLoss`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self, get_args

import torch
from torch import Tensor, nn

from longtail.checks import check_choice, check_number
from longtail.errors import InputError, shown
from longtail.losses import functional
from longtail.losses.balanced import ElementTerms, balanced_sum, weigh
from longtail.losses.closed_form import Batch, SetTerms, set_sum
from longtail.losses.targets import (
    FLOATS,
    NUMBERS,
    Targets,
    check_tensor,
    kernels_usable,
    read_targets,
    recording,
)

Reduction = Literal["none", "mean", "batchmean", "sum"]
# Larger constants overflow float32 in products with logits and counts.
LARGEST = 1e6
IGNORED = -100  # Hugging Face's ignore_index


class MultiLabelLoss(nn.Module):
    """Base of all losses: checks targets, masks and weights, and reduces the subclass's terms.

    Args:
        label_weight: one non-negative weight per label, multiplied into the loss of that label.
        reduction: `mean` over all known elements, as in PyTorch; `batchmean`, the sum over labels
            and the mean over documents, so that the learning rate does not depend on the number of
            labels; `sum`; or `none`.
        check_targets: raise for invalid values of targets or sample weights, and for invalid
            indices of sparse targets. Costs a synchronisation on a GPU; skipped under torch.compile
            and CUDA graphs.
        dtype: type of the per-label constants; float64 for more than six exact digits.

    Shape:
        logits (documents, labels), floating point. target: the same shape with values in [0, 1], a
        sparse CSR tensor of that shape, or a pair (label_indices, offsets) with the flat label
        indices of all documents and the start of each document. mask: boolean, the same shape,
        False where the label is unknown; such an element adds nothing and gets no gradient.
        sample_weight: (documents,).

    An empty or fully masked batch has a loss of 0 and zero gradient. An unmasked NaN logit makes
    the loss NaN; an infinite one, or one beyond 1e18, may do so. With half-precision logits the
    loss is computed and returned in float32.
    """

    label_weight: Tensor | None
    n_labels: int | None = None
    """Number of labels that the loss was built for; None for any."""
    compares_documents: ClassVar[bool] = False
    """Whether the loss of a batch is more than the sum over its documents."""

    def __init__(
        self,
        *,
        label_weight: Tensor | None = None,
        reduction: Reduction = "mean",
        check_targets: bool = True,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        check_choice("reduction", reduction, get_args(Reduction))
        if dtype not in (torch.float32, torch.float64):
            raise InputError(f"dtype must be torch.float32 or torch.float64, got {shown(dtype)}.")
        self.reduction: Reduction = reduction
        self.check_targets = check_targets
        weight = None if label_weight is None else _label_weight(label_weight, dtype)
        self.register_buffer("label_weight", weight)
        if weight is not None:
            self.for_labels(len(weight))

    def for_labels(self, n_labels: int) -> Self:
        """Require logits with this number of labels; return the loss."""
        if self.n_labels not in (None, n_labels):
            raise InputError(
                f"label_weight must hold one number for each of the {n_labels} labels, got "
                f"{self.n_labels}."
            )
        self.n_labels = n_labels
        return self

    def forward(
        self,
        input: Tensor,
        target: Any,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        batch = self.read(input, target, mask, sample_weight)
        targets = batch.targets
        if self.reduction != "none":
            result = self._fast_loss(input, batch)
            if result is not None:
                # The kernels return NaN for invalid targets: reading one number is cheaper than a
                # pass over all targets.
                if targets.unchecked and (not kernels_usable(input) or math.isnan(result.item())):
                    targets.checked(mask)
                return result
        logits = input.to(torch.promote_types(input.dtype, torch.float32))
        if mask is not None:
            # Masked logits may be NaN.
            logits = torch.where(mask, logits, torch.zeros_like(logits))
        return self._reduce(logits, Batch(targets.checked(mask), sample_weight, mask))

    def with_reduction(self, reduction: Reduction) -> Self:
        """Return this loss, or if it has another reduction, a copy that shares its constants."""
        check_choice("reduction", reduction, get_args(Reduction))
        if reduction == self.reduction:
            return self
        other = copy.copy(self)
        other._buffers = dict(self._buffers)
        other.reduction = reduction
        return other

    def read(
        self, input: Tensor, target: Any, mask: Tensor | None, sample_weight: Tensor | None
    ) -> Batch:
        """Check the logits and what belongs to them; return the latter."""
        self.check_logits(input)
        _check_weights(input, mask, sample_weight, self.check_targets)
        targets = read_targets(input, target, mask, self.check_targets)
        return Batch(targets, sample_weight, mask)

    def as_hf(self) -> Callable[..., Tensor]:
        """Return this loss for `transformers.Trainer(compute_loss_func=loss.as_hf())`.

        The Trainer sums the losses of the micro-batches of an accumulated step without dividing by
        their number, so each is scaled by its share of the step's elements. The gradient then does
        not depend on the micro-batches, except for `two-way`, which compares documents, and
        approximately for means over documents with ignored labels. Labels of -100 are masked.
        """
        if self.reduction == "none":
            raise InputError("as_hf needs a reduction to a number: use 'mean' or 'batchmean'.")

        def compute_loss(
            outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None
        ) -> Tensor:
            if not isinstance(labels, Tensor):
                raise InputError(f"labels must be a tensor, got {type(labels).__name__}.")
            logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
            known = labels != IGNORED
            mask = None if bool(known.all()) else known
            loss: Tensor = self(logits, labels, mask=mask)
            if num_items_in_batch is None or self.reduction == "sum":
                return loss
            items = labels.numel() if mask is None else mask.sum()
            # A step with all labels ignored has 0 items and a loss of 0.
            return loss * (items / torch.as_tensor(num_items_in_batch).clamp(min=1))

        return compute_loss

    def _fast_loss(self, logits: Tensor, batch: Batch) -> Tensor | None:
        """Compute the reduced loss faster than `_reduce`, or return None."""
        return None

    def _reduce(self, logits: Tensor, batch: Batch) -> Tensor:
        raise NotImplementedError

    def scale(self, shape: tuple[int, int]) -> float:
        """Return the factor of the sum over all elements of an unmasked batch."""
        if self.reduction == "sum":
            return 1.0
        return 1 / max(1, shape[0] if self.reduction == "batchmean" else shape[0] * shape[1])

    def share(self, n_documents: int, n_batch: int) -> float:
        """Return the weight of the loss of some documents in the loss of their batch."""
        return 1.0 if self.reduction == "sum" else n_documents / max(1, n_batch)

    def divide(self, total: Tensor, batch: Batch) -> Tensor:
        """Divide the sum over known elements according to the reduction."""
        mask = batch.mask
        if mask is None or self.reduction == "sum":
            return total * self.scale(batch.targets.shape)
        count = mask.any(dim=1).sum() if self.reduction == "batchmean" else mask.sum()
        return total / count.clamp(min=1)

    def check_logits(self, logits: Tensor) -> None:
        """Raise unless these are logits on the right device with the right number of labels."""
        check_tensor(
            "logits", logits, FLOATS, ("documents", "labels"), getattr(logits, "device", None),
            "Pass the model's raw outputs (before the sigmoid) first and the targets second; for "
            "one document logits.unsqueeze(0).",
        )  # fmt: skip
        # Not `in (None, ...)`, which the compiler takes for false once shapes are dynamic.
        if self.n_labels is not None and self.n_labels != logits.shape[1]:
            raise InputError(
                f"this loss was built for {self.n_labels} labels, but the logits have "
                f"{logits.shape[1]} columns. Build it from the statistics of the same label set."
            )
        for buffer in self._buffers.values():
            if buffer is not None and buffer.device != logits.device:
                raise InputError(
                    f"the logits are on {logits.device}, this loss on {buffer.device}. "
                    "Move it once with loss.to(logits.device)."
                )

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> MultiLabelLoss:
        """Move or convert, but never round the per-label constants to half precision."""
        before = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, old in before.items():
            new = getattr(self, name)
            if torch.finfo(new.dtype).bits < 32:
                setattr(self, name, old.to(new.device))
        return self


class ElementwiseLoss(MultiLabelLoss):
    """A loss with one term per element: a subclass defines the cost of positives and negatives.

    `terms` is optional: it lets reduced losses run by kernels on a GPU.
    """

    def terms(self, dtype: torch.dtype) -> ElementTerms | None:
        """Return the maths of this loss for the kernels; None if they do not know it."""
        return None

    def document_mass(self, logits: Tensor, targets: Targets, mask: Tensor | None) -> Tensor | None:
        """Return the sum of 1/n over each document's labels; None unless rebalanced."""
        return None

    def part(self, start: int, stop: int) -> Self:
        """Return the loss of some consecutive labels; shares the constants' memory.

        What a subclass keeps per label must be in buffers.
        """
        part = copy.copy(self)
        part._buffers = {
            name: values if values is None or not values.dim() else values[start:stop]
            for name, values in self._buffers.items()
        }
        part.n_labels = stop - start
        return part

    def total(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the weighted sum over known elements by torch operations, without a kernel."""
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        terms = self.terms(wide.dtype)
        if terms is not None and terms.kind == "balanced" and not kernels_usable(logits):
            return balanced_sum(logits, batch, terms)
        if batch.mask is not None:
            # Masked logits may be NaN.
            wide = torch.where(batch.mask, wide, torch.zeros_like(wide))
        return self._elements(wide, batch).sum()

    def _fast_loss(self, logits: Tensor, batch: Batch) -> Tensor | None:
        if not differentiates_logits_only(batch):
            return None
        terms = self.terms(torch.promote_types(logits.dtype, torch.float32))
        if terms is None:
            return None
        mask = batch.mask
        if not kernels_usable(logits):
            if terms.kind != "balanced":
                return None
            # The label positions serve both the masses and the gradient.
            targets = batch.targets.sparse()
            mass = self.document_mass(logits, targets, mask)
            batch = replace(batch, targets=targets, document_mass=mass)
        if mask is None:
            return balanced_sum(logits, batch, terms, self.scale(batch.targets.shape))
        return self.divide(balanced_sum(logits, batch, terms), batch)

    def _positive(self, logits: Tensor) -> Tensor:
        raise NotImplementedError

    def _negative(self, logits: Tensor) -> Tensor:
        raise NotImplementedError

    def _elements(self, logits: Tensor, batch: Batch) -> Tensor:
        values = functional.elementwise(logits, batch.targets, self._positive, self._negative)
        return weigh(values, self.label_weight, batch)

    def _reduce(self, logits: Tensor, batch: Batch) -> Tensor:
        values = self._elements(logits, batch)
        return values if self.reduction == "none" else self.divide(values.sum(), batch)


class DocumentLoss(MultiLabelLoss):
    """A loss with one term per document: `none` returns shape (documents,), `mean` is `batchmean`.

    Label weights and mask apply to the elements inside a document's term.
    """

    def set_terms(self) -> SetTerms | None:
        """Return the maths of this loss for the kernels; None if they do not know it."""
        return None

    def _fast_loss(self, logits: Tensor, batch: Batch) -> Tensor | None:
        terms = self.set_terms()
        if terms is None or not kernels_usable(logits) or not differentiates_logits_only(batch):
            return None
        if terms.two_way or self.reduction == "sum":
            return set_sum(logits, batch, terms)
        if batch.mask is None:
            return set_sum(logits, batch, terms, 1 / max(1, logits.shape[0]))
        return set_sum(logits, batch, terms) / batch.mask.any(dim=1).sum().clamp(min=1)

    def _document_terms(self, logits: Tensor, targets: Targets, weight: Tensor | None) -> Tensor:
        raise NotImplementedError

    def _reduce(self, logits: Tensor, batch: Batch) -> Tensor:
        inside = element_weight(logits, self.label_weight, 1, batch.mask)
        terms = self._document_terms(logits, batch.targets, inside)
        if batch.sample_weight is not None:
            terms = terms * batch.sample_weight.to(terms.dtype)
        if self.reduction in ("none", "sum"):
            return terms if self.reduction == "none" else terms.sum()
        return mean_of(terms, None if batch.mask is None else batch.mask.any(dim=1))


def differentiates_logits_only(batch: Batch) -> bool:
    """Return whether a closed form applies: no gradient of weights, no compiler."""
    weight = batch.sample_weight
    return not (torch.compiler.is_compiling() or (weight is not None and weight.requires_grad))


def element_weight(
    logits: Tensor, weight: Tensor | None, dim: int, mask: Tensor | None
) -> Tensor | None:
    """Expand weights of labels (dim 1) or documents (dim 0) to all elements; 0 where masked."""
    if weight is None:
        return None if mask is None else mask.to(logits.dtype)
    spread = weight.to(logits.dtype).unsqueeze(1 - dim).expand(logits.shape)
    return spread if mask is None else spread * mask.to(logits.dtype)


def mean_of(terms: Tensor, counted: Tensor | None) -> Tensor:
    """Return the sum of the terms divided by the number counted, at least 1."""
    if counted is None:
        return terms.sum() / max(1, terms.numel())
    return terms.sum() / counted.sum().clamp(min=1)


def number(name: str, value: Any, minimum: float = -LARGEST, below: float | None = None) -> float:
    """Check and return a constant: at least `minimum`, and below `below` or at most LARGEST."""
    check_number(name, value, minimum, LARGEST if below is None else below)
    if value == below:
        raise InputError(f"{name} must be below {below:g}, got {value!r}.")
    return float(value)


def _label_weight(label_weight: Any, dtype: torch.dtype) -> Tensor:
    try:
        weight = torch.as_tensor(label_weight).detach().to(dtype, copy=True)
        if weight.dim() != 1 or not bool((torch.isfinite(weight) & (weight >= 0)).all()):
            raise ValueError
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(
            "label_weight must be one finite, non-negative number per label, got "
            f"{shown(label_weight)}."
        ) from error
    return weight


def _check_weights(
    logits: Tensor, mask: Tensor | None, sample_weight: Tensor | None, check_values: bool
) -> None:
    """Raise unless mask and sample weights fit the logits."""
    shape, device = logits.shape, logits.device
    if mask is not None:
        hint = "Use True where the label is known."
        check_tensor("mask", mask, {torch.bool}, shape, device, hint)
    if sample_weight is None:
        return
    check_tensor("sample_weight", sample_weight, NUMBERS, shape[:1], device, "One per document.")
    if check_values and not recording(logits):
        # In the loss's type: 1e300 is infinite in float32.
        weight = sample_weight.to(torch.promote_types(logits.dtype, torch.float32))
        good = torch.isfinite(weight) & (weight >= 0)
        if not bool(good.all()):
            worst = sample_weight[~good][0].item()
            raise InputError(f"sample weights must be finite and not negative, got {worst}.")
