"""Plans: all settings of a fit, validated before anything is read or trained."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any

import numpy as np

from longtail.arguments import LabelTexts
from longtail.checks import check_integer, check_number
from longtail.classifier.label_texts import check_label_texts
from longtail.data import TextData
from longtail.errors import InputError, UnknownNameError, known_name
from longtail.labels import LabelStats
from longtail.losses import LOSSES, MultiLabelLoss, build_loss
from longtail.models import (
    KIND,
    MODELS,
    Bag,
    ModelSettings,
    check_used,
    kind_of,
    parse_model,
    parse_models,
)
from longtail.settings import Settings
from longtail.thresholds import OBJECTIVES, Thresholds, list_methods
from longtail.training import Training
from longtail.training.settings import RUNTIME

BLEND_FOLDS = 5
"""Default number of folds of a blend, whose weights are fitted on held-out scores."""
MANY_DOCUMENTS, FEW_FOLDS = 20_000, 3
"""With more documents, FEW_FOLDS suffice: each model still sees most of a label's documents."""
ANY_LOSS = "squared-hinge"
"""Stands in for a loss that is yet to be chosen: it has the settings that all losses have."""


@dataclass(frozen=True)
class Plan:
    """Everything that determines what one model learns from given data."""

    model: ModelSettings = field(default_factory=Bag)
    loss: str | None = None
    """None: the model's default, or chosen on held-out documents."""
    loss_settings: Mapping[str, Any] = field(default_factory=dict)
    training: Training = field(default_factory=Training)
    folds: int = 1
    label_texts: LabelTexts | None = None
    """Texts that rare labels also learn from: "names", or descriptions by label."""
    random_state: int = 0

    def __post_init__(self) -> None:
        check_integer("folds", self.folds, 1)
        check_integer("random_state", self.random_state, 0)
        if self.folds > 1 and self.training.early_stopping_patience:
            raise InputError(
                "early_stopping_patience needs a validation part, and cross-fitting has none. Use "
                "folds=1 with early stopping, or no early stopping."
            )
        check_label_texts(self.label_texts)
        # Detect unknown settings now, with two labels; label weights are checked in `fit`.
        self.new_loss(LabelStats.from_counts([1, 1], n_samples=2), label_weight=None)

    @property
    def kind(self) -> str:
        """The name of the model's kind."""
        return kind_of(self.model)

    def new_loss(self, stats: LabelStats, **settings: Any) -> MultiLabelLoss:
        """Build the loss for documents with these label statistics."""
        # Targets come from a validated matrix: no need to check every batch.
        defaults = {"reduction": "batchmean", "check_targets": False}
        settings = {**defaults, **self.loss_settings, **settings}
        if settings["reduction"] == "none":
            raise InputError("training needs a scalar loss, got reduction='none'.")
        return build_loss(self.loss or self.model.default_loss or ANY_LOSS, stats, **settings)

    def with_model(self, model: ModelSettings) -> Plan:
        """The plan with a model that leaves nothing open, and with that model's loss."""
        loss = model.loss or self.loss or model.default_loss
        return dataclasses.replace(self, model=dataclasses.replace(model, loss=None), loss=loss)

    def resolved(self) -> Plan:
        """The plan with the model's defaults filled in, which a later version may change."""
        if not self.model.trains_in_steps:
            return self
        training = self.training.resolved(self.model.training_defaults)
        return dataclasses.replace(self, training=training)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {name: to_plain(value, name) for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Plan:
        """Restore what `to_dict` returned."""
        known = [item.name for item in dataclasses.fields(cls)]
        for name in saved.keys() - set(known):
            raise UnknownNameError("setting", name, known)
        model, training = parse_model(saved["model"]), Training().set_params(**saved["training"])
        return cls(**{**saved, "model": model, "training": training})


def fingerprint(
    plans: Sequence[Plan], data: TextData, validation: TextData | None
) -> dict[str, Any]:
    """Plans and documents, which a resumed fit must share with the interrupted one."""
    plain = [plan.to_dict() for plan in plans]
    for item in plain:
        for name in RUNTIME:
            del item["training"][name]
    documents = "".join(part.fingerprint() for part in (data, validation) if part is not None)
    return {"plans": plain, "documents": hashlib.sha256(documents.encode()).hexdigest()}


def make_plans(params: Mapping[str, Any], n_documents: int | None) -> tuple[Plan, ...]:
    """Validate the estimator's parameters; return one plan for each model of a blend.

    `n_documents`: determines folds, and epochs of an encoder, that are not given.
    """
    _check(params)
    models = parse_models(params["model"])
    training = params["training"] or Training()
    if not isinstance(training, Training):
        raise InputError(f"training must be a Training(...), got {training!r}.")
    trainings = [_training_of(model, training) for model in models]
    if n_documents is not None:
        pairs = zip(models, trainings, strict=True)
        trainings = [model.training_for(item, n_documents) for model, item in pairs]
    folds = params["folds"]
    if folds is None:
        folds = MODELS[kind_of(models[0])].folds if len(models) == 1 else BLEND_FOLDS
        if any(item.early_stopping_patience for item in trainings):
            folds = 1
        if n_documents is not None:
            max_folds = FEW_FOLDS if n_documents > MANY_DOCUMENTS else folds
            folds = max(1, min(folds, max_folds, n_documents // 2))
    check_used(training, [model for model in models if model.training is None])
    for model in models:
        check_used(model.training or Training(), [model])
    return tuple(
        Plan(
            model=dataclasses.replace(model, loss=None, loss_settings=None, training=None),
            loss=_loss(model, params),
            loss_settings=_loss_settings(model, params),
            training=item,
            folds=folds,
            label_texts=params["label_texts"],
            random_state=params["random_state"],
        )
        for model, item in zip(models, trainings, strict=True)
    )


def _training_of(model: ModelSettings, shared: Training) -> Training:
    """The shared training, or the model's own with the RUNTIME fields of the shared one."""
    if model.training is None:
        return dataclasses.replace(shared)
    unset = set(RUNTIME) - set(model.training.changed())
    return dataclasses.replace(model.training, **{name: getattr(shared, name) for name in unset})


def _loss(model: ModelSettings, params: Mapping[str, Any]) -> str | None:
    name = model.loss or params["loss"] or model.default_loss
    return None if name is None else known_name("loss", name, LOSSES)


def _loss_settings(model: ModelSettings, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """The model's own settings, or the classifier's unless the model has its own loss."""
    shared = None if model.loss else params["loss_settings"]
    settings = model.loss_settings if model.loss_settings is not None else shared
    if settings is not None and not isinstance(settings, Mapping):
        raise InputError(f"loss_settings must be a dict, got {settings!r}.")
    plain: dict[str, Any] = to_plain(settings or {}, "loss_settings")
    return plain


def _check(params: Mapping[str, Any]) -> None:
    """Check the parameters that are not part of a plan."""
    Thresholds(np.zeros(0), min_labels=params["min_labels"], max_labels=params["max_labels"])
    check_number("validation_fraction", params["validation_fraction"], 0, 0.999, exclusive=True)


def plain_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """The estimator's parameters as plain values, except for model and training."""
    objects = ("model", "training")
    plain = {k: v if k in objects else to_plain(v, k) for k, v in params.items()}
    plain["thresholds"] = known_name("threshold method", plain["thresholds"], list_methods())
    plain["objective"] = known_name("objective", plain["objective"], OBJECTIVES)
    return plain


def to_plain(value: Any, name: str = "") -> Any:
    """Convert to JSON types: numpy numbers to Python's, tuples to lists, paths to strings."""
    if isinstance(value, ModelSettings):
        return to_plain({KIND: kind_of(value), **value.to_dict()}, name)
    if isinstance(value, Settings):
        return to_plain(value.to_dict(), name)
    if value is None or isinstance(value, (bool, int, str)):
        # numpy's strings are subclasses of str.
        return str(value) if isinstance(value, str) else value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"{name} must be a finite number, got {value}.")
        return float(value)
    if isinstance(value, Mapping):
        return {_key(key, name): to_plain(item, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item, f"{name}[{k}]") for k, item in enumerate(value)]
    if isinstance(value, PathLike):
        return to_plain(fspath(value), name)
    # numpy numbers and arrays, torch tensors.
    if hasattr(value, "tolist"):
        return to_plain(value.tolist(), name)
    raise InputError(
        f"{name} must be a number, a string, a path, or a list or dict of these, as it is saved "
        f"with the model, got {value!r} ({type(value).__name__})."
    )


def _key(key: Any, name: str) -> str:
    if not isinstance(key, str):
        raise InputError(f"the keys of {name} must be strings, got {key!r}.")
    return str(key)
