"""Reduced losses that compute their gradient together with their value, for autograd.

Plain autograd needs about ten tensors of the logits' size; the gradient is the only one here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from longtail.errors import InputError
from longtail.losses.targets import Targets, kernels_usable


@dataclass(frozen=True)
class Batch:
    """A batch without its logits: targets, document weights, and the mask of known elements."""

    targets: Targets
    sample_weight: Tensor | None = None
    mask: Tensor | None = None
    document_mass: Tensor | None = None
    """Per document, the sum of 1/n over its labels, for rebalanced losses. The kernels compute it
    where it is None."""


class SetTerms(NamedTuple):
    """The maths of a loss that compares elements within documents, as plain values.

    Per document, log(1 + the sum of e^z over negatives) + log(1 + the sum of e^-z over positives);
    or as in TwoWayLoss.
    """

    two_way: bool = False
    """Whether labels have terms too, and sums no 1."""
    negative_temperature: float = 1.0
    positive_temperature: float = 1.0
    mean: bool = False
    """Whether two-way divides by the numbers of documents and labels with a positive."""
    label_weight: Tensor | None = None


Evaluate = Callable[[Tensor, bool], tuple[Tensor, Tensor | None]]
"""Maps logits, and whether a gradient is wanted, to the value and its gradient."""


def differentiable(logits: Tensor, batch: Batch, evaluate: Evaluate, factor: float = 1.0) -> Tensor:
    """Return the value of `evaluate`, differentiable in the logits.

    `factor`: what the gradient of `evaluate`, but not its value, must still be multiplied by.
    """
    with_grad = torch.is_grad_enabled() and logits.requires_grad
    return _ClosedForm.apply(logits, batch, evaluate, factor, with_grad)  # type: ignore[no-any-return, no-untyped-call]


def set_sum(logits: Tensor, batch: Batch, terms: SetTerms, scale: float = 1.0) -> Tensor:
    """Return `scale` times the sum of the terms, or two-way's loss; only where kernels run."""
    from longtail.losses.document_kernels import sum_and_grad

    def evaluate(logits: Tensor, with_grad: bool) -> tuple[Tensor, Tensor | None]:
        return sum_and_grad(logits, batch, terms, scale, gradient_dtype(logits, with_grad))

    return differentiable(logits, batch, evaluate)


def gradient_dtype(logits: Tensor, with_grad: bool = True) -> torch.dtype | None:
    """Return the type of the stored gradient; None if none is wanted.

    Before the factor of the loss or a gradient scaler, float16 would overflow for large weights and
    underflow for small slopes; bfloat16 has the range of float32.
    """
    if not with_grad:
        return None
    return torch.float32 if logits.dtype == torch.float16 else logits.dtype


class _ClosedForm(torch.autograd.Function):
    """The value and, in the same call, its gradient."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, batch: Batch, evaluate: Evaluate, factor: float, with_grad: bool
    ) -> Tensor:
        # All but the logits are saved only so that autograd detects in-place changes.
        targets = batch.targets
        others = (targets.dense, targets.labels, targets.values, batch.mask, batch.sample_weight)
        ctx.save_for_backward(logits, *others)
        ctx.rest = (evaluate, factor)
        with torch.cuda.device_of(logits):  # type: ignore[no-untyped-call]
            total, ctx.grad = evaluate(logits.detach(), with_grad)
        return total

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise InputError(
                "the reduced loss has no second derivative (create_graph=True). Build it with "
                'reduction="none" and reduce the result.'
            )
        logits = ctx.saved_tensors[0]
        evaluate, factor = ctx.rest
        # The first backward pass returns the stored gradient, multiplied in place: another buffer
        # would take as long as all the maths. A second one (retain_graph) computes it again.
        grad, ctx.grad = ctx.grad, None
        if grad is None:
            _, grad = evaluate(logits.detach(), True)
        assert grad is not None
        if factor != 1.0:
            grad_output = grad_output * factor
        return multiplied(grad, grad_output, logits), None, None, None, None


def multiplied(grad: Tensor, factor: Tensor, logits: Tensor) -> Tensor:
    """Return the gradient times a number in the logits' type; may reuse its memory."""
    if not kernels_usable(logits):
        return grad.mul_(factor).to(logits.dtype)
    if grad.dtype != logits.dtype:
        return torch.mul(grad, factor, out=torch.empty_like(grad, dtype=logits.dtype))
    from longtail.losses.kernel_parts import multiply

    multiply(grad, factor)
    return grad
