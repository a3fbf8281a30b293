"""Squared hinge on sparse features: dual coordinate descent (Hsieh et al., ICML 2008), label by
label, on the documents that matter to the label.

The score of a document is w'x - 1. As the bias is fixed, a document that is unlike those of the
label is right from the start and costs nothing; so a label starts with its documents and the
nearest others, and adds those that the solution gets wrong. Which these are is computed for a chunk
of labels at a time, which is some twenty times as fast as label by label.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.progress import OnProgress, Progress, ignore
from longtail.training.devices import in_threads
from longtail.training.encoded import WHOLE, Partial

BIAS = -1.0
# Other documents that a label starts with, and may add in each round: FEWEST, or PER_POSITIVE for
# each of its documents.
FEWEST, PER_POSITIVE, ROUNDS = 100, 2, 3
# Pairs of document and label up to which documents are added until none is wrong.
EXACT_PAIRS = 2_000_000
EXACT_ROUNDS = 50
EXACT_FEWEST = 1000
# Documents of a label up to which the nearest others are enough in larger problems: on 400 labels
# of pubmed_mesh of one document, and of two, the mean average precision is 23.8 and 28.3 without
# adding any, 23.7 and 28.1 with three rounds, at half the cost.
RARE = 2
# A document is added where w'x exceeds this: it should be at most 0.
VIOLATION = 0.1
# The range of projected gradients at which descent stops, as in LIBLINEAR, and the most passes.
TOLERANCE, MAX_PASSES = 0.1, 200
# Passes before documents are added: converging in every round took half as long again.
EARLY_PASSES = 2
# Weights below this share of a label's largest one are dropped.
SMALLEST = 0.01
# Labels whose documents are scored together.
MIN_CHUNK, MAX_CHUNK = 8, 32


class Rows(NamedTuple):
    """A sparse matrix by rows; by labels, for pairs of document and label."""

    starts: NDArray[Any]
    columns: NDArray[Any]
    values: NDArray[np.float32]

    @classmethod
    def of(cls, matrix: Any, rank: NDArray[Any] | None = None) -> Rows:
        """Of a matrix whose columns are renumbered by their rank."""
        rows = sp.csr_matrix(matrix, dtype=np.float32)
        columns = rows.indices if rank is None else rank[rows.indices]
        # Unsigned, as compiled code would ask of signed ones whether they count from the end.
        return cls(rows.indptr.astype(np.int64), columns.astype(np.uint32), rows.data)


class Dual(NamedTuple):
    """The documents of a label's solution, its own first, and their dual variables."""

    documents: NDArray[np.int32]
    alpha: NDArray[np.float64]


Duals = list[Dual]


