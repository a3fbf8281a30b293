"""Metrics of multi-label classification: decisions, rankings, average precision.

`y_true` and `y_pred` are 0/1 matrices, documents x labels, dense or sparse (a stored zero is no
label), and `y_true` may hold NaN or -1 where it is unknown whether a label applies: such a pair
counts nowhere, nor does a document of nothing else. `scores` are logits or probabilities, dense,
masked or CSR: only their order matters. A pair that is masked or absent from CSR is not scored: it
ranks below all others and is never retrieved, but a positive among them still counts. A stored zero
is a score of 0.
"""

from longtail.metrics.average_precision import average_precision
from longtail.metrics.decisions import (
    Counts,
    PrecisionRecallF1,
    count,
    decision_scores,
    label_precision_recall_f1,
    precision_recall_f1,
)
from longtail.metrics.ranking import propensities, ranking_scores, top_k

__all__ = [
    "Counts",
    "PrecisionRecallF1",
    "average_precision",
    "count",
    "decision_scores",
    "label_precision_recall_f1",
    "precision_recall_f1",
    "propensities",
    "ranking_scores",
    "top_k",
]
