"""The classifier: a scikit-learn estimator, and folders that can be shared."""

from longtail.classifier.estimator import LongTailClassifier

__all__ = ["LongTailClassifier"]
