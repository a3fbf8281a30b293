"""longtail: classify texts with many labels, most of them rare.

The public names load on first use: `import longtail` imports neither torch nor scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longtail.classifier import LongTailClassifier
    from longtail.corpora import load_corpus
    from longtail.data import TextData, load_data
    from longtail.evaluation import evaluate
    from longtail.fused import LinearBalancedLoss, linear_balanced_loss
    from longtail.labels import LabelStats
    from longtail.losses import LOSSES, build_loss, list_losses
    from longtail.models import Auto, Bag, Encoder, Svm
    from longtail.thresholds import Thresholds, fit_thresholds
    from longtail.training import Training

__version__ = "0.1.0"

_MODULES = {
    "classifier": ("LongTailClassifier",),
    "corpora": ("load_corpus",),
    "data": ("TextData", "load_data"),
    "evaluation": ("evaluate",),
    "fused": ("LinearBalancedLoss", "linear_balanced_loss"),
    "labels": ("LabelStats",),
    "losses": ("LOSSES", "build_loss", "list_losses"),
    "models": ("Auto", "Bag", "Encoder", "Svm"),
    "thresholds": ("Thresholds", "fit_thresholds"),
    "training": ("Training",),
}
_HOMES = {name: f"longtail.{module}" for module, names in _MODULES.items() for name in names}

__all__ = [
    "LOSSES",
    "Auto",
    "Bag",
    "Encoder",
    "LabelStats",
    "LinearBalancedLoss",
    "LongTailClassifier",
    "Svm",
    "TextData",
    "Thresholds",
    "Training",
    "build_loss",
    "evaluate",
    "fit_thresholds",
    "linear_balanced_loss",
    "list_losses",
    "load_corpus",
    "load_data",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'longtail' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
