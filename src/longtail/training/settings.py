"""`Training`: how a network is trained. No torch here."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from longtail.checks import check_bool, check_choice, check_integer, check_number
from longtail.errors import InputError
from longtail.settings import Grid, Settings, setting

SCHEDULES = ("linear", "cosine", "constant")
PRECISIONS = ("auto", "bf16", "fp32")
ACCELERATIONS = ("auto", "off")
RUNTIME = ("device", "checkpoint_minutes")
"""Fields that every model uses and that do not change what it learns."""
# What a search tries: factors of the default, so that they suit an encoder and a hidden layer. The
# paper searched the learning rate and names no grid; it used 1e-4 and 4e-4, both multiples by a
# power of two of an encoder's default.
LEARNING_RATES = Grid((0.25, 0.5, 1.0, 2.0, 4.0, 8.0), times="learning_rate")
# The paper has one learning rate for all, an encoder by default 10 times as much for its head.
HEAD_LEARNING_RATES = Grid((1.0, 3.0, 10.0, 30.0), times="learning_rate")
EPOCHS = Grid((0.5, 1.0, 2.0), times="epochs")


@dataclass(repr=False)
class Training(Settings):
    """How a network is trained; None means the default of the model.

    Models that are solved to convergence use only `device` and `checkpoint_minutes`.
    """

    epochs: int | None = setting(
        None,
        "Passes over the training documents; for an encoder, fewer on large data.",
        common=True,
        searched=EPOCHS,
    )
    batch_size: int | None = setting(None, "Documents per step.")
    micro_batch: int | None = setting(
        None, "Documents in memory at a time; fewer than batch_size accumulates gradients."
    )
    learning_rate: float | None = setting(None, "Peak learning rate.", searched=LEARNING_RATES)
    head_learning_rate: float | None = setting(
        None, "Peak learning rate of the head.", searched=HEAD_LEARNING_RATES
    )
    weight_decay: float | None = setting(None, "Decay of weight matrices, not of biases and norms.")
    warmup_ratio: float = setting(0.1, "Share of the steps in which the learning rate rises.")
    schedule: str = setting("linear", f"How the learning rate falls: {', '.join(SCHEDULES)}.")
    max_grad_norm: float = setting(1.0, "Maximum norm of the gradient; 0: no clipping.")
    ema: float = setting(
        0.0, "Decay of a moving average of the weights after each step, such as 0.999; 0: none."
    )
    early_stopping_patience: int = setting(
        0, "Stop after this many epochs without a better validation score; 0: never."
    )
    early_stopping_metric: str = setting("micro_f1", "The validation score for early stopping.")
    precision: str = setting("auto", f"{', '.join(PRECISIONS)}; auto: bf16 if the GPU supports it.")
    acceleration: str = setting(
        "auto",
        f"{', '.join(ACCELERATIONS)}; auto: CUDA graphs and packed documents, on a GPU.",
    )
    deterministic: bool = setting(
        True, "On a GPU, use deterministic kernels only: up to 10 % slower."
    )
    device: str = setting("auto", "cpu, cuda, cuda:1, or auto: a GPU if there is one.", common=True)
    checkpoint_minutes: float = setting(
        5.0, "Minutes between checkpoints of a run with a folder; 0: after every step."
    )

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "micro_batch"):
            check_integer(name, getattr(self, name), 1, optional=True)
        for name in ("learning_rate", "head_learning_rate"):
            check_number(name, getattr(self, name), 0, optional=True, exclusive=True)
        check_number("weight_decay", self.weight_decay, 0, optional=True)
        check_number("warmup_ratio", self.warmup_ratio, 0, 1)
        check_number("max_grad_norm", self.max_grad_norm, 0)
        check_number("ema", self.ema, 0, 0.999999)
        check_number("checkpoint_minutes", self.checkpoint_minutes, 0)
        check_integer("early_stopping_patience", self.early_stopping_patience, 0)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("precision", self.precision, PRECISIONS)
        check_choice("acceleration", self.acceleration, ACCELERATIONS)
        check_bool("deterministic", self.deterministic)
        if self.early_stopping_metric != "micro_f1" and not self.early_stopping_patience:
            raise InputError(
                "early_stopping_metric has no effect without early_stopping_patience. Set both."
            )
        if not re.fullmatch(r"auto|(cpu|cuda|mps|xpu)(:\d{1,2})?", str(self.device)):
            raise InputError(
                f"device must be auto, cpu, cuda or a GPU such as cuda:1, got {self.device!r}."
            )

    def resolved(self, defaults: Mapping[str, Any]) -> Training:
        """A copy with the model's defaults in place of None."""
        missing = {key: value for key, value in defaults.items() if getattr(self, key) is None}
        return dataclasses.replace(self, **missing)

    def rate(self, step: int, total: int) -> float:
        """The learning rate of a step (from 0), as a share of the peak."""
        warmup = max(1, round(self.warmup_ratio * total)) if self.warmup_ratio else 0
        if step < warmup:
            return (step + 1) / warmup
        if self.schedule == "constant":
            return 1.0
        done = (step - warmup) / max(1, total - warmup)
        return 1 - done if self.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
