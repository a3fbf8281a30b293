"""Compiled parts of the solver for the squared hinge loss: the descent, and choosing documents."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

# Negatives in the first working set, and the most that each round adds: FEWEST, or PER_POSITIVE for
# each positive if that is more.
FEWEST, PER_POSITIVE, ROUNDS = 100, 2, 3
# A negative joins the working set where w'x, which should be at most 0, exceeds this.
VIOLATION = 0.1
# Range of the projected gradients at which the descent stops, as in LIBLINEAR; maximum passes.
TOLERANCE, MAX_PASSES = 0.1, 200
# Passes before the working set grows: converging in every round took half as long again.
EARLY_PASSES = 2
# Weights smaller than this fraction of the label's largest weight are dropped.
SMALLEST = 0.01

jit = numba.njit(nogil=True, cache=True)


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


@jit
def append_highest(candidates, scores, documents, n, limit):  # type: ignore[no-untyped-def]
    """Append the candidates with the highest scores, at most `limit`; the first ones of ties."""
    if len(candidates) > limit:
        least = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        candidates = candidates[scores >= least][:limit]
    documents[n : n + len(candidates)] = candidates
    return n + len(candidates)


@jit
def advance(  # type: ignore[no-untyped-def]
    X,
    norms,
    ridge,
    documents,
    n_before,
    n,
    n_known,
    n_positive,
    C,
    alpha,
    weights,
    step,
    rounds,
    rare,
):
    """Solve for a working set that has grown to `n` documents; return whether it may grow again.

    `n_known`: how many documents it could have at most.
    """
    has_grown = n > n_before or step == 0
    is_last = step == rounds or not has_grown or n == n_known or n_positive <= rare
    passes = MAX_PASSES if is_last else EARLY_PASSES
    descend(X, norms, ridge, documents[:n], n_positive, C, alpha[:n], weights, passes)
    return not is_last


@jit
def descend(X, norms, ridge, documents, n_positive, C, alpha, weights, max_passes):  # type: ignore[no-untyped-def]
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


@jit
def without_small(weights, columns, column_of):  # type: ignore[no-untyped-def]
    """The columns of the features, and values, of the weights that are not negligible."""
    values = weights[columns]
    size = np.abs(values)
    kept = np.flatnonzero(size > SMALLEST * (size.max() if len(size) else 0.0))
    return column_of[columns[kept]], values[kept]


@jit
def add_document(X, i, scale, weights):  # type: ignore[no-untyped-def]
    """Add a multiple of a document to the weights."""
    change = np.float32(scale)
    for e in range(X.starts[i], X.starts[i + 1]):
        weights[X.columns[e]] += change * X.values[e]


@jit
def use_features(X, documents, used, is_used, n_used):  # type: ignore[no-untyped-def]
    """Append the features of documents to the first `n_used` of `used`; return their number."""
    for i in documents:
        for column in X.columns[X.starts[i] : X.starts[i + 1]]:
            if not is_used[column]:
                is_used[column] = True
                used[n_used] = column
                n_used += 1
    return n_used


@jit
def score_all(X, n_documents, queries, left_out, limits, floor):  # type: ignore[no-untyped-def]
    """For each label, documents with scores above a floor, in order, and their scores.

    Complete as far as the highest `limits` scores. `queries`: the weights, features x labels;
    `left_out`: sorted documents of each label to leave out.
    """
    capacity = min(2 * limits.max(), n_documents + 1)
    ends = np.cumsum(np.array([len(part) for part in left_out]))
    ordered = np.empty(ends[-1], np.int32)
    for k in range(len(left_out)):
        ordered[ends[k] - len(left_out[k]) : ends[k]] = left_out[k]
    while True:
        found = np.empty((len(limits), capacity), np.int32)
        scores = np.empty(found.shape, np.float32)
        sizes = _score(X, n_documents, queries, ordered, ends, limits, floor, found, scores)
        if len(sizes):
            return [(found[k, : sizes[k]], scores[k, : sizes[k]]) for k in range(len(limits))]
        capacity *= 4


# No fastmath: the scores of a label must not depend on the others in its chunk.
@jit
def _score(X, n_documents, queries, left_out, ends, limits, floor, found, scores):  # type: ignore[no-untyped-def]
    """Fill `found` and `scores`; return how many of each label, nothing if too many are equal."""
    n_labels, capacity = found.shape
    total = np.empty(n_labels, np.float32)
    bars = np.full(n_labels, np.nextafter(np.float32(floor), np.float32(np.inf)))
    sizes = np.zeros(n_labels, np.int64)
    for i in range(n_documents):
        total[:] = 0.0
        for e in range(X.starts[i], X.starts[i + 1]):
            value, start = X.values[e], np.int64(X.columns[e]) * n_labels
            for k in range(n_labels):
                total[k] += value * queries[start + k]
        is_hit = False
        for k in range(n_labels):
            is_hit |= total[k] >= bars[k]
        if not is_hit:
            continue
        for k in range(n_labels):
            if total[k] >= bars[k]:
                if _contains(left_out, ends[k - 1] if k else 0, ends[k], i):
                    continue
                found[k, sizes[k]], scores[k, sizes[k]] = i, total[k]
                sizes[k] += 1
                if sizes[k] == capacity:
                    bars[k], sizes[k] = _compact(found[k], scores[k], limits[k])
                    if sizes[k] == capacity:
                        return sizes[:0]
    return sizes


@jit
def _contains(ordered, low, stop, value):  # type: ignore[no-untyped-def]
    high = stop
    while low < high:
        middle = (low + high) // 2
        if ordered[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low < stop and ordered[low] == value


@jit
def _compact(found, scores, limit):  # type: ignore[no-untyped-def]
    """Keep the scores that reach the highest `limit`, in place; return the least, and how many."""
    least = np.partition(scores, len(scores) - limit)[len(scores) - limit]
    n = 0
    for j in range(len(scores)):
        if scores[j] >= least:
            found[n], scores[n] = found[j], scores[j]
            n += 1
    return least, n
