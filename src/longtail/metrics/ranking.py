"""The k best labels of each document, and ranking metrics at all k from one ranking.

Only the order of the scores matters: logits and probabilities give the same values, unless rounding
turns different logits into equal probabilities.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from longtail.checks import check_integer
from longtail.errors import InputError, shown
from longtail.labels import LabelStats
from longtail.metrics.blocks import row_blocks, rows_of
from longtail.metrics.inputs import FloatArray, labels_and_scores, ratio, score_matrix


def top_k(scores: Any, k: int) -> NDArray[Any]:
    """Columns of the k highest scores of each document, best first: documents x k.

    Ties go to the lower column. Rows with fewer than k labels or stored scores are padded with -1.
    """
    checked = score_matrix(scores)
    check_integer("k", k, 1)
    best = _top_k(checked, min(k, checked.shape[1]))
    return np.pad(best, ((0, 0), (0, k - best.shape[1])), constant_values=-1)


def top_entries(scores: sp.csr_matrix, k: int) -> NDArray[np.int64]:
    """Positions of the k highest stored scores of each row: rows x k, padded with -1.

    Column indices must be sorted: ties go to the first stored score.
    """
    best = np.full((scores.shape[0], k), -1, dtype=np.int64)
    rows, last = rows_of(scores), scores.nnz - 1
    # Sort the reversed array in ascending order: unsigned scores cannot be negated.
    order = last - np.lexsort((scores.data[::-1], -rows[::-1]))[::-1]
    places = np.arange(scores.nnz) - scores.indptr[rows]
    chosen = places < k
    best[rows[chosen], places[chosen]] = order[chosen]
    return best


def propensities(
    label_counts: Mapping[str, float] | ArrayLike, n_samples: int, a: float = 0.55, b: float = 1.5
) -> FloatArray:
    """Probability that a relevant label was also assigned (Jain et al., KDD 2016).

    p = 1 / (1 + C (n + b)^-a) with C = (ln N - 1) (b + 1)^a, for n of N **training** documents.

    Args:
        label_counts: number of training documents per label; 0 is allowed.
        n_samples: number of training documents, at least 3 so that C is positive.
        a, b: the authors use 0.5, 0.4 for Wikipedia and 0.6, 2.6 for Amazon.
    """
    counts = LabelStats.from_counts(label_counts, n_samples).label_counts
    if n_samples < 3:
        raise InputError(
            f"propensities need 3 training documents or more, got n_samples = {n_samples}. "
            "Pass the number of training documents, not of those evaluated."
        )
    # ((b + 1) / (n + b))^a as one power: two may overflow.
    odds = (np.log(n_samples) - 1) * ((b + 1) / (counts + b)) ** a
    return np.asarray(1 / (1 + odds), dtype=np.float64)


def ranking_scores(
    y_true: Any, scores: Any, ks: Sequence[int] = (1, 3, 5), propensities: ArrayLike | None = None
) -> dict[str, float]:
    """All ranking metrics at each k by name: `precision@1` and so on.

    A hit is a label among the k best of a document that applies. `precision` is the mean over
    documents of hits / k, `recall` of hits / labels of the document, and `ndcg` of DCG / ideal DCG,
    with ties ranked by column (scikit-learn averages over their orders); documents without labels
    count as 0 in all three. `psp` is the sum of 1/p over all hits, divided by the highest possible
    sum; `psndcg` discounts the gain at rank r by log2(r + 1) and divides each document by the plain
    DCG of min(k, its labels) hits. `coverage` is the fraction of labels present in y_true with a
    hit in some document.

    Args:
        y_true, scores: see the package.
        ks: cutoffs; may exceed the number of labels.
        propensities: result of `propensities` on the training counts; adds `psp@k` and `psndcg@k`,
            normalised as in the Extreme Classification Repository.

    Example:
        >>> truth, scores = [[1, 0, 1], [0, 1, 0]], [[3.0, 2.0, 1.0], [0.5, 0.1, 0.2]]
        >>> values = ranking_scores(truth, scores, ks=[2])
        >>> {name: round(value, 4) for name, value in values.items()}
        {'precision@2': 0.25, 'recall@2': 0.25, 'ndcg@2': 0.3066, 'coverage@2': 0.3333}
    """
    for k in ks:
        check_integer("k", k, 1)
    truth, checked = labels_and_scores(y_true, scores)
    best = _top_k(checked, min(max(ks), truth.shape[1]))
    hits, n_actual = _applies(truth, best), np.diff(truth.indptr)
    n_present = np.unique(truth.indices).size
    discounts = 1 / np.log2(np.arange(2, best.shape[1] + 2))
    # The DCG of n hits in the first n places.
    ideals = np.append(0.0, np.cumsum(discounts))
    metrics: dict[str, list[float]] = defaultdict(list)
    if propensities is not None:
        gains, most = _gains(truth, best, hits, propensities)
    for k in ks:
        top_hits, ideal = hits[:, :k], ideals[np.minimum(n_actual, k)]
        n_hits = top_hits.sum(axis=1)
        for name, values in (
            ("precision", n_hits / k),
            ("recall", ratio(n_hits, n_actual)),
            ("ndcg", ratio(top_hits @ discounts[:k], ideal)),
        ):
            metrics[name].append(float(values.mean()))
        if propensities is not None:
            gained, possible, scale = gains[:, :k], most[:, :k], ratio(1.0, ideal)
            discounted = (scale @ (gain @ discounts[:k]) for gain in (gained, possible))
            metrics["psp"].append(float(ratio(gained.sum(), possible.sum())))
            metrics["psndcg"].append(float(ratio(*discounted)))
        n_hit = np.unique(best[:, :k][top_hits]).size
        metrics["coverage"].append(n_hit / n_present if n_present else 0.0)
    return {f"{name}@{k}": x for name, row in metrics.items() for k, x in zip(ks, row, strict=True)}


def _gains(
    truth: sp.csr_matrix, best: NDArray[Any], hits: NDArray[np.bool_], propensities: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """1 / propensity at each rank, for the hits and for the best possible ranking."""
    values = np.asarray(propensities, dtype=np.float64)
    if values.shape != (truth.shape[1],) or not ((values > 0) & (values <= 1)).all():
        raise InputError(
            f"expected {truth.shape[1]} propensities above 0 and at most 1, one per label, got "
            f"{shown(propensities)}. Compute them with propensities(label_counts, n_samples); the "
            "inverse is taken here."
        )
    inverse = 1 / values
    weighted = sp.csr_matrix((inverse[truth.indices], truth.indices, truth.indptr), truth.shape)
    entries = top_entries(weighted, best.shape[1])
    ideal = np.where(entries >= 0, np.append(weighted.data, 0.0)[entries], 0.0)
    return np.where(hits, inverse[best], 0.0), ideal


def _top_k(scores: Any, k: int) -> NDArray[Any]:
    n_documents, n_labels = scores.shape
    best = np.full((n_documents, k), -1, dtype=sp.get_index_dtype(maxval=n_labels))
    if sp.issparse(scores):
        entries = top_entries(scores, k)
        best[entries >= 0] = scores.indices[entries[entries >= 0]]
    else:
        for rows in row_blocks(n_documents, n_labels):
            best[rows] = _top_k_dense(scores[rows], k)
    return best


def _top_k_dense(block: NDArray[Any], k: int) -> NDArray[Any]:
    """The k best columns of each row, sorting only scores that reach the k-th best."""
    n_labels = block.shape[1]
    if k == n_labels:
        return _descending(block)
    last = np.partition(block, n_labels - k, axis=1)[:, n_labels - k, np.newaxis]
    chosen = block >= last
    # Where too many scores tie with the k-th best, keep the lower columns.
    crowded = np.flatnonzero(chosen.sum(axis=1) > k)
    better = block[crowded] > last[crowded]
    tied = chosen[crowded] & ~better
    n_missing = k - better.sum(axis=1, keepdims=True)
    chosen[crowded] = better | (tied & (np.cumsum(tied, axis=1, dtype=np.int32) <= n_missing))
    columns = np.nonzero(chosen)[1].reshape(-1, k)
    order = _descending(block[chosen].reshape(-1, k))
    return np.take_along_axis(columns, order, axis=1)


def _descending(values: NDArray[Any]) -> NDArray[np.int64]:
    """Stable descending argsort of each row, without negating unsigned scores."""
    backwards = np.argsort(values[:, ::-1], axis=1, kind="stable")[:, ::-1]
    return np.asarray(values.shape[1] - 1 - backwards, dtype=np.int64)


def _applies(truth: sp.csr_matrix, labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each ranked label applies to its document."""
    n_documents, n_labels = truth.shape
    pairs = np.arange(n_documents, dtype=np.int64)[:, np.newaxis] * n_labels + labels
    # Padding of -1 would otherwise refer to the last label of the previous document.
    return (labels >= 0) & np.isin(pairs, rows_of(truth) * n_labels + truth.indices)
