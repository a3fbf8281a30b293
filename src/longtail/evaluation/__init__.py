"""Evaluate predictions: by groups of labels and documents, with intervals and calibration."""

from longtail.evaluation.bootstrap import Difference, compare
from longtail.evaluation.evaluator import evaluate
from longtail.evaluation.results import Calibration, Evaluation, LabelTable, Scores

__all__ = ["Calibration", "Difference", "Evaluation", "LabelTable", "Scores", "compare", "evaluate"]
