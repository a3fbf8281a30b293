"""Training: how to train, one loop for networks, a solver for linear heads."""

from longtail.settings import TrainingConfig
from longtail.training.checkpoints import Checkpoints
from longtail.training.interrupt import Stop, StoppedError, stopping
from longtail.training.loop import Moment, Progress, Trained, Validation, train
from longtail.training.predicting import predict_logits

__all__ = [
    "Checkpoints",
    "Moment",
    "Progress",
    "Stop",
    "StoppedError",
    "Trained",
    "TrainingConfig",
    "Validation",
    "predict_logits",
    "stopping",
    "train",
]
