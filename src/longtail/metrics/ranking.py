"""The k best labels of every document, and their metrics for all k from one ranking.

Only the order of the scores matters: logits and probabilities give the same values, except where
rounding turns different logits into equal probabilities.
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
    """Columns of the k best labels of every document, best first: documents x k.

    Of equal scores the lower column comes first. A row ends in -1 where a document has fewer than
    k labels, or fewer than k stored scores in CSR.
    """
    checked = score_matrix(scores)
    check_integer("k", k, 1)
    best = _top_k(checked, min(k, checked.shape[1]))
    return np.pad(best, ((0, 0), (0, k - best.shape[1])), constant_values=-1)


def top_entries(scores: sp.csr_matrix, k: int) -> NDArray[np.int64]:
    """Positions of the k best stored scores of every row: rows x k, -1 where there are fewer.

    Columns must be sorted: of equal scores the first stored wins.
    """
    best = np.full((scores.shape[0], k), -1, dtype=np.int64)
    rows, last = rows_of(scores), scores.nnz - 1
    # Upwards from the back and read from the back: unsigned scores cannot be negated.
    order = last - np.lexsort((scores.data[::-1], -rows[::-1]))[::-1]
    places = np.arange(scores.nnz) - scores.indptr[rows]
    chosen = places < k
    best[rows[chosen], places[chosen]] = order[chosen]
    return best


def propensities(
    label_counts: Mapping[str, float] | ArrayLike, n_samples: int, a: float = 0.55, b: float = 1.5
) -> FloatArray:
    """Chance that a label that applies was also assigned (Jain et al., KDD 2016).

    p = 1 / (1 + C (n + b)^-a) with C = (ln N - 1) (b + 1)^a, for n of N **training** documents.

    Args:
        label_counts: training documents of every label; 0 is allowed.
        n_samples: number of training documents, 3 at least, since C must be positive.
        a, b: the authors use 0.5, 0.4 for Wikipedia and 0.6, 2.6 for Amazon.
    """
    counts = LabelStats.from_counts(label_counts, n_samples).label_counts
    if n_samples < 3:
        raise InputError(
            f"propensities need 3 training documents or more, got n_samples = {n_samples}. "
            "Pass the number of training documents, not of those evaluated."
        )
    # ((b + 1) / (n + b))^a: one power instead of two that may overflow.
    odds = (np.log(n_samples) - 1) * ((b + 1) / (counts + b)) ** a
    return np.asarray(1 / (1 + odds), dtype=np.float64)


def ranking_scores(
    y_true: Any, scores: Any, ks: Sequence[int] = (1, 3, 5), propensities: ArrayLike | None = None
) -> dict[str, float]:
    """All ranking metrics at every k by name, `precision@1` and so on, from one ranking.

    Of the k best labels of a document, whose hits are those that apply:
    `precision` is the mean over documents of hits / k, `recall` that of hits / labels of the
    document, `ndcg` that of the DCG / the DCG of a perfect ranking, equal scores ranked by column
    (scikit-learn averages over their orders). `psp` is the sum of 1/p over the hits of all
    documents / the highest possible sum, `psndcg` the same with a gain at rank r divided by
    log2(r + 1), each document by the plain DCG of min(k, its labels) hits. `coverage` is the share
    of the labels present in y_true that are a hit of some document. A document without labels
    counts as 0 in the first three.

    Args:
        y_true, scores: see the package.
        ks: may exceed the number of labels.
        propensities: of `propensities(label_counts, n_samples)` of the training documents; adds
            `psp@k` and `psndcg@k`, normalised as in the Extreme Classification Repository.

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
    # At every rank, and summed: the DCG of a document whose labels are all ranked first.
    every_discount = 1 / np.log2(np.arange(2, best.shape[1] + 2))
    ideals = np.append(0.0, np.cumsum(every_discount))
    metrics: dict[str, list[float]] = defaultdict(list)
    if propensities is not None:
        gains, most = _gains(truth, best, hits, propensities)
    for k in ks:
        top_hits, ideal = hits[:, :k], ideals[np.minimum(n_actual, k)]
        discounts = every_discount[:k]
        n_hits = top_hits.sum(axis=1)
        for name, values in (
            ("precision", n_hits / k),
            ("recall", ratio(n_hits, n_actual)),
            ("ndcg", ratio(top_hits @ discounts, ideal)),
        ):
            metrics[name].append(float(values.mean()))
        if propensities is not None:
            gained, possible, scale = gains[:, :k], most[:, :k], ratio(1.0, ideal)
            discounted = scale @ (gained @ discounts), scale @ (possible @ discounts)
            metrics["psp"].append(float(ratio(gained.sum(), possible.sum())))
            metrics["psndcg"].append(float(ratio(*discounted)))
        n_hit = np.unique(best[:, :k][top_hits]).size
        metrics["coverage"].append(n_hit / n_present if n_present else 0.0)
    return {f"{name}@{k}": x for name, row in metrics.items() for k, x in zip(ks, row, strict=True)}


def _gains(
    truth: sp.csr_matrix, best: NDArray[Any], hits: NDArray[np.bool_], propensities: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """1 / propensity at every rank: of the hits, and of the best possible ranking."""
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
    """The k best columns, by sorting only what reaches the k-th best score of its row."""
    n_labels = block.shape[1]
    if k == n_labels:
        return _descending(block)
    last = np.partition(block, n_labels - k, axis=1)[:, n_labels - k, np.newaxis]
    chosen = block >= last
    # Where too many scores tie with the k-th best, the lower columns are chosen.
    crowded = np.flatnonzero(chosen.sum(axis=1) > k)
    better = block[crowded] > last[crowded]
    tied = chosen[crowded] & ~better
    n_missing = k - better.sum(axis=1, keepdims=True)
    chosen[crowded] = better | (tied & (np.cumsum(tied, axis=1, dtype=np.int32) <= n_missing))
    columns = np.nonzero(chosen)[1].reshape(-1, k)
    order = _descending(block[chosen].reshape(-1, k))
    return np.take_along_axis(columns, order, axis=1)


def _descending(values: NDArray[Any]) -> NDArray[np.int64]:
    """Order of every row from high to low, stable.

    Sorted upwards from the back and read from the back: unsigned scores cannot be negated.
    """
    backwards = np.argsort(values[:, ::-1], axis=1, kind="stable")[:, ::-1]
    return np.asarray(values.shape[1] - 1 - backwards, dtype=np.int64)


def _applies(truth: sp.csr_matrix, labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each ranked label is one of its document's."""
    n_documents, n_labels = truth.shape
    pairs = np.arange(n_documents, dtype=np.int64)[:, np.newaxis] * n_labels + labels
    # -1 would read as the last label of the document before.
    return (labels >= 0) & np.isin(pairs, rows_of(truth) * n_labels + truth.indices)
