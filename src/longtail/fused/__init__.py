"""A linear head and a balanced loss in one step, without the matrix of all logits: `linear_loss`.

In plain torch, a few thousand labels at a time; the backward pass computes their logits again.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from longtail.checks import check_integer
from longtail.errors import InputError
from longtail.labels import shown
from longtail.losses import BalancedLoss
from longtail.losses.balanced import Batch, balanced_sum
from longtail.losses.targets import check_dense, read_targets

__all__ = ["linear_loss"]


def linear_loss(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Any,
    loss: BalancedLoss,
    *,
    chunk_labels: int = 8192,
) -> Tensor:
    """`loss(F.linear(features, weight, bias), target)`, holding one chunk of logits at a time.

    Args:
        features: (documents, width). weight: (labels, width). bias: (labels,) or None.
        target: as for the loss itself.
        loss: a BalancedLoss that reduces to a number; its terms need no other label's logit.
        chunk_labels: labels whose logits exist at the same time.
    """
    if not isinstance(loss, BalancedLoss) or loss.reduction == "none":
        raise InputError(
            "linear_loss needs a BalancedLoss with a reduction to a number, got "
            f"{shown(loss)}. Compute the logits for other losses."
        )
    check_integer("chunk_labels", chunk_labels, 1)
    _check_tensors(features, weight, bias)
    n_labels = weight.shape[0]
    # Stands in for the logits where only their shape, type and device are needed.
    outline = features.new_empty(1).expand(features.shape[0], n_labels)
    loss.check_logits(outline)
    targets = read_targets(outline, target, check_values=loss.check_targets)
    targets.check_values()
    if any(t is not None and t.requires_grad for t in (targets.dense, targets.values)):
        raise InputError("linear_loss gives targets no gradient. Pass target.detach().")
    dtype = torch.promote_types(features.dtype, torch.float32)
    terms, mass = loss.terms(dtype), loss.document_mass(outline, targets, None)

    def chunk_loss(part: slice, features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        batch = Batch(targets.columns(part.start, part.stop), document_mass=mass)
        part_terms = terms.map(lambda values: values[part])
        return balanced_sum(
            F.linear(features, weight, bias), batch, part_terms, loss.scale(targets.shape)
        )

    total = features.new_zeros((), dtype=dtype)
    for start in range(0, n_labels, chunk_labels):
        part = slice(start, min(start + chunk_labels, n_labels))
        part_bias = None if bias is None else bias[part]
        total = total + checkpoint(
            chunk_loss, part, features, weight[part], part_bias, use_reentrant=False
        )
    return total


def _check_tensors(features: Any, weight: Any, bias: Any) -> None:
    """Raise unless these are dense tensors that fit each other."""
    parts = {"features": features, "weight": weight} | ({} if bias is None else {"bias": bias})
    for name, part in parts.items():
        check_dense(name, part)
    if features.dim() != 2 or weight.dim() != 2 or features.shape[1] != weight.shape[1]:
        raise InputError(
            "expected features (documents, width) and weight (labels, width), got "
            f"{tuple(features.shape)} and {tuple(weight.shape)}."
        )
    if bias is not None and tuple(bias.shape) != (len(weight),):
        raise InputError(f"expected a bias of shape ({len(weight)},), got {tuple(bias.shape)}.")
    # Autocast gives them one type.
    cast = not features.is_meta and torch.is_autocast_enabled(features.device.type)
    for name, part in parts.items():
        if part.device != features.device or not (cast or part.dtype == features.dtype):
            raise InputError(
                f"{name} is {part.dtype} on {part.device}, features are {features.dtype} on "
                f"{features.device}. Bring them to one type and device with .to()."
            )
