"""What predictions are worth: groups of labels and documents, intervals, calibration."""

from longtail.evaluation.bootstrap import Difference, compare
from longtail.evaluation.facts import Calibration, Evaluation, LabelTable, Scores
from longtail.evaluation.judge import evaluate

__all__ = [
    "Calibration",
    "Difference",
    "Evaluation",
    "LabelTable",
    "Scores",
    "compare",
    "evaluate",
]
