"""The weights of the members of a blend, fitted on documents that no member was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from longtail.metrics.inputs import known_labels

Floats = NDArray[np.float64]
# Pairs of document and label that the few weights are fitted on.
FITTING_PAIRS = 1_000_000
# Keeps weights finite if models are never wrong; negligible otherwise.
RIDGE = 2e-4


def blend_weights(scores: Sequence[Any], Y: Any) -> tuple[tuple[float, ...], float]:
    """The weight of each member, at least 0, and the intercept.

    A logistic regression on held-out scores in which all labels have the same weight.
    """
    columns, truth, importance = _fitting_pairs(scores, *known_labels(Y))

    def loss(params: Floats) -> tuple[float, Floats]:
        logits = columns @ params[:-1] + params[-1]
        value = importance @ (np.logaddexp(0, logits) - truth * logits)
        slope = importance * (expit(logits) - truth)
        ridge = RIDGE * np.append(params[:-1], 0.0)
        return float(value + ridge @ params / 2), np.append(columns.T @ slope, slope.sum()) + ridge

    # Scores may have different units, such as the margins of an SVM.
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
    """Known pairs that all members have scored: scores, whether the label applies, the weight.

    All pairs or, of very many, all positive ones and as many others as FITTING_PAIRS at random.
    """
    n_documents, n_labels = Y.shape
    total = n_documents * n_labels
    if total <= FITTING_PAIRS:
        rows, columns = np.divmod(np.arange(total), n_labels)
        share = 1.0
    else:
        drawn = np.random.default_rng(0).integers(total, size=FITTING_PAIRS)
        rows, columns = np.divmod(drawn, n_labels)
        negative = np.asarray(Y[rows, columns]).ravel() == 0
        positive = Y.nonzero()
        rows = np.concatenate([positive[0], rows[negative]])
        columns = np.concatenate([positive[1], columns[negative]])
        share = FITTING_PAIRS / total
    scored = np.ones(len(rows), dtype=np.bool_)
    if unknown is not None:
        scored = ~np.asarray(unknown[rows, columns]).ravel()
    values = []
    for each in scores:
        if sp.issparse(each):
            there = sp.csr_matrix((np.ones(each.nnz), each.indices, each.indptr), each.shape)
            scored &= np.asarray(there[rows, columns]).ravel() > 0
            values.append(np.asarray(each[rows, columns]).ravel())
        else:
            scored &= ~np.ma.getmaskarray(each)[rows, columns]
            values.append(np.ma.getdata(each)[rows, columns])
    truth = np.asarray(Y[rows, columns]).ravel()[scored].astype(np.float64)
    counts = np.maximum(1.0, np.asarray(Y.sum(axis=0)).ravel())
    weight = 1 / counts[columns[scored]] / np.where(truth > 0, 1.0, share)
    pairs = np.stack([value[scored] for value in values], axis=1).astype(np.float64)
    # The mean over labels of the loss per document that has the label.
    return pairs, truth, weight / (weight @ truth or weight.sum() or 1.0)
