"""The contract of a model: it fits itself, scores texts, saves itself to a folder and loads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from longtail.data import TextData
from longtail.losses import MultiLabelLoss
from longtail.models.settings import ModelSettings
from longtail.progress import OnProgress
from longtail.training.checkpoints import Checkpoints
from longtail.training.encoded import Encoded
from longtail.training.interrupt import Stop
from longtail.training.loop import Validation
from longtail.training.settings import Training

Floats = NDArray[np.float32]
Scale = Literal["logit", "margin"]
MakeLoss = Callable[..., MultiLabelLoss]
"""Called with the label statistics, and settings such as `reduction`."""


@dataclass(frozen=True)
class FitContext:
    """What a fit needs beside data, loss and training."""

    encode: Callable[[TextModel], Encoded]
    """The training texts as `TextModel.encode` makes them, once for all folds if possible."""
    validation: Callable[[TextModel], Validation | None]
    """Documents for early stopping."""
    seed: int
    checkpoints: Checkpoints | None
    progress: OnProgress
    note: Callable[[str], None]
    stop: Stop
    kept: str
    """What remains of the run if it stops now, as a sentence."""
    describe: Callable[[int], str]
    """The document of a row, for an error message."""


class TextModel(ABC):
    """A model of one kind; files are safetensors, JSON and tokenizer files only."""

    scale: Scale = "logit"
    """Whether scores are logits, or margins: signed distances to a hyperplane."""
    settings: ModelSettings
    shares_encoding = False
    """Whether `encode` gives the same for all folds."""
    trust_remote_code = False
    """Whether a pretrained encoder may bring code that is run; set by the caller only."""

    @abstractmethod
    def fit(self, data: TextData, loss: MakeLoss, training: Training, context: FitContext) -> None:
        """Learn from documents; ends ready to predict on `training.device`.

        Random numbers are torch's, seeded by the caller.
        """

    @abstractmethod
    def scores(self, texts: Sequence[str], encoded: Any = None) -> Floats:
        """Scores, (documents, labels); `encoded`: what `encode` made of the texts."""

    def encode(self, texts: Sequence[str], cache: Path | None = None) -> Any:
        """The texts as inputs; `cache`: a folder for results that take long."""
        return texts

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write all that `load` needs."""

    @abstractmethod
    def load(self, folder: Path, n_labels: int, device: torch.device) -> None:
        """Read what `save` wrote; ends ready to predict on the device."""

    def resolved(self, training: Training) -> Training:
        """The training with this model's defaults filled in."""
        return training

    @property
    def works_in_pipeline(self) -> bool:
        """Whether `transformers.pipeline` loads the saved folder."""
        return False
