"""One training loop for every network and every loss, on Hugging Face Accelerate.

It can be stopped and killed: with a folder, it goes on from its last saved state to the same
weights that an undisturbed run ends with.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.errors import DataError, InputError, LongtailError
from longtail.losses import MultiLabelLoss
from longtail.models import NetworkModel
from longtail.models.base import Encoded, IntArray
from longtail.models.tokens import EncodedTokens
from longtail.settings import TrainingConfig
from longtail.training.batches import epoch_batches
from longtail.training.checkpoints import Checkpoints
from longtail.training.devices import (
    device_of,
    fitting_threads,
    has_bf16,
    make_accelerator,
    n_processes,
    own_accelerate,
    repeatable,
)
from longtail.training.feed import DeviceFeed, Feed, HostFeed
from longtail.training.interrupt import NEVER, Stop
from longtail.training.optimizer import load_optimizer, make_optimizer, optimizer_tensors
from longtail.training.predicting import predict_logits
from longtail.training.steps import Note, Steps
from longtail.training.weights import Weights

# Steps between looks at the losses on a GPU: each look waits for all work under way.
LOOK_EVERY = 50


@dataclass(frozen=True)
class Moment:
    """Where a training stands; what a progress callback gets."""

    step: int
    steps: int
    epoch: int
    epochs: int
    loss: float
    documents_per_second: float
    best: float | None = None
    fold: int = 1
    folds: int = 1


Progress = Callable[[Moment], None]
Describe = Callable[[int], str]


@dataclass(frozen=True)
class Validation:
    """Documents to look at after each epoch, and what their logits are worth (more is better)."""

    encoded: Encoded
    score: Callable[[NDArray[np.float32]], float]


@dataclass
class Standing:
    """What a training remembers beside its weights."""

    epoch: int = 0
    step: int = 0
    best: float | None = None
    best_epoch: int = 0
    micro: int = 0


@dataclass(frozen=True)
class Trained:
    """How a training ended."""

    epochs: int
    steps: int
    best: float | None
    best_epoch: int
    seconds: float


@dataclass(frozen=True)
class _Around:
    """Who looks on while a training runs, and where it is saved."""

    validation: Validation | None
    checkpoints: Checkpoints | None
    progress: Progress | None
    stop: Stop
    describe: Describe


def train(
    model: NetworkModel,
    encoded: Encoded,
    Y: sp.csr_matrix,
    loss: MultiLabelLoss,
    config: TrainingConfig,
    *,
    validation: Validation | None = None,
    checkpoints: Checkpoints | None = None,
    progress: Progress | None = None,
    note: Note = warnings.warn,
    stop: Stop = NEVER,
    describe: Describe = str,
) -> Trained:
    """Train the model's network in place; its weights end in float32.

    With `validation` the best epoch's weights are kept, and `config.patience` may end the training.
    Dropout draws from torch's random numbers: seed them for the same result. `describe` names a
    document, by its row, in an error.
    """
    if len(encoded) == 0 or len(encoded) != Y.shape[0]:
        raise InputError(
            f"expected documents to train on and a row of labels for each, got {len(encoded)} "
            f"documents and {Y.shape[0]} rows."
        )
    with own_accelerate():
        run = _Run(model, encoded, Y, loss, config, note)
        if checkpoints is not None:
            checkpoints.check_space(run.n_bytes())
            run.resume(checkpoints)
        with run.placed(), fitting_threads(model.network):
            run.go(_Around(validation, checkpoints, progress, stop, describe))
        return run.finish()


class _Run:
    """All that belongs to one training."""

    def __init__(
        self,
        model: NetworkModel,
        encoded: Encoded,
        Y: sp.csr_matrix,
        loss: MultiLabelLoss,
        config: TrainingConfig,
        note: Note,
    ) -> None:
        config = config.resolved(model.training_defaults)
        self.config, self.encoded, self.network = config, encoded, model.network
        assert config.epochs and config.batch_size and config.learning_rate
        self.epochs, self.batch_size = config.epochs, config.batch_size
        device = device_of(config.device)
        half = getattr(model, "half_ready", False) and has_bf16(device, config.precision)
        if config.precision == "bf16" and not half:
            note("bf16 was asked for, but this model or device has none: computing in float32.")
        self.accelerator = make_accelerator(device, half and n_processes() > 1)
        alone = self.accelerator.num_processes == 1
        if device.index is None or not alone:
            device = self.accelerator.device
        self.device = device
        self.network.to(device).train()
        self.weights = Weights(self.network, half and alone, config.ema)
        self.optimizer, rates = make_optimizer(model, self.weights, config, device)
        forward = self.network if alone else self.accelerator.prepare(self.network)
        compiles = config.acceleration == "compile"
        feed = _feed(encoded, Y, device)
        self.steps = Steps(
            accelerator=self.accelerator,
            device=device,
            forward=forward,
            compiled=_compiled(forward) if compiles else None,
            weights=self.weights,
            loss=loss.to(device),
            optimizer=self.optimizer,
            feed=feed,
            rates=rates,
            batch_size=self.batch_size,
            micro=min(config.micro_batch or self.batch_size, self.batch_size),
            clip=config.clip,
            graphs=alone and config.acceleration != "off" and isinstance(feed, DeviceFeed),
            note=note,
        )
        self.per_epoch = math.ceil(len(encoded) / self.batch_size)
        self.total = self.epochs * self.per_epoch
        self.at = Standing()
        self.began = time.perf_counter()

    def go(self, around: _Around) -> None:
        """Every epoch from where the training stands."""
        while self.at.epoch < self.epochs and not self._exhausted():
            batches = epoch_batches(
                self.encoded.lengths, self.batch_size, self.config.seed, self.at.epoch
            )
            self._epoch(batches, around)
            if around.validation is not None:
                self._judge(around.validation)
            self.at.epoch, self.at.step = self.at.epoch + 1, 0
            self._pause(around)

    def _epoch(self, batches: list[IntArray], around: _Around) -> None:
        waiting: list[tuple[IntArray, Tensor]] = []
        seen, since = 0, time.perf_counter()
        each = around.checkpoints is not None and self.config.checkpoint_minutes == 0
        every = 1 if each or self.device.type == "cpu" else LOOK_EVERY
        for step in range(self.at.step, len(batches)):
            rows = batches[step]
            factor = self.config.rate(self.at.epoch * self.per_epoch + step, self.total)
            waiting.append((rows, self.steps(rows, factor)))
            self.at.step = step + 1
            seen += len(rows)
            last = self.at.step == len(batches)
            if last or len(waiting) >= every:
                value = self._look(waiting, around.describe)
                waiting = []
                if around.progress is not None:
                    speed = seen / max(1e-9, time.perf_counter() - since)
                    around.progress(self._moment(value, speed))
                # After the last step the epoch is judged first.
                if not last:
                    self._pause(around)

    def _pause(self, around: _Around) -> None:
        """A safe moment: save if it is time to, and leave if somebody asked for that."""
        # Looked at once: a signal that comes while we save waits for the next pause.
        asked = around.stop.signal is not None
        checkpoints = around.checkpoints
        if checkpoints is not None and (asked or checkpoints.due()):
            self.save(checkpoints)
        if asked:
            kept = "What was learned so far is saved: go on with --resume."
            nothing = "Nothing was saved: the training has no folder."
            around.stop.check(nothing if checkpoints is None else kept)

    def _look(self, waiting: list[tuple[IntArray, Tensor]], describe: Describe) -> float:
        """The last loss; raises if one of them is no number."""
        losses = torch.stack([value for _, value in waiting]).tolist()
        first = self.at.step - len(waiting) + 1
        for position, value in enumerate(losses):
            if not math.isfinite(value):
                rows = waiting[position][0].tolist()
                named = ", ".join(describe(row) for row in rows[:5])
                more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
                raise LongtailError(
                    f"the loss became {value} at step {first + position} of epoch "
                    f"{self.at.epoch + 1}, at documents {named}{more}. Lower the learning rate, "
                    f"now {self.config.learning_rate}, or look at these texts."
                )
        return float(losses[-1])

    def _judge(self, validation: Validation) -> None:
        self.network.eval()
        try:
            with self.weights.evaluating():
                logits = predict_logits(self.network, validation.encoded)
        finally:
            self.network.train()
        score = validation.score(logits)
        best = self.at.best
        # A score that is no number never is the best, whenever it comes.
        if best is None or score > best or (math.isnan(best) and not math.isnan(score)):
            self.at.best, self.at.best_epoch = score, self.at.epoch + 1
            self.weights.remember_best()

    def _exhausted(self) -> bool:
        """Whether the best epoch is so long ago that there is no hope for a better one."""
        if not self.config.patience or self.at.best is None:
            return False
        return self.at.epoch - self.at.best_epoch >= self.config.patience

    def _moment(self, loss: float, speed: float) -> Moment:
        done = self.at.epoch * self.per_epoch + self.at.step
        return Moment(done, self.total, self.at.epoch + 1, self.epochs, loss, speed, self.at.best)

    @contextmanager
    def placed(self) -> Iterator[None]:
        """On a GPU all work goes to one stream of its own, which graphs are recorded from."""
        if self.device.type != "cuda":
            yield
            return
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        exact = repeatable(self.device, self.config.deterministic)
        with torch.cuda.device(self.device), torch.cuda.stream(stream), exact:
            yield
        torch.cuda.current_stream(self.device).wait_stream(stream)

    def finish(self) -> Trained:
        self.weights.finish()
        self.network.eval()
        at = self.at
        seconds = time.perf_counter() - self.began
        return Trained(
            at.epoch, at.epoch * self.per_epoch, at.best, at.best_epoch or at.epoch, seconds
        )

    def n_bytes(self) -> int:
        """Size of a saved state: weights, two moments, the average and the best."""
        copies = 3 + bool(self.config.ema) + 1
        return copies * sum(weight.numel() * 4 for weight in self.weights.moved)

    def save(self, checkpoints: Checkpoints) -> None:
        """Write everything that the rest of the training depends on."""
        if not self.accelerator.is_main_process:
            return
        tensors = self.weights.tensors() | optimizer_tensors(self.optimizer, self.weights)
        tensors["random.cpu"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        self.at.micro = self.steps.micro
        checkpoints.save(tensors, vars(self.at))

    def resume(self, checkpoints: Checkpoints) -> None:
        """Stand where the last `save` stood, if there was one."""
        state = checkpoints.load()
        if state is None:
            return
        try:
            self._load(*state)
        except (KeyError, TypeError, RuntimeError) as error:
            raise DataError(
                f"the state in {checkpoints.folder} is of another network or version ({error}). "
                "Remove that folder to start this part again."
            ) from error

    def _load(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        self.weights.load(tensors)
        load_optimizer(self.optimizer, self.weights, tensors)
        self.at = Standing(**facts)
        self.steps.micro = min(self.at.micro, self.batch_size)
        if "random.cuda" in tensors and self.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random.cuda"], self.device)
        # Last of all: nothing between here and the next step may draw.
        torch.set_rng_state(tensors["random.cpu"])


def _compiled(network: nn.Module) -> nn.Module:
    return torch.compile(network, dynamic=True)  # type: ignore[return-value]


def _feed(encoded: Encoded, Y: sp.csr_matrix, device: torch.device) -> Feed:
    if device.type == "cuda" and isinstance(encoded, EncodedTokens):
        free, _ = torch.cuda.mem_get_info(device)
        if DeviceFeed.n_bytes(encoded, Y) < free // 4:
            return DeviceFeed(encoded, Y, device)
    return HostFeed(encoded, Y, device)
