"""Training: serves models with one loop for networks and a solver for linear heads."""

from longtail.training.settings import Training

__all__ = ["Training"]
