"""One training loop for every network and every loss.

It can be stopped and killed: a run that resumes from a checkpoint ends with the same weights as
one that was not interrupted.
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
from longtail.progress import OnProgress, Progress, ignore
from longtail.training.checkpoints import Checkpoints
from longtail.training.devices import Processes, device_of, has_bf16, limited_threads, repeatable
from longtail.training.encoded import Encoded, IntArray
from longtail.training.feed import DeviceFeed, epoch_batches, make_feed
from longtail.training.interrupt import NEVER, Stop
from longtail.training.optimizer import load_optimizer, make_optimizer, optimizer_tensors
from longtail.training.predicting import predict_logits
from longtail.training.settings import Training
from longtail.training.steps import Note, Steps
from longtail.training.weights import Weights

# Steps between two reads of the losses on a GPU: each waits for all queued work.
READ_EVERY = 50


Describe = Callable[[int], str]


@dataclass(frozen=True)
class Validation:
    """Documents scored after each epoch, and the score of their logits (higher is better)."""

    encoded: Encoded
    score: Callable[[NDArray[np.float32]], float]


@dataclass
class State:
    """The progress of a training, beside its weights."""

    epoch: int = 0
    step: int = 0
    best: float | None = None
    best_epoch: int = 0
    micro: int = 0


@dataclass(frozen=True)
class Trained:
    """The result of a training."""

    epochs: int
    steps: int
    best: float | None
    best_epoch: int
    seconds: float


@dataclass(frozen=True)
class _Hooks:
    """Callbacks and checkpoints of a training."""

    validation: Validation | None
    checkpoints: Checkpoints | None
    progress: OnProgress
    stop: Stop
    describe: Describe


def train(
    network: nn.Module,
    encoded: Encoded,
    Y: sp.csr_matrix,
    loss: MultiLabelLoss,
    training: Training,
    *,
    is_head: Callable[[str], bool],
    bf16: bool = False,
    seed: int = 0,
    validation: Validation | None = None,
    checkpoints: Checkpoints | None = None,
    progress: OnProgress = ignore,
    note: Note = warnings.warn,
    stop: Stop = NEVER,
    describe: Describe = str,
) -> Trained:
    """Train a network in place; its weights end in float32.

    With `validation` the weights of the best epoch are kept.

    Args:
        training: without None among its fields.
        is_head: whether a parameter, by name, belongs to the head.
        bf16: whether the network may compute in bf16.
        seed: of the batches. Dropout uses torch's random numbers, seeded by the caller.
        describe: names a document, by its row, in an error.
    """
    if len(encoded) == 0 or len(encoded) != Y.shape[0]:
        raise InputError(
            f"expected documents to train on and a row of labels for each, got {len(encoded)} "
            f"documents and {Y.shape[0]} rows."
        )
    run = _Run(network, encoded, Y, loss, training, is_head, bf16, seed, note)
    if checkpoints is not None:
        checkpoints.check_space(run.n_bytes())
        run.resume(checkpoints)
    with run.placed(), limited_threads(network):
        run.train(_Hooks(validation, checkpoints, progress, stop, describe))
    return run.finish()


class _Run:
    """The state of one training."""

    def __init__(
        self,
        network: nn.Module,
        encoded: Encoded,
        Y: sp.csr_matrix,
        loss: MultiLabelLoss,
        training: Training,
        is_head: Callable[[str], bool],
        bf16: bool,
        seed: int,
        note: Note,
    ) -> None:
        self.config, self.encoded, self.network, self.seed = training, encoded, network, seed
        assert training.epochs and training.batch_size
        self.epochs, self.batch_size = training.epochs, training.batch_size
        self.processes = Processes(device_of(training.device))
        alone, device = self.processes.count == 1, self.processes.device
        half = bf16 and has_bf16(device, training.precision)
        if training.precision == "bf16" and not half:
            note("this model or device does not support bf16: computing in float32.")
        self.device = device
        network.to(device).train()
        self.weights = Weights(network, half and alone, training.ema)
        self.optimizer, rates = make_optimizer(self.weights, is_head, training, device)
        forward = self.processes.wrap(network)
        compiles = training.acceleration == "compile"
        feed = make_feed(encoded, Y, device)
        self.steps = Steps(
            processes=self.processes,
            autocast=half and not alone,
            forward=forward,
            compiled=torch.compile(forward, dynamic=True) if compiles else None,  # type: ignore[arg-type]
            weights=self.weights,
            loss=loss.to(device),
            optimizer=self.optimizer,
            feed=feed,
            rates=rates,
            batch_size=self.batch_size,
            micro=min(training.micro_batch or self.batch_size, self.batch_size),
            max_grad_norm=training.max_grad_norm,
            graphs=alone and training.acceleration != "off" and isinstance(feed, DeviceFeed),
            note=note,
        )
        self.per_epoch = math.ceil(len(encoded) / self.batch_size)
        self.total = self.epochs * self.per_epoch
        self.at = State()
        self.began = time.perf_counter()

    def train(self, hooks: _Hooks) -> None:
        """Run all epochs from the current state."""
        while self.at.epoch < self.epochs and not self._is_exhausted():
            batches = epoch_batches(self.encoded.lengths, self.batch_size, self.seed, self.at.epoch)
            self._epoch(batches, hooks)
            if hooks.validation is not None:
                self._validate(hooks.validation)
            self.at.epoch, self.at.step = self.at.epoch + 1, 0
            self._pause(hooks)

    def _epoch(self, batches: list[IntArray], hooks: _Hooks) -> None:
        waiting: list[tuple[IntArray, Tensor]] = []
        seen, since = 0, time.perf_counter()
        each = hooks.checkpoints is not None and self.config.checkpoint_minutes == 0
        every = 1 if each or self.device.type == "cpu" else READ_EVERY
        for step in range(self.at.step, len(batches)):
            rows = batches[step]
            factor = self.config.rate(self.at.epoch * self.per_epoch + step, self.total)
            waiting.append((rows, self.steps(rows, factor)))
            self.at.step = step + 1
            seen += len(rows)
            last = self.at.step == len(batches)
            if last or len(waiting) >= every:
                value = self._read_losses(waiting, hooks.describe)
                waiting = []
                speed = seen / max(1e-9, time.perf_counter() - since)
                hooks.progress(self._progress(value, speed))
                # After the last step the epoch is validated first.
                if not last:
                    self._pause(hooks)

    def _pause(self, hooks: _Hooks) -> None:
        """Save a checkpoint if it is due, and stop if that was requested."""
        # Read once: a signal that arrives while saving waits for the next pause.
        requested = hooks.stop.signal is not None
        checkpoints = hooks.checkpoints
        if checkpoints is not None and (requested or checkpoints.due()):
            self.save(checkpoints)
        if requested:
            kept = "The training so far is saved: resume it with --resume."
            nothing = "Nothing was saved: the training has no folder."
            hooks.stop.check(nothing if checkpoints is None else kept)

    def _read_losses(self, waiting: list[tuple[IntArray, Tensor]], describe: Describe) -> float:
        """The last loss; raises if one of them is not finite."""
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
                    f"now {self.config.learning_rate}, or check these texts."
                )
        return float(losses[-1])

    def _validate(self, validation: Validation) -> None:
        self.network.eval()
        try:
            with self.weights.evaluating():
                logits = predict_logits(self.network, validation.encoded)
        finally:
            self.network.train()
        score = validation.score(logits)
        best = self.at.best
        # NaN is never the best score.
        if best is None or score > best or (math.isnan(best) and not math.isnan(score)):
            self.at.best, self.at.best_epoch = score, self.at.epoch + 1
            self.weights.remember_best()

    def _is_exhausted(self) -> bool:
        """Whether early stopping ends the training."""
        if not self.config.early_stopping_patience or self.at.best is None:
            return False
        return self.at.epoch - self.at.best_epoch >= self.config.early_stopping_patience

    def _progress(self, loss: float, speed: float) -> Progress:
        return Progress(
            "training",
            self.at.epoch * self.per_epoch + self.at.step,
            self.total,
            "steps",
            epoch=self.at.epoch + 1,
            epochs=self.epochs,
            loss=loss,
            documents_per_second=speed,
            best=self.at.best,
        )

    @contextmanager
    def placed(self) -> Iterator[None]:
        """On a GPU, use a separate stream, which graphs are recorded from."""
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
        return copies * sum(weight.numel() * 4 for weight in self.weights.optimized)

    def save(self, checkpoints: Checkpoints) -> None:
        """Write a checkpoint of everything that the rest of the training depends on."""
        if self.processes.rank > 0:
            return
        tensors = self.weights.tensors() | optimizer_tensors(self.optimizer, self.weights)
        tensors["random.cpu"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        self.at.micro = self.steps.micro
        checkpoints.save(tensors, vars(self.at))

    def resume(self, checkpoints: Checkpoints) -> None:
        """Continue from the last checkpoint, if there is one."""
        state = checkpoints.load()
        if state is None:
            return
        try:
            self._load(*state)
        except (KeyError, TypeError, RuntimeError) as error:
            raise DataError(
                f"the checkpoint in {checkpoints.folder} belongs to another network or version "
                f"({error}). Remove that folder to start this part again."
            ) from error

    def _load(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        self.weights.load(tensors)
        load_optimizer(self.optimizer, self.weights, tensors)
        self.at = State(**facts)
        self.steps.micro = min(self.at.micro, self.batch_size)
        if "random.cuda" in tensors and self.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random.cuda"], self.device)
        # Last of all: nothing between here and the next step may draw.
        torch.set_rng_state(tensors["random.cpu"])
