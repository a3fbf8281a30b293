"""AdamW with separate learning rates of head and body, and without decay of biases and norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from longtail.training.settings import Training
from longtail.training.weights import Weights


def make_optimizer(
    weights: Weights, is_head: Callable[[str], bool], training: Training, device: torch.device
) -> tuple[torch.optim.Optimizer, list[float]]:
    """The optimizer, and the peak learning rate of each parameter group."""
    members: dict[tuple[bool, bool], list[Tensor]] = {}
    for name, weight in zip(weights.names, weights.optimized, strict=True):
        members.setdefault((is_head(name), weight.dim() > 1), []).append(weight)
    assert training.learning_rate is not None
    head_rate = training.head_learning_rate or training.learning_rate
    groups: list[dict[str, Any]] = []
    rates = []
    for (in_head, decays), params in members.items():
        rate = head_rate if in_head else training.learning_rate
        # A number would be a constant of a CUDA graph; a tensor is filled before each step.
        on_device = torch.tensor(rate, device=device) if device.type == "cuda" else rate
        decay = (training.weight_decay or 0.0) if decays else 0.0
        groups.append({"params": params, "weight_decay": decay, "lr": on_device})
        rates.append(rate)
    return torch.optim.AdamW(groups, fused=True, capturable=device.type == "cuda"), rates


def optimizer_tensors(optimizer: torch.optim.Optimizer, weights: Weights) -> dict[str, Tensor]:
    """The optimizer's state of each weight, by name, for a checkpoint."""
    return {
        f"optimizer.{key}.{name}": value
        for name, weight in zip(weights.names, weights.optimized, strict=True)
        for key, value in optimizer.state.get(weight, {}).items()
    }


def load_optimizer(
    optimizer: torch.optim.Optimizer, weights: Weights, tensors: dict[str, Tensor]
) -> None:
    """Restore what `optimizer_tensors` returned."""
    for name, weight in zip(weights.names, weights.optimized, strict=True):
        for key in ("step", "exp_avg", "exp_avg_sq"):
            value = tensors.get(f"optimizer.{key}.{name}")
            if value is not None:
                # A fused AdamW counts its steps on the device of the weights.
                optimizer.state[weight][key] = value.to(weight.device)
