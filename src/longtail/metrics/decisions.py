"""Metrics of decisions: precision, recall, F1, Hamming loss and subset accuracy.

They take 0/1 matrices and refuse anything else, so logits or probabilities never pass for
decisions. A ratio of nothing to nothing is 0, as with scikit-learn's zero_division=0.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from longtail.metrics.inputs import (
    FloatArray,
    LeftOut,
    check_choice,
    check_not_empty,
    check_same_shape,
    label_matrix,
    mean_of,
)

Average: TypeAlias = Literal["micro", "macro", "weighted"]


class Counts(NamedTuple):
    """True positives, predicted and actual positives of every label (or of every document)."""

    hits: FloatArray
    predicted: FloatArray
    actual: FloatArray


class PrecisionRecallF1(NamedTuple):
    """One average of each."""

    precision: float
    recall: float
    f1: float


def count(y_true: Any, y_pred: Any) -> Counts:
    """Count per label over all documents.

    Args:
        y_true: labels, documents x labels, 0/1; dense or sparse (a stored zero is no label).
        y_pred: decisions, likewise.

    Zero documents are allowed, so that an empty group of documents has a row in a table: all its
    counts are 0, and so are its F1 scores.
    """
    return _by_label(*_compare(y_true, y_pred))


def micro_f1(counts: Counts) -> float:
    """F1 of all decisions together; 0 where nothing is predicted and nothing applies."""
    return precision_recall_f1(counts, "micro").f1


def macro_f1(counts: Counts, absent: LeftOut = "zero") -> float:
    """Mean F1 over all labels, absent ones counting 0 as in the paper, or over those present.

    `absent` as in `precision_recall_f1`.
    """
    return precision_recall_f1(counts, "macro", absent).f1


def label_f1(counts: Counts) -> FloatArray:
    """F1 of each label; 0 for a label that is neither predicted nor present."""
    return _ratio(2 * counts.hits, counts.predicted + counts.actual)


def label_precision_recall_f1(counts: Counts) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Precision, recall and F1 of each label: 0 if it is never predicted, absent, or both."""
    return (
        _ratio(counts.hits, counts.predicted),
        _ratio(counts.hits, counts.actual),
        label_f1(counts),
    )


def precision_recall_f1(
    counts: Counts, average: Average = "micro", absent: LeftOut = "zero"
) -> PrecisionRecallF1:
    """Precision, recall and F1 of all labels as one figure each.

    Args:
        counts: of `count`; take a part of each array to judge a group of labels.
        average: `micro` pools all decisions; `macro` is the mean over labels; `weighted` the mean
            with the labels' numbers of documents as weights. The F1 of an average is the average
            of the labels' F1, not the F1 of the averages.
        absent: what `macro` does with a label that no judged document carries. `zero`: the mean is
            over all labels, and such a label counts 0 whether it was predicted or not (the paper,
            and scikit-learn with zero_division=0). `skip`: the mean is over the labels present,
            and wrong predictions of the others are not seen. The other averages do not depend
            on it: an absent label weighs nothing in `weighted`; `micro` always sees its errors.

    With no label, or none present where absent ones are skipped, each figure is 0.

    Example:
        >>> counts = count([[1, 0, 0], [1, 1, 0]], [[1, 0, 0], [1, 0, 0]])
        >>> round(precision_recall_f1(counts, "macro").f1, 4)
        0.3333
        >>> precision_recall_f1(counts, "macro", absent="skip").f1
        0.5
    """
    check_choice("average", average, Average)
    check_choice("choice for absent labels", absent, LeftOut)
    if average == "micro":
        counts = Counts(*(np.atleast_1d(np.sum(part)) for part in counts))
    by_label = label_precision_recall_f1(counts)
    if average == "weighted":
        total = float(np.sum(counts.actual))
        weights = counts.actual / total if total else np.zeros(len(counts.actual))
        return PrecisionRecallF1(*(float(weights @ values) for values in by_label))
    present = np.asarray(counts.actual) > 0
    return PrecisionRecallF1(*(mean_of(values, present, absent) for values in by_label))


