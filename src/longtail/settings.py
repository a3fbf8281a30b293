"""Models and training by their settings: documented dataclasses that are the arguments of the
estimator, the keys of a recipe and the flags of the command at once. No torch here."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from longtail.checks import check_bool, check_choice, check_integer, check_number
from longtail.errors import InputError

POOLINGS = ("mean", "cls")
SCHEDULES = ("linear", "cosine", "constant")
PRECISIONS = ("auto", "bf16", "fp32")
ACCELERATIONS = ("auto", "graphs", "compile", "off")


def setting(default: Any, text: str) -> Any:
    """A field with the sentence that documents it everywhere."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class BagSettings:
    """TF-IDF of words, and of characters if wanted, into a linear head or a hidden layer."""

    hidden: int = setting(0, "Width of a hidden layer; 0: a linear head, solved to convergence.")
    C: float = setting(1000.0, "Linear head: weight of the loss against the size of the weights.")
    informed: bool = setting(
        True, "Linear head: words that tell much about the labels get larger weights at less cost."
    )
    dropout: float = setting(0.5, "Hidden layer: dropped share of its units while training.")
    ngrams: int = setting(1, "Words, and sequences of up to so many words.")
    char_ngrams: int = setting(0, "Also sequences of up to so many characters inside words.")
    min_df: int = setting(2, "Leave out what is in fewer training documents.")
    max_features: int = setting(200_000, "Keep the most frequent so many.")
    hashing: int = setting(0, "Hash words into so many columns instead of keeping a vocabulary.")

    def __post_init__(self) -> None:
        check_integer("hidden", self.hidden, 0)
        check_number("C", self.C, 0, exclusive=True)
        check_number("dropout", self.dropout, 0, 0.99)
        _words(self)
        check_integer("char_ngrams", self.char_ngrams, 0)
        check_integer("hashing", self.hashing, 0)
        idle = ("dropout",) if self.hidden == 0 else ("C", "informed")
        for name in idle:
            if getattr(self, name) != type(self).__dataclass_fields__[name].default:
                kind = "a linear head (hidden=0)" if self.hidden == 0 else "a hidden layer"
                raise InputError(f"{name} (--{name}) has no meaning for {kind}. Leave it out.")


@dataclass(frozen=True)
class EncoderSettings:
    """A pretrained encoder and how its output becomes logits.

    Pooling `cls` is the sequence-classification head that comes with the encoder, as in the paper;
    what it saves loads with `transformers.pipeline("text-classification", top_k=None)`.
    """

    encoder: str = setting(
        "sentence-transformers/all-MiniLM-L6-v2",
        "Name on the Hugging Face hub, or a folder: config, weights, tokenizer.",
    )
    pooling: str = setting("mean", "mean over the tokens, or cls: the encoder's own head.")
    max_length: int = setting(512, "Tokens read of each text, as far as the encoder goes.")
    dropout: float = setting(0.1, "Dropped share of the pooled vector while training.")

    def __post_init__(self) -> None:
        check_choice("pooling", self.pooling, POOLINGS)
        check_integer("max_length", self.max_length, 1)
        check_number("dropout", self.dropout, 0, 0.99)


@dataclass(frozen=True)
class SvmSettings:
    """The paper's baseline: one linear support vector machine per label on TF-IDF."""

    C: float = setting(1.0, "Inverse strength of the regularisation.")
    class_weight: str | None = setting(
        None, "balanced: rare labels weigh as much as frequent ones."
    )
    ngrams: int = setting(1, "Words, and sequences of up to so many words.")
    min_df: int = setting(1, "Leave out what is in fewer training documents.")
    max_features: int = setting(200_000, "Keep the most frequent so many.")
    sublinear: bool = setting(False, "Dampen how often a word occurs: 1 + log.")

    def __post_init__(self) -> None:
        check_number("C", self.C, 0, exclusive=True)
        if self.class_weight is not None:
            check_choice("class_weight", self.class_weight, ("balanced",))
        _words(self)


MODEL_SETTINGS: Mapping[str, type] = {
    "bag": BagSettings,
    "encoder": EncoderSettings,
    "svm": SvmSettings,
}
"""The settings of each model by its name."""


