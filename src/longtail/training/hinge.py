"""Solver for the squared hinge loss on sparse features: dual coordinate descent (Hsieh et al., ICML
2008) for each label, on a working set of documents.

The bias is fixed at -1, so a document that shares no features with the label is classified
correctly by zero weights. The working set therefore starts with the label's own documents and the
nearest negatives, and grows by the documents that the current solution misclassifies. Finding these
for a chunk of labels at a time is about twenty times as fast as for one label.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any, NamedTuple

import numba
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.progress import OnProgress, Progress, ignore
from longtail.training.devices import in_threads
from longtail.training.encoded import WHOLE, Partial

BIAS = -1.0
# Negatives in the first working set, and the most that each round adds: FEWEST, or PER_POSITIVE for
# each positive if that is more.
FEWEST, PER_POSITIVE, ROUNDS = 100, 2, 3
# Problems of at most this many (document, label) pairs are solved exactly: the working set grows
# until no document outside it is misclassified.
EXACT_PAIRS = 2_000_000
EXACT_ROUNDS = 50
EXACT_FEWEST = 1000
# In larger problems, labels with at most this many positives keep their first working set: on 400
# labels of pubmed_mesh with one and with two documents the mean average precision is 23.8 and 28.3,
# against 23.7 and 28.1 with three rounds, at half the cost.
RARE = 2
# A negative joins the working set where w'x, which should be at most 0, exceeds this.
VIOLATION = 0.1
# Range of the projected gradients at which the descent stops, as in LIBLINEAR; maximum passes.
TOLERANCE, MAX_PASSES = 0.1, 200
# Passes before the working set grows: converging in every round took half as long again.
EARLY_PASSES = 2
# Weights smaller than this fraction of the label's largest weight are dropped.
SMALLEST = 0.01
# Labels that are scored together.
MIN_CHUNK, MAX_CHUNK = 8, 32


class Rows(NamedTuple):
    """The arrays of a CSR matrix, for compiled code."""

    starts: NDArray[Any]
    columns: NDArray[Any]
    values: NDArray[np.float32]

    @classmethod
    def of(cls, matrix: Any, rank: NDArray[Any] | None = None) -> Rows:
        """Take the arrays of a matrix; `rank` renumbers its columns."""
        rows = sp.csr_matrix(matrix, dtype=np.float32)
        columns = rows.indices if rank is None else rank[rows.indices]
        # Unsigned: for signed indices numba adds a check for negative ones to every access.
        return cls(rows.indptr.astype(np.int64), columns.astype(np.uint32), rows.data)


class Dual(NamedTuple):
    """The solution for one label: its working set, positives first, and their dual variables."""

    documents: NDArray[np.int32]
    alpha: NDArray[np.float64]


Duals = list[Dual]


def nearest_duals(solutions: dict[float, Duals], C: float) -> Duals:
    """Return a warm start for this C, scaled from the nearest C in `solutions`; empty if there is
    none. The list returned is also the new entry of `solutions`, which `solve_hinge` fills."""
    nearest = min(solutions, key=lambda other: abs(np.log(other / C)), default=None)
    # Dual variables are proportional to C under strong regularisation, and independent of it under
    # none; the square root is in between.
    unit = 1.0 if nearest is None else (C / nearest) ** 0.5
    start = [] if nearest is None else solutions[nearest]
    solutions[C] = [Dual(documents, alpha * unit) for documents, alpha in start]
    return solutions[C]


def solve_hinge(
    features: sp.csr_matrix,
    Y: sp.csr_matrix,
    C: float | NDArray[np.float64],
    progress: OnProgress = ignore,
    partial: Partial = WHOLE,
    duals: Duals | None = None,
) -> sp.csr_matrix:
    """Minimise C * sum of squared hinge + ||w||^2 / 2 for each label.

    Args:
        C: one number, or one per label; a label with C=0 gets no weights. Document weights multiply
            it.
        duals: receives the solution of each label. If it holds the solutions for the same documents
            and labels with another C, they are the starting point.

    Returns:
        The weights, labels x features; scores are `features @ weights.T + BIAS`.

    Problems of up to EXACT_PAIRS pairs are solved exactly, within the tolerance. In larger ones, a
    label sees its positives, the nearest negatives, and those misclassified in the last rounds.
    """
    importance = np.ones(Y.shape[0]) if partial.weights is None else partial.weights
    unknown = sp.csr_matrix(Y.shape if partial.unknown is None else partial.unknown)
    if not importance.all():
        k = importance > 0
        part = Partial(unknown[k], importance[k])
        return solve_hinge(features[k], Y[k], C, progress, part, duals)
    # Frequent features are adjacent, so that they stay in the cache: a third of the time.
    rank = np.argsort(np.argsort(-np.bincount(features.indices, minlength=features.shape[1])))
    X = Rows.of(features, rank)
    norms = np.asarray(features.multiply(features).sum(axis=1), dtype=np.float32).ravel()
    positives, unknown = sp.csc_matrix(Y), sp.csc_matrix(unknown)
    counts = np.diff(positives.indptr)
    n_labels = Y.shape[1]
    each_C = np.array(np.broadcast_to(np.asarray(C, dtype=np.float64), n_labels))
    order = np.argsort(-counts, kind="stable")  # the most work first, so that threads end together
    is_small = len(norms) * n_labels <= EXACT_PAIRS
    fewest, rounds = (EXACT_FEWEST, EXACT_ROUNDS) if is_small else (FEWEST, ROUNDS)
    # Independent of the number of threads, which must not change the result.
    chunk = min(MAX_CHUNK, max(MIN_CHUNK, n_labels // 16))
    first = 1 if is_small else rounds
    chunks = [order[k : k + chunk] for k in range(0, n_labels, chunk)]
    start = list(duals or [])
    weights: list[Any] = [None] * n_labels
    solutions: list[Any] = [None] * n_labels

    def solve(labels: NDArray[Any]) -> int:
        most = int(counts[labels].max(initial=0))
        n = np.array([len(start[k].alpha) if start else 0 for k in labels])
        limit = max(fewest, PER_POSITIVE * most)
        capacity = min(len(norms), max(most, n.max(initial=0)) + (rounds + 1) * limit)
        used, alpha = _padded([start[k] for k in labels] if start else [], len(labels), capacity)
        solved = _solve_chunk(
            X,
            norms,
            0.5 / importance,
            Rows.of(positives[:, labels].T),
            Rows.of(unknown[:, labels].T),
            each_C[labels],
            fewest,
            first if start else 0,
            rounds,
            0 if is_small else RARE,
            used,
            alpha,
            n,
            rank,
        )
        for row, label in enumerate(labels):
            size = n[row]
            weights[label] = solved[row]
            solutions[label] = Dual(used[row, :size].copy(), alpha[row, :size].copy())
        return len(labels)

    for done in accumulate(in_threads(solve, chunks)):
        progress(Progress("solving", done, n_labels, "labels"))
    if duals is not None:
        duals[:] = solutions
    return _stacked(weights, features.shape[1])


def _padded(duals: Duals, n_labels: int, capacity: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Working sets and dual variables, labels x capacity, with zeros behind those given."""
    documents = np.zeros((n_labels, capacity), np.int32)
    alpha = np.zeros((n_labels, capacity))
    for k, dual in enumerate(duals):
        size = len(dual.alpha)
        documents[k, :size], alpha[k, :size] = dual
    return documents, alpha


