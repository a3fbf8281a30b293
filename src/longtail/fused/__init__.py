"""A linear head and its loss without the logits, for very many labels.

The names load on first use: `import longtail` imports no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longtail.fused.linear import linear_balanced_loss
    from longtail.fused.module import LinearBalancedLoss

_HOMES = {"LinearBalancedLoss": "module", "linear_balanced_loss": "linear"}

__all__ = ["LinearBalancedLoss", "linear_balanced_loss"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'longtail.fused' has no attribute {name!r}")
    return getattr(import_module(f"longtail.fused.{_HOMES[name]}"), name)
