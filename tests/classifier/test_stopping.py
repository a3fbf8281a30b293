"""Early stopping: any metric by name, higher is better."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.classifier.crossfit import score_by_name
from longtail.errors import UnknownNameError
from longtail.labels import LabelStats

from .cases import DATA
from .conftest import Make

TRUTH = sp.csr_matrix(np.array([[1, 0, 0], [0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype=np.float32))
STATS = LabelStats.from_counts([50, 20, 2], 60)
PERFECT = np.where(TRUTH.toarray() > 0, 3.0, -3.0).astype(np.float32)
POOR = np.array([[3, 1, 2], [2, 1, 3], [-2, 2, -3], [3, 2, 1]], dtype=np.float32)
NAMES = ["micro_f1", "macro_f1", "mean_f1", "tail_macro_f1", "hamming_loss", "subset_accuracy"]


@pytest.mark.parametrize("name", [*NAMES, "precision@1", "micro_average_precision"])
def test_better_predictions_have_a_higher_score(name: str) -> None:
    score = score_by_name(name, TRUTH, STATS)
    assert score(PERFECT) > score(POOR)
    # A threshold is fitted each time.
    assert score(PERFECT) == score(PERFECT + 40) == (0 if name == "hamming_loss" else 1)
    nothing = sp.csr_matrix(TRUTH.shape, dtype=np.float32)
    assert math.isfinite(score_by_name(name, nothing, STATS)(PERFECT))


def test_the_mean_is_of_micro_and_macro() -> None:
    each = [score_by_name(name, TRUTH, STATS)(POOR) for name in ("micro_f1", "macro_f1")]
    assert 0 < score_by_name("mean_f1", TRUTH, STATS)(POOR) <= max(each) + 1e-9


def test_an_unknown_name() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'micro_f1'"):
        score_by_name("micr_f1", TRUTH, STATS)


def test_training_stops_early(make: Make) -> None:
    moments: list[Any] = []
    classifier = make(epochs=30, early_stopping_patience=2, early_stopping_metric="macro_f1")
    classifier.fit(DATA, validation=DATA, progress=moments.append)
    assert len(classifier.ensemble_.models) == 1
    assert moments[-1].epoch < 30 and moments[-1].best == 1.0
    assert classifier.score(DATA) == 1.0
