"""`svm`: the paper's baseline, one linear support vector machine per label on TF-IDF."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from longtail.models.base import Scale
from longtail.models.features import TextFeatures
from longtail.models.weights import check_shapes
from longtail.settings import SvmSettings

Floats = NDArray[np.float32]
# Labels from which processes of their own are worth their start.
MANY_LABELS = 500


class SvmModel:
    """One-vs-rest LinearSVC; a label on no training document scores -1, one on all of them 1."""

    scale: Scale = "margin"

    def __init__(self, settings: SvmSettings | None = None) -> None:
        self.settings = settings or SvmSettings()
        chosen = self.settings
        self._features = TextFeatures(
            chosen.ngrams, chosen.min_df, chosen.max_features, sublinear=chosen.sublinear
        )
        self._weight: Floats = np.zeros((0, 0), dtype=np.float32)
        self._bias: Floats = np.zeros(0, dtype=np.float32)

    def fit(self, texts: Sequence[str], Y: sp.csr_matrix) -> None:
        from joblib import Parallel, delayed

        features = self._features.fit_transform(texts).astype(np.float64)
        columns = sp.csc_matrix(Y)
        # Not in threads: liblinear's random numbers belong to the whole process.
        found = Parallel(n_jobs=-1 if columns.shape[1] >= MANY_LABELS else 1)(
            delayed(self._machine)(features, columns[:, [label]].toarray().ravel() > 0)
            for label in range(columns.shape[1])
        )
        self._weight = np.stack([weight for weight, _ in found])
        self._bias = np.array([bias for _, bias in found], dtype=np.float32)

    def _machine(self, features: sp.csr_matrix, applies: NDArray[np.bool_]) -> tuple[Floats, float]:
        from sklearn.svm import LinearSVC

        if applies.all() or not applies.any():
            nothing = np.zeros(features.shape[1], dtype=np.float32)
            return nothing, 1.0 if applies.any() else -1.0
        chosen = self.settings
        machine = LinearSVC(
            C=chosen.C, class_weight=chosen.class_weight, random_state=0, max_iter=5000
        )
        machine.fit(features, applies)
        return machine.coef_.ravel().astype(np.float32), float(machine.intercept_[0])

    def scores(self, texts: Sequence[str]) -> Floats:
        found = self._features.transform(texts) @ self._weight.T + self._bias
        return np.asarray(found, dtype=np.float32)

    def save(self, folder: Path) -> None:
        self._features.save(folder)
        save_file({"weight": self._weight, "bias": self._bias}, folder / "model.safetensors")

    def load(self, folder: Path, n_labels: int) -> None:
        self._features.load(folder)
        shapes = {"weight": (n_labels, len(self._features)), "bias": (n_labels,)}
        check_shapes(folder / "model.safetensors", shapes)
        tensors = load_file(folder / "model.safetensors")
        self._weight, self._bias = tensors["weight"], tensors["bias"]
