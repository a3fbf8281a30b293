"""Average precision, over all decisions pooled (micro) or per label (macro).

It is the mean, over positives, of the precision among the scores at least as high as that of the
positive. Ties are thus one threshold, as in scikit-learn.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.checks import check_choice
from longtail.metrics.blocks import applies_to, positions_of, row_blocks, rows_of
from longtail.metrics.inputs import FloatArray, WithoutPositives, labels_and_scores, mean_of

APAverage = Literal["micro", "macro"]


def average_precision(
    y_true: Any, scores: Any, average: APAverage = "micro", absent: WithoutPositives = "zero"
) -> float:
    """Average precision; 0 if nothing is positive.

    Args:
        y_true, scores: see the package.
        average: `micro` ranks the pairs of all labels together, which needs scores that are
            comparable between labels; `macro` is the mean over labels.
        absent: whether `macro` counts a label without positives in y_true as 0 (`zero`, as in
            scikit-learn) or leaves it out (`skip`).

    Example:
        >>> truth, scores = [[1, 0], [0, 0], [1, 0]], [[0.9, 0.1], [0.5, 0.2], [0.4, 0.3]]
        >>> round(average_precision(truth, scores), 4)
        0.8333
        >>> round(average_precision(truth, scores, "macro"), 4)
        0.4167
    """
    check_choice("average", average, get_args(APAverage))
    check_choice("absent", absent, get_args(WithoutPositives))
    truth, checked = labels_and_scores(y_true, scores)
    if average == "macro":
        n_positive = np.bincount(truth.indices, minlength=truth.shape[1])
        sums = (_sums_sparse if sp.issparse(checked) else _sums_dense)(truth.tocsc(), checked)
        # A label without positives has a sum of 0.
        return mean_of(sums / np.maximum(n_positive, 1), n_positive > 0, absent)
    blocks: Iterable[NDArray[Any]]
    if sp.issparse(checked):
        positive = checked.data[positions_of(truth, checked)]
        blocks = (checked.data[part] for part in row_blocks(checked.nnz, 1))
    else:
        positive = checked[rows_of(truth), truth.indices]
        blocks = (checked[rows] for rows in row_blocks(*checked.shape))
    total = _precision_sum(positive, (np.sort(block, axis=None) for block in blocks))
    return total / truth.nnz if truth.nnz else 0.0


def _precision_sum(positive: NDArray[Any], sorted_blocks: Iterable[NDArray[Any]]) -> float:
    """Sum over positives of the precision at their scores; the blocks make up all scores."""
    positive = np.sort(positive)
    hits = positive.size - np.searchsorted(positive, positive)
    retrieved = np.zeros(positive.size, dtype=np.int64)
    for block in sorted_blocks:
        retrieved += block.size - np.searchsorted(block, positive)
    return float((hits / retrieved).sum())


def _sums_dense(truth: sp.csc_matrix, scores: NDArray[Any]) -> FloatArray:
    """`_precision_sum` of each label."""
    sums = np.zeros(truth.shape[1])
    # Skip labels without positives: most labels of a long tail.
    for label in np.flatnonzero(np.diff(truth.indptr)):
        documents = truth.indices[truth.indptr[label] : truth.indptr[label + 1]]
        sums[label] = _precision_sum(scores[documents, label], [np.sort(scores[:, label])])
    return sums


def _sums_sparse(truth: sp.csc_matrix, scores: sp.csr_matrix) -> FloatArray:
    """`_precision_sum` of each label over its stored scores, vectorised over all labels."""
    scored = scores.tocsc()
    labels = rows_of(scored.T)
    order = np.lexsort((scored.data, labels))
    values, hits = scored.data[order], applies_to(truth, scored)[order]
    is_first = np.append(True, (values[1:] != values[:-1]) | (labels[1:] != labels[:-1]))
    first = np.flatnonzero(is_first[: scored.nnz])
    # A hit's precision is over the entries from the first tied with it to the end of its label.
    positive = np.flatnonzero(hits)
    start = first[np.searchsorted(first, positive, side="right") - 1]
    end = scored.indptr[labels[positive] + 1]
    n_before = np.append(0, np.cumsum(hits))
    precision = (n_before[end] - n_before[start]) / (end - start)
    return np.bincount(labels[positive], precision, scored.shape[1]).astype(np.float64)
