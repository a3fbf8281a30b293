"""One training loop for every network model and every loss, on Hugging Face Accelerate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.errors import InputError, LongtailError
from longtail.losses import MultiLabelLoss
from longtail.models import Encoded

Progress = Callable[[int, int, float], None]
"""Called after every step with (steps done, steps in all, loss)."""

# Below this many weights a step on the CPU is too short to share: on a busy two-core machine one
# thread took 2 ms where two took 140 ms, waiting for each other.
SMALL_NETWORK = 10_000_000


@dataclass(frozen=True)
class TrainingConfig:
    """How to train: the arguments of the estimator, the keys of a recipe.

    Args:
        epochs: passes over the training documents.
        batch_size: documents per step.
        learning_rate: peak; it warms up over a twentieth of the steps and falls to 0.
        weight_decay: decay of the weight matrices; biases and norms do not decay.
        clip: largest norm of the gradient.
        seed: the same seed on the same machine gives the same model.
        device: "cpu", or "auto" for a GPU where there is one.
    """

    epochs: int = 20
    batch_size: int = 64
    learning_rate: float = 5e-3
    weight_decay: float = 0.0
    clip: float = 1.0
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "learning_rate", "clip"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not value > 0:
                raise InputError(f"{name} must be a positive number, got {value!r}.")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise InputError(f"seed must be a whole number from 0, got {self.seed!r}.")
        if self.device not in ("auto", "cpu"):
            raise InputError(f"device must be 'auto' or 'cpu', got {self.device!r}.")


def train(
    network: nn.Module,
    encoded: Encoded,
    Y: sp.csr_matrix,
    loss: MultiLabelLoss,
    config: TrainingConfig,
    progress: Progress | None = None,
) -> None:
    """Train the network in place; its weights end on the CPU."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=config.device == "cpu")
    order = np.random.default_rng(config.seed)
    steps_per_epoch = math.ceil(len(encoded) / config.batch_size)
    total = config.epochs * steps_per_epoch
    optimizer = torch.optim.AdamW(_decay_groups(network, config), lr=config.learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, total))
    network, optimizer = accelerator.prepare(network, optimizer)
    loss = loss.to(accelerator.device)
    network.train()
    done = 0
    with _fitting_threads(network):
        for rows in _shuffled(order, len(encoded), config):
            inputs = {k: v.to(accelerator.device) for k, v in encoded.batch(rows).items()}
            value = loss(network(**inputs), sparse_targets(Y, rows, accelerator.device))
            done += 1
            current = float(value.detach())
            if not math.isfinite(current):
                raise LongtailError(
                    f"the loss became {current} at step {done} of {total} (documents "
                    f"{rows[:5].tolist()}...). Lower the learning rate, now {config.learning_rate}."
                )
            accelerator.backward(value)
            accelerator.clip_grad_norm_(network.parameters(), config.clip)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            if progress is not None:
                progress(done, total, current)
    accelerator.unwrap_model(network).cpu()


def predict_logits(
    network: nn.Module, encoded: Encoded, batch_size: int = 256
) -> NDArray[np.float32]:
    """Logits of every document, (documents, labels)."""
    network.eval()
    device = next(network.parameters()).device
    pieces = []
    with torch.inference_mode():
        for rows in _batches(np.arange(len(encoded)), batch_size):
            inputs = {k: v.to(device) for k, v in encoded.batch(rows).items()}
            pieces.append(network(**inputs).float().cpu().numpy())
    return np.concatenate(pieces)


def sparse_targets(
    Y: sp.csr_matrix, rows: NDArray[np.int64], device: torch.device
) -> tuple[Tensor, Tensor]:
    """The labels of some documents as flat indices and offsets, never as dense rows."""
    part = Y[rows]
    indices = torch.from_numpy(part.indices.astype(np.int64))
    offsets = torch.from_numpy(part.indptr.astype(np.int64))
    return indices.to(device), offsets.to(device)


def _shuffled(
    order: np.random.Generator, n_documents: int, config: TrainingConfig
) -> Iterator[NDArray[np.int64]]:
    for _ in range(config.epochs):
        yield from _batches(order.permutation(n_documents), config.batch_size)


@contextmanager
def _fitting_threads(network: nn.Module) -> Iterator[None]:
    threads = torch.get_num_threads()
    weights = sum(parameter.numel() for parameter in network.parameters())
    on_cpu = all(parameter.device.type == "cpu" for parameter in network.parameters())
    try:
        if on_cpu and weights < SMALL_NETWORK:
            torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(threads)


def _batches(rows: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _rate(step: int, total: int) -> float:
    warm_up = max(1, total // 20)
    if step < warm_up:
        return (step + 1) / warm_up
    return max(0.0, (total - step) / max(1, total - warm_up))


def _decay_groups(network: nn.Module, config: TrainingConfig) -> list[dict[str, object]]:
    matrices = [p for p in network.parameters() if p.requires_grad and p.dim() > 1]
    vectors = [p for p in network.parameters() if p.requires_grad and p.dim() <= 1]
    return [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
