"""Trainable weights and their optimizer: float32 master weights, moving average, AdamW.

In bf16 the network holds rounded copies of the master weights, so that small steps still add up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn

from longtail.training.settings import Training

if TYPE_CHECKING:
    from longtail.training.adamw import FlatAdamW

Optimizer: TypeAlias = "torch.optim.Optimizer | FlatAdamW"


class Weights:
    """The trainable weights of a network.

    Args:
        network: on its device; its weights are float32 before and after training.
        half: whether to compute in bf16.
        ema: decay of the moving average; 0: none.
    """

    def __init__(self, network: nn.Module, half: bool = False, ema: float = 0.0) -> None:
        self._network, self.half, self._ema = network, half, ema
        named = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
        self.names = [name for name, _ in named]
        self.used: list[Tensor] = [p for _, p in named]
        self.optimized: list[Tensor] = self.used
        self._fixed: list[tuple[Tensor, Tensor]] = []
        if half:
            self.optimized = [p.detach().clone() for p in self.used]
            fixed = [p for p in network.parameters() if not p.requires_grad]
            self._fixed = [(p, p.detach().clone()) for p in fixed]
            self._cast(torch.bfloat16)
        self.average = [torch.zeros_like(p) for p in self.optimized] if ema else []
        """The moving average, before its division by the weights that it has added up to."""
        self.n_averaged = torch.zeros((), device=self.optimized[0].device)
        self.best: list[Tensor] = []

    def _cast(self, dtype: torch.dtype) -> None:
        """Cast parameters but not buffers: rotary angles would keep their bf16 rounding."""
        for parameter in self._network.parameters():
            if parameter.is_floating_point():
                parameter.data = parameter.data.to(dtype)

    def step(self, optimizer: Optimizer, max_norm: float) -> None:
        """Update the weights by their gradients, whose norm is limited; 0: not limited."""
        rounds = self.half and isinstance(optimizer, torch.optim.Optimizer)
        if isinstance(optimizer, torch.optim.Optimizer):
            norm = self._collect()
        else:
            norm = optimizer.collect(self.used)
        if max_norm:
            # The optimizer divides gradients by this: cheaper than another pass over them.
            optimizer.grad_scale = (norm / max_norm).clamp(min=1)  # type: ignore[union-attr]
        optimizer.step()
        with torch.no_grad():
            if rounds:
                torch._foreach_copy_(self.used, self.optimized)
            if self.average:
                self.n_averaged += 1
                torch._foreach_lerp_(self.average, self.optimized, 1 - self._ema)
        self.clear()

    def _collect(self) -> Tensor:
        """Copy the gradients to the master weights; return their norm."""
        pairs = zip(self.optimized, self.used, strict=True)
        grads = {weight: used.grad for weight, used in pairs if used.grad is not None}
        if self.half:
            wide = [torch.empty_like(weight) for weight in grads]
            torch._foreach_copy_(wide, list(grads.values()))
            for weight, grad in zip(grads, wide, strict=True):
                weight.grad = grad
        return nn.utils.get_total_norm([weight.grad for weight in grads if weight.grad is not None])

    def clear(self) -> None:
        """Drop the gradients."""
        for weight in (*self.used, *self.optimized):
            weight.grad = None

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Put the network in eval mode, with the averaged weights if there are any."""
        training = self._network.training
        self._network.eval()
        copied = self.average and not self.half
        before = [w.detach().clone() for w in self.optimized] if copied else self.optimized
        try:
            if self.average:
                self._put(self._current())
            yield
        finally:
            if self.average:
                self._put(before)
            self._network.train(training)

    def remember_best(self) -> None:
        """Keep the current weights, or their average, as the best."""
        self.best = [weight.detach().clone() for weight in self._current()]

    def _current(self) -> list[Tensor]:
        """The average over the weights after each step so far, else the weights."""
        n_steps = float(self.n_averaged)
        if not self.average or n_steps == 0:
            return self.optimized
        share = 1 - self._ema**n_steps
        return [weight / share for weight in self.average]

    def finish(self) -> None:
        """Leave the network in float32 with the best weights, else the average, else the last."""
        kept = self.best or self._current()
        if self.half:
            self._cast(torch.float32)
        with torch.no_grad():
            for fixed, value in self._fixed:
                fixed.copy_(value)
        self._put(kept)

    def tensors(self, optimizer: Optimizer) -> dict[str, Tensor]:
        """All weights and optimizer states by name, for a checkpoint."""
        states = {
            f"optimizer.{key}.{name}": value
            for name, weight in zip(self.names, self.optimized, strict=True)
            for key, value in optimizer.state.get(weight, {}).items()
        }
        return self._by_name() | states

    def load(self, tensors: Mapping[str, Tensor], optimizer: Optimizer) -> None:
        """Restore what `tensors` returned."""
        if f"best.{self.names[0]}" in tensors:
            self.best = [torch.empty_like(p) for p in self.optimized]
        with torch.no_grad():
            for name, value in self._by_name().items():
                value.copy_(tensors[name])
            if self.half:
                torch._foreach_copy_(self.used, self.optimized)
        for name, weight in zip(self.names, self.optimized, strict=True):
            for key in ("step", "exp_avg", "exp_avg_sq"):
                # A weight that never had a gradient has no state.
                if (state := tensors.get(f"optimizer.{key}.{name}")) is not None:
                    held = optimizer.state[weight]
                    if key in held:
                        held[key].copy_(state)
                    else:
                        # Fused AdamW keeps its step count on the device of the weights.
                        held[key] = state.to(weight.device)

    def _by_name(self) -> dict[str, Tensor]:
        parts = {"weights": self.optimized, "average": self.average, "best": self.best}
        named = {
            f"{part}.{name}": value
            for part, values in parts.items()
            for name, value in zip(self.names, values, strict=bool(values))
        }
        return named | ({"averaged": self.n_averaged} if self.average else {})

    def _put(self, values: list[Tensor]) -> None:
        if values is not self.used:
            with torch.no_grad():
                torch._foreach_copy_(self.used, values)


def make_optimizer(
    weights: Weights,
    is_head: Callable[[str], bool],
    training: Training,
    device: torch.device,
    flat: bool = False,
) -> Optimizer:
    """AdamW without decay of biases and norms; a group's `peak` is its peak learning rate.

    Args:
        flat: one pass over all weights of a network in bf16 on a GPU, all of which have gradients.
    """
    members: dict[tuple[bool, bool], list[int]] = {}
    for number, (name, weight) in enumerate(zip(weights.names, weights.optimized, strict=True)):
        members.setdefault((is_head(name), weight.dim() > 1), []).append(number)
    assert training.learning_rate is not None
    groups: list[dict[str, Any]] = []
    for (in_head, decays), numbers in members.items():
        rate = (in_head and training.head_learning_rate) or training.learning_rate
        # A CUDA graph would record a number as a constant; a tensor is filled before each step.
        on_device = torch.tensor(rate, device=device) if device.type == "cuda" else rate
        decay = (training.weight_decay or 0.0) if decays else 0.0
        groups.append({"members": numbers, "weight_decay": decay, "lr": on_device, "peak": rate})
    if flat:
        from longtail.training.adamw import FlatAdamW

        return FlatAdamW(groups, weights.optimized, weights.used)
    for group in groups:
        group["params"] = [weights.optimized[k] for k in group.pop("members")]
    return torch.optim.AdamW(groups, fused=True, capturable=device.type == "cuda")
