"""Precision, recall, F1, Hamming loss and subset accuracy: scikit-learn's figures to 1e-12."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from sklearn.metrics import accuracy_score, f1_score, precision_recall_fscore_support
from sklearn.metrics import hamming_loss as sklearn_hamming_loss

from longtail.errors import InputError, UnknownNameError
from longtail.metrics import (
    Counts,
    PrecisionRecallF1,
    count,
    decision_scores,
    hamming_loss,
    label_f1,
    label_precision_recall_f1,
    macro_f1,
    micro_f1,
    precision_recall_f1,
    sample_precision_recall_f1,
    subset_accuracy,
)

from .cases import BLOCK_SIZES, backwards, block_size, decisions, forms, property_test, stored

Decisions = tuple[np.ndarray, np.ndarray]


def scikit_learn(case: Decisions, average: str | None) -> tuple[np.ndarray, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return precision_recall_fscore_support(*case, average=average, zero_division=0)[:3]


@given(decisions())
@property_test
def test_averages_equal_scikit_learn(case: Decisions) -> None:
    counts = count(*case)
    for average in ("micro", "macro", "weighted"):
        ours = precision_recall_f1(counts, average)
        assert ours == pytest.approx(scikit_learn(case, average), abs=1e-12), average
    assert micro_f1(counts) == precision_recall_f1(counts, "micro").f1
    assert macro_f1(counts) == precision_recall_f1(counts, "macro").f1
    samples = sample_precision_recall_f1(*case)
    assert samples == pytest.approx(scikit_learn(case, "samples"), abs=1e-12)
    for ours, theirs in zip(
        label_precision_recall_f1(counts), scikit_learn(case, None), strict=True
    ):
        assert ours == pytest.approx(theirs, abs=1e-12)
    assert (label_f1(counts) == label_precision_recall_f1(counts)[2]).all()


@given(decisions())
@property_test
def test_losses_equal_scikit_learn(case: Decisions) -> None:
    assert hamming_loss(*case) == pytest.approx(sklearn_hamming_loss(*case), abs=1e-12)
    assert subset_accuracy(*case) == pytest.approx(accuracy_score(*case), abs=1e-12)


@given(decisions(min_labels=1))
@property_test
def test_one_label_is_a_binary_problem(case: Decisions) -> None:
    labels, given_labels = (part[:, :1] for part in case)
    expected = f1_score(labels.ravel(), given_labels.ravel(), zero_division=0)
    for average in ("micro", "macro"):
        ours = precision_recall_f1(count(labels, given_labels), average)
        assert ours.f1 == pytest.approx(expected, abs=1e-12)


@given(decisions())
@property_test
def test_skipping_absent_labels_is_scikit_learn_on_the_present_ones(case: Decisions) -> None:
    labels, given_labels = case
    present = np.flatnonzero(labels.any(axis=0))
    counts = count(labels, given_labels)
    ours = precision_recall_f1(counts, "macro", absent="skip")
    assert macro_f1(counts, absent="skip") == ours.f1
    if len(present) == 0:
        assert ours == (0.0, 0.0, 0.0)
        return
    each = scikit_learn(case, None)
    assert ours == pytest.approx([values[present].mean() for values in each], abs=1e-12)


@given(decisions())
@property_test
def test_skipping_unlabelled_documents(case: Decisions) -> None:
    labels, given_labels = case
    rows = labels.any(axis=1)
    ours = sample_precision_recall_f1(labels, given_labels, unlabelled="skip")
    kept = labels[rows], given_labels[rows]
    expected = scikit_learn(kept, "samples") if rows.any() else (0.0, 0.0, 0.0)
    assert ours == pytest.approx(expected, abs=1e-12)


@given(decisions(min_labels=1), BLOCK_SIZES)
@property_test
def test_every_form_of_input_counts_alike(case: Decisions, size: int) -> None:
    labels, given_labels = case
    hits, predicted, actual = (
        part.sum(axis=0) for part in (labels & given_labels, given_labels, labels)
    )
    with block_size(size):
        for truth, decided in zip(forms(labels), reversed(forms(given_labels)), strict=True):
            counts = count(truth, decided)
            assert all(part.dtype == np.float64 for part in counts)
            assert (np.array(counts) == [hits, predicted, actual]).all()


@given(decisions())
@property_test
def test_all_scores_at_once_are_the_single_ones(case: Decisions) -> None:
    found = decision_scores(*case, absent="skip", unlabelled="skip")
    counts = count(*case)
    expected = {
        "micro": precision_recall_f1(counts, "micro"),
        "macro": precision_recall_f1(counts, "macro", "skip"),
        "weighted": precision_recall_f1(counts, "weighted"),
        "sample": sample_precision_recall_f1(*case, "skip"),
    }
    for average, (precision, recall, f1) in expected.items():
        assert found.pop(f"{average}_precision") == precision
        assert found.pop(f"{average}_recall") == recall
        assert found.pop(f"{average}_f1") == f1
    assert found == {
        "hamming_loss": hamming_loss(*case),
        "subset_accuracy": subset_accuracy(*case),
    }


def test_defaults_count_absent_labels_and_unlabelled_documents_as_zero() -> None:
    labels, given_labels = np.array([[1, 0], [0, 0]]), np.array([[1, 0], [0, 1]])
    found = decision_scores(labels, given_labels)
    assert found["macro_f1"] == 0.5 == macro_f1(count(labels, given_labels))
    assert found["sample_f1"] == 0.5 == sample_precision_recall_f1(labels, given_labels).f1
    # The wrong prediction of the absent label is seen by micro only.
    assert found["micro_f1"] == pytest.approx(2 / 3)
    assert decision_scores(labels, given_labels, absent="skip")["macro_f1"] == 1.0
    assert decision_scores(labels, given_labels, unlabelled="skip")["sample_f1"] == 1.0


def test_one_document_no_positives_all_positives() -> None:
    nothing, everything = np.zeros((1, 3)), np.ones((1, 3))
    perfect = decision_scores(everything, everything)
    assert perfect.pop("hamming_loss") == 0.0
    assert set(perfect.values()) == {1.0}
    empty = decision_scores(nothing, nothing)
    assert empty.pop("subset_accuracy") == 1.0
    assert set(empty.values()) == {0.0}
    missed = decision_scores(everything, nothing)
    assert missed.pop("hamming_loss") == 1.0
    assert set(missed.values()) == {0.0}


def test_an_empty_group_counts_nothing_and_has_no_mean_over_documents() -> None:
    nobody = sp.csr_matrix((0, 3))
    counts = count(nobody, nobody)
    assert micro_f1(counts) == macro_f1(counts) == macro_f1(counts, "skip") == 0.0
    no_labels = Counts(*(np.zeros(0) for _ in range(3)))
    for average in ("micro", "macro", "weighted"):
        assert precision_recall_f1(no_labels, average) == PrecisionRecallF1(0.0, 0.0, 0.0)
    for metric in (hamming_loss, subset_accuracy, sample_precision_recall_f1, decision_scores):
        with pytest.raises(InputError, match="0 documents and 3 labels"):
            metric(nobody, nobody)
        with pytest.raises(InputError, match="2 documents and 0 labels"):
            metric(np.zeros((2, 0)), np.zeros((2, 0)))


def test_counts_of_whole_numbers_will_do() -> None:
    counts = Counts(np.array([1, 0]), np.array([2, 0]), np.array([1, 0]))
    assert precision_recall_f1(counts, "micro") == pytest.approx((0.5, 1.0, 2 / 3))
    assert precision_recall_f1(counts, "weighted") == pytest.approx((0.5, 1.0, 2 / 3))
    assert precision_recall_f1(counts, "macro") == pytest.approx((0.25, 0.5, 1 / 3))


def test_scores_do_not_pass_for_decisions() -> None:
    labels = np.array([[1, 0]])
    for scores in (np.array([[0.9, 0.1]]), sp.csr_matrix([[0.9, 0.0]]), np.array([[3, -1]])):
        with pytest.raises(InputError, match=r"predictions must be 0 or 1, got .*threshold"):
            count(labels, scores)
    with pytest.raises(InputError, match="labels must be 0 or 1, got nan"):
        count(np.array([[np.nan, 0]]), labels)
    twice = sp.csr_matrix(([1, 1], [0, 0], [0, 2]), shape=(1, 2))
    with pytest.raises(InputError, match="labels must be 0 or 1, got 2"):
        count(twice, labels)


def test_misfits_are_refused() -> None:
    labels = np.array([[1, 0]])
    with pytest.raises(InputError, match=r"\(1, 2\) and predictions of shape \(2, 2\)"):
        hamming_loss(labels, np.zeros((2, 2)))
    for flat in (np.array([1, 0]), sp.coo_array(np.array([1, 0]))):
        with pytest.raises(InputError, match=r"labels must be a documents x labels .*\(2,\)"):
            subset_accuracy(flat, labels)
    with pytest.raises(InputError, match="different lengths"):
        subset_accuracy([[1, 0], [1]], labels)
    with pytest.raises(InputError, match=r"real numbers.*encode_labels"):
        subset_accuracy([["copper", "wheat"]], labels)
    with pytest.raises(UnknownNameError, match=r"unknown average 'makro'\. Did you mean 'macro'"):
        precision_recall_f1(count(labels, labels), "makro")  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="absent labels 'drop'"):
        macro_f1(count(labels, labels), "drop")  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="unlabelled documents 'drop'"):
        sample_precision_recall_f1(labels, labels, "drop")  # type: ignore[arg-type]


def test_the_callers_matrices_stay_as_they_are() -> None:
    labels = backwards(stored(np.array([[1, 0, 1], [0, 1, 1]])))
    before = labels.data.copy(), labels.indices.copy(), labels.indptr.copy()
    decision_scores(labels, labels)
    after = labels.data, labels.indices, labels.indptr
    assert all((old == new).all() for old, new in zip(before, after, strict=True))
