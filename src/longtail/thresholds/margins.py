"""How far scores lie above their thresholds, with `top_k` and `at_least_one` worked in.

A label is predicted where this margin is at least 0; and if all thresholds were higher by s, where
it is at least s. So deciding, and the curves of what moving the thresholds would do, are one thing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.metrics.top import top_entries, top_k

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


def margins_of(
    logits: Any,
    values: FloatArray,
    most: int | None = None,
    at_least_one: bool = False,
    only_decide: bool = False,
) -> Any:
    """Margins in float64: a CSR matrix for a CSR matrix, else a dense array.

    Minus infinity: never predicted, because the pair is not scored (masked), the threshold is
    infinite, or `most` other labels of the document lie higher. Infinity: predicted whatever the
    thresholds, as the highest of its document under `at_least_one`; among labels that all have
    infinite thresholds there is none. Of equal margins the lower column is the higher.

    Args:
        logits: checked scores of `to_logits`.
        values: the threshold of each label.
        most: `top_k` of the thresholds.
        only_decide: work the two rules in only where they change what is predicted at 0, which
            is fewer documents.
    """
    sparse = sp.issparse(logits)
    if sparse:
        above = np.subtract(logits.data, values[logits.indices], dtype=np.float64)
        margins = sp.csr_matrix((above, logits.indices, logits.indptr), logits.shape)
    else:
        # Under a mask there may be anything, infinity too.
        margins = np.subtract(np.ma.filled(logits, 0), values, dtype=np.float64)
        margins[np.ma.getmask(logits)] = -np.inf
    if most is None and not at_least_one:
        return margins
    concerned = np.ones(logits.shape[0], dtype=np.bool_)
    if only_decide:
        n_given = _n_given(margins)
        concerned = (n_given == 0) & at_least_one
        if most is not None:
            concerned |= n_given > most
    part = margins[concerned]
    if sparse:
        _bound_stored(part, most, at_least_one)
        margins.data[np.repeat(concerned, np.diff(margins.indptr))] = part.data
    else:
        _bound_dense(part, most, at_least_one)
        margins[concerned] = part
    return margins


def _n_given(margins: Any) -> NDArray[np.int64]:
    """Labels that each document gets."""
    if not sp.issparse(margins):
        return np.asarray(np.count_nonzero(margins >= 0, axis=1))
    reached = np.concatenate([[0], np.cumsum(margins.data >= 0)])
    return np.asarray(np.diff(reached[margins.indptr]))


def _bound_stored(margins: sp.csr_matrix, most: int | None, at_least_one: bool) -> None:
    widest = int(np.diff(margins.indptr).max(initial=1))
    best = top_entries(margins, min(most or 1, widest))
    first = best[:, 0][best[:, 0] >= 0]
    first = first[np.isfinite(margins.data[first])]
    if most is not None:
        kept = np.zeros(margins.nnz, dtype=np.bool_)
        kept[best[best >= 0]] = True
        margins.data[~kept] = -np.inf
    if at_least_one:
        margins.data[first] = np.inf


def _bound_dense(margins: FloatArray, most: int | None, at_least_one: bool) -> None:
    n_documents, n_labels = margins.shape
    if not n_documents or not n_labels:
        return
    best = top_k(margins, min(most or 1, n_labels))
    rows = np.arange(n_documents)
    some = np.isfinite(margins[rows, best[:, 0]])
    if most is not None:
        kept = np.zeros(margins.shape, dtype=np.bool_)
        kept[rows[:, np.newaxis], best] = True
        margins[~kept] = -np.inf
    if at_least_one:
        margins[rows[some], best[some, 0]] = np.inf
