"""`bag`: TF-IDF into a linear head, or into a small network. CPU, seconds, no download."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from longtail.data import TextData
from longtail.models.base import FitContext, MakeLoss, NetworkModel, load_network
from longtail.models.features import TextFeatures
from longtail.models.settings import Bag
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
        fit = super().fit if self.settings.hidden else self._solve
        fit(data, loss, training, context)

    def resolved(self, training: Training) -> Training:
        return super().resolved(training) if self.settings.hidden else training

    def prepare(self, data: TextData, context: FitContext) -> EncodedBags:
        encoded = EncodedBags(self._features.fit_transform(data.texts))
        self.network = self._make_network(len(data.label_names))
        return encoded

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
        self.network = self._make_network(len(data.label_names))
        weights = {"words.weight": head.weight.T, "bias": head.bias}
        self.network.load_state_dict(weights)
        self.to_device(device)

    def save(self, folder: Path) -> None:
        self._features.save(folder)
        tensors = {name: v.contiguous() for name, v in self.network.state_dict().items()}
        save_file(tensors, folder / WEIGHTS_FILE)

    def load(self, folder: Path, n_labels: int, device: torch.device) -> None:
        self._features.load(folder)
        # Sizes are compared with those of the file before any memory is allocated.
        with torch.device("meta"):
            self.network = self._make_network(n_labels)
        load_network(self.network, folder / WEIGHTS_FILE)
        self.to_device(device)

    def _make_network(self, n_labels: int) -> nn.Module:
        settings = self.settings
        return BagNetwork(len(self._features), n_labels, settings.hidden, settings.dropout)


class BagNetwork(nn.Module):
    """One weight per word and label or, if `hidden`, per word and unit of a hidden layer.

    The cost is that of the words in the text.
    """

    def __init__(self, n_features: int, n_labels: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(n_features, hidden or n_labels, mode="sum")
        if hidden:
            self.dropout = nn.Dropout(dropout)
            self.labels = nn.Linear(hidden, n_labels)
            nn.init.normal_(self.words.weight, std=0.1)
            nn.init.zeros_(self.labels.weight)
            nn.init.zeros_(self.labels.bias)
        else:
            self.bias = nn.Parameter(torch.zeros(n_labels))
            nn.init.zeros_(self.words.weight)
        self.is_linear = not hidden

    def forward(self, indices: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
        total: Tensor = self.words(indices, offsets, per_sample_weights=weights)
        if self.is_linear:
            return total + self.bias
        logits: Tensor = self.labels(self.dropout(torch.relu(total)))
        return logits
