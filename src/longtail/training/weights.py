"""The weights of a training: float32 master weights, the network's weights, and averages.

In bf16 the network holds rounded copies of float32 weights, so that small steps still add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

PARTS = ("weights", "average", "best")


class Weights:
    """The trainable weights of a network.

    Args:
        network: on its device; its weights are float32 before and after the training.
        half: compute in bf16.
        ema: decay of the moving average, 0 for none.
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
            self._narrow()
        self.average = [p.detach().clone() for p in self.optimized] if ema else []
        self.best: list[Tensor] = []

    def _narrow(self) -> None:
        """Round the weights to bf16, but not the buffers: rotary angles would be wrong for good."""
        for parameter in self._network.parameters():
            if not parameter.requires_grad:
                self._fixed.append((parameter, parameter.detach().clone()))
            if parameter.is_floating_point():
                parameter.data = parameter.data.to(torch.bfloat16)

    def collect(self) -> None:
        """After the backward pass: copy the gradients to the master weights."""
        if not self._half:
            return
        masters, gradients = [], []
        for weight, used in zip(self.optimized, self.used, strict=True):
            if used.grad is not None:
                masters.append(weight)
                gradients.append(used.grad)
        wide = [torch.empty_like(weight) for weight in masters]
        torch._foreach_copy_(wide, gradients)
        for weight, grad in zip(masters, wide, strict=True):
            weight.grad = grad

    def spread(self) -> None:
        """After the optimizer: copy the new weights to the network, and update the average."""
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
        """The network in eval mode, with the average of the weights if there is one."""
        training = self._network.training
        self._network.eval()
        before = self.optimized
        if self.average and not self._half:
            before = [weight.detach().clone() for weight in self.optimized]
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
        source = self.average or self.optimized
        if not self.best:
            self.best = [torch.empty_like(p) for p in source]
        with torch.no_grad():
            torch._foreach_copy_(self.best, source)

    def finish(self) -> None:
        """Leave the network in float32 with the best weights, the average, or the last ones."""
        kept = self.best or self.average or self.optimized
        if self._half:
            for parameter in self._network.parameters():
                if parameter.is_floating_point():
                    parameter.data = parameter.data.to(torch.float32)
        with torch.no_grad():
            for fixed, value in self._fixed:
                fixed.copy_(value)
        self._put(kept)

    def tensors(self) -> dict[str, Tensor]:
        """All weights by name, for a checkpoint."""
        lists = (self.optimized, self.average, self.best)
        return {
            f"{part}.{name}": value
            for part, values in zip(PARTS, lists, strict=True)
            for name, value in zip(self.names, values, strict=bool(values))
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `tensors` returned."""
        if f"best.{self.names[0]}" in tensors:
            self.best = [torch.empty_like(p) for p in self.optimized]
        with torch.no_grad():
            for part, values in zip(PARTS, (self.optimized, self.average, self.best), strict=True):
                for name, value in zip(self.names, values, strict=bool(values)):
                    value.copy_(tensors[f"{part}.{name}"])
            if self._half:
                torch._foreach_copy_(self.used, self.optimized)

    def _put(self, values: list[Tensor]) -> None:
        if values is not self.used:
            with torch.no_grad():
                torch._foreach_copy_(self.used, values)
