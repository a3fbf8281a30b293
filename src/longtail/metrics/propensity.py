"""Propensity-scored metrics (Jain et al., KDD 2016): a rare label found weighs more.

Normalised as in the Extreme Classification Repository: the mean over documents is divided by the
same mean of the best possible ranking, rarest labels first, which so has 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from longtail.errors import InputError
from longtail.labels import LabelStats
from longtail.metrics.inputs import FloatArray, check_k
from longtail.metrics.top import Ranking, top_entries


class Gains(NamedTuple):
    """1 / propensity of every rank where a label was found, and of the best possible ranking."""

    found: FloatArray
    best: FloatArray
    n_actual: NDArray[np.int64]


def propensities(
    label_counts: Mapping[str, float] | ArrayLike, n_samples: int, a: float = 0.55, b: float = 1.5
) -> FloatArray:
    """Chance that a label that applies was also given, by Jain's model of missing labels.

    p = 1 / (1 + C (n + b)^-a) with C = (ln N - 1) (b + 1)^a, for n of N **training** documents.

    Args:
        label_counts: training documents of every label; 0 is allowed.
        n_samples: training documents in all, 3 at least, since C must be positive.
        a, b: 0.55 and 1.5 as a rule; the authors use 0.5, 0.4 for Wikipedia and 0.6, 2.6 for
            Amazon.
    """
    counts = LabelStats.from_counts(label_counts, n_samples).label_counts
    if n_samples < 3:
        raise InputError(
            f"propensities need 3 training documents or more, got n_samples = {n_samples}. "
            "Pass the number of training documents, not of those judged."
        )
    if not (0 <= a < np.inf and 0 < b < np.inf):
        raise InputError(
            f"a must be finite and not negative, b finite and positive, got a = {a}, b = {b}. "
            "Jain et al. use a = 0.55, b = 1.5 for most corpora."
        )
    # ((b + 1) / (n + b))^a: one power instead of two that may overflow.
    odds = (np.log(n_samples) - 1) * ((b + 1) / (counts + b)) ** a
    return np.asarray(1 / (1 + odds), dtype=np.float64)


def psp_at_k(ranking: Ranking, propensities: ArrayLike, k: int) -> float:
    """Propensity-scored precision: sum of 1/p over the labels found, by the most there could be.

    Documents without labels add nothing to either sum. 0 if no document has a label.
    """
    ranking.hits_to(k)
    return psp_of(gains(ranking, propensities), k)


def psndcg_at_k(ranking: Ranking, propensities: ArrayLike, k: int) -> float:
    """Propensity-scored nDCG: as `psp_at_k`, with a gain at rank r divided by log2(r + 1).

    Each document is divided by the plain DCG of min(k, its labels) hits before the sums.
    """
    ranking.hits_to(k)
    return psndcg_of(gains(ranking, propensities), k)


def gains(ranking: Ranking, propensities: ArrayLike) -> Gains:
    """What both metrics need, for every k of the ranking."""
    inverse = _inverse(propensities, ranking.y_true.shape[1])
    found = np.where(ranking.hits, inverse[ranking.labels], 0.0)
    truth = ranking.y_true
    ideal = sp.csr_matrix((inverse[truth.indices], truth.indices, truth.indptr), truth.shape)
    entries = top_entries(ideal, ranking.hits.shape[1])
    best = np.zeros(ranking.hits.shape)
    best[entries >= 0] = ideal.data[entries[entries >= 0]]
    return Gains(found, best, ranking.n_actual)


def psp_of(gains: Gains, k: int) -> float:
    return _share(gains.found[:, :k].sum(), gains.best[:, :k].sum())


def psndcg_of(gains: Gains, k: int) -> float:
    found, best = gains.found[:, :k], gains.best[:, :k]
    discount = discounts(found.shape[1])
    ideal = ideal_dcg(gains.n_actual, k)
    scale = np.divide(1.0, ideal, out=np.zeros_like(ideal), where=ideal > 0)
    return _share(scale @ (found @ discount), scale @ (best @ discount))


def discounts(depth: int) -> FloatArray:
    """1 / log2(rank + 1) for the ranks 1 to depth."""
    return np.asarray(1 / np.log2(np.arange(2, depth + 2)), dtype=np.float64)


def ideal_dcg(n_actual: NDArray[np.int64], k: int) -> FloatArray:
    """DCG of a document all of whose labels stand first, cut at k; 0 without labels."""
    most = min(check_k(k), int(n_actual.max(initial=0)))
    reached = np.concatenate(([0.0], np.cumsum(discounts(most))))
    return np.asarray(reached[np.minimum(n_actual, most)], dtype=np.float64)


def _share(found: Any, best: Any) -> float:
    return float(found / best) if best > 0 else 0.0


def _inverse(propensities: ArrayLike, n_labels: int) -> FloatArray:
    values = np.asarray(propensities, dtype=np.float64)
    if values.shape != (n_labels,):
        raise InputError(
            f"expected {n_labels} propensities, one per label, got shape {values.shape}."
        )
    bad = np.flatnonzero(~((values > 0) & (values <= 1)))
    if bad.size:
        raise InputError(
            f"a propensity must be above 0 and at most 1, got {values[bad[0]]} for label "
            f"{bad[0]}. Make them with propensities(label_counts, n_samples); the inverse is taken "
            "here."
        )
    return np.asarray(1 / values, dtype=np.float64)
