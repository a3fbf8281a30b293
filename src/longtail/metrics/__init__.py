"""Metrics of multi-label classification: decisions, rankings, average precision.

`y_true` and `y_pred` are 0/1 matrices, documents x labels, dense or sparse (a stored zero is no
label). `scores` are logits or probabilities, dense, masked or CSR: only their order matters. A pair
that is masked or absent from CSR is not scored: it ranks below all others and is never retrieved,
but a positive among them still counts. A stored zero is a score of 0.
"""

from longtail.metrics.average_precision import average_precision, label_average_precision
from longtail.metrics.decisions import (
    Counts,
    PrecisionRecallF1,
    count,
    decision_scores,
    hamming_loss,
    label_f1,
    label_precision_recall_f1,
    macro_f1,
    micro_f1,
    precision_recall_f1,
    sample_precision_recall_f1,
    subset_accuracy,
)
from longtail.metrics.ranking import (
    Ranking,
    coverage_at_k,
    ndcg_at_k,
    precision_at_k,
    propensities,
    psndcg_at_k,
    psp_at_k,
    rank,
    ranking_scores,
    recall_at_k,
    top_k,
)

__all__ = [
    "Counts",
    "PrecisionRecallF1",
    "Ranking",
    "average_precision",
    "count",
    "coverage_at_k",
    "decision_scores",
    "hamming_loss",
    "label_average_precision",
    "label_f1",
    "label_precision_recall_f1",
    "macro_f1",
    "micro_f1",
    "ndcg_at_k",
    "precision_at_k",
    "precision_recall_f1",
    "propensities",
    "psndcg_at_k",
    "psp_at_k",
    "rank",
    "ranking_scores",
    "recall_at_k",
    "sample_precision_recall_f1",
    "subset_accuracy",
    "top_k",
]
