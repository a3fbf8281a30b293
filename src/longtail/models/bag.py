"""`bag`: TF-IDF into a linear head, or into a small network. CPU, seconds, no download."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from longtail.data import TextData
from longtail.models.base import FitContext, MakeLoss
from longtail.models.features import TextFeatures
from longtail.models.network import NetworkModel
from longtail.models.settings import Bag
from longtail.models.weights import check_shapes
from longtail.progress import Progress
from longtail.training.devices import device_of
from longtail.training.encoded import EncodedBags
from longtail.training.linear import solve_linear
from longtail.training.settings import Training

WEIGHTS_FILE = "model.safetensors"


class BagModel(NetworkModel):
    """TF-IDF features and one logit per label."""

    defaults: ClassVar = {
        "epochs": 20,
        "batch_size": 64,
        "learning_rate": 5e-3,
        "head_learning_rate": 5e-3,
        "weight_decay": 0.0,
    }

    def __init__(self, settings: Bag) -> None:
        self.settings: Bag = settings
        self.network: nn.Module = nn.Identity()
        self._features = TextFeatures(
            settings.ngrams,
            settings.min_df,
            settings.max_features,
            settings.char_ngrams,
            settings.hashing,
        )

    def fit(self, data: TextData, loss: MakeLoss, training: Training, context: FitContext) -> None:
        if self.settings.hidden:
            super().fit(data, loss, training, context)
        else:
            self._solve(data, loss, training, context)

    def resolved(self, training: Training) -> Training:
        return super().resolved(training) if self.settings.hidden else training

    def prepare(self, data: TextData, context: FitContext) -> EncodedBags:
        features = self._features.fit_transform(data.texts)
        self.network = self._make_network(len(data.label_names))
        return EncodedBags(features)

    def encode(self, texts: Sequence[str], cache: Path | None = None) -> EncodedBags:
        return EncodedBags(self._features.transform(texts))

    def is_head(self, parameter: str) -> bool:
        return parameter.startswith("labels.")

    def _solve(
        self, data: TextData, loss: MakeLoss, training: Training, context: FitContext
    ) -> None:
        """Solve the linear head to convergence."""
        kept, checkpoints = context.kept, context.checkpoints
        if checkpoints is not None:
            kept = "Finished labels are kept: resume with --resume."

        def progress(progress: Progress) -> None:
            context.progress(progress)
            context.stop.check(kept)

        features = self._features.fit_transform(data.texts)
        if checkpoints is not None:
            checkpoints.check_space(4 * features.shape[1] * len(data.label_names))
        device = device_of(training.device)
        head = solve_linear(
            features,
            data.Y,
            loss(data.stats(), reduction="sum"),
            self.settings.C,
            informed=self.settings.informed,
            device=device,
            progress=progress,
            chunks=checkpoints,
        )
        network = LinearNetwork(features.shape[1], len(data.label_names))
        with torch.no_grad():
            network.words.weight.copy_(head.weight.T)
            network.bias.copy_(head.bias)
        self.network = network
        self.to_device(device)

    def save(self, folder: Path) -> None:
        self._features.save(folder)
        tensors = {name: v.contiguous() for name, v in self.network.state_dict().items()}
        save_file(tensors, folder / WEIGHTS_FILE)

    def load(self, folder: Path, n_labels: int, device: torch.device) -> None:
        self._features.load(folder)
        # On no device: sizes are checked against the file before any memory is allocated.
        with torch.device("meta"):
            network = self._make_network(n_labels)
        expected = {name: tuple(value.shape) for name, value in network.state_dict().items()}
        check_shapes(folder / WEIGHTS_FILE, expected)
        network.load_state_dict(load_file(folder / WEIGHTS_FILE), assign=True)
        self.network = network
        self.to_device(device)

    def _make_network(self, n_labels: int) -> nn.Module:
        n_features, settings = len(self._features), self.settings
        if settings.hidden:
            return HiddenNetwork(n_features, settings.hidden, n_labels, settings.dropout)
        return LinearNetwork(n_features, n_labels)


class LinearNetwork(nn.Module):
    """One weight per word and label; the cost is that of the words in the text."""

    def __init__(self, n_features: int, n_labels: int) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(n_features, n_labels, mode="sum")
        self.bias = nn.Parameter(torch.zeros(n_labels))
        nn.init.zeros_(self.words.weight)

    def forward(self, indices: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
        logits: Tensor = self.words(indices, offsets, per_sample_weights=weights)
        return logits + self.bias


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
