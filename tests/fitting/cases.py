"""A model that shows what it was fitted on, and plans that use it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.data import TextData
from longtail.fitting import Plan
from longtail.models import TextModel
from longtail.models.base import Scale

LEAK = 1000.0


@dataclass(frozen=True)
class NoSettings:
    pass


class Remembering:
    """Scores a label by its training documents, plus LEAK for a text that it was fitted on."""

    scale: Scale = "margin"
    settings = NoSettings()

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.counts: NDArray[np.float32] = np.zeros(0, dtype=np.float32)

    def fit(self, texts: Sequence[str], Y: sp.csr_matrix) -> None:
        self.seen = list(texts)
        self.counts = np.asarray(Y.sum(axis=0), dtype=np.float32).ravel()

    def scores(self, texts: Sequence[str]) -> NDArray[np.float32]:
        leaks = np.array([LEAK * (text in self.seen) for text in texts], dtype=np.float32)
        own = np.array([0.25 * (int(text) % 3) for text in texts], dtype=np.float32)
        return self.counts + (leaks + own)[:, None]

    def save(self, folder: Path) -> None:
        content = {"seen": self.seen, "counts": self.counts.tolist()}
        (folder / "model.json").write_text(json.dumps(content))

    def load(self, folder: Path, n_labels: int) -> None:
        content = json.loads((folder / "model.json").read_text())
        self.seen = content["seen"]
        self.counts = np.array(content["counts"], dtype=np.float32)


class RememberingPlan(Plan):
    """A plan whose models are of that kind."""

    def new_model(self, trust_remote_code: bool = False) -> TextModel:
        return Remembering()


def numbered(Y: Any) -> TextData:
    """Documents whose texts are their numbers."""
    matrix = sp.csr_matrix(np.asarray(Y, dtype=np.float32))
    names = tuple(f"label-{k}" for k in range(matrix.shape[1]))
    return TextData([str(k) for k in range(matrix.shape[0])], matrix, names)
