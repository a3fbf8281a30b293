"""A tiny network over tokens, documents for it, and a short way to train it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from longtail.losses import MultiLabelLoss, build_loss
from longtail.models.base import Scale
from longtail.models.tokens import EncodedTokens
from longtail.settings import TrainingConfig
from longtail.training import Checkpoints, Trained, train

N_WORDS, N_LABELS = 12, 3


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


class TinyModel:
    """A NetworkModel around any network."""

    scale: Scale = "logit"
    settings = None
    encodes_alike = True
    half_ready = True
    training_defaults: Mapping[str, Any] = {
        "epochs": 2,
        "batch_size": 8,
        "learning_rate": 1e-2,
        "weight_decay": 0.0,
    }

    def __init__(self, network: nn.Module) -> None:
        self.network = network

    def prepare(self, texts: Sequence[str], label_names: Sequence[str]) -> None:
        raise NotImplementedError

    def encode(self, texts: Sequence[str]) -> EncodedTokens:
        raise NotImplementedError

    def is_head(self, parameter: str) -> bool:
        return parameter.startswith("head.")

    def save(self, folder: Path) -> None:
        raise NotImplementedError

    def load(self, folder: Path, n_labels: int) -> None:
        raise NotImplementedError


def tokens_of(lists: Sequence[Sequence[int]], max_length: int = 512) -> EncodedTokens:
    """Token ids as `tokenise` would give them."""
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64)
    flat = np.array([token for one in lists for token in one] or [0], dtype=np.int32)
    return EncodedTokens(flat, offsets, 0, max_length)


def documents(n: int = 20, seed: int = 0) -> tuple[EncodedTokens, sp.csr_matrix]:
    """Random texts of 1 to 9 words; a label is the presence of a word."""
    draw = np.random.default_rng(seed)
    lists = [draw.integers(1, N_WORDS, size=draw.integers(1, 10)).tolist() for _ in range(n)]
    Y = np.array([[word in one for word in (1, 2, 3)] for one in lists], dtype=np.float32)
    return tokens_of(lists), sp.csr_matrix(Y)


def network(dropout: float = 0.0, seed: int = 0) -> TokenNetwork:
    torch.manual_seed(seed)
    return TokenNetwork(dropout)


def loss() -> MultiLabelLoss:
    return build_loss("bce", reduction="batchmean")


def config(**settings: Any) -> TrainingConfig:
    return TrainingConfig(**{"device": "cpu", **settings})


def train_tiny(
    made: nn.Module, *, settings: Mapping[str, Any] | None = None, **more: Any
) -> Trained:
    """Train on the 20 documents, dropout seeded."""
    encoded, Y = more.pop("data", None) or documents()
    torch.manual_seed(1)
    used = more.pop("loss", None) or loss()
    return train(TinyModel(made), encoded, Y, used, config(**(settings or {})), **more)


def weights_of(made: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in made.state_dict().items()}


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Equal in every bit."""
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def near(one: Mapping[str, Tensor], other: Mapping[str, Tensor], tolerance: float = 1e-6) -> bool:
    return all(torch.allclose(one[k], other[k], rtol=0, atol=tolerance) for k in one)


class CutOffError(Exception):
    """Ends a training as a kill would, for tests that need no process."""


class Breaking(Checkpoints):
    """States that are saved after every step, until so many are."""

    def __init__(self, folder: Path, after: int) -> None:
        super().__init__(folder, minutes=0)
        self.left = after

    def save(self, *args: Any, **more: Any) -> None:
        super().save(*args, **more)
        self.left -= 1
        if self.left == 0:
            raise CutOffError
