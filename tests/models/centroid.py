"""A kind of model in one file and one row: a text gets the labels whose centroids are near."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

from longtail.checks import check_number
from longtail.data import TextData
from longtail.models import ModelKind, ModelSettings
from longtail.models.base import FitContext, Floats, MakeLoss, TextModel
from longtail.models.features import TextFeatures
from longtail.progress import Progress
from longtail.settings import setting
from longtail.training import Training


@dataclass(repr=False)
class Centroid(ModelSettings):
    """Nearest label centroid."""

    sharpness: float = setting(8.0, "Factor of the cosine similarities.")

    def __post_init__(self) -> None:
        check_number("sharpness", self.sharpness, 0, exclusive=True)

    @property
    def description(self) -> str:
        return "label centroids"


class CentroidModel(TextModel):
    def __init__(self, settings: Centroid) -> None:
        self.settings: Centroid = settings
        self._features = TextFeatures()
        self._centroids: Floats = np.zeros((0, 0), dtype=np.float32)

    def fit(self, data: TextData, loss: MakeLoss, training: Training, context: FitContext) -> None:
        sums = (data.Y.T @ self._features.fit_transform(data.texts)).toarray()
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        # Rows in C order: safetensors writes the bytes as they are.
        self._centroids = np.ascontiguousarray(sums / np.maximum(norms, 1e-9), dtype=np.float32)
        context.progress(Progress("averaging", 1, 1))
        context.stop.check(context.kept)

    def scores(self, texts: Sequence[str], encoded: Any = None) -> Floats:
        similarity = self._features.transform(texts) @ self._centroids.T
        return np.asarray(self.settings.sharpness * (similarity - 0.5), dtype=np.float32)

    def save(self, folder: Path) -> None:
        self._features.save(folder)
        save_file({"centroids": self._centroids}, folder / "model.safetensors")

    def load(self, folder: Path, n_labels: int, device: torch.device) -> None:
        self._features.load(folder)
        self._centroids = load_file(folder / "model.safetensors")["centroids"]


ROW = ModelKind(
    Centroid,
    f"{__name__}:CentroidModel",
    "the nearest label centroid",
    folds=3,
    takes_loss=False,
    uses_gpu=False,
)
