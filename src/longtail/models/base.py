"""The contract of a model: fit, score texts, save to a folder, load.

Also what models with a torch network share, and reading their weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
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
from longtail.training.steps import Note, predict_logits

Floats = NDArray[np.float32]
Scale = Literal["logit", "margin"]
Engine = Literal["torch", "onnx"]
Shares = NDArray[np.float32]
"""Weights of models in their mean, (models, labels)."""
MakeLoss = Callable[..., MultiLabelLoss]
"""Builds a loss from label statistics and settings such as `reduction`."""


@dataclass(frozen=True)
class FitContext:
    """What a fit needs besides data, loss and training settings."""

    encode: Callable[[TextModel], Any]
    """Returns the training texts, encoded; folds with the same encoding share the work."""
    validation: Callable[[TextModel], Validation | None]
    """Returns documents for early stopping, if it is on."""
    seeded: Callable[[], AbstractContextManager[None]]
    """Context with seeded random numbers of torch, in which no other thread uses them."""
    seed: int
    checkpoints: Checkpoints | None
    progress: OnProgress
    note: Callable[[str], None]
    stop: Stop
    kept: str
    """A sentence on what is kept if the run stops now."""
    describe: Callable[[int], str]
    """Describes the document of a row in error messages."""
    label_texts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Texts that describe labels, by name."""
    earlier: dict[Any, Any] | None = None
    """Warm starts: what fits with other settings on the same documents left for later ones."""


class TextModel(ABC):
    """A model of one kind; it saves only safetensors, JSON and tokenizer files."""

    scale: Scale = "logit"
    """Scores are logits, or margins (signed distances to a hyperplane)."""
    settings: ModelSettings
    encoding_key: Any = None
    """Models with equal keys share encoded texts, as the folds do; None: not shared."""
    trust_remote_code = False
    """Whether a pretrained encoder may run its own code; set by the caller only."""
    works_in_pipeline = False
    """Whether `transformers.pipeline` loads the saved folder."""
    engine: Engine = "torch"
    """What computes the scores."""
    is_int8 = False
    """Whether scores are computed in 8-bit integers."""
    n_tiles = 0
    """Parts of the labels that can be scored separately; 0: only all labels at once."""

    @abstractmethod
    def fit(self, data: TextData, loss: MakeLoss, training: Training, context: FitContext) -> None:
        """Train, and be ready to predict on `training.device`.

        Random numbers come from torch, within `context.seeded()`, or from `context.seed`.
        """

    @abstractmethod
    def scores(self, texts: Sequence[str], encoded: Any = None) -> Floats:
        """Scores, (documents, labels); `encoded`: the texts as `encode` returned them."""

    def tile_scores(self, encoded: Any, tile: int) -> Floats:
        """Scores of encoded texts for the labels of a tile, in any thread; tiles are in order."""
        raise NotImplementedError

    def release(self) -> None:  # noqa: B027
        """Free what scoring has cached."""

    def encode(self, texts: Sequence[str], cache: Path | None = None) -> Any:
        """Encode texts as model inputs; `cache`: a folder to cache slow results in."""
        return texts

    def learn_encoding(self, texts: Sequence[str], cache: Path | None = None) -> Any:
        """Learn the encoding (a vocabulary, say) from the texts of all folds; return them encoded.

        It sees no labels.
        """
        return self.encode(texts, cache)

    def share_encoding(self, other: Any) -> None:  # noqa: B027
        """Take over the encoding of another model with the same `encoding_key`."""

    def merged(self, others: Sequence[Self], shares: Shares) -> Self | None:
        """One model with the weighted mean of the scores of this one and the others, or None."""
        return None

    def explain(self, text: str, labels: NDArray[np.int64], words: Spans) -> Contributions:
        """What each word of a text adds to the scores of labels, given by their columns."""
        raise InputError(
            f"{type(self).__name__} has no explanations. Use bag, svm or encoder, or implement "
            "its method explain."
        )

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write everything that `load` needs.

        `safetensors.numpy.save_file` ignores strides: pass arrays through `np.ascontiguousarray`.
        """

    @abstractmethod
    def load(self, folder: Path, n_labels: int, device: torch.device) -> None:
        """Read what `save` wrote, and be ready to predict on the device."""

    # For export; a kind that cannot be exported implements none of these.

    def graph(self) -> nn.Module:
        """A network of ONNX operations that scores a batch of what `encode` returns."""
        raise InputError(f"{self.settings.description} cannot be exported.")

    def words(self) -> Sequence[str]:
        """The vocabulary, to generate texts from."""
        return []

    def save_encoding(self, folder: Path) -> None:  # noqa: B027
        """Write what `encode` needs; an exported model saves only this and its graph."""

    def load_encoding(self, folder: Path) -> None:  # noqa: B027
        """Read what `save_encoding` wrote."""

    def save_for_transformers(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Write what `transformers.pipeline` loads, adding settings to its config.json."""
        raise InputError(
            f"transformers cannot load this model ({self.settings.description}). Export it with "
            "--to onnx."
        )


class NetworkModel(TextModel):
    """A network that is trained in steps with any loss."""

    network: nn.Module
    bf16: ClassVar[bool] = False
    """Whether the network may be trained in bf16."""

    def fit(self, data: TextData, loss: MakeLoss, training: Training, context: FitContext) -> None:
        training = training.resolved(self.settings.training_defaults)
        assert training.epochs and training.batch_size
        with ExitStack() as stack:
            with context.seeded():
                encoded = self.prepare(data, device_of(training.device), context)
                n_steps = training.epochs * len(encoded) // training.batch_size
                packed = stack.enter_context(self.packing(training, n_steps, context.note))
                trainer = Trainer(
                    self.network,
                    encoded,
                    data.Y,
                    loss(data.stats()),
                    training,
                    partial=Partial(data.unknown, data.weights),
                    is_head=self.is_head,
                    bf16=self.bf16,
                    packed=packed,
                    seed=context.seed,
                    validation=context.validation(self),
                    checkpoints=context.checkpoints,
                    progress=context.progress,
                    note=context.note,
                    stop=context.stop,
                    describe=context.describe,
                )
                if not trainer.steps.packed:
                    trainer.train()
            if trainer.steps.packed:
                # Without torch's random numbers, so that others can be trained at the same time.
                trainer.train()
        self.to_device(device_of(training.device))

    @abstractmethod
    def prepare(self, data: TextData, device: torch.device, context: FitContext) -> Encoded:
        """Build the network and its encoding; return the encoded documents."""

    def packing(self, training: Training, n_steps: int, note: Note) -> AbstractContextManager[bool]:
        """Context in which the network takes packed documents, if it can."""
        return nullcontext(False)

    @abstractmethod
    def is_head(self, parameter: str) -> bool:
        """Whether a parameter, by name, belongs to the head, which has its own learning rate."""

    def to_device(self, device: torch.device) -> None:
        """Move the network to a device, ready to predict."""
        self.network.to(device).eval()

    def scores(self, texts: Sequence[str], encoded: Encoded | None = None) -> Floats:
        return predict_logits(self.network, self.encode(texts) if encoded is None else encoded)

    def graph(self) -> nn.Module:
        return self.network


def read_header(path: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of each tensor in a safetensors file, by name."""
    with safe_open(path, framework="numpy") as file:
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        return {name: (tuple(p.get_shape()), p.get_dtype()) for name, p in parts.items()}


def read_weights(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Read the tensors of a file; raises unless they are exactly these, in float32."""
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
    """Load the weights of a network, which may be on the meta device."""
    shapes = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    network.load_state_dict(read_weights(path, shapes), assign=True)
