"""Metrics of multi-label classification: decisions, rankings, average precision.

`y_true` and `y_pred` are 0/1 matrices, documents x labels, dense or sparse; explicit zeros are
allowed. `y_true` may hold NaN or -1 where it is unknown whether a label applies: such pairs are
ignored, and so are documents with no known label. `scores` are logits or probabilities, dense,
masked or CSR; only their order matters. Pairs that are masked or absent from CSR are not scored:
they are never retrieved, but count as missed if their label applies. An explicit zero is a score.
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