def nearest_duals(solutions: dict[float, Duals], C: float) -> Duals:
    """Where to start with this C: the solution of the nearest one, none if there is none; what is
    found goes into `solutions`."""
    nearest = min(solutions, key=lambda other: abs(np.log(other / C)), default=None)
    # Between those of a strong regularisation, proportional to C, and of none, equal.
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
    """Weights, labels x features, that minimise C x summed squared hinge + half their squares.

    `C`: one number, or one for each label; 0: nothing is learned. Weights of documents are
    multiplied into C. Scores are `features @ weights.T + BIAS`. Exact, up to the tolerance, for
    small problems and labels of many documents; other labels see their documents, the nearest
    others and those that are wrong. `duals`: a list that receives the solution of each label; if it
    holds those of the same documents and labels with another C, the search starts from there.
    """
    importance = np.ones(Y.shape[0]) if partial.weights is None else partial.weights
    left_out = sp.csr_matrix(Y.shape if partial.unknown is None else partial.unknown)
    if not importance.all():
        k = importance > 0
        part = Partial(left_out[k], importance[k])
        return solve_hinge(features[k], Y[k], C, progress, part, duals)
    # Frequent features side by side, where the processor keeps them: a third of the time.
    rank = np.argsort(np.argsort(-np.bincount(features.indices, minlength=features.shape[1])))
    X = Rows.of(features, rank)
    norms = np.asarray(features.multiply(features).sum(axis=1), dtype=np.float32).ravel()
    documents, left_out = sp.csc_matrix(Y), sp.csc_matrix(left_out)
    counts = np.diff(documents.indptr)
    n_labels = Y.shape[1]
    each_C = np.array(np.broadcast_to(np.asarray(C, dtype=np.float64), n_labels))
    order = np.argsort(-counts, kind="stable")  # the longest first, so that threads end together
    is_small = len(norms) * n_labels <= EXACT_PAIRS
    fewest, rounds = (EXACT_FEWEST, EXACT_ROUNDS) if is_small else (FEWEST, ROUNDS)
    # Not by the number of threads, which would then decide about the last digits.
    size = min(MAX_CHUNK, max(MIN_CHUNK, n_labels // 16))
    first = 1 if is_small else rounds
    chunks = [order[k : k + size] for k in range(0, n_labels, size)]

    start = list(duals or [])

    def solve(labels: NDArray[Any]) -> Any:
        most = int(counts[labels].max(initial=0))
        limit = max(fewest, PER_POSITIVE * most)
        n = np.array([len(start[k].alpha) if start else 0 for k in labels])
        capacity = min(len(norms), max(most, n.max(initial=0)) + (rounds + 1) * limit)
        used, alpha = np.zeros((len(labels), capacity), np.int32), np.zeros((len(labels), capacity))
        for row in np.flatnonzero(n):
            used[row, : n[row]], alpha[row, : n[row]] = start[labels[row]]
        solved = _solve_chunk(
            X,
            norms,
            0.5 / importance,
            Rows.of(documents[:, labels].T),
            Rows.of(left_out[:, labels].T),
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
        found = [Dual(used[k, :size].copy(), alpha[k, :size].copy()) for k, size in enumerate(n)]
        return solved, found

    solved: list[Any] = [None] * n_labels
    found: list[Any] = [None] * n_labels
    done = 0
    for labels, (parts, each_dual) in zip(chunks, in_threads(solve, chunks), strict=True):
        for label, part, dual in zip(labels, parts, each_dual, strict=True):
            solved[label], found[label] = part, dual
        done += len(labels)
        progress(Progress("solving", done, n_labels, "labels"))
    if duals is not None:
        duals[:] = found
    starts = np.cumsum([0, *(len(values) for _, values in solved)])
    indices = np.concatenate([np.zeros(0, np.int32), *(columns for columns, _ in solved)])
    values = np.concatenate([np.zeros(0, np.float32), *(values for _, values in solved)])
    return sp.csr_matrix((values, indices, starts), shape=(n_labels, len(rank)))


_jit = numba.njit(nogil=True, cache=True)


@_jit
def _solve_chunk(  # type: ignore[no-untyped-def]
    X, norms, ridge, positives, hidden, C, fewest, first, rounds, rare, documents, alpha, n, rank
):
    """The columns and values of the weights of each label.

    `documents`, labels x capacity: those of the label in front; `alpha`: their dual variables; `n`:
    how many of them there are. With `first`, the first round, above 0, these are where to start.
    `ridge`: 1 / (2 x weight) of each document.
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
            # Nearness to the sum of the label's documents finds the first of the others.
            for i in of_label:
                for e in range(X.starts[i], X.starts[i + 1]):
                    by_feature[X.columns[e], k] += X.values[e]
    for step in range(first, rounds + 1):
        if not is_open.any():
            break
        _score(X, by_feature, scores)
        floor = np.float32(0.0 if step == 0 else VIOLATION)
        for k in range(n_labels):
            if is_open[k]:
                # Below any floor: whether the label applies is unknown.
                left_out = hidden.columns[hidden.starts[k] : hidden.starts[k + 1]]
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
        by_feature[:] = weights.T
    return [_without_small(weights[k][rank]) for k in range(n_labels)]


@numba.njit(
    nogil=True, cache=True
)  # without fastmath, so that a label's scores are the same in any chunk
def _score(X, by_feature, scores):  # type: ignore[no-untyped-def]
    """The products of all documents with the weights of some labels."""
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
    """Append up to `limit` documents that have the highest scores above a floor."""
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
    """Dual coordinate descent with shrinking; changes alpha, and the weights accordingly.

    A positive wants w'x of at least 2, the others at most 0: margins of 1 around the bias.
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
    """The columns and values of the weights that are not negligible."""
    size = np.abs(weights)
    kept = np.flatnonzero(size > SMALLEST * size.max())
    return kept.astype(np.int32), weights[kept]
