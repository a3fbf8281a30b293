"""Several fitted models as one: the mean of their scores, label by label of those who know it.

Where members of different kinds are blended, the means of each kind are added by their weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import DataError, LongtailError
from longtail.models import NetworkModel, TextModel
from longtail.models.base import Encoded, Scale, SelfFitting
from longtail.training import predict_logits
from longtail.training.devices import device_of

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
    """Member by member, equally many of each."""
    known: NDArray[np.bool_]
    device: str = "auto"
    weights: tuple[float, ...] = (1.0,)
    """Of each member."""
    intercept: float = 0.0

    @property
    def n_members(self) -> int:
        return len(self.weights)

    @property
    def scale(self) -> Scale:
        # Weights are chosen so that their sum is a logit, whatever it is a sum of.
        return self.models[0].scale if self.n_members == 1 else "logit"

    def members(self) -> Iterator[Ensemble]:
        """Each member alone."""
        each = len(self.models) // self.n_members
        for start in range(0, len(self.models), each):
            rows = slice(start, start + each)
            yield Ensemble(self.models[rows], self.known[rows], self.device)

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

        `encoded`: the texts made ready for the only member, where that was done before.
        """
        for start in range(0, len(texts), size):
            part = texts[start : start + size]
            rows = slice(start, start + len(part))
            if self.n_members == 1:
                given = encoded and encoded.select(np.arange(rows.start, rows.stop))
                yield rows, self._mean(part, given)
                continue
            total = np.full((len(part), self.known.shape[1]), self.intercept, dtype=np.float32)
            for weight, member in zip(self.weights, self.members(), strict=True):
                # A member of no weight need not be asked.
                if weight:
                    total += np.float32(weight) * member._mean(part, None)
            yield rows, total

    def _mean(self, texts: Sequence[str], encoded: Encoded | None) -> Floats:
        """The mean of all models, label by label of those that know it."""
        share = self.known.astype(np.float32)
        share[:, ~self.known.any(axis=0)] = 1.0
        share /= share.sum(axis=0)
        ready = self._ready(texts) if encoded is None else encoded
        total = np.zeros((len(texts), self.known.shape[1]), dtype=np.float32)
        for model, part in zip(self.models, share, strict=True):
            total += part * model_scores(model, texts, ready)
        return total

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
        for place, model in zip(self._places(folder), self.models, strict=True):
            place.mkdir(parents=True, exist_ok=True)
            model.save(place)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote into the models, which are not fitted yet."""
        for place, model in zip(self._places(folder), self.models, strict=True):
            model.load(place, self.known.shape[1])
            settle(model, self.device)

    def _places(self, folder: Path) -> list[Path]:
        each = len(self.models) // self.n_members
        homes = [folder]
        if self.n_members > 1:
            homes = [folder / f"member-{k}" for k in range(self.n_members)]
        if each == 1:
            return homes
        return [home / f"fold-{k}" for home in homes for k in range(each)]

    def _ready(self, texts: Sequence[str]) -> Encoded | None:
        """The texts made ready once for all models, where that is the same for all."""
        first = self.models[0]
        if isinstance(first, NetworkModel) and first.encodes_alike:
            with _explained():
                return first.encode(texts)
        return None


def settle(model: TextModel, device: str) -> None:
    """Make a fitted model ready to predict: on its device, for good and without dropout."""
    if isinstance(model, NetworkModel):
        model.settle(device_of(device))


def model_scores(model: TextModel, texts: Sequence[str], encoded: Encoded | None = None) -> Floats:
    """Scores of one model, (documents, labels)."""
    with _explained():
        if isinstance(model, SelfFitting):
            return model.scores(texts)
        assert isinstance(model, NetworkModel)
        ready = model.encode(texts) if encoded is None else encoded
        return predict_logits(model.network, ready)


@contextmanager
def _explained() -> Iterator[None]:
    """A library that fails inside, at a damaged model say, ends as an error of ours."""
    try:
        yield
    except LongtailError:
        raise
    except BaseException as error:
        if not is_failure(error):
            raise
        raise DataError(
            f"the model cannot score these texts: {type(error).__name__}: {error}. It is damaged, "
            "or was made with other versions of its libraries."
        ) from error


def is_failure(error: BaseException) -> bool:
    """Whether a library failed; a panic of Rust, as in tokenizers, is not an Exception."""
    if isinstance(error, MemoryError):
        return False
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


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
