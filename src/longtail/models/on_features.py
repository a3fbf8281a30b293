"""What models on TF-IDF features share: features learned once, for all folds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longtail.models.base import TextModel
from longtail.models.features import TextFeatures
from longtail.training.encoded import EncodedBags


class OnFeatures(TextModel):
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
