"""The balancing losses: `build_loss(name, stats)`, the table LOSSES, modules and pure functions.

The names load on first use: the command reads the table of losses without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longtail.losses import functional as functional
    from longtail.losses.modules import *  # noqa: F403
    from longtail.losses.presets import *  # noqa: F403

# In this order: the first needs no torch, and the last needs the others.
_MODULES = ("presets", "functional", "modules")


def __getattr__(name: str) -> Any:
    for module in _MODULES:
        public = import_module(f"longtail.losses.{module}")
        if name in (module, *getattr(public, "__all__", ())):
            return public if name == module else getattr(public, name)
    raise AttributeError(f"module 'longtail.losses' has no attribute {name!r}")