def sample_precision_recall_f1(
    y_true: Any, y_pred: Any, unlabelled: LeftOut = "zero"
) -> PrecisionRecallF1:
    """Mean over documents of each document's precision, recall and F1.

    A document without labels counts 0, even if nothing is predicted for it (scikit-learn with
    zero_division=0); `unlabelled="skip"` takes the mean over the other documents, 0 if none is.
    """
    truth, predicted, hits = _compare(y_true, y_pred)
    return _of_samples(_by_document(truth, predicted, hits), unlabelled)


def hamming_loss(y_true: Any, y_pred: Any) -> float:
    """Share of all document-label decisions that are wrong."""
    truth, predicted, hits = _compare(y_true, y_pred)
    return _hamming(_by_document(truth, predicted, hits), truth.shape[1])


def subset_accuracy(y_true: Any, y_pred: Any) -> float:
    """Share of documents whose labels are all found and none other given."""
    return _exact(_by_document(*_compare(y_true, y_pred)))


def decision_scores(
    y_true: Any, y_pred: Any, absent: LeftOut = "zero", unlabelled: LeftOut = "zero"
) -> dict[str, float]:
    """All metrics of this file by name, counted once: `micro_f1`, `hamming_loss` and so on."""
    truth, predicted, hits = _compare(y_true, y_pred)
    labels = _by_label(truth, predicted, hits)
    documents = _by_document(truth, predicted, hits)
    averages = {
        "micro": precision_recall_f1(labels, "micro"),
        "macro": precision_recall_f1(labels, "macro", absent),
        "weighted": precision_recall_f1(labels, "weighted"),
        "sample": _of_samples(documents, unlabelled),
    }
    found = {
        f"{average}_{name}": value
        for average, values in averages.items()
        for name, value in values._asdict().items()
    }
    found["hamming_loss"] = _hamming(documents, truth.shape[1])
    found["subset_accuracy"] = _exact(documents)
    return found


def _compare(y_true: Any, y_pred: Any) -> tuple[sp.csr_matrix, sp.csr_matrix, sp.csr_matrix]:
    """Labels, decisions, and where they agree on a one."""
    truth, predicted = label_matrix(y_true, "labels"), label_matrix(y_pred, "predictions")
    check_same_shape(truth, predicted, "predictions")
    return truth, predicted, truth.multiply(predicted).tocsr()


def _by_label(truth: sp.csr_matrix, predicted: sp.csr_matrix, hits: sp.csr_matrix) -> Counts:
    n_labels = truth.shape[1]
    return Counts(
        *(
            np.bincount(matrix.indices, minlength=n_labels).astype(np.float64)
            for matrix in (hits, predicted, truth)
        )
    )


def _by_document(truth: sp.csr_matrix, predicted: sp.csr_matrix, hits: sp.csr_matrix) -> Counts:
    check_not_empty(truth.shape)
    return Counts(
        *(np.diff(matrix.indptr).astype(np.float64) for matrix in (hits, predicted, truth))
    )


def _of_samples(documents: Counts, unlabelled: LeftOut) -> PrecisionRecallF1:
    check_choice("choice for unlabelled documents", unlabelled, LeftOut)
    labelled = documents.actual > 0
    values = label_precision_recall_f1(documents)
    return PrecisionRecallF1(*(mean_of(value, labelled, unlabelled) for value in values))


def _hamming(documents: Counts, n_labels: int) -> float:
    wrong = (documents.predicted + documents.actual - 2 * documents.hits).sum()
    return float(wrong / (len(documents.hits) * n_labels))


def _exact(documents: Counts) -> float:
    exact = (documents.hits == documents.predicted) & (documents.hits == documents.actual)
    return float(exact.mean())


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    whole = np.asarray(whole, dtype=np.float64)
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)
