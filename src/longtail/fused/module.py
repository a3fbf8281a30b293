"""A linear head with its loss as a torch module, which may update itself in the backward pass."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from longtail.checks import check_choice, check_integer, check_number
from longtail.errors import InputError
from longtail.fused.chunks import Update
from longtail.fused.linear import Impl, check_head, chunked, linear_balanced_loss, prepared
from longtail.fused.sgd import Rates, sgd_step
from longtail.labels import LabelStats
from longtail.losses.base import MultiLabelLoss, Reduction
from longtail.random_bits import mix

# Weights that are rounded stochastically, or not at all.
UPDATED = (torch.bfloat16, torch.float32, torch.float64)


class LinearBalancedLoss(nn.Module):
    """A linear head with its loss, for very many labels; see `linear_balanced_loss`.

    Args:
        in_features: number of features.
        n_labels: number of labels.
        loss, stats, reduction, impl: as for `linear_balanced_loss`.
        bias: whether the head has a bias.
        update: "in_backward": the backward pass updates the head by SGD with momentum, chunk by
            chunk, and its gradient never exists as a whole. None: gradients for any optimizer.
        learning_rate, momentum, weight_decay: as torch.optim.SGD, for `update`. The learning rate
            is an attribute, for schedules. Biases do not decay.
        device, dtype: of weight and bias. With `update`, bf16 (rounded stochastically), float32 or
            float64; the momentum has the same type, and takes as much memory.

    With `update`, every backward pass is a step: one per batch, also if you accumulate gradients of
    other weights. Weight and bias have no `.grad`, so optimizers leave them out, and clipping by
    the norm of all gradients cannot include them. In eval mode, and with requires_grad off, the
    head does not change. Processes that share a batch would diverge.

    Shape:
        features (documents, in_features); see MultiLabelLoss for the others.

    Example:
        >>> head = LinearBalancedLoss(4, 3, loss="bce", update="in_backward", learning_rate=0.1)
        >>> head(torch.ones(2, 4), torch.tensor([[1, 0, 0], [0, 1, 1]])).backward()
        >>> head.logits(torch.ones(2, 4)).shape, head.linear.weight.grad
        (torch.Size([2, 3]), None)
    """

    weight_velocity: Tensor | None
    bias_velocity: Tensor | None
    step_number: Tensor

    def __init__(
        self,
        in_features: int,
        n_labels: int,
        *,
        loss: str | MultiLabelLoss,
        stats: LabelStats | None = None,
        bias: bool = True,
        reduction: Reduction | None = None,
        impl: Impl = "auto",
        update: Literal["in_backward"] | None = None,
        learning_rate: float | None = None,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_integer("in_features", in_features, 1)
        check_integer("n_labels", n_labels, 1)
        check_choice("impl", impl, get_args(Impl))
        self.linear = nn.Linear(in_features, n_labels, bias, device, dtype)
        weight = self.linear.weight
        nothing = weight.new_empty(0, in_features)
        built = prepared(nothing, weight, self.linear.bias, loss, stats, reduction)
        self.loss = built.to(weight.device)
        self.loss.check_logits(weight.new_empty(0, n_labels))
        self.impl: Impl = impl
        self.update = update
        if update is None:
            if learning_rate is not None or momentum or weight_decay:
                raise InputError(
                    "learning_rate, momentum and weight_decay are those of update='in_backward'. "
                    "Without it, pass them to your optimizer."
                )
            return
        check_choice("update", update, ("in_backward",))
        if weight.dtype not in UPDATED:
            raise InputError(
                f"update='in_backward' needs weights in bfloat16 or float32, got {weight.dtype}."
            )
        check_number("learning_rate", learning_rate, 0)
        check_number("momentum", momentum, 0, 1)
        check_number("weight_decay", weight_decay, 0)
        self.learning_rate, self.momentum = learning_rate, momentum
        self.weight_decay = weight_decay
        for name, values in (("weight", weight), ("bias", self.linear.bias)):
            has_velocity = momentum and values is not None
            velocity = torch.zeros_like(values, requires_grad=False) if has_velocity else None
            self.register_buffer(f"{name}_velocity", velocity)
        # The seed of the random bits: from torch's generator, then one more at each step.
        start = torch.randint(2**31 - 1, (1,), dtype=torch.int32)
        self.register_buffer("step_number", start.to(weight.device))

    def extra_repr(self) -> str:
        if self.update is None:
            return f"impl={self.impl!r}"
        names = ("impl", "update", "learning_rate", "momentum", "weight_decay")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def logits(self, features: Tensor) -> Tensor:
        """Return all logits, (documents, labels), for predictions."""
        logits: Tensor = self.linear(features)
        return logits

    def forward(
        self,
        features: Tensor,
        target: Any,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        weight: Tensor = self.linear.weight
        bias: Tensor | None = self.linear.bias
        learns = weight.requires_grad and self.training and torch.is_grad_enabled()
        if self.update is not None and learns:
            check_head(features, weight, bias)
            if not weight.is_contiguous():
                raise InputError(
                    "update='in_backward' needs a contiguous weight. Assign weight.contiguous()."
                )
            inputs = (target, mask, sample_weight)
            value: Tensor = chunked(
                features, weight, bias, self.loss, inputs, self.impl, self._updates
            )
            return value
        if self.update is not None:
            weight, bias = weight.detach(), None if bias is None else bias.detach()
        return linear_balanced_loss(
            features, weight, target, bias, loss=self.loss, mask=mask,
            sample_weight=sample_weight, reduction=self.loss.reduction, impl=self.impl,
        )  # fmt: skip

    @torch.no_grad()
    def _updates(self, with_kernels: bool) -> Update:
        """Return what takes the next step of each chunk."""
        assert self.learning_rate is not None
        rates = Rates(self.learning_rate, self.momentum, self.weight_decay)
        self.step_number += 1
        seed = mix(self.step_number, 0)
        weight, bias = self.linear.weight.detach(), self.linear.bias
        velocities = self.weight_velocity, self.bias_velocity

        def update(start: int, stop: int, slope: Tensor, features: Tensor) -> None:
            part = slice(start, stop)
            velocity, bias_velocity = (None if v is None else v[part] for v in velocities)
            first = start * weight.shape[1]
            grad = slope.t() @ features
            sgd_step(weight[part], grad, velocity, rates, first, seed, with_kernels)
            if bias is not None and bias.requires_grad:
                still, first = rates._replace(weight_decay=0.0), weight.numel() + start
                grad = slope.sum(dim=0)
                values = bias.detach()[part]
                sgd_step(values, grad, bias_velocity, still, first, seed, with_kernels)

        return update
