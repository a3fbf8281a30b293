"""The base of models on TF-IDF features, which are learned once for all folds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.models.base import TextModel
from longtail.models.explanation import Contributions, Floats64
from longtail.models.features import TextFeatures
from longtail.models.words import Spans, spread
from longtail.training.encoded import EncodedBags


class OnFeatures(TextModel):
    """A model whose inputs are the features of `TextFeatures`."""

    _features: TextFeatures

    def use_features(self, features: TextFeatures) -> None:
        self._features = features
        self.encoding_key = repr(features)

    def learn_encoding(self, texts: Sequence[str], cache: Path | None = None) -> EncodedBags:
        return EncodedBags(self._features.fit_transform(texts))

    def share_encoding(self, other: Any) -> None:
        self._features = other._features

    def words(self) -> Sequence[str]:
        return self._features.words()

    def save_encoding(self, folder: Path) -> None:
        self._features.save(folder)

    def load_encoding(self, folder: Path) -> None:
        self._features.load(folder)

    def encode(self, texts: Sequence[str], cache: Path | None = None) -> EncodedBags:
        return EncodedBags(self._features.transform(texts))

    def explain(self, text: str, labels: NDArray[np.int64], words: Spans) -> Contributions:
        """Exact: the contribution of a feature is spread over the words it was made of.

        The norm of the text's features counts as a constant.
        """
        row = self._features.transform([text])
        base, values = self.feature_values(row.indices, row.data, labels)
        shares = spread(self._features.pieces(text), words, len(self._features))[row.indices]
        return Contributions(base, np.asarray(values @ shares))

    @abstractmethod
    def feature_values(
        self, columns: NDArray[Any], amounts: NDArray[np.float32], labels: NDArray[np.int64]
    ) -> tuple[Floats64, Floats64]:
        """The scores of labels for an empty text, and what each feature adds to them."""
