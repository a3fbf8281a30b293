"""`bag`: TF-IDF into a small network with one hidden layer. CPU, seconds, no download."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from longtail.models.features import TextFeatures


class BagModel:
    """TF-IDF features, one hidden layer, one logit per label.

    Args:
        hidden: width of the hidden layer.
        dropout: share of hidden units dropped while training.
        ngrams, min_df, max_features: the words to use, see scikit-learn's TfidfVectorizer.
    """

    def __init__(
        self,
        hidden: int = 128,
        dropout: float = 0.5,
        ngrams: int = 1,
        min_df: int = 2,
        max_features: int = 50_000,
    ) -> None:
        self.settings: dict[str, Any] = {
            "hidden": hidden,
            "dropout": dropout,
            "ngrams": ngrams,
            "min_df": min_df,
            "max_features": max_features,
        }
        self._features = TextFeatures(ngrams, min_df, max_features)
        self.network: nn.Module = nn.Identity()

    def prepare(self, texts: Sequence[str], n_labels: int) -> None:
        self._features.fit(texts)
        self.network = self._network(n_labels)

    def _network(self, n_labels: int) -> BagNetwork:
        return BagNetwork(
            len(self._features), self.settings["hidden"], n_labels, self.settings["dropout"]
        )

    def encode(self, texts: Sequence[str]) -> EncodedBags:
        return EncodedBags(self._features.transform(texts))

    def save(self, folder: Path) -> None:
        self._features.save(folder)
        save_file(self.network.state_dict(), folder / "model.safetensors")

    def load(self, folder: Path, n_labels: int) -> None:
        self._features.load(folder)
        self.network = self._network(n_labels)
        self.network.load_state_dict(load_file(folder / "model.safetensors"))


class EncodedBags:
    """Sparse features whose rows become the flat inputs of an embedding bag."""

    def __init__(self, matrix: sp.csr_matrix) -> None:
        self._matrix = matrix

    def __len__(self) -> int:
        return int(self._matrix.shape[0])

    def batch(self, rows: NDArray[np.int64]) -> dict[str, Tensor]:
        part = self._matrix[rows]
        return {
            "indices": torch.from_numpy(part.indices.astype(np.int64)),
            "offsets": torch.from_numpy(part.indptr[:-1].astype(np.int64)),
            "weights": torch.from_numpy(part.data.astype(np.float32)),
        }


class BagNetwork(nn.Module):
    """An embedding bag as the first layer: its cost follows the words that a text has."""

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
