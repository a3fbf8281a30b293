"""The balancing losses: `build_loss(name, stats)`, the table LOSSES, modules and pure functions.

The names load on first use: the command reads the table of losses without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longtail.losses import functional as functional
    from longtail.losses.base import MultiLabelLoss as MultiLabelLoss
    from longtail.losses.functional import *  # noqa: F403
    from longtail.losses.modules import AsymmetricLoss as AsymmetricLoss
    from longtail.losses.modules import BalancedLoss as BalancedLoss
    from longtail.losses.modules import DiceLoss as DiceLoss
    from longtail.losses.modules import HillLoss as HillLoss
    from longtail.losses.modules import TwoWayLoss as TwoWayLoss
    from longtail.losses.modules import ZLPRLoss as ZLPRLoss
    from longtail.losses.presets import CONSTANTS as CONSTANTS
    from longtail.losses.presets import LOSSES as LOSSES
    from longtail.losses.presets import LossRow as LossRow
    from longtail.losses.presets import build_loss as build_loss
    from longtail.losses.presets import list_losses as list_losses

_NAMES = {
    "presets": ("CONSTANTS", "LOSSES", "LossRow", "build_loss", "list_losses"),
    "base": ("MultiLabelLoss",),
    "modules": (
        "AsymmetricLoss", "BalancedLoss", "DiceLoss", "HillLoss", "TwoWayLoss", "ZLPRLoss",
    ),
}  # fmt: skip
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    functional = import_module("longtail.losses.functional") if name not in _MODULES else None
    if functional is not None and name in functional.__all__:
        return getattr(functional, name)
    if name not in _MODULES:
        raise AttributeError(f"module 'longtail.losses' has no attribute {name!r}")
    return getattr(import_module(f"longtail.losses.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    functional = import_module("longtail.losses.functional")
    return sorted({*globals(), *_MODULES, *functional.__all__})
