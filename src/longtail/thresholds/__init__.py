"""From scores to decisions: thresholds fitted on documents that the model has not trained on."""

from longtail.thresholds.cuts import OBJECTIVES, Objective
from longtail.thresholds.decision import Overrides, Thresholds
from longtail.thresholds.methods import METHODS
from longtail.thresholds.selection import (
    CrossValidatedF1,
    cross_validated_decisions,
    cross_validated_score,
    fit_thresholds,
    list_methods,
)

__all__ = [
    "METHODS",
    "OBJECTIVES",
    "CrossValidatedF1",
    "Objective",
    "Overrides",
    "Thresholds",
    "cross_validated_decisions",
    "cross_validated_score",
    "fit_thresholds",
    "list_methods",
]
