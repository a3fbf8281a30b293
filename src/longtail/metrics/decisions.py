"""Metrics of decisions: precision, recall, F1, Hamming loss and subset accuracy.

Anything but 0 and 1 is refused, so that logits or probabilities cannot be mistaken for decisions.
0 / 0 is 0, as with scikit-learn's zero_division=0.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from longtail.checks import check_choice
from longtail.metrics.inputs import (
    FloatArray,
    WithoutPositives,
    check_not_empty,
    check_same_shape,
    known_documents,
    known_labels,
    label_matrix,
    mean_of,
    ratio,
)

Average: TypeAlias = Literal["micro", "macro", "weighted"]


class Counts(NamedTuple):
    """True, predicted and actual positives of each label (or of each document)."""

    hits: FloatArray
    predicted: FloatArray
    actual: FloatArray


class PrecisionRecallF1(NamedTuple):
    """Precision, recall and F1 under one kind of average."""

    precision: float
    recall: float
    f1: float


def count(y_true: Any, y_pred: Any) -> Counts:
    """Counts of each label over all documents; 0 if there are no documents."""
    return _counts(y_true, y_pred)[0]


def label_precision_recall_f1(counts: Counts) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Precision, recall and F1 of each label: 0 if never predicted, absent, or both."""
    hits, predicted, actual = counts
    return ratio(hits, predicted), ratio(hits, actual), ratio(2 * hits, predicted + actual)


def precision_recall_f1(
    counts: Counts, average: Average = "micro", absent: WithoutPositives = "zero"
) -> PrecisionRecallF1:
    """Precision, recall and F1 averaged over labels.

    Args:
        counts: result of `count`; index each array to evaluate a group of labels.
        average: `micro` pools all decisions; `macro` is the mean over labels; `weighted` the mean
            weighted by support. F1 is averaged over labels, not computed from averages.
        absent: how `macro` treats labels without positives in y_true. `zero` counts them as 0,
            predicted or not (as in the paper, and in scikit-learn with zero_division=0). `skip`
            leaves them out, false positives included. They have no weight in `weighted`; `micro`
            always counts their false positives.

    If no label is left, each value is 0.

    Example:
        >>> counts = count([[1, 0, 0], [1, 1, 0]], [[1, 0, 0], [1, 0, 0]])
        >>> round(precision_recall_f1(counts, "macro").f1, 4)
        0.3333
        >>> precision_recall_f1(counts, "macro", absent="skip").f1
        0.5
    """
    check_choice("average", average, get_args(Average))
    check_choice("absent", absent, get_args(WithoutPositives))
    if average == "micro":
        counts = Counts(*(np.atleast_1d(np.sum(part)) for part in counts))
    by_label = label_precision_recall_f1(counts)
    if average == "weighted":
        weights = counts.actual / (np.sum(counts.actual) or 1.0)
        return PrecisionRecallF1(*(float(weights @ values) for values in by_label))
    present = np.asarray(counts.actual) > 0
    return PrecisionRecallF1(*(mean_of(values, present, absent) for values in by_label))


def decision_scores(
    y_true: Any, y_pred: Any, absent: WithoutPositives = "zero"
) -> dict[str, float]:
    """All metrics of decisions by name: `micro_f1`, `sample_f1`, `hamming_loss` and so on.

    `sample_...` are means over documents, where a document without labels counts as 0 even if
    nothing is predicted for it. `hamming_loss` is the fraction of wrong decisions,
    `subset_accuracy` that of documents without any. `absent`: see `precision_recall_f1`.
    """
    labels, documents, n_known = _counts(y_true, y_pred)
    check_not_empty((len(documents.hits), len(labels.hits)))
    averages = {
        "micro": precision_recall_f1(labels, "micro"),
        "macro": precision_recall_f1(labels, "macro", absent),
        "weighted": precision_recall_f1(labels, "weighted"),
        "sample": precision_recall_f1(documents, "macro"),
    }
    scores = {
        f"{average}_{name}": value
        for average, values in averages.items()
        for name, value in values._asdict().items()
    }
    wrong = documents.predicted + documents.actual - 2 * documents.hits
    scores["hamming_loss"] = float(wrong.sum() / n_known)
    scores["subset_accuracy"] = float((wrong == 0).mean())
    return scores


def _counts(y_true: Any, y_pred: Any) -> tuple[Counts, Counts, int]:
    """Counts per label, counts per document with a known label, and the number of known pairs."""
    truth, unknown = known_labels(y_true)
    predicted = label_matrix(y_pred, "predictions")
    check_same_shape(truth, predicted, "predictions")
    n_known = int(np.prod(truth.shape))
    if unknown is not None:
        n_known -= unknown.nnz
        rows, predicted = known_documents(unknown), predicted - predicted.multiply(unknown)
        truth, predicted = truth[rows], predicted[rows]
    matrices = (truth.multiply(predicted), predicted, truth)
    parts = [matrix.astype(np.float64) for matrix in matrices]
    by_label, by_document = (
        Counts(*(np.asarray(part.sum(axis=axis)).ravel() for part in parts)) for axis in (0, 1)
    )
    return by_label, by_document, n_known