def _stacked(rows: list[Any], n_columns: int) -> sp.csr_matrix:
    """The matrix of rows given as columns and values."""
    starts = np.cumsum([0, *(len(values) for _, values in rows)])
    columns = np.concatenate([np.zeros(0, np.int32), *(columns for columns, _ in rows)])
    values = np.concatenate([np.zeros(0, np.float32), *(values for _, values in rows)])
    return sp.csr_matrix((values, columns, starts), shape=(len(rows), n_columns))


_jit = numba.njit(nogil=True, cache=True)


@_jit
def _solve_chunk(  # type: ignore[no-untyped-def]
    X, norms, ridge, positives, unknown, C, fewest, first, rounds, rare, documents, alpha, n, rank
):
    """Solve some labels; return the columns and values of their nonzero weights.

    The first `n[k]` entries of row k of `documents` and `alpha` are the working set of label k and
    its dual variables, both updated in place; with `first` > 0 they are a warm start. `ridge` is
    1 / (2 * weight) of each document; `rank` maps columns of the features to those of `X`.
    """
    n_documents, n_labels, n_features = len(norms), len(C), len(rank)
    weights = np.zeros((n_labels, n_features), np.float32)
    by_feature = np.zeros((n_features, n_labels), np.float32)
    scores = np.zeros((n_documents, n_labels), np.float32)
    n_positive = np.diff(positives.starts)
    is_open = np.zeros(n_labels, np.bool_)
    for k in range(n_labels):
        if n_positive[k] > 0 and C[k] > 0.0:
            is_open[k] = True
            if n[k] > 0:
                for d in range(n[k]):
                    i = documents[k, d]
                    change = np.float32(alpha[k, d] if d < n_positive[k] else -alpha[k, d])
                    for e in range(X.starts[i], X.starts[i + 1]):
                        weights[k, X.columns[e]] += change * X.values[e]
                by_feature[:, k] = weights[k]
                continue
            of_label = positives.columns[positives.starts[k] : positives.starts[k + 1]]
            documents[k, : len(of_label)] = of_label
            n[k] = len(of_label)
            # The first negatives are those nearest to the sum of the label's documents.
            for i in of_label:
                for e in range(X.starts[i], X.starts[i + 1]):
                    by_feature[X.columns[e], k] += X.values[e]
    for step in range(first, rounds + 1):
        if not is_open.any():
            break
        if step > first:
            by_feature[:] = weights.T
        _score(X, by_feature, scores)
        floor = np.float32(0.0 if step == 0 else VIOLATION)
        for k in range(n_labels):
            if is_open[k]:
                # Documents for which the label is unknown stay below any floor.
                left_out = unknown.columns[unknown.starts[k] : unknown.starts[k + 1]]
                for i in left_out:
                    scores[i, k] = -1.0
                limit = max(fewest, PER_POSITIVE * n_positive[k])
                before = n[k]
                n[k] = _add_highest(scores[:, k], documents[k], n[k], limit, floor)
                is_open[k] = n[k] > before or step == 0
                has_all = n[k] == n_documents - len(left_out)
                is_last = step == rounds or not is_open[k] or has_all or n_positive[k] <= rare
                if is_last:
                    is_open[k] = False
                _descend(
                    X,
                    norms,
                    ridge,
                    documents[k, : n[k]],
                    n_positive[k],
                    C[k],
                    alpha[k, : n[k]],
                    weights[k],
                    MAX_PASSES if is_last else EARLY_PASSES,
                )
    return [_without_small(weights[k][rank]) for k in range(n_labels)]


