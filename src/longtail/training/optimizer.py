"""AdamW over the weights of a model: groups with their own learning rate and decay."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from longtail.models import NetworkModel
from longtail.settings import TrainingConfig
from longtail.training.weights import Weights


def make_optimizer(
    model: NetworkModel, weights: Weights, config: TrainingConfig, device: torch.device
) -> tuple[torch.optim.Optimizer, list[float]]:
    """The optimizer, and the peak learning rate of each of its groups."""
    groups, rates = decay_groups(model, weights, config)
    on_gpu = device.type == "cuda"
    for group, rate in zip(groups, rates, strict=True):
        # A number would be fixed in a CUDA graph, a tensor can be filled anew before each step.
        group["lr"] = torch.tensor(rate, device=device) if on_gpu else rate
    return torch.optim.AdamW(groups, fused=True, capturable=on_gpu), rates


def decay_groups(
    model: NetworkModel, weights: Weights, config: TrainingConfig
) -> tuple[list[dict[str, Any]], list[float]]:
    """Head and body apart, and in each what decays (matrices) and what does not."""
    found: dict[tuple[bool, bool], list[Tensor]] = {}
    for name, weight in zip(weights.names, weights.moved, strict=True):
        key = (model.is_head(name), weight.dim() > 1)
        found.setdefault(key, []).append(weight)
    assert config.learning_rate is not None
    decay = config.weight_decay or 0.0
    groups = [
        {"params": params, "weight_decay": decay if decays else 0.0}
        for (_, decays), params in found.items()
    ]
    head = config.head_learning_rate or config.learning_rate
    return groups, [head if is_head else config.learning_rate for is_head, _ in found]


def optimizer_tensors(optimizer: torch.optim.Optimizer, weights: Weights) -> dict[str, Tensor]:
    """What the optimizer remembers of each weight, by name, for a checkpoint."""
    return {
        f"optimizer.{key}.{name}": value
        for name, weight in zip(weights.names, weights.moved, strict=True)
        for key, value in optimizer.state.get(weight, {}).items()
    }


def load_optimizer(
    optimizer: torch.optim.Optimizer, weights: Weights, tensors: dict[str, Tensor]
) -> None:
    """What `optimizer_tensors` gave."""
    for name, weight in zip(weights.names, weights.moved, strict=True):
        for key in ("step", "exp_avg", "exp_avg_sq"):
            value = tensors.get(f"optimizer.{key}.{name}")
            if value is not None:
                # A fused AdamW counts its steps where the weights are.
                optimizer.state[weight][key] = value.to(weight.device)
