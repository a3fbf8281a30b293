"""`svm`: the paper's baseline, one linear support vector machine per label on TF-IDF."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from longtail.models.features import TextFeatures


class SvmModel:
    """One-vs-rest LinearSVC; a label without training documents scores -1 everywhere.

    Args:
        C: inverse strength of the regularisation (paper: 1).
        class_weight: None or "balanced".
        ngrams, min_df, max_features: the words to use.
    """

    def __init__(
        self,
        C: float = 1.0,
        class_weight: Literal["balanced"] | None = None,
        ngrams: int = 1,
        min_df: int = 1,
        max_features: int = 100_000,
    ) -> None:
        self.settings: dict[str, Any] = {
            "C": C,
            "class_weight": class_weight,
            "ngrams": ngrams,
            "min_df": min_df,
            "max_features": max_features,
        }
        self._features = TextFeatures(ngrams, min_df, max_features)
        self._weight = np.zeros((0, 0), dtype=np.float32)
        self._bias = np.zeros(0, dtype=np.float32)

    def fit(self, texts: Sequence[str], Y: sp.csr_matrix) -> None:
        from sklearn.svm import LinearSVC

        self._features.fit(texts)
        features = self._features.transform(texts)
        n_labels = int(Y.shape[1])
        self._weight = np.zeros((n_labels, features.shape[1]), dtype=np.float32)
        self._bias = np.full(n_labels, -1.0, dtype=np.float32)
        columns = sp.csc_matrix(Y)
        for label in range(n_labels):
            applies = columns[:, [label]].toarray().ravel() > 0
            if applies.all() or not applies.any():
                self._bias[label] = 1.0 if applies.any() else -1.0
                continue
            machine = LinearSVC(
                C=self.settings["C"], class_weight=self.settings["class_weight"], random_state=0
            )
            machine.fit(features, applies)
            self._weight[label] = machine.coef_.ravel()
            self._bias[label] = machine.intercept_[0]

    def scores(self, texts: Sequence[str]) -> NDArray[np.float32]:
        found = self._features.transform(texts) @ self._weight.T + self._bias
        return np.asarray(found, dtype=np.float32)

    def save(self, folder: Path) -> None:
        self._features.save(folder)
        save_file({"weight": self._weight, "bias": self._bias}, folder / "model.safetensors")

    def load(self, folder: Path, n_labels: int) -> None:
        self._features.load(folder)
        tensors = load_file(folder / "model.safetensors")
        self._weight, self._bias = tensors["weight"], tensors["bias"]
