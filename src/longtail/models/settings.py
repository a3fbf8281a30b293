"""The settings of each kind of model, which are also how a user names it. No torch here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from longtail.checks import check_bool, check_choice, check_integer, check_number
from longtail.errors import InputError
from longtail.models import stages
from longtail.models.stages import Stage
from longtail.settings import Grid, Range, Searched, Settings, searched_fields, setting
from longtail.training.settings import Training

if TYPE_CHECKING:
    from longtail.data import TextData

POOLINGS = ("mean", "cls")
# Documents seen in all epochs of fine-tuning an encoder: 5,000 steps of 32, which makes 24 epochs
# of Reuters and 15 of PubMed. In docs/log.md 20 to 30 and 10 to 30 epochs differ little.
SEEN, LEAST_EPOCHS, MOST_EPOCHS = 160_000, 3, 30
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
"""A name on the Hugging Face hub: owner/name."""


@dataclass(repr=False)
class ModelSettings(Settings):
    """Base class of model settings.

    The fields here override those of the classifier for this model, as in a blend.
    """

    loss: str | None = field(default=None, kw_only=True)
    loss_settings: Mapping[str, Any] | None = field(default=None, kw_only=True)
    training: Training | None = field(default=None, kw_only=True)

    default_loss: ClassVar[str | None] = "db"
    """The loss if none is given; None: chosen on held-out documents."""
    training_defaults: ClassVar[Mapping[str, Any]] = {}
    """This kind's defaults for fields of `Training` that are None."""
    further_losses: ClassVar[tuple[str, ...]] = ()
    """Losses that a search tries beside those of the paper."""
    searched_as: ClassVar[str | None] = None
    """The kind that a search tries in place of this one, which has nothing to search."""

    def searched(self) -> dict[str, Searched]:
        """What `longtail search` tries for settings of the model and of its training."""
        training = searched_fields(Training) if self.trains_in_steps else {}
        return searched_fields(type(self)) | training

    def stages(self, data: TextData, loss: str | None) -> list[Stage]:
        """The search over what these settings leave open; empty if they are complete."""
        return []

    def training_for(self, training: Training, n_documents: int) -> Training:
        """Fill in what depends on the number of documents."""
        return training

    @property
    def trains_in_steps(self) -> bool:
        """Whether it is trained in random steps, as `Training` says, rather than solved."""
        return False

    @property
    def base_model(self) -> str | None:
        """The pretrained model on the Hugging Face hub, if any."""
        return None

    @property
    def description(self) -> str:
        """A short description, for tables and messages."""
        raise NotImplementedError


@dataclass(repr=False)
class Bag(ModelSettings):
    """TF-IDF of words, and of characters if requested, into a linear head or a hidden layer."""

    training_defaults: ClassVar[Mapping[str, Any]] = {
        "epochs": 20,
        "batch_size": 64,
        "learning_rate": 5e-3,
        "head_learning_rate": 5e-3,
        "weight_decay": 0.0,
    }

    further_losses: ClassVar[tuple[str, ...]] = (stages.HINGE,)

    hidden: int = setting(0, "Width of a hidden layer; 0: a linear head, solved to convergence.")
    C: float | None = setting(
        None,
        "Inverse regularisation strength of a linear head; by default of bag, the best one on "
        "held-out documents.",
        # The values that `auto` compares.
        searched=Range(min(stages.HINGE_PATH), max(stages.PATH), log=True),
    )
    informed: bool = setting(
        True, "Linear head: regularise words that are informative about the labels less."
    )
    dropout: float = setting(0.5, "Hidden layer: dropout probability of its units.")
    ngrams: int = setting(1, "Maximum length of word n-grams.")
    char_ngrams: int = setting(
        0,
        "Maximum length of character n-grams inside words; 0: none.",
        searched=Grid((0, stages.CHAR_NGRAMS)),
    )
    min_df: int = setting(2, "Minimum document frequency of a word.")
    max_features: int = setting(200_000, "Maximum vocabulary size.")

    def __post_init__(self) -> None:
        check_integer("hidden", self.hidden, 0)
        if self.C is not None:
            check_number("C", self.C, 0, exclusive=True)
        check_bool("informed", self.informed)
        check_number("dropout", self.dropout, 0, 0.99)
        check_words(self)
        check_integer("char_ngrams", self.char_ngrams, 0)
        kind = "a hidden layer" if self.hidden else "a linear head (hidden=0)"
        for name in ("C", "informed") if self.hidden else ("dropout",):
            if getattr(self, name) != type(self).__dataclass_fields__[name].default:
                raise InputError(f"{name} (--{name}) has no effect on {kind}. Leave it out.")

    def stages(self, data: TextData, loss: str | None) -> list[Stage]:
        is_open = self.C is None and not self.hidden
        return stages.path(replace(self, C=stages.DEFAULT_C, loss=loss)) if is_open else []

    def searched(self) -> dict[str, Searched]:
        searched = super().searched()
        if self.hidden:
            del searched["C"]  # it has no effect
        return searched

    @property
    def trains_in_steps(self) -> bool:
        return self.hidden > 0

    @property
    def description(self) -> str:
        return f"TF-IDF with {'a hidden layer' if self.hidden else 'a linear head'}"


