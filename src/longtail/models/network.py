"""What models with a torch network share: training by the loop, scoring, the device."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import nn

from longtail.data import TextData
from longtail.models.base import FitContext, Floats, MakeLoss, TextModel
from longtail.training.devices import device_of
from longtail.training.encoded import Encoded
from longtail.training.loop import Trainer
from longtail.training.settings import Training
from longtail.training.steps import predict_logits


class NetworkModel(TextModel):
    """A network that is trained in steps with any loss."""

    network: nn.Module
    defaults: ClassVar[Mapping[str, Any]]
    """Fields of `Training` for this model."""
    bf16: ClassVar[bool] = False
    """Whether the network may be trained in bf16."""

    def fit(self, data: TextData, loss: MakeLoss, training: Training, context: FitContext) -> None:
        encoded = self.prepare(data, context)
        Trainer(
            self.network,
            encoded,
            data.Y,
            loss(data.stats()),
            self.resolved(training),
            is_head=self.is_head,
            bf16=self.bf16,
            seed=context.seed,
            validation=context.validation(self),
            checkpoints=context.checkpoints,
            progress=context.progress,
            note=context.note,
            stop=context.stop,
            describe=context.describe,
        ).train()
        self.to_device(device_of(training.device))

    @abstractmethod
    def prepare(self, data: TextData, context: FitContext) -> Encoded:
        """Make the network, and what it needs to encode texts; return the encoded documents."""

    @abstractmethod
    def is_head(self, parameter: str) -> bool:
        """Whether a parameter, by name, belongs to the head, which learns faster."""

    def to_device(self, device: torch.device) -> None:
        """Move the network to a device, ready to predict."""
        self.network.to(device).eval()

    def scores(self, texts: Sequence[str], encoded: Encoded | None = None) -> Floats:
        return predict_logits(self.network, self.encode(texts) if encoded is None else encoded)

    def resolved(self, training: Training) -> Training:
        return training.resolved(self.defaults)
