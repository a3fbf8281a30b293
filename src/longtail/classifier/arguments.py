"""The arguments of the estimator as plain values, which JSON can hold and every room can check."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

from longtail.errors import InputError, UnknownNameError
from longtail.fitting import Plan
from longtail.models import TextModel
from longtail.settings import MODEL_SETTINGS, TrainingConfig
from longtail.thresholds import OBJECTIVES, list_methods

# Folds where the user says nothing: a linear model is fitted in seconds, an encoder is not.
FOLDS, FOLDS_OF_MEMBERS = {"bag": 5, "svm": 5, "encoder": 1}, 5
TRAINING = tuple(field.name for field in dataclasses.fields(TrainingConfig))
# What members say for themselves, and of that what they may leave to all of them in common.
OWN = {"model", "loss", "model_settings", "loss_settings", "label_texts", *TRAINING}
COMMON = {"loss", "loss_settings", "label_texts", "seed", "device", "checkpoint_minutes"}
OF_ALL = {"seed", "device", "checkpoint_minutes"}


def plain_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The same arguments with numbers of numpy as Python's, tuples as lists, paths as strings."""
    return {name: _plain(value, name) for name, value in arguments.items()}


def _plain(value: Any, name: str) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        # A copy in the plain type: numpy's strings are strings too.
        return str(value) if isinstance(value, str) else value
    if isinstance(value, float):
        return _finite(float(value), name)
    if isinstance(value, Mapping):
        return {_key(key, name): _plain(item, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{name}[{k}]") for k, item in enumerate(value)]
    if isinstance(value, PathLike):
        return _plain(fspath(value), name)
    # Numbers and arrays of numpy, tensors of torch.
    if hasattr(value, "tolist"):
        return _plain(value.tolist(), name)
    raise InputError(
        f"{name} must be a number, a text, a path, or a list or dict of these, so that it can be "
        f"saved with the model, got {value!r} ({type(value).__name__})."
    )


def _finite(value: float, name: str) -> float:
    if not math.isfinite(value):
        raise InputError(f"{name} must be a finite number, got {value}.")
    return value


def _key(key: Any, name: str) -> str:
    if not isinstance(key, str):
        raise InputError(f"the keys of {name} must be strings, got {key!r}.")
    return str(key)


def check_arguments(given: Mapping[str, Any]) -> None:
    """Those that no plan looks at."""
    if given["thresholds"] not in list_methods():
        raise UnknownNameError("threshold method", given["thresholds"], list_methods())
    if given["objective"] not in OBJECTIVES:
        raise UnknownNameError("objective", given["objective"], OBJECTIVES)
    most, share = given["max_labels"], given["validation_fraction"]
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise InputError(f"max_labels must be a whole number of at least 1, got {most!r}.")
    if not isinstance(given["at_least_one"], bool):
        raise InputError(f"at_least_one must be True or False, got {given['at_least_one']!r}.")
    is_number = isinstance(share, (int, float)) and not isinstance(share, bool)
    if not is_number or not 0 < share < 1:
        raise InputError(f"validation_fraction must lie between 0 and 1, got {share!r}.")


def plans_of(
    given: Mapping[str, Any], defaults: Mapping[str, Any], n_documents: int | None
) -> tuple[Plan, ...]:
    """The plain arguments of the estimator as plans, one for each member."""
    members = _members(given, defaults)
    patient = {member["stop_on"] for member in members if member["patience"]}
    if len(patient) > 1:
        raise InputError(
            f"members with patience must look at the same score, got stop_on {sorted(patient)}."
        )
    folds = given["folds"]
    if folds is None:
        folds = FOLDS.get(given["model"], 1) if given["members"] is None else FOLDS_OF_MEMBERS
        if any(member["patience"] for member in members):
            folds = 1
        if n_documents is not None:
            folds = max(1, min(folds, n_documents // 2))
    return tuple(
        Plan(
            model=member["model"],
            model_settings=member["model_settings"] or {},
            loss=member["loss"],
            loss_settings=member["loss_settings"] or {},
            training=TrainingConfig(**{name: member[name] for name in TRAINING}),
            folds=folds,
            label_texts=member["label_texts"],
        )
        for member in members
    )


def _members(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The arguments of each member, whole."""
    members = given["members"]
    if members is None:
        return [dict(given)]
    if not isinstance(members, list) or not members:
        raise InputError(
            "members must be a list of one dict for each model to blend, such as "
            f'[{{"model": "encoder"}}, {{"model": "bag"}}], got {members!r}.'
        )
    idle = sorted(name for name in OWN - COMMON if given[name] != defaults[name])
    if idle:
        raise InputError(
            f"{', '.join(idle)}: with members this belongs into each member that it is meant for."
        )
    shared = {**defaults, **{name: given[name] for name in COMMON}}
    return [shared | _member(member, number) for number, member in enumerate(members)]


def _member(said: Any, number: int) -> dict[str, Any]:
    """What one member says, the settings of its model among them or apart."""
    if not isinstance(said, Mapping):
        raise InputError(
            f"members[{number}] must be a dict of arguments such as model and loss, got {said!r}."
        )
    model = said.get("model", "bag")
    if not isinstance(model, str):
        raise InputError(f"members[{number}]: model must be a name such as 'bag', got {model!r}.")
    kind = MODEL_SETTINGS.get(model)
    settings = {field.name for field in dataclasses.fields(kind)} if kind else set()
    for name in said:
        if name in OF_ALL:
            raise InputError(f"members[{number}]: {name} is the same for all. Say it outside.")
        if name not in OWN | settings:
            raise UnknownNameError(f"setting in members[{number}]", name, (OWN | settings) - OF_ALL)
    found = {name: value for name, value in said.items() if name in OWN}
    flat = {name: value for name, value in said.items() if name not in OWN}
    nested = found.get("model_settings") or {}
    if not isinstance(nested, Mapping):
        raise InputError(f"members[{number}]: model_settings must be a dict, got {nested!r}.")
    found["model_settings"] = {**nested, **flat}
    return found


def resolved_plan(plan: Plan, model: TextModel) -> Plan:
    """With every default filled in, so that a later version's do not change a saved model."""
    defaults = getattr(model, "training_defaults", {})
    return dataclasses.replace(
        plan,
        model_settings=dataclasses.asdict(model.settings),
        training=plan.training.resolved(defaults),
    )