@dataclass(repr=False)
class Auto(ModelSettings):
    """The best of several linear models on TF-IDF, by their scores of held-out documents."""

    default_loss = None
    searched_as = "bag"

    def stages(self, data: TextData, loss: str | None) -> list[Stage]:
        first = Bag(C=stages.DEFAULT_C, loss=loss or stages.HINGE)
        return stages.portfolio(first, data.texts, len(data.label_names), loss is None)

    @property
    def description(self) -> str:
        return "a linear model chosen on held-out documents"


@dataclass(repr=False)
class Encoder(ModelSettings):
    """A pretrained encoder with a classification head.

    Pooling `cls` uses the sequence-classification head of the encoder's architecture, as in the
    paper; the saved model loads with `transformers.pipeline("text-classification", top_k=None)`.
    """

    training_defaults: ClassVar[Mapping[str, Any]] = {
        "epochs": MOST_EPOCHS,
        "batch_size": 32,
        "learning_rate": 1e-4,
        "head_learning_rate": 1e-3,
        "weight_decay": 0.01,
    }
    encoder: str = setting(
        "sentence-transformers/all-MiniLM-L6-v2",
        "Name on the Hugging Face hub, or a folder: config, weights, tokenizer.",
        common=True,
    )
    pooling: str = setting("mean", "mean over the tokens, or cls: the encoder's own head.")
    max_length: int = setting(512, "Maximum number of tokens of a text.")
    dropout: float = setting(0.1, "Dropout probability of the pooled vector.")

    def __post_init__(self) -> None:
        if isinstance(self.encoder, Path):
            self.encoder = str(self.encoder)
        if not isinstance(self.encoder, str):
            raise InputError(f"encoder must be a name or a path, got {self.encoder!r}.")
        check_choice("pooling", self.pooling, POOLINGS)
        check_integer("max_length", self.max_length, 1)
        check_number("dropout", self.dropout, 0, 0.99)

    def training_for(self, training: Training, n_documents: int) -> Training:
        """Set the epochs, if not given, so that training sees SEEN documents in all."""
        if training.epochs is not None:
            return training
        epochs = round(SEEN / max(1, n_documents))
        return replace(training, epochs=min(MOST_EPOCHS, max(LEAST_EPOCHS, epochs)))

    @property
    def trains_in_steps(self) -> bool:
        return True

    @property
    def base_model(self) -> str | None:
        is_name = HUB_NAME.fullmatch(self.encoder) and not Path(self.encoder).exists()
        return self.encoder if is_name else None

    @property
    def description(self) -> str:
        return Path(self.encoder).name if Path(self.encoder).is_dir() else self.encoder


@dataclass(repr=False)
class Svm(ModelSettings):
    """The paper's baseline: one linear support vector machine per label on TF-IDF."""

    C: float = setting(
        1.0,
        "Inverse regularisation strength of a linear head.",
        searched=Range(*stages.HINGE_PATH, log=True),
    )
    class_weight: str | None = setting(
        None,
        "balanced: weight rare labels as frequent ones.",
        searched=Grid((None, "balanced")),
    )
    ngrams: int = setting(1, "Maximum length of word n-grams.")
    min_df: int = setting(1, "Minimum document frequency of a word.")
    max_features: int = setting(200_000, "Maximum vocabulary size.")
    sublinear: bool = setting(False, "Use 1 + log(count) instead of word counts.")

    def __post_init__(self) -> None:
        check_number("C", self.C, 0, exclusive=True)
        if self.class_weight is not None:
            check_choice("class_weight", self.class_weight, ("balanced",))
        check_bool("sublinear", self.sublinear)
        check_words(self)

    @property
    def description(self) -> str:
        return "linear SVM on TF-IDF"


def check_words(settings: Bag | Svm) -> None:
    for name in ("ngrams", "min_df", "max_features"):
        check_integer(name, getattr(settings, name), 1)
