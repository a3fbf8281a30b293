"""Average precision: against scikit-learn on dense scores and its definition on sparse ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from sklearn.metrics import average_precision_score

from longtail.errors import InputError
from longtail.metrics import average_precision

from .cases import BLOCK_SIZES, Case, block_size, score_forms, scored, stored


def by_hand(labels: np.ndarray, scores: np.ndarray, where: np.ndarray) -> float:
    """Sum over thresholds of (gain in recall) x precision; unscored pairs are never retrieved."""
    n_positive, recall, total = int(labels.sum()), 0.0, 0.0
    for threshold in sorted(set(scores[where].tolist()), reverse=True):
        retrieved = where & (scores >= threshold)
        hits = int(labels[retrieved].sum())
        if n_positive:
            total += (hits / n_positive - recall) * hits / int(retrieved.sum())
            recall = hits / n_positive
    return total


@given(scored(), BLOCK_SIZES)
def test_every_form_of_scores_by_hand(case: Case, size: int) -> None:
    labels, scores, where = case
    present = labels.any(axis=0)
    for form, there in score_forms(scores, where):
        each = [by_hand(*column) for column in zip(labels.T, scores.T, there.T, strict=True)]
        with block_size(size):
            micro = average_precision(labels, form)
            macro, over_present = (
                average_precision(labels, form, "macro", absent) for absent in ("zero", "skip")
            )
        assert micro == pytest.approx(by_hand(labels, scores, there), abs=1e-12)
        assert macro == pytest.approx(np.mean(each), abs=1e-12)
        expected = np.array(each)[present].mean() if present.any() else 0.0
        assert over_present == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64, np.uint8, np.bool_])
def test_every_dtype(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, (30, 4))
    scores = rng.integers(0, 2 if dtype is np.bool_ else 5, (30, 4)).astype(dtype)
    for form in (scores, stored(scores)):
        for average in ("micro", "macro"):
            expected = average_precision_score(labels, scores.astype(float), average=average)
            assert average_precision(labels, form, average) == pytest.approx(expected, abs=1e-12)


def test_unknown_choices_are_refused() -> None:
    labels = np.array([[1, 0], [0, 1]])
    with pytest.raises(InputError, match="absent must be one of zero, skip, got 'drop'"):
        average_precision(labels, labels, "micro", "drop")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="average must be one of micro, macro, got 'weighted'"):
        average_precision(labels, labels, "weighted")  # type: ignore[arg-type]
