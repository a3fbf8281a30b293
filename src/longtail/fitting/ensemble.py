"""Several fitted models as one: the mean of their scores, label by label of those who know it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.models import NetworkModel, TextModel
from longtail.models.base import Encoded, Scale, SelfFitting
from longtail.training import predict_logits

Floats = NDArray[np.float32]
# Pairs of document and label beyond which scores are kept sparse, and how many of each document.
DENSE_PAIRS = 200_000_000
KEPT_LABELS = 200
BLOCK_DOCUMENTS = 4096


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Fitted models, and which labels each of them has seen a document of.

    A model that was trained without a label scores it by a constant, which says nothing: it has no
    part in the mean.
    """

    models: list[TextModel]
    known: NDArray[np.bool_]
    device: str = "auto"

    @property
    def scale(self) -> Scale:
        return self.models[0].scale

    def scores(self, texts: Sequence[str], encoded: Encoded | None = None) -> Floats:
        """Scores, (documents, labels), dense."""
        found = [block for _, block in self.blocks(texts, encoded=encoded)]
        if not found:
            return np.zeros((0, self.known.shape[1]), dtype=np.float32)
        return np.concatenate(found)

    def blocks(
        self, texts: Sequence[str], size: int = BLOCK_DOCUMENTS, encoded: Encoded | None = None
    ) -> Iterator[tuple[slice, Floats]]:
        """Scores of some documents at a time, so that not all need to be in memory.

        `encoded`: the texts made ready, where that was done before.
        """
        weight = self.known.astype(np.float32)
        weight[:, ~self.known.any(axis=0)] = 1.0
        weight /= weight.sum(axis=0)
        for start in range(0, len(texts), size):
            part = texts[start : start + size]
            rows = slice(start, start + len(part))
            if encoded is None:
                ready = self._ready(part)
            else:
                ready = encoded.select(np.arange(rows.start, rows.stop))
            total = np.zeros((len(part), self.known.shape[1]), dtype=np.float32)
            for model, share in zip(self.models, weight, strict=True):
                total += share * model_scores(model, part, self.device, ready)
            yield rows, total

    def compact_scores(
        self, texts: Sequence[str], of: int | None = None, encoded: Encoded | None = None
    ) -> Any:
        """Dense scores, or where those would be too many the highest of each document as CSR.

        `of`: the number of all documents, where these are some of them. In CSR a label that no
        model knows has no scores.
        """
        n_labels = self.known.shape[1]
        if len(texts) == 0 or (of or len(texts)) * n_labels <= DENSE_PAIRS:
            return self.scores(texts, encoded)
        size = max(1, DENSE_PAIRS // (4 * n_labels))
        labels = np.flatnonzero(self.known.any(axis=0))
        found = [highest(block, labels) for _, block in self.blocks(texts, size, encoded)]
        return sp.vstack(found, format="csr")

    def save(self, folder: Path) -> None:
        """One model into the folder itself, several into folders of their own."""
        for place, model in zip(self._places(folder, len(self.models)), self.models, strict=True):
            place.mkdir(parents=True, exist_ok=True)
            model.save(place)

    @classmethod
    def load(
        cls, folder: Path, models: list[TextModel], known: NDArray[np.bool_], device: str
    ) -> Ensemble:
        """Read what `save` wrote into models that are not fitted yet."""
        for place, model in zip(cls._places(folder, len(models)), models, strict=True):
            model.load(place, known.shape[1])
        return cls(models, known, device)

    @staticmethod
    def _places(folder: Path, n_models: int) -> list[Path]:
        if n_models == 1:
            return [folder]
        return [folder / f"fold-{k}" for k in range(n_models)]

    def _ready(self, texts: Sequence[str]) -> Encoded | None:
        """The texts made ready once for all models, where that is the same for all."""
        first = self.models[0]
        if isinstance(first, NetworkModel) and first.encodes_alike:
            return first.encode(texts)
        return None


def model_scores(
    model: TextModel,
    texts: Sequence[str],
    device: str = "auto",
    encoded: Encoded | None = None,
) -> Floats:
    """Scores of one model, (documents, labels)."""
    if isinstance(model, SelfFitting):
        return model.scores(texts)
    assert isinstance(model, NetworkModel)
    ready = model.encode(texts) if encoded is None else encoded
    return predict_logits(model.network, ready, device=device)


def highest(
    scores: Floats, labels: NDArray[np.int64] | None = None, kept: int | None = None
) -> sp.csr_matrix:
    """The highest scores of each document among these labels; the others count as not scored."""
    among = np.arange(scores.shape[1]) if labels is None else labels
    kept = min(KEPT_LABELS if kept is None else kept, len(among))
    if kept == 0:
        return sp.csr_matrix(scores.shape, dtype=np.float32)
    first = len(among) - kept
    places = np.sort(np.argpartition(scores[:, among], first, axis=1)[:, first:], axis=1)
    columns = among[places]
    values = np.take_along_axis(scores, columns, axis=1)
    starts = np.arange(len(scores) + 1, dtype=np.int64) * kept
    return sp.csr_matrix((values.ravel(), columns.ravel(), starts), shape=scores.shape)
