"""`linear_balanced_loss`: the loss of a linear head without its logits, for autograd.

The gradients are computed together with the loss, some labels at a time. An update in the backward
pass computes them there instead: each chunk of weights takes its step at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from longtail.checks import check_choice
from longtail.errors import InputError
from longtail.fused.chunks import Gradients, Job, Leaves, Update, evaluate, most_logits
from longtail.labels import LabelStats
from longtail.losses.base import ElementwiseLoss, MultiLabelLoss, Reduction
from longtail.losses.closed_form import Batch, multiplied
from longtail.losses.presets import build_loss
from longtail.losses.targets import FLOATS, check_tensor, kernels_usable

Impl = Literal["auto", "torch", "triton"]


def linear_balanced_loss(
    features: Tensor,
    weight: Tensor,
    target: Any,
    bias: Tensor | None = None,
    *,
    loss: str | MultiLabelLoss,
    stats: LabelStats | None = None,
    mask: Tensor | None = None,
    sample_weight: Tensor | None = None,
    reduction: Reduction | None = None,
    impl: Impl = "auto",
) -> Tensor:
    """The loss of a linear head without its logits: `loss(F.linear(features, weight, bias), ...)`.

    Args:
        features: (documents, features).
        weight: (labels, features), of the features' type; under autocast of any.
        target: as for the losses; with very many labels sparse: a CSR tensor, or a pair
            (label_indices, offsets).
        bias: (labels,).
        loss: a name of LOSSES, or a loss on the features' device. A name is built at each call: in
            a loop, build the loss once. Losses that compare the labels of a document (`zlpr`,
            `two-way`, `dice`) need all logits at once and are refused.
        stats: LabelStats of the training documents, for a loss by name.
        mask, sample_weight: as for the losses.
        reduction: `mean`, `batchmean` or `sum`. None: that of the loss; of a name `batchmean`.
        impl: `torch` on any device; `triton` on an NVIDIA or AMD GPU, with the loss's kernel, not
            in float64; `auto` is `triton` where it can run, or the loss on all logits where they
            fit into one chunk.

    The gradients have no second derivative, and sample weights get none.

    Example:
        >>> import torch
        >>> features, weight = torch.ones(2, 4, requires_grad=True), torch.zeros(3, 4)
        >>> target = (torch.tensor([0, 2]), torch.tensor([0, 1, 2]))  # label 0; label 2
        >>> value = linear_balanced_loss(features, weight, target, loss="bce")
        >>> print(f"{value.item():.4f}")
        2.0794
    """
    check_choice("impl", impl, get_args(Impl))
    built = prepared(features, weight, bias, loss, stats, reduction)
    if impl == "auto" and len(features) * len(weight) <= most_logits(features.device):
        value: Tensor = built(F.linear(features, weight, bias), target, mask, sample_weight)
    else:
        value = chunked(features, weight, bias, built, (target, mask, sample_weight), impl)
    return value


def prepared(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    loss: str | MultiLabelLoss,
    stats: LabelStats | None,
    reduction: Reduction | None,
) -> ElementwiseLoss:
    """Check the head; return the loss with this reduction."""
    check_head(features, weight, bias)
    if reduction is None:
        reduction = loss.reduction if isinstance(loss, MultiLabelLoss) else "batchmean"
    check_choice("reduction", reduction, ("mean", "batchmean", "sum"))
    if isinstance(loss, str):
        exact = torch.promote_types(_product_dtype(features), torch.float32)
        loss = build_loss(loss, stats, dtype=exact).to(weight.device)
    elif not isinstance(loss, MultiLabelLoss):
        raise InputError(
            f"loss must be a name of LOSSES or a loss, got {type(loss).__name__}. "
            "See longtail.list_losses()."
        )
    if not isinstance(loss, ElementwiseLoss):
        raise InputError(
            f"{type(loss).__name__} compares the labels of a document, so it needs all logits at "
            "once. Use loss(F.linear(features, weight, bias), target), or a loss with one term "
            "per label, such as 'db'."
        )
    return loss.with_reduction(reduction)


def check_head(features: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    device = getattr(features, "device", None)
    hint = "Pass the features of the documents first, then the weight of the head."
    check_tensor("features", features, FLOATS, ("documents", "features"), device, hint)
    size = features.shape[1]
    check_tensor("weight", weight, FLOATS, ("labels", size), device, hint)
    if bias is not None:
        check_tensor("bias", bias, FLOATS, weight.shape[:1], device, hint)
    dtypes = {x.dtype for x in (features, weight, bias) if x is not None}
    if len(dtypes) > 1 and not torch.is_autocast_enabled(features.device.type):
        raise InputError(
            f"features, weight and bias must have one type, got {sorted(map(str, dtypes))}. "
            "Convert the features, or use torch.autocast."
        )


def _product_dtype(features: Tensor) -> torch.dtype:
    kind = features.device.type
    if torch.is_autocast_enabled(kind) and features.dtype != torch.float64:
        return torch.get_autocast_dtype(kind)
    return features.dtype


Updates = Callable[[bool], Update]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def chunked(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    loss: ElementwiseLoss,
    inputs: tuple[Any, Tensor | None, Tensor | None],
    impl: Impl,
    updates: Updates | None = None,
) -> Tensor:
    """Return the loss by chunks; inputs are target, mask and sample weights."""
    dtype = _product_dtype(features)
    # Has the shape, type and device of the logits, and no memory.
    outline = features.detach().new_empty((), dtype=dtype).expand(len(features), len(weight))
    batch = loss.read(outline, *inputs)
    targets, impl = batch.targets, _implementation(impl, loss, outline)
    if impl == "torch" or targets.dense is not None or updates is not None:
        # The kernels find wrong positions themselves and make the loss NaN: too late for an update.
        targets = targets.checked(batch.mask)
    document_weight = _document_weights(loss, outline, batch)
    if impl == "torch":
        # Finding the positions of dense ones waits for a GPU.
        targets = targets.sparse()
    batch = replace(batch, targets=targets, sample_weight=document_weight)
    job = Job(loss, batch, impl, dtype)
    with_grad = torch.is_grad_enabled()
    value: Tensor = _LinearLoss.apply(features, weight, bias, job, updates, with_grad)  # type: ignore[no-untyped-call]
    if targets.unchecked and bool(value.isnan()):
        targets.checked(batch.mask)
    return value


def _implementation(impl: Impl, loss: ElementwiseLoss, outline: Tensor) -> Impl:
    if impl == "torch" or outline.numel() == 0:
        return "torch"
    has_kernel = kernels_usable(outline) and loss.terms(torch.float32) is not None
    if impl == "triton" and not has_kernel:
        raise InputError(
            "impl='triton' needs an NVIDIA or AMD GPU, features that are not float64, and a loss "
            f"with a kernel, got {type(loss).__name__} in {outline.dtype} on {outline.device}. Use "
            "impl='auto'."
        )
    return "triton" if has_kernel else "torch"


def _document_weights(loss: ElementwiseLoss, outline: Tensor, batch: Batch) -> Tensor:
    """Return the weights of the documents, with the factor of the reduction."""
    dtype = torch.promote_types(outline.dtype, torch.float32)
    weight = torch.ones(len(outline), dtype=dtype, device=outline.device)
    if batch.sample_weight is not None:
        if batch.sample_weight.requires_grad and torch.is_grad_enabled():
            raise InputError(
                "linear_balanced_loss has no gradient of sample weights. Pass "
                "sample_weight.detach(), or use loss(F.linear(features, weight, bias), ...)."
            )
        weight = batch.sample_weight.detach().to(dtype)
    return loss.divide(weight, batch)


class _LinearLoss(torch.autograd.Function):
    """The loss with the gradients of features, weight and bias."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        job: Job,
        updates: Updates | None,
        with_grad: bool,
    ) -> Tensor:
        # Mask and targets are saved only so that autograd detects in-place changes.
        targets = job.batch.targets
        others = (job.batch.mask, targets.dense, targets.labels, targets.values)
        ctx.save_for_backward(features, weight, bias, *others)
        ctx.job, ctx.updates = job, updates
        wanted = (False, False, False)
        if with_grad and updates is None:
            wanted = ctx.needs_input_grad[:3]
        value, ctx.gradients = evaluate((features, weight, bias), job, wanted)
        return value

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise InputError(
                "linear_balanced_loss has no second derivative (create_graph=True). Use "
                'loss(F.linear(features, weight, bias), target) with reduction="none".'
            )
        inputs, job = tuple(ctx.saved_tensors[:3]), ctx.job
        wanted = ctx.needs_input_grad[:3]
        if ctx.updates is not None:
            update = ctx.updates(job.impl == "triton")
            wanted = (wanted[0], False, False)
            # The steps depend on the factor, too.
            _, gradients = evaluate(inputs, job.scaled(grad_output), wanted, update)
            grad = gradients.features
            return (None if grad is None else grad.to(inputs[0].dtype), *(None,) * 5)
        # The first backward pass multiplies the stored gradients in place; see closed_form.
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            _, gradients = evaluate(inputs, job, wanted)
        grads = _multiplied(gradients, grad_output, inputs)
        return (*grads, None, None, None)


def _multiplied(gradients: Gradients, factor: Tensor, inputs: Leaves) -> list[Tensor | None]:
    """Return the gradients times a number, in the types of the inputs."""
    return [
        None if grad is None or x is None else multiplied(grad, factor, x)
        for grad, x in zip(gradients, inputs, strict=True)
    ]
