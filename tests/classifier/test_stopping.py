"""What early stopping looks at: any metric by name, and more is better."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import LongTailClassifier
from longtail.classifier.stopping import score_by_name
from longtail.data import TextData
from longtail.errors import UnknownNameError
from longtail.labels import LabelStats

from .cases import LABELS, TEXTS

TRUTH = sp.csr_matrix(np.array([[1, 0, 0], [0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype=np.float32))
STATS = LabelStats.from_counts([50, 20, 2], 60)
PERFECT = np.where(TRUTH.toarray() > 0, 3.0, -3.0).astype(np.float32)
POOR = np.array([[3, 1, 2], [2, 1, 3], [-2, 2, -3], [3, 2, 1]], dtype=np.float32)
NAMES = (
    "micro_f1",
    "macro_f1",
    "mean_f1",
    "tail_macro_f1",
    "hamming_loss",
    "subset_accuracy",
    "precision@1",
    "micro_average_precision",
)


@pytest.mark.parametrize("name", NAMES)
def test_better_predictions_have_a_higher_score(name: str) -> None:
    score = score_by_name(name, TRUTH, STATS)
    assert score(PERFECT) > score(POOR)
    assert score(PERFECT) == (0 if name == "hamming_loss" else 1)


def test_the_threshold_is_chosen_anew() -> None:
    """Logits that all lie on one side of zero are worth as much as any."""
    score = score_by_name("micro_f1", TRUTH, STATS)
    assert score(PERFECT - 40) == score(PERFECT + 40) == 1


def test_the_mean_is_of_micro_and_macro() -> None:
    each = [score_by_name(name, TRUTH, STATS)(POOR) for name in ("micro_f1", "macro_f1")]
    found = score_by_name("mean_f1", TRUTH, STATS)(POOR)
    assert 0 < found <= max(each) + 1e-9


@pytest.mark.parametrize("name", NAMES)
def test_documents_without_labels_have_a_score(name: str) -> None:
    nothing = sp.csr_matrix(TRUTH.shape, dtype=np.float32)
    assert math.isfinite(score_by_name(name, nothing, STATS)(PERFECT))


def test_an_unknown_name_is_found_at_once() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'micro_f1'"):
        score_by_name("micr_f1", TRUTH, STATS)


def test_the_best_epoch_is_kept(encoder_arguments: dict[str, Any]) -> None:
    data = TextData.from_lists(TEXTS, LABELS)
    seen: list[Any] = []
    classifier = LongTailClassifier(
        **encoder_arguments | {"epochs": 30, "patience": 2, "stop_on": "macro_f1"}
    )
    classifier.fit(data, validation=data, progress=seen.append)
    assert len(classifier.ensemble_.models) == 1
    assert seen[-1].epoch < 30 and seen[-1].best == 1.0
    assert classifier.score(data) == 1.0
