"""`bag`: TF-IDF into a linear head, or into a small network. CPU, seconds, no download."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from longtail.models.base import IntArray, Scale
from longtail.models.features import TextFeatures
from longtail.models.weights import check_shapes
from longtail.settings import BagSettings

WEIGHTS_FILE = "model.safetensors"


class BagModel:
    """TF-IDF features and one logit per label."""

    scale: Scale = "logit"
    encodes_alike = False

    def __init__(self, settings: BagSettings | None = None) -> None:
        self.settings = settings or BagSettings()
        chosen = self.settings
        self._features = TextFeatures(
            chosen.ngrams, chosen.min_df, chosen.max_features, chosen.char_ngrams, chosen.hashing
        )
        self.network: nn.Module = nn.Identity()
        self._prepared: tuple[list[str], EncodedBags] | None = None

    @property
    def training_defaults(self) -> Mapping[str, Any]:
        """For a hidden layer; a linear head is not trained in steps."""
        if self.linear:
            return {}
        rates = {"learning_rate": 5e-3, "head_learning_rate": 5e-3, "weight_decay": 0.0}
        return {"epochs": 20, "batch_size": 64, **rates}

    @property
    def linear(self) -> bool:
        """Whether the head is linear: solved to convergence, not trained in steps."""
        return self.settings.hidden == 0

    def prepare(self, texts: Sequence[str], label_names: Sequence[str]) -> None:
        # Training asks for the features of these very texts: make them once.
        self._prepared = (list(texts), EncodedBags(self._features.fit_transform(texts)))
        self.network = self._network(len(label_names))

    def encode(self, texts: Sequence[str]) -> EncodedBags:
        prepared = self._prepared
        if prepared is not None and prepared[0] == list(texts):
            return prepared[1]
        return EncodedBags(self._features.transform(texts))

    def settle(self, device: torch.device) -> None:
        self._prepared = None
        self.network.to(device).eval()

    def is_head(self, parameter: str) -> bool:
        return parameter.startswith("labels.")

    def set_linear(self, weight: Tensor, bias: Tensor) -> None:
        """Put the solution, (labels, features) and (labels,), into the network."""
        network = self.network
        assert isinstance(network, LinearNetwork)
        with torch.no_grad():
            network.words.weight.copy_(weight.T)
            network.bias.copy_(bias)

    def save(self, folder: Path) -> None:
        self._features.save(folder)
        tensors = {name: v.contiguous() for name, v in self.network.state_dict().items()}
        save_file(tensors, folder / WEIGHTS_FILE)

    def load(self, folder: Path, n_labels: int) -> None:
        self._features.load(folder)
        # On no device: the sizes in the settings are checked before any memory is taken for them.
        with torch.device("meta"):
            network = self._network(n_labels)
        expected = {name: tuple(value.shape) for name, value in network.state_dict().items()}
        check_shapes(folder / WEIGHTS_FILE, expected)
        network.load_state_dict(load_file(folder / WEIGHTS_FILE), assign=True)
        self.network = network.eval()

    def _network(self, n_labels: int) -> nn.Module:
        n_features, chosen = len(self._features), self.settings
        if self.linear:
            return LinearNetwork(n_features, n_labels)
        return HiddenNetwork(n_features, chosen.hidden, n_labels, chosen.dropout)


@dataclass(frozen=True, eq=False)
class EncodedBags:
    """Sparse features whose rows become the flat inputs of an embedding bag."""

    matrix: sp.csr_matrix

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def lengths(self) -> IntArray:
        lengths: IntArray = np.diff(self.matrix.indptr).astype(np.int64)
        return lengths

    def select(self, rows: IntArray) -> EncodedBags:
        return EncodedBags(self.matrix[rows])

    def batch(self, rows: IntArray) -> dict[str, Tensor]:
        part = self.matrix[rows]
        return {
            "indices": torch.from_numpy(part.indices.astype(np.int64)),
            "offsets": torch.from_numpy(part.indptr[:-1].astype(np.int64)),
            "weights": torch.from_numpy(part.data.astype(np.float32)),
        }


class LinearNetwork(nn.Module):
    """One weight per word and label; the cost follows the words that a text has."""

    def __init__(self, n_features: int, n_labels: int) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(n_features, n_labels, mode="sum")
        self.bias = nn.Parameter(torch.zeros(n_labels))
        nn.init.zeros_(self.words.weight)

    def forward(self, indices: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
        found: Tensor = self.words(indices, offsets, per_sample_weights=weights)
        return found + self.bias


class HiddenNetwork(nn.Module):
    """An embedding bag as the first layer, a hidden layer, one logit per label."""

    def __init__(self, n_features: int, hidden: int, n_labels: int, dropout: float) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(n_features, hidden, mode="sum")
        self.dropout = nn.Dropout(dropout)
        self.labels = nn.Linear(hidden, n_labels)
        nn.init.normal_(self.words.weight, std=0.1)
        nn.init.zeros_(self.labels.weight)
        nn.init.zeros_(self.labels.bias)

    def forward(self, indices: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
        hidden = torch.relu(self.words(indices, offsets, per_sample_weights=weights))
        logits: Tensor = self.labels(self.dropout(hidden))
        return logits
