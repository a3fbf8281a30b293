"""What every model offers: texts in, scores out; written to a folder and read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

IntArray = NDArray[np.int64]
Scale = Literal["logit", "margin"]


class Encoded(Protocol):
    """Texts made ready for a network: a batch of any rows, as arguments of its forward."""

    @property
    def lengths(self) -> IntArray:
        """How much of each text there is to compute: batches are made of similar lengths."""

    def __len__(self) -> int: ...

    def batch(self, rows: IntArray) -> dict[str, Tensor]: ...

    def select(self, rows: IntArray) -> Encoded: ...


class TextModel(Protocol):
    """A model by its settings; `save` and `load` use safetensors, JSON and tokenizer files only."""

    @property
    def settings(self) -> Any:
        """The frozen dataclass that the model was made from."""

    @property
    def scale(self) -> Scale:
        """Whether scores are logits, or margins: distances to a hyperplane."""

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path, n_labels: int) -> None: ...


@runtime_checkable
class NetworkModel(TextModel, Protocol):
    """A model with a torch network, trained by the loop in `training` with any loss."""

    network: nn.Module

    @property
    def encodes_alike(self) -> bool:
        """Whether `encode` depends on the settings alone, not on the texts of `prepare`."""

    @property
    def training_defaults(self) -> Mapping[str, Any]:
        """Fields of TrainingConfig that this model wants, where the user says nothing."""

    def prepare(self, texts: Sequence[str], label_names: Sequence[str]) -> None:
        """Learn what has to be known before training (a vocabulary) and make the network."""

    def encode(self, texts: Sequence[str]) -> Encoded: ...

    def settle(self, device: torch.device) -> None:
        """End training: on this device for good, without dropout, nothing kept that it needed."""

    def is_head(self, parameter: str) -> bool:
        """Whether a parameter of the network, by name, belongs to the head: it learns faster."""


@runtime_checkable
class SelfFitting(TextModel, Protocol):
    """A model that fits itself, without a loss of ours."""

    def fit(self, texts: Sequence[str], Y: sp.csr_matrix) -> None: ...

    def scores(self, texts: Sequence[str]) -> NDArray[np.float32]: ...
