"""The weights of a training: what the optimizer moves, what the network computes with, averages.

In bf16 the network holds rounded copies of float32 weights: all of its work is half as wide,
while small steps still add up.
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
        network: on its device; its own weights are float32 when this begins and when it ends.
        half: compute in bf16.
        ema: decay of the moving average, 0 for none.
    """

    def __init__(self, network: nn.Module, half: bool = False, ema: float = 0.0) -> None:
        self._network, self._half, self._ema = network, half, ema
        named = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
        self.names = [name for name, _ in named]
        self.used: list[Tensor] = [p for _, p in named]
        self.moved: list[Tensor] = self.used
        self._fixed: list[tuple[Tensor, Tensor]] = []
        if half:
            self.moved = [p.detach().clone() for p in self.used]
            self._narrow()
        self.average = [p.detach().clone() for p in self.moved] if ema else []
        self.best: list[Tensor] = []

    def _narrow(self) -> None:
        """Round the weights to bf16, not the buffers: the angles of rotary positions, rounded,
        would be those of other positions, and nothing would bring them back."""
        for parameter in self._network.parameters():
            if not parameter.requires_grad:
                self._fixed.append((parameter, parameter.detach().clone()))
            if parameter.is_floating_point():
                parameter.data = parameter.data.to(torch.bfloat16)

    def collect(self) -> None:
        """After the backward pass: gradients to what the optimizer moves."""
        if not self._half:
            return
        moved, narrow = [], []
        for weight, used in zip(self.moved, self.used, strict=True):
            if used.grad is not None:
                moved.append(weight)
                narrow.append(used.grad)
        wide = [torch.empty_like(weight) for weight in moved]
        torch._foreach_copy_(wide, narrow)
        for weight, grad in zip(moved, wide, strict=True):
            weight.grad = grad

    def spread(self) -> None:
        """After the optimizer: the new weights to the network and into the average."""
        with torch.no_grad():
            if self._half:
                torch._foreach_copy_(self.used, self.moved)
            if self.average:
                torch._foreach_lerp_(self.average, self.moved, 1 - self._ema)

    def clear(self) -> None:
        """Forget the gradients."""
        for weight in (*self.used, *self.moved):
            weight.grad = None

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """The network as it would be kept now: with the average, where there is one."""
        training = self._network.training
        self._network.eval()
        before = self.moved
        if self.average and not self._half:
            before = [weight.detach().clone() for weight in self.moved]
        try:
            if self.average:
                self._put(self.average)
            yield
        finally:
            if self.average:
                self._put(before)
            self._network.train(training)

    def remember_best(self) -> None:
        """Keep what the network would be now."""
        source = self.average or self.moved
        if not self.best:
            self.best = [torch.empty_like(p) for p in source]
        with torch.no_grad():
            torch._foreach_copy_(self.best, source)

    def finish(self) -> None:
        """Leave the network in float32 with the best weights, the average, or the last ones."""
        kept = self.best or self.average or self.moved
        if self._half:
            for parameter in self._network.parameters():
                if parameter.is_floating_point():
                    parameter.data = parameter.data.to(torch.float32)
        with torch.no_grad():
            for fixed, value in self._fixed:
                fixed.copy_(value)
        self._put(kept)

    def tensors(self) -> dict[str, Tensor]:
        """All of it by name, for a checkpoint."""
        lists = (self.moved, self.average, self.best)
        return {
            f"{part}.{name}": value
            for part, values in zip(PARTS, lists, strict=True)
            for name, value in zip(self.names, values, strict=bool(values))
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """What `tensors` gave."""
        if f"best.{self.names[0]}" in tensors:
            self.best = [torch.empty_like(p) for p in self.moved]
        with torch.no_grad():
            for part, values in zip(PARTS, (self.moved, self.average, self.best), strict=True):
                for name, value in zip(self.names, values, strict=bool(values)):
                    value.copy_(tensors[f"{part}.{name}"])
            if self._half:
                torch._foreach_copy_(self.used, self.moved)

    def _put(self, values: list[Tensor]) -> None:
        if values is not self.used:
            with torch.no_grad():
                torch._foreach_copy_(self.used, values)
