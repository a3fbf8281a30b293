"""`svm`: the paper's baseline, one linear support vector machine per label on TF-IDF."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from torch import nn

from longtail.data import TextData
from longtail.models.base import FitContext, Floats, MakeLoss, Scale, read_weights
from longtail.models.explanation import Floats64
from longtail.models.features import TextFeatures
from longtail.models.graphs import DenseRows, Shift
from longtail.models.on_features import OnFeatures
from longtail.models.settings import Svm
from longtail.training.settings import Training

WEIGHTS_FILE = "model.safetensors"
# Number of labels from which worker processes pay off.
MANY_LABELS = 500


class SvmModel(OnFeatures):
    """One-vs-rest LinearSVC; a label on no training document scores -1, one on all of them 1."""

    scale: Scale = "margin"

    def __init__(self, settings: Svm) -> None:
        self.settings: Svm = settings
        limits = (settings.ngrams, settings.min_df, settings.max_features)
        self.use_features(TextFeatures(*limits, sublinear=settings.sublinear))
        self._weight: Floats = np.zeros((0, 0), dtype=np.float32)
        self._bias: Floats = np.zeros(0, dtype=np.float32)

    def fit(self, data: TextData, loss: MakeLoss, training: Training, context: FitContext) -> None:
        from joblib import Parallel, delayed

        features = context.encode(self).matrix.astype(np.float64)
        # NaN: it is unknown whether the label applies.
        columns = sp.csc_matrix(data.truth)
        # Not in threads: liblinear's random state is global to the process.
        machines = Parallel(n_jobs=-1 if columns.shape[1] >= MANY_LABELS else 1)(
            delayed(self._fit_label)(features, columns[:, [label]].toarray().ravel(), data.weights)
            for label in range(columns.shape[1])
        )
        self._weight = np.stack([weight for weight, _ in machines])
        self._bias = np.array([bias for _, bias in machines], dtype=np.float32)

    def _fit_label(
        self, features: sp.csr_matrix, truth: Floats, weights: NDArray[np.float64] | None
    ) -> tuple[Floats, float]:
        from sklearn.svm import LinearSVC

        known = ~np.isnan(truth)
        if not known.all():
            features, truth = features[known], truth[known]
            weights = None if weights is None else weights[known]
        y = truth > 0
        if y.all() or not y.any():
            return np.zeros(features.shape[1], dtype=np.float32), 1.0 if y.any() else -1.0
        C, class_weight = self.settings.C, self.settings.class_weight
        machine = LinearSVC(C=C, class_weight=class_weight, random_state=0, max_iter=5000)
        machine.fit(features, y, weights)
        return machine.coef_.ravel().astype(np.float32), float(machine.intercept_[0])

    def scores(self, texts: Sequence[str], encoded: Any = None) -> Floats:
        encoded = self.encode(texts) if encoded is None else encoded
        margins = encoded.matrix @ self._weight.T + self._bias
        return np.asarray(margins, dtype=np.float32)

    def graph(self) -> nn.Module:
        return DenseRows(torch.from_numpy(self._weight).T.contiguous(), Shift(self._bias))

    def feature_values(
        self, columns: NDArray[Any], amounts: Floats, labels: NDArray[np.int64]
    ) -> tuple[Floats64, Floats64]:
        weight = self._weight[np.ix_(labels, columns)].astype(np.float64)
        return self._bias[labels].astype(np.float64), weight * amounts

    def save(self, folder: Path) -> None:
        self.save_encoding(folder)
        save_file({"weight": self._weight, "bias": self._bias}, folder / WEIGHTS_FILE)

    def load(self, folder: Path, n_labels: int, device: torch.device) -> None:
        self.load_encoding(folder)
        shapes = {"weight": (n_labels, len(self._features)), "bias": (n_labels,)}
        tensors = read_weights(folder / WEIGHTS_FILE, shapes)
        self._weight, self._bias = tensors["weight"].numpy(), tensors["bias"].numpy()
