"""Metrics of multi-label classification: decisions, rankings, average precision.

Decision metrics take 0/1 matrices and refuse scores; the others use only the order of the scores.
So no metric asks, or guesses, whether scores are logits or probabilities. Labels are dense or
sparse, scores dense or CSR, in which an absent pair is not scored.
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
from longtail.metrics.propensity import propensities, psndcg_at_k, psp_at_k
from longtail.metrics.ranking import (
    coverage_at_k,
    ndcg_at_k,
    precision_at_k,
    ranking_scores,
    recall_at_k,
)
from longtail.metrics.top import Ranking, rank, top_k

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
