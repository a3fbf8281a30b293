"""The classifier: scikit-learn's manners, and folders that can be shared."""

from longtail.classifier.estimator import LongTailClassifier

__all__ = ["LongTailClassifier"]