@dataclass(frozen=True)
class TrainingConfig:
    """How a network is trained. None means: what the model suggests (`resolved`).

    The linear head of `bag` is solved to convergence and uses `seed` and `device` alone.
    """

    epochs: int | None = setting(None, "Passes over the training documents.")
    batch_size: int | None = setting(None, "Documents per step.")
    micro_batch: int | None = setting(
        None, "Documents in memory at a time; fewer than batch_size accumulates gradients."
    )
    learning_rate: float | None = setting(None, "Peak learning rate.")
    head_learning_rate: float | None = setting(None, "Peak learning rate of the head.")
    weight_decay: float | None = setting(None, "Decay of weight matrices, not of biases and norms.")
    warmup: float = setting(0.1, "Share of the steps in which the learning rate rises.")
    schedule: str = setting("linear", f"How it then falls: {', '.join(SCHEDULES)}.")
    clip: float = setting(1.0, "Largest norm of the gradient; 0: no limit.")
    ema: float = setting(0.0, "Decay of a moving average of the weights, such as 0.999; 0: none.")
    patience: int = setting(
        0, "Stop after so many epochs without a better score on the validation part; 0: never."
    )
    stop_on: str = setting("micro_f1", "With patience: the score that it looks at.")
    precision: str = setting("auto", f"{', '.join(PRECISIONS)}; auto: bf16 where a GPU has it.")
    acceleration: str = setting(
        "auto", f"{', '.join(ACCELERATIONS)}; auto: CUDA graphs on a GPU, where they work."
    )
    deterministic: bool = setting(
        True, "On a GPU, only kernels that give the same result every time: some 10 % slower."
    )
    seed: int = setting(0, "The same seed on the same machine gives the same model.")
    device: str = setting("auto", "cpu, cuda, cuda:1, or auto: a GPU where there is one.")
    checkpoint_minutes: float = setting(
        5.0, "Minutes between saved states of a run in a folder; 0: after every step."
    )

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "micro_batch"):
            check_integer(name, getattr(self, name), 1, optional=True)
        for name in ("learning_rate", "head_learning_rate"):
            check_number(name, getattr(self, name), 0, optional=True, exclusive=True)
        check_number("weight_decay", self.weight_decay, 0, optional=True)
        check_number("warmup", self.warmup, 0, 1)
        check_number("clip", self.clip, 0)
        check_number("ema", self.ema, 0, 0.999999)
        check_number("checkpoint_minutes", self.checkpoint_minutes, 0)
        check_integer("patience", self.patience, 0)
        check_integer("seed", self.seed, 0)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("precision", self.precision, PRECISIONS)
        check_choice("acceleration", self.acceleration, ACCELERATIONS)
        if self.stop_on != "micro_f1" and not self.patience:
            raise InputError(
                "stop_on (--stop-on) is the score that patience looks at. Set patience "
                "(--patience) too."
            )
        check_bool("deterministic", self.deterministic)
        kind = str(self.device).partition(":")[0]
        if kind not in ("auto", "cpu", "cuda", "mps", "xpu"):
            raise InputError(
                f"device must be auto, cpu, cuda or a GPU such as cuda:1, got {self.device!r}."
            )

    def resolved(self, defaults: Mapping[str, Any]) -> TrainingConfig:
        """With the model's own values where nothing was said."""
        missing = {k: v for k, v in defaults.items() if getattr(self, k) is None}
        return dataclasses.replace(self, **missing)

    def rate(self, step: int, total: int) -> float:
        """The learning rate of a step, counted from 0, as a share of the peak."""
        rising = max(1, round(self.warmup * total)) if self.warmup else 0
        if step < rising:
            return (step + 1) / rising
        if self.schedule == "constant":
            return 1.0
        gone = (step - rising) / max(1, total - rising)
        return 1 - gone if self.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * gone))


def _words(settings: BagSettings | SvmSettings) -> None:
    for name in ("ngrams", "min_df", "max_features"):
        check_integer(name, getattr(settings, name), 1)