# No fastmath: the scores of a label must not depend on the others in its chunk.
@_jit
def _score(X, by_feature, scores):  # type: ignore[no-untyped-def]
    """Multiply all documents with the weights of some labels."""
    n_labels = by_feature.shape[1]
    for i in range(len(scores)):
        total = scores[i]
        total[:] = 0.0
        for e in range(X.starts[i], X.starts[i + 1]):
            value, row = X.values[e], by_feature[X.columns[e]]
            for k in range(n_labels):
                total[k] += value * row[k]


@_jit
def _add_highest(score, documents, n, limit, floor):  # type: ignore[no-untyped-def]
    """Append the documents with the highest scores above a floor, at most `limit`."""
    is_above = score > floor
    is_above[documents[:n]] = False
    above = np.flatnonzero(is_above)
    if len(above) > limit:
        values = score[above]
        least = np.partition(values, len(above) - limit)[len(above) - limit]
        above = above[values >= least][:limit]
    documents[n : n + len(above)] = above
    return n + len(above)


@_jit
def _descend(X, norms, ridge, documents, n_positive, C, alpha, weights, max_passes):  # type: ignore[no-untyped-def]
    """Run dual coordinate descent with shrinking; updates `alpha` and `weights` in place.

    The margin of 1 around the bias is reached at w'x >= 2 for positives and w'x <= 0 for negatives.
    """
    order = np.arange(len(documents))
    n_active = len(documents)
    highest_before = np.inf
    state = np.uint64(88172645463325252)
    for _ in range(max_passes):
        for a in range(n_active - 1, 0, -1):
            state ^= state << np.uint64(13)
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
            b = np.int64(state % np.uint64(a + 1))
            order[a], order[b] = order[b], order[a]
        highest, lowest = -np.inf, np.inf
        s = 0
        while s < n_active:
            k = order[s]
            i = documents[k]
            sign, margin = (1.0, 2.0) if k < n_positive else (-1.0, 0.0)
            product = np.float32(0.0)
            for e in range(X.starts[i], X.starts[i + 1]):
                product += weights[X.columns[e]] * X.values[e]
            diagonal = ridge[i] / C
            gradient = sign * product - margin + diagonal * alpha[k]
            if alpha[k] == 0.0 and gradient > highest_before:
                n_active -= 1
                order[s], order[n_active] = order[n_active], order[s]
                continue
            projected = min(gradient, 0.0) if alpha[k] == 0.0 else gradient
            highest, lowest = max(highest, projected), min(lowest, projected)
            if projected != 0.0:
                before = alpha[k]
                alpha[k] = max(0.0, before - gradient / (norms[i] + diagonal))
                change = np.float32((alpha[k] - before) * sign)
                for e in range(X.starts[i], X.starts[i + 1]):
                    weights[X.columns[e]] += change * X.values[e]
            s += 1
        if highest - lowest <= TOLERANCE:
            if n_active == len(documents):
                break
            n_active, highest_before = len(documents), np.inf
        else:
            highest_before = highest if highest > 0.0 else np.inf


@_jit
def _without_small(weights):  # type: ignore[no-untyped-def]
    """Return the columns and values of the weights that are not negligible."""
    size = np.abs(weights)
    kept = np.flatnonzero(size > SMALLEST * size.max())
    return kept.astype(np.int32), weights[kept]
