"""Measures of a corpus: imbalance, associated labels, distances between label distributions.

numpy and scipy only; no step builds a dense labels x labels matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.spatial.distance import jensenshannon
from scipy.special import xlogy

from longtail.labels import FloatArray
from longtail.metrics.blocks import rows_of

IntArray = NDArray[np.int64]
# Label pairs in memory at a time: about 120 MiB with everything computed from them.
BLOCK_ELEMENTS = 1_000_000
# Expected number of documents from which the normal approximation of a proportion holds.
MIN_EXPECTED = 5


@dataclass(frozen=True)
class LinkedPair:
    """Two labels that co-occur more often than by chance; `a` is the more frequent one."""

    a: str
    b: str
    count_a: int
    count_b: int
    shared: int
    p_a_given_b: float
    p_b_given_a: float
    g2: float


def count_labels(Y: sp.csr_matrix) -> FloatArray:
    """Number of documents per label."""
    return np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.float64)


def imbalance_ratios(label_counts: Any) -> FloatArray:
    """IRLbl of Charte et al. 2015: the largest count divided by each non-zero count."""
    counts = np.asarray(label_counts, dtype=np.float64)
    seen = counts[counts > 0]
    return seen.max() / seen if seen.size else seen


def scumble(Y: sp.csr_matrix) -> float:
    """SCUMBLE of Charte et al. 2015: how much rare and frequent labels co-occur, 0 to 1.

    The mean over documents of 1 - geometric / arithmetic mean of the IRLbl of the document's
    labels. Documents without labels count as 0, as in the authors' R package.
    """
    counts, ratios = count_labels(Y), np.ones(Y.shape[1])
    ratios[counts > 0] = imbalance_ratios(counts)
    per_document = np.maximum(np.diff(Y.indptr), 1)
    arithmetic = np.maximum(Y @ ratios / per_document, 1.0)
    geometric = np.exp(Y @ np.log(ratios) / per_document)
    # Rounding may lift the geometric mean of equal ratios above the arithmetic one.
    return float(np.maximum(1 - geometric / arithmetic, 0).mean())


def gini(label_counts: Any) -> float | None:
    """Gini coefficient of the counts: 0 if all are equal, near 1 if one label has all documents."""
    counts = np.sort(np.asarray(label_counts, dtype=np.float64))
    weights, total = 2 * np.arange(1, counts.size + 1) - counts.size - 1, counts.sum()
    return float(weights @ counts / (counts.size * total)) if total else None


def linked_pairs(
    Y: sp.csr_matrix, names: tuple[str, ...], n_pairs: int = 10
) -> tuple[LinkedPair, ...]:
    """The pairs of labels with the strongest positive association, strongest first.

    Ranked by Dunning's log-likelihood ratio G2, which favours neither pairs seen once nor labels
    that are merely frequent.
    """
    counts, best = count_labels(Y), np.zeros((0, 4))
    for a, b, shared in _pair_blocks(Y):
        positive = shared * Y.shape[0] > counts[a] * counts[b]
        a, b, shared = a[positive], b[positive], shared[positive]
        score = log_likelihood_ratio(shared, counts[a], counts[b], Y.shape[0])
        if 0 < n_pairs < score.size:
            # Keep ties: the sort below breaks them by column.
            strong = score >= np.partition(score, -n_pairs)[-n_pairs]
            a, b, shared, score = a[strong], b[strong], shared[strong], score[strong]
        best = np.vstack([best, np.column_stack([score, a, b, shared])])
        best = best[np.lexsort((best[:, 2], best[:, 1], -best[:, 0]))][: max(0, n_pairs)]
    pairs = []
    for g2, *columns, both in best.tolist():
        first, second = sorted(map(int, columns), key=lambda label: (-counts[label], label))
        n_a, n_b = int(counts[first]), int(counts[second])
        shares = both / n_b, both / n_a
        pairs.append(LinkedPair(names[first], names[second], n_a, n_b, int(both), *shares, g2))
    return tuple(pairs)


def log_likelihood_ratio(shared: Any, count_a: Any, count_b: Any, n_documents: int) -> FloatArray:
    """Dunning's G2 of the 2 x 2 contingency tables of two labels (natural logarithm)."""
    both, a, b = (np.asarray(value, dtype=np.float64) for value in (shared, count_a, count_b))
    cells = both, a - both, b - both, n_documents - a - b + both
    margins = a, b, n_documents - a, n_documents - b
    total = sum(xlogy(k, k) for k in cells) - sum(xlogy(k, k) for k in margins)
    return np.asarray(np.maximum(2 * (total + xlogy(n_documents, n_documents)), 0))


