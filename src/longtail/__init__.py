"""longtail: classify texts with many labels, most of them rare.

The public names load on first use: `import longtail` imports neither torch nor scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longtail.classifier import LongTailClassifier
    from longtail.data import TextData
    from longtail.evaluation import evaluate
    from longtail.labels import LabelStats
    from longtail.losses import LOSSES, build_loss, list_losses

__version__ = "0.1.0"

_HOMES = {
    "LOSSES": "longtail.losses",
    "LabelStats": "longtail.labels",
    "LongTailClassifier": "longtail.classifier",
    "TextData": "longtail.data",
    "build_loss": "longtail.losses",
    "evaluate": "longtail.evaluation",
    "list_losses": "longtail.losses",
}

__all__ = [
    "LOSSES",
    "LabelStats",
    "LongTailClassifier",
    "TextData",
    "build_loss",
    "evaluate",
    "list_losses",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'longtail' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
