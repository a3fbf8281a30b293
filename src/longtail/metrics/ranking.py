"""Metrics of the k best labels of every document, from one `Ranking` for all k.

Only the order of the scores counts: logits and probabilities give the same figures, except where
rounding makes probabilities equal that were different logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from longtail.metrics.inputs import FloatArray, LeftOut, check_choice, check_ks, mean_of
from longtail.metrics.propensity import discounts, gains, ideal_dcg, psndcg_of, psp_of
from longtail.metrics.top import Ranking, rank


def precision_at_k(ranking: Ranking, k: int, unlabelled: LeftOut = "zero") -> float:
    """Mean over documents of hits among the first k, divided by k whatever there is to find.

    A document without labels counts 0; `unlabelled="skip"` leaves it out.
    """
    return _mean(ranking, ranking.hits_to(k).sum(axis=1) / k, unlabelled)


def recall_at_k(ranking: Ranking, k: int, unlabelled: LeftOut = "zero") -> float:
    """Mean over documents of hits among the first k, divided by the document's labels.

    A document without labels counts 0; `unlabelled="skip"` leaves it out.
    """
    return _mean(ranking, _share(ranking.hits_to(k).sum(axis=1), ranking.n_actual), unlabelled)


def ndcg_at_k(ranking: Ranking, k: int, unlabelled: LeftOut = "zero") -> float:
    """Mean over documents of the DCG at k, divided by that of min(k, its labels) hits in front.

    A document without labels counts 0, as with scikit-learn; `unlabelled="skip"` leaves it out.
    Equal scores are ranked by column, where scikit-learn averages over their orders.
    """
    hits = ranking.hits_to(k)
    reached = hits @ discounts(hits.shape[1])
    return _mean(ranking, _share(reached, ideal_dcg(ranking.n_actual, k)), unlabelled)


def coverage_at_k(ranking: Ranking, k: int) -> float:
    """Share of the labels present in y_true that are found for some document among its first k.

    Labels that no judged document carries cannot be found and are left out; 0 if none is present.
    """
    hits = ranking.hits_to(k)
    found = np.unique(ranking.labels[:, : hits.shape[1]][hits]).size
    present = np.unique(ranking.y_true.indices).size
    return found / present if present else 0.0


def ranking_scores(
    y_true: Any,
    scores: Any,
    ks: Sequence[int] = (1, 3, 5),
    propensities: ArrayLike | None = None,
    unlabelled: LeftOut = "zero",
) -> dict[str, float]:
    """All ranking metrics at every k by name, `precision@1` and so on, from one ranking.

    Args:
        y_true: labels, documents x labels, 0/1; dense or sparse (a stored zero is no label).
        scores: dense, or CSR; logits or probabilities, only their order counts. In CSR an absent
            pair is not scored and never ranked; a stored zero is a score of 0.
        ks: how many labels to look at; may exceed the number of labels.
        propensities: of `propensities(label_counts, n_samples)` of the training documents; adds
            `psp@k` and `psndcg@k`.
        unlabelled: a document without labels counts 0 in `precision`, `recall` and `ndcg`
            (`zero`), or is left out (`skip`). The other metrics do not depend on it.

    Example:
        >>> truth, scores = [[1, 0, 1], [0, 1, 0]], [[3.0, 2.0, 1.0], [0.5, 0.1, 0.2]]
        >>> found = ranking_scores(truth, scores, ks=[2])
        >>> {name: round(value, 4) for name, value in found.items()}
        {'precision@2': 0.25, 'recall@2': 0.25, 'ndcg@2': 0.3066, 'coverage@2': 0.3333}
    """
    ks = check_ks(ks)
    ranking = rank(y_true, scores, max(ks))
    metrics = {"precision": precision_at_k, "recall": recall_at_k, "ndcg": ndcg_at_k}
    found = {
        f"{name}@{k}": metric(ranking, k, unlabelled)
        for name, metric in metrics.items()
        for k in ks
    }
    if propensities is not None:
        weighed = gains(ranking, propensities)
        found |= {f"psp@{k}": psp_of(weighed, k) for k in ks}
        found |= {f"psndcg@{k}": psndcg_of(weighed, k) for k in ks}
    return found | {f"coverage@{k}": coverage_at_k(ranking, k) for k in ks}


def _mean(ranking: Ranking, values: FloatArray, unlabelled: LeftOut) -> float:
    check_choice("choice for unlabelled documents", unlabelled, LeftOut)
    return mean_of(values, ranking.n_actual > 0, unlabelled)


def _share(part: NDArray[Any], whole: NDArray[Any]) -> FloatArray:
    shares = np.zeros(len(whole))
    np.divide(part, whole, out=shares, where=whole > 0)
    return shares
