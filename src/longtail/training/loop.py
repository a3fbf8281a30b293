"""One training loop for every network and every loss.

A run that is stopped or killed, and resumed from its checkpoint, ends with the same weights as an
uninterrupted one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.errors import DataError, InputError, LongtailError, warn
from longtail.losses import MultiLabelLoss
from longtail.progress import OnProgress, Progress, ignore
from longtail.training.checkpoints import Checkpoints
from longtail.training.devices import device_of, gpu_stream, has_bf16, limited_threads
from longtail.training.encoded import (
    WHOLE,
    DeviceFeed,
    Encoded,
    IntArray,
    Partial,
    epoch_batches,
    level_batches,
    make_feed,
)
from longtail.training.interrupt import NEVER, Stop, StoppedError
from longtail.training.processes import Helper, LostProcessError, Processes
from longtail.training.settings import Training
from longtail.training.steps import Note, Steps, predict_logits
from longtail.training.weights import Weights

# Steps between two reads of the losses on a GPU, as each read waits for all queued kernels.
READ_EVERY = 50


@dataclass(frozen=True)
class Validation:
    """Documents to score after each epoch, and the metric of their logits (higher is better)."""

    encoded: Encoded
    score: Callable[[NDArray[np.float32]], float]


@dataclass
class State:
    """Progress of a training: finished epochs, steps of the current one, the best epoch so far."""

    epoch: int = 0
    step: int = 0
    best: float | None = None
    best_epoch: int = 0


@dataclass(eq=False)
class Trainer:
    """Trains a network in place; its weights end in float32.

    With `validation` the weights of the best epoch are kept.

    Args:
        training: resolved, so that no field is None.
        is_head: whether a parameter, by name, belongs to the head.
        bf16: whether the network may compute in bf16.
        packed: whether the network takes packed documents, `input_ids` with a `layout`.
        seed: for shuffling. Dropout uses torch's random numbers, seeded by the caller; of packed
            documents, only their seed.
        describe: describes the document of a row in error messages.
    """

    network: nn.Module
    encoded: Encoded
    Y: sp.csr_matrix
    loss: MultiLabelLoss
    training: Training
    _: KW_ONLY
    partial: Partial = WHOLE
    is_head: Callable[[str], bool]
    bf16: bool = False
    packed: bool = False
    seed: int = 0
    validation: Validation | None = None
    checkpoints: Checkpoints | None = None
    progress: OnProgress = ignore
    note: Note = warn
    stop: Stop = NEVER
    describe: Callable[[int], str] = str

    def __post_init__(self) -> None:
        network, training = self.network, self.training
        assert training.epochs and training.batch_size
        self.epochs, self.per_epoch = training.epochs, -(-len(self.encoded) // training.batch_size)
        self.processes = Processes(device_of(training.device))
        self.device = self.processes.device
        if self.processes.leads:
            self._call_others()
        half = self.bf16 and has_bf16(self.device, training.precision)
        if training.precision == "bf16" and not half:
            self.note("this model or device does not support bf16: computing in float32.")
        alone = self.processes.count == 1
        network.to(self.device).train()
        size = training.batch_size if self.packed and alone else None
        feed = make_feed(self.encoded, self.Y, self.device, self.partial, size)
        is_packed = isinstance(feed, DeviceFeed) and feed.packed
        self.make_batches = level_batches if is_packed else epoch_batches
        self.weights = Weights(network, half, training.ema)
        self.steps = Steps(
            network,
            self.weights,
            self.loss.to(self.device),
            feed,
            training,
            processes=self.processes,
            known=self.partial.known(self.Y) if self.loss.reduction == "mean" else None,
            is_head=self.is_head,
            note=self.note,
        )
        self.state = State()

    def _call_others(self) -> None:
        """Build this training in the other processes too, with the same weights."""
        if self.loss.compares_documents:
            raise InputError(
                "this loss compares the documents of a batch with each other, which several "
                "processes do not share. Train with one process, or with another loss."
            )
        heads = {name for name, _ in self.network.named_parameters() if self.is_head(name)}
        parts = {
            "network": self.network,
            "encoded": self.encoded,
            "Y": self.Y,
            "loss": self.loss,
            # Only the main process keeps an average of the weights.
            "training": replace(self.training, ema=0.0),
            "partial": self.partial,
            "is_head": heads.__contains__,
            "bf16": self.bf16,
        }
        self.processes.call(_take_steps, parts, torch.initial_seed())

    def train(self) -> State:
        """Run all epochs, from the last checkpoint if there is one."""
        try:
            return self._train()
        except LostProcessError as lost:
            kept = "The last checkpoint, if any, is kept: resume with --resume."
            if self.checkpoints is None:
                kept = "Nothing was saved: the training has no folder."
            raise StoppedError(f"{lost} {kept}", lost.exit_code) from lost

    def _train(self) -> State:
        if self.checkpoints is not None:
            # Weights, AdamW's two moments, the best weights, and their average.
            copies = 4 + bool(self.training.ema)
            self.checkpoints.check_space(
                copies * sum(weight.numel() * 4 for weight in self.weights.optimized)
            )
            self._resume(self.checkpoints)
        self.processes.send(None)
        self.steps.taken.fill_(self.state.epoch * self.per_epoch + self.state.step)
        with gpu_stream(self.device, self.training.deterministic), limited_threads(self.network):
            while self.state.epoch < self.epochs and not self._stops_early():
                self._epoch()
                if self.validation is not None:
                    self._validate(self.validation)
                self.state.epoch, self.state.step = self.state.epoch + 1, 0
                self._pause()
        self.weights.finish()
        self.network.eval()
        return self.state

    def _epoch(self) -> None:
        size, lengths = self.steps.batch_size, self.encoded.lengths
        batches = self.make_batches(lengths, size, self.seed, self.state.epoch)
        waiting: list[tuple[IntArray, Tensor]] = []
        seen, since = 0, time.perf_counter()
        saves_every_step = self.checkpoints is not None and self.training.checkpoint_minutes == 0
        every = 1 if saves_every_step or self.device.type == "cpu" else READ_EVERY
        for rows in batches[self.state.step :]:
            total = self.epochs * self.per_epoch
            done = self.state.epoch * self.per_epoch + self.state.step
            rate = self.training.rate(done, total)
            self.processes.send((rows, rate, done))
            waiting.append((rows, self.steps(rows, rate)))
            self.state.step += 1
            seen += len(rows)
            is_last = self.state.step == len(batches)
            if is_last or len(waiting) >= every:
                value = self._read_losses(waiting)
                waiting = []
                speed = seen / max(1e-9, time.perf_counter() - since)
                now = Progress("training", done + 1, total, "steps", documents_per_second=speed)
                now = replace(now, epoch=self.state.epoch + 1, epochs=self.epochs)
                self.progress(replace(now, loss=value, best=self.state.best))
                # After the last step, validation comes before the checkpoint.
                if not is_last:
                    self._pause()

    def _pause(self) -> None:
        """Save a checkpoint if one is due; stop if a signal requested it."""
        # Read once: a signal that arrives during the save takes effect at the next pause.
        requested = self.stop.signal is not None
        saved = "Nothing was saved: the training has no folder."
        if self.checkpoints is not None:
            saved = "The training so far is saved: resume it with --resume."
            if requested or self.checkpoints.due():
                self._save(self.checkpoints)
        if requested:
            self.stop.check(saved)

    def _read_losses(self, waiting: list[tuple[IntArray, Tensor]]) -> float:
        """The last loss; raises an error if any is not finite."""
        losses: list[float] = torch.stack([value for _, value in waiting]).tolist()
        for number, ((rows, _), value) in enumerate(zip(waiting, losses, strict=True), start=1):
            if not math.isfinite(value):
                documents = ", ".join(self.describe(row) for row in rows[:5].tolist())
                more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
                raise LongtailError(
                    f"the loss became {value} at step {self.state.step - len(waiting) + number} of "
                    f"epoch {self.state.epoch + 1}, at documents {documents}{more}. Lower the "
                    f"learning rate, now {self.training.learning_rate}, or check these texts."
                )
        return losses[-1]

    def _validate(self, validation: Validation) -> None:
        with self.weights.evaluating():
            logits = predict_logits(self.network, validation.encoded)
        score = validation.score(logits)
        best = self.state.best
        # NaN is never the best score.
        if best is None or score > best or (math.isnan(best) and not math.isnan(score)):
            self.state.best, self.state.best_epoch = score, self.state.epoch + 1
            self.weights.remember_best()

    def _stops_early(self) -> bool:
        """Whether early stopping ends the training."""
        patience, state = self.training.early_stopping_patience, self.state
        return (
            bool(patience) and state.best is not None and state.epoch - state.best_epoch >= patience
        )

    def _save(self, checkpoints: Checkpoints) -> None:
        """Save everything that the rest of the training depends on."""
        tensors = self.weights.tensors(self.steps.optimizer)
        if not self.steps.packed:
            tensors["random.cpu"] = torch.get_rng_state()
            if self.device.type == "cuda":
                tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        facts = {"micro": self.steps.micro, "packed": self.steps.packed}
        checkpoints.save(tensors, vars(self.state) | facts)

    def _resume(self, checkpoints: Checkpoints) -> None:
        saved = checkpoints.load()
        if saved is None:
            return
        tensors, facts = saved
        try:
            self.weights.load(tensors, self.steps.optimizer)
            self.steps.micro = min(facts.pop("micro"), self.steps.batch_size)
            was_packed = facts.pop("packed", False)
            self.state = State(**facts)
            if was_packed != self.steps.packed and self.state.step:
                self.note("resumed on another kind of device: the epoch starts again.")
                self.state.step = 0
            for name, value in tensors.items():
                if name.startswith(("weights.", "optimizer.")):
                    self.processes.send({name: value})
            if "random.cuda" in tensors and self.device.type == "cuda":
                torch.cuda.set_rng_state(tensors["random.cuda"], self.device)
            # Last: no random number may be drawn between here and the next step.
            if "random.cpu" in tensors:
                torch.set_rng_state(tensors["random.cpu"])
        except (KeyError, TypeError, RuntimeError) as error:
            raise DataError(
                f"the checkpoint in {checkpoints.folder} belongs to another network or version "
                f"({error}). Remove that folder to start this part over."
            ) from error


def _take_steps(parts: dict[str, Any], seed: int) -> Helper:
    """What the other processes do: take the steps that the main process sends.

    It sends the tensors of a checkpoint first, one by one, then None.
    """
    trainer = Trainer(**parts, note=lambda text: None)
    tensors: dict[str, Tensor] = {}
    while (part := (yield)) is not None:
        tensors |= part
    if tensors:
        trainer.weights.load(tensors, trainer.steps.optimizer)
    device, rank = trainer.device, trainer.processes.rank
    forked = torch.random.fork_rng([device] if device.type == "cuda" else [])
    computing = gpu_stream(device, trainer.training.deterministic)
    with forked, computing, limited_threads(trainer.network):
        while True:
            rows, rate, done = yield
            # Dropout of its own, which a resumed training repeats.
            torch.manual_seed(int(np.random.SeedSequence([seed, done, rank]).generate_state(1)[0]))
            trainer.steps(rows, rate)
