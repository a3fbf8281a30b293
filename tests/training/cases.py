"""A tiny network over tokens, documents for it, and helpers that train it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from longtail.losses import build_loss
from longtail.runs.workspace import Workspace
from longtail.settings import field_names
from longtail.training import Training
from longtail.training.checkpoints import Checkpoints
from longtail.training.encoded import EncodedTokens
from longtail.training.loop import State, Trainer

N_WORDS, N_LABELS = 12, 3
DEFAULTS = dict(device="cpu", epochs=2, batch_size=8, learning_rate=1e-2, weight_decay=0.0)


class TokenNetwork(nn.Module):
    """Mean of word vectors, a normalised layer, a head."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.words = nn.Embedding(N_WORDS, 8)
        self.layer = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(8, N_LABELS)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        known = attention_mask.unsqueeze(-1).to(self.words.weight.dtype)
        mean = (self.words(input_ids) * known).sum(dim=1) / known.sum(dim=1).clamp(min=1)
        logits: Tensor = self.head(self.dropout(self.norm(torch.relu(self.layer(mean)))))
        return logits


def make_network(dropout: float = 0.0, seed: int = 0) -> TokenNetwork:
    torch.manual_seed(seed)
    return TokenNetwork(dropout)


def make_tokens(lists: Sequence[Sequence[int]], max_length: int = 512) -> EncodedTokens:
    """Token ids as `tokenize` returns them."""
    offsets = np.concatenate([[0], np.cumsum([len(ids) for ids in lists])]).astype(np.int64)
    flat = np.array([token for ids in lists for token in ids] or [0], dtype=np.int32)
    return EncodedTokens(flat, offsets, 0, max_length)


def documents(n: int = 20, seed: int = 0) -> tuple[EncodedTokens, sp.csr_matrix]:
    """Random texts of 1 to 9 words; a label is the presence of a word."""
    rng = np.random.default_rng(seed)
    lists = [rng.integers(1, N_WORDS, size=rng.integers(1, 10)).tolist() for _ in range(n)]
    Y = np.array([[word in ids for word in (1, 2, 3)] for ids in lists], dtype=np.float32)
    return make_tokens(lists), sp.csr_matrix(Y)


def train_tiny(network: nn.Module, **arguments: Any) -> State:
    """Train on `data`, by default 20 documents, with seeded dropout.

    `arguments`: fields of Training, and arguments of `train`.
    """
    fields = arguments.keys() & field_names(Training)
    training = Training(**DEFAULTS | {name: arguments.pop(name) for name in fields})
    encoded, Y = arguments.pop("data", None) or documents()
    loss = arguments.pop("loss", None) or build_loss("bce", reduction="batchmean")
    torch.manual_seed(1)
    options: Any = {"is_head": lambda name: name.startswith("head."), "bf16": True, **arguments}
    return Trainer(network, encoded, Y, loss, training, **options).train()


def trained(network: nn.Module | None = None, **arguments: Any) -> dict[str, Tensor]:
    """The weights of a network, by default a new one, after `train_tiny`."""
    network = network or make_network()
    train_tiny(network, **arguments)
    return weights_of(network)


def weights_of(network: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in network.state_dict().items()}


def same(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    """Whether all tensors are bitwise equal."""
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def near(first: Mapping[str, Tensor], second: Mapping[str, Tensor], atol: float = 1e-6) -> bool:
    return all(torch.allclose(first[k], second[k], rtol=0, atol=atol) for k in first)


class CutOffError(Exception):
    """Ends a training like a kill, but within the process."""


def states_in(folder: Path, minutes: float = 0.0) -> Checkpoints:
    return Checkpoints(Workspace.begin(folder, {}, join=True), minutes)


class Breaking(Checkpoints):
    """Checkpoints after every step, until `after` are saved."""

    def __init__(self, folder: Path, after: int) -> None:
        super().__init__(Workspace.begin(folder, {}, join=True), minutes=0)
        self.left = after

    def save(self, *args: Any, **options: Any) -> None:
        super().save(*args, **options)
        self.left -= 1
        if self.left == 0:
            raise CutOffError
