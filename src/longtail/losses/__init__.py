"""The balancing losses: `build_loss(name, stats)`, the table LOSSES, modules and pure functions."""

from longtail.losses.literature import (
    AsymmetricLoss,
    DiceLoss,
    HillLoss,
    TwoWayLoss,
    ZLPRLoss,
)
from longtail.losses.modules import BalancedLoss, MultiLabelLoss
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
    "list_losses",
]
