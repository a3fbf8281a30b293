"""Precision, recall, F1, Hamming loss and subset accuracy: equal to scikit-learn to 1e-12."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from sklearn.metrics import accuracy_score, hamming_loss, precision_recall_fscore_support

from longtail.errors import InputError
from longtail.metrics import (
    Counts,
    PrecisionRecallF1,
    count,
    decision_scores,
    label_precision_recall_f1,
    precision_recall_f1,
)

from .cases import BLOCK_SIZES, block_size, decisions, label_forms

Decisions = tuple[np.ndarray, np.ndarray]


def scikit_learn(case: Decisions, average: str | None) -> tuple[np.ndarray, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return precision_recall_fscore_support(*case, average=average, zero_division=0)[:3]


@given(decisions())
def test_equal_scikit_learn(case: Decisions) -> None:
    counts, scores = count(*case), decision_scores(*case)
    for average in ("micro", "macro", "weighted"):
        values = precision_recall_f1(counts, average)
        assert values == pytest.approx(scikit_learn(case, average), abs=1e-12), average
        assert values == tuple(scores.pop(f"{average}_{name}") for name in values._fields)
    samples = [scores.pop(f"sample_{name}") for name in PrecisionRecallF1._fields]
    assert samples == pytest.approx(scikit_learn(case, "samples"), abs=1e-12)
    by_label, expected = label_precision_recall_f1(counts), scikit_learn(case, None)
    assert np.array(by_label) == pytest.approx(np.array(expected), abs=1e-12)
    expected = {"hamming_loss": hamming_loss(*case), "subset_accuracy": accuracy_score(*case)}
    assert scores == pytest.approx(expected, abs=1e-12)


@given(decisions())
def test_skip_is_scikit_learn_on_what_has_positives(case: Decisions) -> None:
    labels = case[0]
    counts = count(*case)
    macro = precision_recall_f1(counts, "macro", absent="skip")
    scores = decision_scores(*case, absent="skip")
    assert macro.f1 == scores["macro_f1"]
    if not labels.any():
        assert macro == (0.0, 0.0, 0.0)
        return
    expected = [values[labels.any(axis=0)].mean() for values in scikit_learn(case, None)]
    assert macro == pytest.approx(expected, abs=1e-12)


@given(decisions(min_labels=1), BLOCK_SIZES)
def test_every_form_of_input_gives_the_same_counts(case: Decisions, size: int) -> None:
    labels, predicted = case
    expected = [part.sum(axis=0) for part in (labels & predicted, predicted, labels)]
    with block_size(size):
        for y_true, y_pred in zip(
            label_forms(labels), reversed(label_forms(predicted)), strict=True
        ):
            counts = count(y_true, y_pred)
            assert all(part.dtype == np.float64 for part in counts)
            assert (np.array(counts) == expected).all()


def test_an_empty_group_has_counts_but_no_mean_over_documents() -> None:
    empty = sp.csr_matrix((0, 3))
    counts = count(empty, empty)
    no_labels = Counts(*(np.zeros(0) for _ in range(3)))
    for average in ("micro", "macro", "weighted"):
        for nothing in (counts, no_labels):
            assert precision_recall_f1(nothing, average) == (0.0, 0.0, 0.0)
    with pytest.raises(InputError, match="0 documents and 3 labels"):
        decision_scores(empty, empty)
    with pytest.raises(InputError, match="2 documents and 0 labels"):
        decision_scores(np.zeros((2, 0)), np.zeros((2, 0)))


def test_unknown_choices_are_refused() -> None:
    labels = np.array([[1, 0]])
    with pytest.raises(InputError, match="average must be one of micro, macro, weighted"):
        precision_recall_f1(count(labels, labels), "makro")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="absent must be one of zero, skip, got 'drop'"):
        precision_recall_f1(count(labels, labels), "macro", "drop")  # type: ignore[arg-type]
