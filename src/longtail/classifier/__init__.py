"""The classifier: scikit-learn's manners, and folders that can be shared."""

from longtail.classifier.estimator import LongTailClassifier
from longtail.classifier.saving import check_out

__all__ = ["LongTailClassifier", "check_out"]