def _pair_blocks(Y: sp.csr_matrix) -> Iterator[tuple[IntArray, IntArray, FloatArray]]:
    """Columns a < b and the number of documents they share, in blocks of bounded size."""
    matrix = Y.astype(np.float64)
    by_label = matrix.T.tocsr()
    # A label co-occurs with at most as many labels as its documents have: a bound on its row.
    bounds = np.minimum(by_label @ np.diff(Y.indptr).astype(np.float64), Y.shape[1])
    ends = np.append(0, np.cumsum(bounds))
    start = 0
    while start < Y.shape[1]:
        last = np.searchsorted(ends, ends[start] + BLOCK_ELEMENTS, side="right") - 1
        stop = max(start + 1, int(last))
        block = sp.triu(by_label[start:stop] @ matrix, start + 1)
        yield block.row.astype(np.int64) + start, block.col.astype(np.int64), block.data
        start = stop


def js_distance(first: Any, second: Any) -> float | None:
    """Jensen-Shannon distance, base 2, between two vectors of counts; None if one sums to 0."""
    p, q = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if not p.sum() or not q.sum():
        return None
    # For equal vectors, rounding may give a divergence below 0, and scipy NaN.
    return float(np.nan_to_num(jensenshannon(p, q, 2)))


def js_by_chance(before: FloatArray, after: FloatArray) -> float | None:
    """Mean distance between five random splits of the pooled assignments into the same sizes."""
    if not before.sum() or not after.sum():
        return None
    pooled, size = (before + after).astype(np.int64), int(after.sum())
    draw = np.random.default_rng(0).multivariate_hypergeometric
    splits = draw(pooled, size, size=5, method="marginals")
    return float(np.mean([js_distance(pooled - second, second) for second in splits]))


def proportion_z(before: FloatArray, n_before: int, after: FloatArray, n_after: int) -> FloatArray:
    """Two-proportion z-score of each label's share of documents, positive where it grew.

    NaN if either part is expected to have fewer than five documents with or without the label:
    chance alone gives such labels large scores.
    """
    z = np.full(before.shape, np.nan)
    if not n_before or not n_after:
        return z
    pooled = (before + after) / (n_before + n_after)
    use = np.minimum(pooled, 1 - pooled) * min(n_before, n_after) >= MIN_EXPECTED
    deviation = np.sqrt(pooled[use] * (1 - pooled[use]) * (1 / n_before + 1 / n_after))
    z[use] = (after[use] / n_after - before[use] / n_before) / deviation
    return z


def rank_bins(n_labels: int, n_bins: int) -> IntArray:
    """Edges of bins of ranks from 0 to n_labels, with geometrically growing widths."""
    edges = np.unique(np.round(np.geomspace(1, n_labels + 1, n_bins + 1)).astype(np.int64) - 1)
    edges[-1] = n_labels
    return edges


def conditional_means(Y: sp.csr_matrix, edges: IntArray) -> FloatArray:
    """Mean p(i|j) over the pairs i != j of two bins of columns: j by row, i by column.

    p(i|j) = documents with i and j / documents with j. Labels without documents are left out as j;
    NaN where no pair is left.
    """
    counts, sizes = count_labels(Y), np.diff(edges)
    bins, starts = np.repeat(np.arange(len(sizes)), sizes), np.arange(counts.size + 1)
    in_bin = sp.csr_matrix((np.ones(counts.size), bins, starts), (counts.size, len(sizes)))
    # Documents that each label shares with the other labels of a bin.
    shared = sp.csr_matrix(Y.T @ (Y @ in_bin) - sp.diags(counts) @ in_bin)
    shared.data /= counts[rows_of(shared)]
    n_seen = in_bin.T @ (counts > 0)
    pairs: FloatArray = np.outer(n_seen, sizes) - np.diag(n_seen)
    total = np.asarray((in_bin.T @ shared).toarray(), dtype=np.float64)
    return np.divide(total, pairs, out=np.full_like(total, np.nan), where=pairs > 0)
