"""The classifier: a scikit-learn estimator that is saved to folders and shared on the hub."""

from longtail.classifier.estimator import LongTailClassifier

__all__ = ["LongTailClassifier"]
