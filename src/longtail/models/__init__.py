"""Models: one table of kinds, one contract (`base.TextModel`). Texts in, scores out.

To add a kind, write its settings and its model, and add a row to MODELS. Nothing here imports
torch: the module of a kind is imported when its model is built.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from longtail.errors import InputError, UnknownNameError, known_name
from longtail.models.settings import Auto, Bag, Encoder, ModelSettings, Svm
from longtail.settings import field_names
from longtail.training.settings import RUNTIME, Training

if TYPE_CHECKING:
    from longtail.models.base import TextModel


@dataclasses.dataclass(frozen=True)
class ModelKind:
    """A row of the table of models."""

    settings: type[ModelSettings]
    builder: str
    """Module and class (or function) that builds it, as in `longtail.models.svm:SvmModel`."""
    title: str
    """Description for the model card."""
    folds: int
    """Default number of folds: 1 if fitting is expensive."""
    takes_loss: bool = True
    uses_gpu: bool = True


MODELS: dict[str, ModelKind] = {
    "auto": ModelKind(
        Auto,
        "longtail.models.bag:build_bag",
        "a linear model chosen on held-out documents",
        folds=5,
    ),
    "bag": ModelKind(
        Bag,
        "longtail.models.bag:build_bag",
        "TF-IDF features and a linear head, or a hidden layer",
        folds=5,
    ),
    "encoder": ModelKind(
        Encoder,
        "longtail.models.encoder:EncoderModel",
        "a pretrained encoder, fine-tuned",
        folds=1,
    ),
    "svm": ModelKind(
        Svm,
        "longtail.models.svm:SvmModel",
        "TF-IDF features and one linear support vector machine per label",
        folds=5,
        takes_loss=False,
        uses_gpu=False,
    ),
}
DEFAULT_MODEL = "auto"
KIND = "kind"
"""The key that names the kind in a dict of settings."""


def kind_of(settings: ModelSettings) -> str:
    """The name of a model's kind."""
    for name, row in MODELS.items():
        if type(settings) is row.settings:
            return name
    raise InputError(f"{type(settings).__name__} is not a kind of model: add a row to MODELS.")


def build_model(
    settings: ModelSettings, trust_remote_code: bool = False, engine: str = "torch"
) -> TextModel:
    """Build an untrained model.

    Args:
        trust_remote_code: whether a pretrained encoder may run its own code.
        engine: torch, or onnx for an exported model.
    """
    model: TextModel = resolve_name(MODELS[kind_of(settings)].builder)(settings)
    model.trust_remote_code = trust_remote_code
    if engine == "onnx":
        from longtail.models.onnx import OnnxModel

        return OnnxModel(model)
    return model


def parse_model(value: Any) -> ModelSettings:
    """Settings from settings, the name of a kind, or a dict with `kind` and flat settings.

    Fields of `Training` in the dict become the training of this model.
    """
    if isinstance(value, ModelSettings):
        return dataclasses.replace(value)  # validates again, as fields may have been assigned
    params: Any = {KIND: value} if isinstance(value, str) else value
    if not isinstance(params, Mapping):
        raise InputError(
            f"model must be one of {', '.join(MODELS)}, or settings such as Bag() or "
            f"Encoder('bert-base-cased'), got {value!r}."
        )
    name = known_name("model", params.get(KIND, DEFAULT_MODEL), MODELS)
    kind = MODELS[name].settings
    known, of_training = field_names(kind), field_names(Training)
    for key in params:
        if key not in known | of_training | {KIND}:
            raise UnknownNameError(f"setting of the model {name}", key, known | of_training)
    settings = {key: item for key, item in params.items() if key in known}
    training = {key: item for key, item in params.items() if key in of_training}
    if isinstance(settings.get("training"), Mapping):
        training = {**settings["training"], **training}
    if training:
        settings["training"] = Training(**training)
    return kind(**settings)


def parse_models(value: Any) -> tuple[ModelSettings, ...]:
    """The settings of one model, or of each model of a blend."""
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    models = tuple(parse_model(item) for item in (value if is_list else [value]))
    if not models:
        raise InputError("model must be a model or a list of at least one, got an empty list.")
    return models


def nested_params(flat: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    """Estimator parameters from flat settings, as in recipes and flags.

    `known`: names of the parameters; other keys are fields of the model or of `Training`. The
    `model` of a blend is a list of such dicts, each with its `kind`.
    """
    params = {key: value for key, value in flat.items() if key in known}
    training = {key: value for key, value in flat.items() if key in field_names(Training)}
    of_model = {k: v for k, v in flat.items() if k not in params and k not in training}
    model = params.get("model", DEFAULT_MODEL)
    if isinstance(model, str):
        model = known_name("model", model, MODELS)
        _check_flat(model, of_model, known)
        if "loss" in flat:
            _check_takes_loss(model)
        params["model"] = parse_model({KIND: model, **of_model})
    elif of_model:
        raise InputError(
            f"{', '.join(of_model)}: `model` holds models with their own settings. Move it to the "
            "model that it is meant for."
        )
    else:
        params["model"] = [*parse_models(model)] if isinstance(model, list) else parse_model(model)
    if training:
        params["training"] = Training(**training)
    return params


def _check_flat(model: str, of_model: Mapping[str, Any], known: set[str]) -> None:
    """Raise if a setting belongs to another model."""
    fields = field_names(MODELS[model].settings)
    for key in of_model.keys() - fields:
        users = [name for name, kind in MODELS.items() if key in field_names(kind.settings)]
        if not users:
            raise UnknownNameError("setting", key, known | fields | field_names(Training))
        raise InputError(
            f"{key} is a setting of the model {' or '.join(users)}, got the model {model}. "
            f"Set model to {users[0]!r} (--model {users[0]})."
        )


def _check_takes_loss(model: str) -> None:
    if not MODELS[model].takes_loss:
        raise InputError(f"loss has no effect on the model {model}. Leave it out.")


def check_used(training: Training, models: Sequence[ModelSettings]) -> None:
    """Raise if training settings, or losses of models, would have no effect."""
    for model in models:
        if model.loss is not None or model.loss_settings is not None:
            _check_takes_loss(kind_of(model))
    changed = [name for name in training.changed() if name not in RUNTIME]
    if changed and models and not any(model.trains_in_steps for model in models):
        flags = ", ".join(f"{name} (--{name.replace('_', '-')})" for name in changed)
        kinds = " and ".join(dict.fromkeys(model.description for model in models))
        raise InputError(f"{flags}: no effect, as {kinds} is not trained in steps. Leave it out.")


__all__ = ["MODELS", "Auto", "Bag", "Encoder", "ModelSettings", "Svm", "build_model", "parse_model"]
