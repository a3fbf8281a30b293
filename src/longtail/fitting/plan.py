"""What to fit: model, loss, training and folds, all checked before anything is read or trained."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from longtail.data import TextData
from longtail.errors import InputError, UnknownNameError
from longtail.fitting.label_texts import check_label_texts
from longtail.labels import LabelStats
from longtail.losses import LOSSES, MultiLabelLoss, build_loss
from longtail.models import MODELS, TextModel, build_model
from longtail.models.bag import BagModel
from longtail.models.base import SelfFitting
from longtail.settings import TrainingConfig

# Settings of the training that mean something to models without a loop, too.
ALWAYS_USED = ("seed", "device", "checkpoint_minutes")


@dataclass(frozen=True)
class Plan:
    """Everything that decides what is fitted; two fits of one plan on the same data are equal."""

    model: str = "bag"
    model_settings: Mapping[str, Any] = field(default_factory=dict)
    loss: str = "db"
    loss_settings: Mapping[str, Any] = field(default_factory=dict)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    folds: int = 1
    label_texts: str | Mapping[str, str] | None = None
    """Texts that train rare labels too: "names", or a description of each label."""

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise UnknownNameError("model", self.model, MODELS)
        if self.loss not in LOSSES:
            raise UnknownNameError("loss", self.loss, LOSSES)
        if isinstance(self.folds, bool) or not isinstance(self.folds, int) or self.folds < 1:
            raise InputError(
                f"folds must be a whole number: 1 for a validation part, 2 or more to cross-fit; "
                f"got {self.folds!r}."
            )
        if self.folds > 1 and self.training.patience:
            raise InputError(
                "patience looks at a validation part, and cross-fitting has none: its held-out "
                "documents choose the thresholds. Use folds=1 with patience, or no patience."
            )
        check_label_texts(self.label_texts)
        self._check_training(self.new_model())
        # On two labels, to find unknown settings now; a weight for each label has to wait.
        general = {k: v for k, v in self.loss_settings.items() if k != "label_weight"}
        self._loss(LabelStats.from_counts([1, 1], n_samples=2), general)

    def _check_training(self, model: TextModel) -> None:
        """Settings of the loop that would do nothing are refused, not ignored."""
        if not isinstance(model, SelfFitting) and not (
            isinstance(model, BagModel) and model.linear
        ):
            return
        said = [
            field.name
            for field in dataclasses.fields(TrainingConfig)
            if getattr(self.training, field.name) != field.default and field.name not in ALWAYS_USED
        ]
        if said:
            flags = ", ".join(f"{name} (--{name.replace('_', '-')})" for name in said)
            hint = " Leave it out, or give it a hidden layer." if self.model == "bag" else ""
            raise InputError(
                f"{flags}: the {self.model} is solved to convergence and does not train in steps, "
                f"so this would do nothing.{hint or ' Leave it out.'}"
            )

    def new_model(self, trust_remote_code: bool = False) -> TextModel:
        """An untrained model; `trust_remote_code`: it may run code that an encoder brings along."""
        model = build_model(self.model, **self.model_settings)
        # Not a setting: settings are read from folders, and this only from what a user typed.
        if trust_remote_code and hasattr(model, "trust_remote_code"):
            model.trust_remote_code = True
        return model

    def new_loss(self, stats: LabelStats, **settings: Any) -> MultiLabelLoss:
        """The loss for the documents of these statistics."""
        return self._loss(stats, {**self.loss_settings, **settings})

    def _loss(self, stats: LabelStats, settings: Mapping[str, Any]) -> MultiLabelLoss:
        if settings.get("reduction") == "none":
            raise InputError("training needs a loss that is a number, not reduction='none'.")
        # The targets come from a checked matrix: no need to look at every batch again.
        usual = {"reduction": "batchmean", "check_targets": False}
        return build_loss(self.loss, stats, **{**usual, **settings})

    def to_dict(self) -> dict[str, Any]:
        plain = dataclasses.asdict(self)
        return {**plain, "model_settings": dataclasses.asdict(self.new_model().settings)}


def fingerprint(
    plans: Sequence[Plan], data: TextData, validation: TextData | None
) -> dict[str, str]:
    """What a resumed fit must share with the one before it: the plans, and the documents."""
    plain = [plan.to_dict() for plan in plans]
    for one in plain:
        # How often a state is saved and where it is computed may change.
        for name in ("checkpoint_minutes", "device"):
            one["training"].pop(name)
    documents = "".join(part.fingerprint() for part in (data, validation) if part is not None)
    whole = plain[0] if len(plain) == 1 else {str(k): one for k, one in enumerate(plain)}
    described = json.dumps(whole, sort_keys=True, default=_as_list)
    return {"plan": described, "documents": hashlib.sha256(documents.encode()).hexdigest()}


def _as_list(value: Any) -> Any:
    """Arrays and tensors, as a weight for each label, in JSON."""
    return value.tolist() if hasattr(value, "tolist") else repr(value)
