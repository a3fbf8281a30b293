"""The weights of a blend, fitted on documents that none of its members was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from longtail.metrics.blocks import rows_of
from longtail.metrics.inputs import known_labels

Floats = NDArray[np.float64]
# Document-label pairs to fit on; there are few weights. If less than RARELY of all pairs are
# scored, they are drawn from those that are.
FITTING_PAIRS, RARELY = 1_000_000, 0.01
# Keeps weights finite if a model is never wrong; negligible otherwise.
RIDGE = 2e-4


def blend_weights(scores: Sequence[Any], Y: Any) -> tuple[tuple[float, ...], float]:
    """The non-negative weight of each member, and the intercept.

    A logistic regression on held-out scores; every label has the same total weight.
    """
    columns, truth, importance = _fitting_pairs(scores, *known_labels(Y))

    def loss(params: Floats) -> tuple[float, Floats]:
        logits = columns @ params[:-1] + params[-1]
        value = importance @ (np.logaddexp(0, logits) - truth * logits)
        slope = importance * (expit(logits) - truth)
        ridge = RIDGE * np.append(params[:-1], 0.0)
        return float(value + ridge @ params / 2), np.append(columns.T @ slope, slope.sum()) + ridge

    # Standardise: logits and the margins of an SVM differ in scale.
    unit = np.sqrt((columns**2).mean(axis=0)) + 1e-12
    columns /= unit
    start = np.append(np.full(len(scores), 1 / len(scores)), 0.0)
    bounds = [(0.0, None)] * len(scores) + [(None, None)]
    params = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    weights = tuple(float(weight) for weight in params[:-1] / unit)
    if not any(weights):
        # No member is informative: use equal weights.
        weights = tuple(float(share) for share in 1 / (len(scores) * unit))
    return weights, float(params[-1])


def _fitting_pairs(
    scores: Sequence[Any], Y: sp.csr_matrix, unknown: sp.csr_matrix | None
) -> tuple[Floats, Floats, Floats]:
    """Known pairs that all members have scored: scores, truth and weight of each.

    Beyond FITTING_PAIRS, all positive pairs, and a random sample of the negative ones.
    """
    n_documents, n_labels = Y.shape
    total = n_documents * n_labels
    if total <= FITTING_PAIRS:
        rows, columns = np.divmod(np.arange(total), n_labels)
        share = 1.0
    else:
        rng, first = np.random.default_rng(0), scores[0]
        if sp.issparse(first) and first.nnz < RARELY * total:
            total = first.nnz
            drawn = rng.integers(total, size=FITTING_PAIRS)
            rows, columns = rows_of(first)[drawn], first.indices[drawn]
        else:
            rows, columns = np.divmod(rng.integers(total, size=FITTING_PAIRS), n_labels)
        share = FITTING_PAIRS / total
        negative = np.asarray(Y[rows, columns]).ravel() == 0
        positive = Y.nonzero()
        rows = np.concatenate([positive[0], rows[negative]])
        columns = np.concatenate([positive[1], columns[negative]])
    scored = np.ones(len(rows), dtype=np.bool_)
    if unknown is not None:
        scored = ~np.asarray(unknown[rows, columns]).ravel()
    values = []
    for part in scores:
        if sp.issparse(part):
            stored = sp.csr_matrix((np.ones(part.nnz), part.indices, part.indptr), part.shape)
            scored &= np.asarray(stored[rows, columns]).ravel() > 0
            values.append(np.asarray(part[rows, columns]).ravel())
        else:
            scored &= ~np.ma.getmaskarray(part)[rows, columns]
            values.append(np.ma.getdata(part)[rows, columns])
    truth = np.asarray(Y[rows, columns]).ravel()[scored].astype(np.float64)
    counts = np.maximum(1.0, np.asarray(Y.sum(axis=0)).ravel())
    weight = 1 / counts[columns[scored]] / np.where(truth > 0, 1.0, share)
    pairs = np.stack([value[scored] for value in values], axis=1).astype(np.float64)
    # The loss is the mean over labels, per document with the label.
    return pairs, truth, weight / (weight @ truth or weight.sum() or 1.0)
