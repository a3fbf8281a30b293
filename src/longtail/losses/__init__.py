"""The balancing losses: `build_loss(name, stats)`, the table LOSSES, modules and pure functions."""

from longtail.losses import functional
from longtail.losses.base import MultiLabelLoss
from longtail.losses.functional import *  # noqa: F403
from longtail.losses.modules import (
    AsymmetricLoss,
    BalancedLoss,
    DiceLoss,
    HillLoss,
    TwoWayLoss,
    ZLPRLoss,
)
from longtail.losses.presets import CONSTANTS, LOSSES, LossRow, build_loss, list_losses

__all__ = [
    "CONSTANTS",
    "LOSSES",
    "AsymmetricLoss",
    "BalancedLoss",
    "DiceLoss",
    "HillLoss",
    "LossRow",
    "MultiLabelLoss",
    "TwoWayLoss",
    "ZLPRLoss",
    "build_loss",
    "functional",
    "list_losses",
]
__all__ += functional.__all__
