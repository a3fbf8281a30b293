"""Trainable weights and their optimizer: float32 master weights, moving average, AdamW.

In bf16 the network holds rounded copies of the master weights, so that small steps still add up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from longtail.training.settings import Training


class Weights:
    """The trainable weights of a network.

    Args:
        network: on its device; its weights are float32 before and after training.
        half: whether to compute in bf16.
        ema: decay of the moving average; 0: none.
    """

    def __init__(self, network: nn.Module, half: bool = False, ema: float = 0.0) -> None:
        self._network, self._half, self._ema = network, half, ema
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
        self.average = [p.detach().clone() for p in self.optimized] if ema else []
        self.best: list[Tensor] = []

    def _cast(self, dtype: torch.dtype) -> None:
        """Cast parameters but not buffers: rotary angles would keep their bf16 rounding."""
        for parameter in self._network.parameters():
            if parameter.is_floating_point():
                parameter.data = parameter.data.to(dtype)

    def collect(self) -> None:
        """Copy the gradients to the master weights, after the backward pass."""
        if not self._half:
            return
        pairs = zip(self.optimized, self.used, strict=True)
        grads = {weight: used.grad for weight, used in pairs if used.grad is not None}
        wide = [torch.empty_like(weight) for weight in grads]
        torch._foreach_copy_(wide, list(grads.values()))
        for weight, grad in zip(grads, wide, strict=True):
            weight.grad = grad

    def spread(self) -> None:
        """Copy the new weights to the network and update the average, after the optimizer step."""
        with torch.no_grad():
            if self._half:
                torch._foreach_copy_(self.used, self.optimized)
            if self.average:
                torch._foreach_lerp_(self.average, self.optimized, 1 - self._ema)

    def clear(self) -> None:
        """Drop the gradients."""
        for weight in (*self.used, *self.optimized):
            weight.grad = None

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Put the network in eval mode, with the averaged weights if there are any."""
        training = self._network.training
        self._network.eval()
        copied = self.average and not self._half
        before = [w.detach().clone() for w in self.optimized] if copied else self.optimized
        try:
            if self.average:
                self._put(self.average)
            yield
        finally:
            if self.average:
                self._put(before)
            self._network.train(training)

    def remember_best(self) -> None:
        """Keep the current weights, or their average, as the best."""
        self.best = [weight.detach().clone() for weight in self.average or self.optimized]

    def finish(self) -> None:
        """Leave the network in float32 with the best weights, else the average, else the last."""
        kept = self.best or self.average or self.optimized
        if self._half:
            self._cast(torch.float32)
        with torch.no_grad():
            for fixed, value in self._fixed:
                fixed.copy_(value)
        self._put(kept)

    def tensors(self, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
        """All weights and optimizer states by name, for a checkpoint."""
        states = {
            f"optimizer.{key}.{name}": value
            for name, weight in zip(self.names, self.optimized, strict=True)
            for key, value in optimizer.state.get(weight, {}).items()
        }
        return self._by_name() | states

    def load(self, tensors: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> None:
        """Restore what `tensors` returned."""
        if f"best.{self.names[0]}" in tensors:
            self.best = [torch.empty_like(p) for p in self.optimized]
        with torch.no_grad():
            for name, value in self._by_name().items():
                value.copy_(tensors[name])
            if self._half:
                torch._foreach_copy_(self.used, self.optimized)
        for name, weight in zip(self.names, self.optimized, strict=True):
            for key in ("step", "exp_avg", "exp_avg_sq"):
                # A weight that never had a gradient has no state.
                if (state := tensors.get(f"optimizer.{key}.{name}")) is not None:
                    # Fused AdamW keeps its step count on the device of the weights.
                    optimizer.state[weight][key] = state.to(weight.device)

    def _by_name(self) -> dict[str, Tensor]:
        parts = {"weights": self.optimized, "average": self.average, "best": self.best}
        return {
            f"{part}.{name}": value
            for part, values in parts.items()
            for name, value in zip(self.names, values, strict=bool(values))
        }

    def _put(self, values: list[Tensor]) -> None:
        if values is not self.used:
            with torch.no_grad():
                torch._foreach_copy_(self.used, values)


def make_optimizer(
    weights: Weights, is_head: Callable[[str], bool], training: Training, device: torch.device
) -> torch.optim.Optimizer:
    """AdamW without decay of biases and norms; a group's `peak` is its peak learning rate."""
    members: dict[tuple[bool, bool], list[Tensor]] = {}
    for name, weight in zip(weights.names, weights.optimized, strict=True):
        members.setdefault((is_head(name), weight.dim() > 1), []).append(weight)
    assert training.learning_rate is not None
    groups: list[dict[str, Any]] = []
    for (in_head, decays), params in members.items():
        rate = (in_head and training.head_learning_rate) or training.learning_rate
        # A CUDA graph would record a number as a constant; a tensor is filled before each step.
        on_device = torch.tensor(rate, device=device) if device.type == "cuda" else rate
        decay = (training.weight_decay or 0.0) if decays else 0.0
        groups.append({"params": params, "weight_decay": decay, "lr": on_device, "peak": rate})
    return torch.optim.AdamW(groups, fused=True, capturable=device.type == "cuda")
