"""The contract of a model: it fits itself, scores texts, saves itself to a folder and loads.

And what models with a torch network share, and the weights in their files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from longtail.data import TextData
from longtail.errors import DataError, InputError
from longtail.losses import MultiLabelLoss
from longtail.models.explanation import Contributions
from longtail.models.settings import ModelSettings
from longtail.models.words import Spans
from longtail.progress import OnProgress
from longtail.training.checkpoints import Checkpoints
from longtail.training.devices import device_of
from longtail.training.encoded import Encoded, Partial
from longtail.training.interrupt import Stop
from longtail.training.loop import Trainer, Validation
from longtail.training.settings import Training
from longtail.training.steps import predict_logits

Floats = NDArray[np.float32]
Scale = Literal["logit", "margin"]
Engine = Literal["torch", "onnx"]
Shares = NDArray[np.float32]
"""How much each of several models, a row each, counts in their mean, label by label."""
MakeLoss = Callable[..., MultiLabelLoss]
"""Called with the label statistics, and settings such as `reduction`."""


@dataclass(frozen=True)
class FitContext:
    """What a fit needs beside data, loss and training."""

    encode: Callable[[TextModel], Any]
    """The training texts as `TextModel.encode` makes them, once for all folds if they share it."""
    validation: Callable[[TextModel], Validation | None]
    """Documents for early stopping."""
    seed: int
    checkpoints: Checkpoints | None
    progress: OnProgress
    note: Callable[[str], None]
    stop: Stop
    kept: str
    """What remains of the run if it stops now, as a sentence."""
    describe: Callable[[int], str]
    """The document of a row, for an error message."""
    earlier: dict[Any, Any] | None = None
    """What fits of other settings on the same documents leave for those that learn alike."""


class TextModel(ABC):
    """A model of one kind; files are safetensors, JSON and tokenizer files only."""

    scale: Scale = "logit"
    """Whether scores are logits, or margins: signed distances to a hyperplane."""
    settings: ModelSettings
    encoding_key: Any = None
    """Models with equal keys encode texts alike, such as those of all folds; None: they do not."""
    trust_remote_code = False
    """Whether a pretrained encoder may bring code that is run; set by the caller only."""
    works_in_pipeline = False
    """Whether `transformers.pipeline` loads the saved folder."""
    engine: Engine = "torch"
    """What computes the scores."""
    is_int8 = False
    """Whether it computes them with integers of 8 bits."""

    @abstractmethod
    def fit(self, data: TextData, loss: MakeLoss, training: Training, context: FitContext) -> None:
        """Learn from documents; ends ready to predict on `training.device`.

        Random numbers are torch's, seeded by the caller.
        """

    @abstractmethod
    def scores(self, texts: Sequence[str], encoded: Any = None) -> Floats:
        """Scores, (documents, labels); `encoded`: what `encode` made of the texts."""

    def encode(self, texts: Sequence[str], cache: Path | None = None) -> Any:
        """The texts as inputs; `cache`: a folder for results that take long."""
        return texts

    def learn_encoding(self, texts: Sequence[str], cache: Path | None = None) -> Any:
        """Learn from the training texts, of all folds and without their labels, how to encode;
        return them encoded."""
        return self.encode(texts, cache)

    def share_encoding(self, other: Any) -> None:  # noqa: B027
        """Encode as another model of the same settings has learned to."""

    def merged(self, others: Sequence[Self], shares: Shares) -> Self | None:
        """One model whose scores are the mean of this one's and the others', if there is one."""
        return None

    def explain(self, text: str, labels: NDArray[np.int64], words: Spans) -> Contributions:
        """What each word of a text adds to the scores of labels, given by their columns."""
        raise InputError(
            f"a model of the kind {type(self).__name__} has no explanations. Use bag, svm or "
            "encoder, or write its method explain."
        )

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write all that `load` needs.

        `safetensors.numpy.save_file` writes the bytes of an array as they are, in whatever order:
        pass arrays through `np.ascontiguousarray`.
        """

    @abstractmethod
    def load(self, folder: Path, n_labels: int, device: torch.device) -> None:
        """Read what `save` wrote; ends ready to predict on the device."""

    def resolved(self, training: Training) -> Training:
        """The training with this model's defaults filled in."""
        return training

    # What an exported model needs; a kind that cannot be exported has none of it.

    def graph(self) -> nn.Module:
        """A network of operations that ONNX has: scores of a batch of what `encode` returns."""
        raise InputError(f"{self.settings.description} cannot be exported.")

    def words(self) -> Sequence[str]:
        """What it knows of texts, to generate some of."""
        return []

    def save_encoding(self, folder: Path) -> None:  # noqa: B027
        """Write what `encode` needs, as part of `save` or in place of it."""

    def load_encoding(self, folder: Path) -> None:  # noqa: B027
        """Read what `save_encoding` wrote."""

    def save_for_transformers(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Write what `transformers.pipeline` loads, with further settings in its config.json."""
        raise InputError(
            f"{self.settings.description} is no model of transformers. Export it with --to onnx."
        )


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
            partial=Partial(data.unknown, data.weights),
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

    def graph(self) -> nn.Module:
        return self.network


def read_header(path: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """Name -> shape and type of the tensors in a file."""
    with safe_open(path, framework="numpy") as opened:
        parts = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
        return {name: (tuple(p.get_shape()), p.get_dtype()) for name, p in parts.items()}


def read_weights(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """The tensors of a file, which must have these shapes, in float32, and no others."""
    header = read_header(path)
    for name in sorted({*header, *shapes}):
        expected = (shapes[name], "F32") if name in shapes else None
        if header.get(name) != expected:
            raise DataError(
                f"{path} does not belong to the rest of its model: expected {name} as "
                f"{expected or 'nothing'}, got {header.get(name, 'nothing')}. Copy the model again "
                "from where it came from, or train it again."
            )
    return load_file(path)


def load_network(network: nn.Module, path: Path) -> None:
    """Load the weights of a network, which may be on the device meta."""
    shapes = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    network.load_state_dict(read_weights(path, shapes), assign=True)
