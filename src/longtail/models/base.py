"""What every model offers: it reads texts, and it can be written to a folder and read back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from torch import Tensor, nn


class Encoded(Protocol):
    """Texts made ready for a network: a batch of any rows, as arguments of its forward."""

    def __len__(self) -> int: ...

    def batch(self, rows: NDArray[np.int64]) -> dict[str, Tensor]: ...


class TextModel(Protocol):
    """A model by its settings; `save` and `load` use safetensors and JSON alone."""

    @property
    def settings(self) -> dict[str, Any]: ...

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path, n_labels: int) -> None: ...


@runtime_checkable
class NetworkModel(TextModel, Protocol):
    """A model with a torch network, trained by the loop in `training` with any loss."""

    network: nn.Module

    def prepare(self, texts: Sequence[str], n_labels: int) -> None:
        """Learn what has to be known before training (a vocabulary) and make the network."""

    def encode(self, texts: Sequence[str]) -> Encoded: ...


@runtime_checkable
class SelfFitting(TextModel, Protocol):
    """A model that fits itself, without a loss of ours."""

    def fit(self, texts: Sequence[str], Y: sp.csr_matrix) -> None: ...

    def scores(self, texts: Sequence[str]) -> NDArray[np.float32]: ...
