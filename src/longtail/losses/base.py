"""What all losses share: checks, masks, weights, reductions and the bridge to Hugging Face.

A subclass adds its maths as costs of elements (`ElementwiseLoss`) or terms of documents
(`DocumentLoss`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from numbers import Real
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from longtail.errors import InputError
from longtail.labels import shown
from longtail.losses import functional
from longtail.losses.analytic import kernels_usable
from longtail.losses.bounds import any_huge, bounded, suspicious, with_limits
from longtail.losses.functional import ElementCosts
from longtail.losses.targets import TARGET_DTYPES, Targets, read_targets, recording

Reduction = Literal["none", "mean", "batchmean", "sum"]
LOGIT_DTYPES = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
# Constants of a larger magnitude overflow float32 in products with logits and counts.
LARGEST = 1e6
FLOAT64_DEVICES = ("cpu", "cuda")
# Hugging Face's mark of a label that shall not count.
IGNORED = -100


class MultiLabelLoss(nn.Module):
    """Base of all losses: reads the batch, asks the subclass for its terms, reduces them.

    Args:
        label_weight: one non-negative weight per label, multiplied into the loss of that label.
        reduction: `mean` over all known elements, as in PyTorch; `batchmean`, the sum over labels
            and the mean over documents, so that the learning rate does not depend on the number of
            labels; `sum`; or `none`.
        check_targets: look at the values of targets and sample weights and raise if they are not
            usable. On a GPU the look costs a synchronisation; under torch.compile and CUDA graphs
            it is skipped.
        dtype: type of the per-label constants; float64 for results exact to more than six digits.

    Shape:
        logits (documents, labels), floating point. target: the same shape with values in [0, 1], a
        sparse CSR tensor of that shape, or a pair (label_indices, offsets) with the flat label
        indices of all documents and where each document begins. mask: boolean, the same shape,
        False where the label is unknown; such an element neither counts nor gets gradient.
        sample_weight: (documents,).

    An empty batch, or one where every element is masked, has a loss of 0 with zero gradient. A NaN
    logit that counts makes the loss NaN; an infinite one gives the limit of the formula, with its
    slope, and a huge one its value or infinity (either possibly NaN under torch.compile, and on a
    GPU outside the balanced losses' sums).
    Half-precision logits are computed, and the loss returned, in float32.
    """

    hides_infinity: bool = False
    """Whether a finite loss may have an infinite logit in it, whose gradient needs its limit."""
    label_weight: Tensor | None
    n_labels: int | None
    """Labels that the loss was built for; None where it takes any number."""

    def __init__(
        self,
        *,
        label_weight: Tensor | None = None,
        reduction: Reduction = "mean",
        check_targets: bool = True,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.reduction: Reduction = choice("reduction", reduction, get_args(Reduction))
        if not isinstance(check_targets, bool):
            raise InputError(f"check_targets must be True or False, got {shown(check_targets)}.")
        self.check_targets = check_targets
        if dtype not in (torch.float32, torch.float64):
            raise InputError(
                "dtype must be torch.float32 or torch.float64, the type of the per-label "
                f"constants, got {shown(dtype)}."
            )
        self.register_buffer("label_weight", _label_weight(label_weight, dtype))
        self.n_labels = None if self.label_weight is None else int(self.label_weight.shape[0])

    def forward(
        self,
        input: Tensor,
        target: Any,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        self.check_logits(input)
        # From here on every tensor fits the logits, and sparse targets point inside them.
        check_weights(input, mask, sample_weight, self.check_targets)
        targets = read_targets(input, target, mask, self.check_targets)
        if self.reduction != "none":
            result = self._fast_loss(input, targets, mask, sample_weight)
            if result is not None:
                # The kernels give NaN for targets out of range; on a GPU a look at one number,
                # when all is under way, is cheaper than a pass over all targets.
                if targets.unchecked and (not kernels_usable(input) or math.isnan(result.item())):
                    targets.known(mask).check_values()
                return result
        targets = targets.known(mask)
        logits = input.to(torch.promote_types(input.dtype, torch.float32))
        if mask is not None:
            # A masked logit may be anything, even NaN: it must not reach the maths.
            logits = torch.where(mask, logits, torch.zeros_like(logits))
        result = self._reduce(logits, targets, mask, sample_weight)
        if recording(input) or not (targets.unchecked or input.device.type == "cpu"):
            return result
        looks = (result, logits) if self.hides_infinity else (result,)
        totals = targets.check_values(*(each.detach().sum() for each in looks))
        if not any(map(suspicious, totals)) or input.device.type not in FLOAT64_DEVICES:
            return result
        if not any_huge(logits):
            return result
        stand_in = self._reduce(bounded(logits), targets, mask, sample_weight)
        return with_limits(result, stand_in).to(result.dtype)

    def as_hf(self) -> Callable[..., Tensor]:
        """This loss for `transformers.Trainer(compute_loss_func=loss.as_hf())`.

        The Trainer sums what this returns over the micro-batches of an accumulated step without
        dividing by their number, so each is scaled by its share of the step's elements: the
        gradient is the same however the step is cut (`two-way` looks across documents, and a mean
        over documents with some labels ignored is only near). A label of -100 is masked, as the
        Trainer counts it.
        """
        if self.reduction == "none":
            raise InputError("as_hf needs a reduction to a number; use 'mean' or 'batchmean'.")

        def compute_loss(
            outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None
        ) -> Tensor:
            if not isinstance(labels, Tensor):
                raise InputError(f"labels must be a tensor, got {type(labels).__name__}.")
            logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
            mask = None
            if bool((labels == IGNORED).any()):
                mask = labels != IGNORED
                labels = torch.where(mask, labels, torch.zeros_like(labels))
            loss: Tensor = self(logits, labels, mask=mask)
            if num_items_in_batch is None or self.reduction == "sum":
                return loss
            items = labels.numel() if mask is None else mask.sum()
            # A step in which every label is ignored has no items, and a loss of 0.
            return loss * (items / torch.as_tensor(num_items_in_batch).clamp(min=1))

        return compute_loss

    def _fast_loss(
        self, logits: Tensor, targets: Targets, mask: Tensor | None, sample_weight: Tensor | None
    ) -> Tensor | None:
        """The reduced loss by a faster way than `_reduce`, where there is one."""
        return None

    def _reduce(
        self, logits: Tensor, targets: Targets, mask: Tensor | None, sample_weight: Tensor | None
    ) -> Tensor:
        raise NotImplementedError

    def scale(self, shape: tuple[int, int]) -> float:
        """What the sum over all elements of an unmasked batch is multiplied by."""
        if self.reduction == "sum":
            return 1.0
        return 1 / max(1, shape[0] if self.reduction == "batchmean" else shape[0] * shape[1])

    def divide(self, total: Tensor, targets: Targets, mask: Tensor | None) -> Tensor:
        """The sum over known elements, divided as the reduction says."""
        if mask is None or self.reduction == "sum":
            return total * self.scale(targets.shape)
        count = mask.any(dim=1).sum() if self.reduction == "batchmean" else mask.sum()
        return total / count.clamp(min=1)

    def check_logits(self, logits: Tensor) -> None:
        """Raise unless these are logits for the labels that this loss was built for."""
        if not isinstance(logits, Tensor) or logits.dtype not in LOGIT_DTYPES:
            kind = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
            raise InputError(
                "logits must be a floating-point tensor (float16, bfloat16, float32 or float64), "
                f"got {kind}. Pass the model's raw outputs (before the sigmoid) first and the "
                "targets second."
            )
        if logits.is_nested or logits.layout != torch.strided:
            raise InputError(
                f"logits must be a dense tensor, got layout {logits.layout}. Use logits.to_dense()."
            )
        if logits.dim() != 2:
            raise InputError(
                f"logits must have the shape (documents, labels), got {tuple(logits.shape)}. "
                "For one document use logits.unsqueeze(0)."
            )
        if self.n_labels is not None and logits.shape[1] != self.n_labels:
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
        if logits.is_meta:
            raise InputError("the logits are on meta, where they have no values. Pass real ones.")

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> MultiLabelLoss:
        """Moves devices and widens, but never rounds the per-label constants to half precision."""
        before = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, old in before.items():
            new = getattr(self, name)
            if torch.finfo(new.dtype).bits < 32:
                setattr(self, name, old.to(new.device))
        return self


class ElementwiseLoss(MultiLabelLoss):
    """A loss with one term per element; a subclass gives the costs of positives and negatives."""

    def _costs(self) -> ElementCosts:
        raise NotImplementedError

    def _elements(
        self, logits: Tensor, targets: Targets, mask: Tensor | None, sample_weight: Tensor | None
    ) -> Tensor:
        found = functional.elementwise(logits, targets, self._costs())
        if self.label_weight is not None:
            found = found * self.label_weight.to(logits.dtype)
        if sample_weight is not None:
            found = found * sample_weight.to(logits.dtype).unsqueeze(1)
        return found if mask is None else torch.where(mask, found, torch.zeros_like(found))

    def _reduce(
        self, logits: Tensor, targets: Targets, mask: Tensor | None, sample_weight: Tensor | None
    ) -> Tensor:
        found = self._elements(logits, targets, mask, sample_weight)
        return found if self.reduction == "none" else self.divide(found.sum(), targets, mask)


class DocumentLoss(MultiLabelLoss):
    """A loss with one term per document: `none` gives shape (documents,), `mean` is `batchmean`.

    Label weights and the mask weigh the elements inside a document's term.
    """

    def _document_terms(
        self, logits: Tensor, targets: Targets, element_weight: Tensor | None
    ) -> Tensor:
        raise NotImplementedError

    def _reduce(
        self, logits: Tensor, targets: Targets, mask: Tensor | None, sample_weight: Tensor | None
    ) -> Tensor:
        terms = self._document_terms(logits, targets, self._inside_weight(logits, mask))
        if sample_weight is not None:
            terms = terms * sample_weight.to(terms.dtype)
        if self.reduction in ("none", "sum"):
            return terms if self.reduction == "none" else terms.sum()
        return mean_of(terms, None if mask is None else mask.any(dim=1))

    def _inside_weight(self, logits: Tensor, mask: Tensor | None) -> Tensor | None:
        weight = None
        if self.label_weight is not None:
            weight = self.label_weight.to(logits.dtype).unsqueeze(0).expand(logits.shape)
        if mask is not None:
            known = mask.to(logits.dtype)
            weight = known if weight is None else weight * known
        return weight


def mean_of(terms: Tensor, counted: Tensor | None) -> Tensor:
    """The sum of the terms over how many count, at least one."""
    if counted is None:
        return terms.sum() / max(1, terms.numel())
    return terms.sum() / counted.sum().clamp(min=1)


def choice(name: str, value: Any, known: tuple[str, ...]) -> Any:
    """One of the known words, or an error that lists them."""
    if not isinstance(value, str) or value not in known:
        raise InputError(f"{name} must be one of {', '.join(known)}, got {shown(value)}.")
    return value


def number(name: str, value: object, least: float = -math.inf, below: float = math.inf) -> float:
    """A constant as a float, or an error that names it: finite, at least `least`, below `below`."""
    found = math.nan
    if isinstance(value, Real) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            found = float(value)
    absurd = abs(found) > LARGEST
    if absurd or not (math.isfinite(found) and least <= found < below):
        wanted = "a finite number"
        if least > -math.inf:
            wanted += f" of at least {least:g}"
        if below < math.inf:
            wanted += f" and below {below:g}"
        hint = f" Numbers beyond {LARGEST:g} overflow." if absurd else ""
        if isinstance(value, str) and value == "auto":
            hint = " 'auto' is for build_loss, which knows the labels."
        raise InputError(f"{name} must be {wanted}, got {shown(value)}.{hint}")
    return found


def _label_weight(label_weight: Any, dtype: torch.dtype) -> Tensor | None:
    if label_weight is None:
        return None
    try:
        weight = torch.as_tensor(label_weight)
        if weight.is_complex() or weight.is_meta or weight.layout != torch.strided:
            raise TypeError
        weight = weight.detach().to(dtype, copy=True)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(f"label_weight must be numbers, got {shown(label_weight)}.") from error
    if weight.dim() != 1 or not bool((torch.isfinite(weight) & (weight >= 0)).all()):
        raise InputError(
            f"label_weight must be one finite, non-negative number per label, got shape "
            f"{tuple(weight.shape)}."
        )
    return weight


def check_weights(
    logits: Tensor, mask: Tensor | None, sample_weight: Tensor | None, check_values: bool
) -> None:
    """Raise unless mask and sample weights fit the logits."""
    for name, given in (("mask", mask), ("sample_weight", sample_weight)):
        if given is not None and not isinstance(given, Tensor):
            raise InputError(f"{name} must be a tensor, got {type(given).__name__}.")
        if given is not None and given.device != logits.device:
            raise InputError(
                f"{name} is on {given.device}, the logits on {logits.device}. Move it there."
            )
        if given is not None and (given.is_nested or given.layout != torch.strided):
            raise InputError(f"{name} must be a dense tensor, got {given.layout}.")
    if mask is not None and (mask.dtype != torch.bool or mask.shape != logits.shape):
        raise InputError(
            f"mask must be a boolean tensor of the logits' shape {tuple(logits.shape)}, got "
            f"{tuple(mask.shape)} of {mask.dtype}. Use True where the label is known."
        )
    if sample_weight is None:
        return
    if tuple(sample_weight.shape) != (logits.shape[0],) or sample_weight.dtype not in TARGET_DTYPES:
        raise InputError(
            f"sample_weight must hold one number for each of the {logits.shape[0]} documents, got "
            f"shape {tuple(sample_weight.shape)} of {sample_weight.dtype}."
        )
    if check_values and not recording(logits):
        # In the type of the loss: 1e300 is infinite in float32.
        own = sample_weight.to(torch.promote_types(logits.dtype, torch.float32))
        good = torch.isfinite(own) & (own >= 0)
        if not bool(good.all()):
            worst = sample_weight[~good][0].item()
            raise InputError(f"sample weights must be finite and not negative, got {worst}.")
