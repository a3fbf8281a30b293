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
from longtail.thresholds import OBJECTIVES, list_methods


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


def resolved_plan(plan: Plan, model: TextModel) -> Plan:
    """With every default filled in, so that a later version's do not change a saved model."""
    defaults = getattr(model, "training_defaults", {})
    return dataclasses.replace(
        plan,
        model_settings=dataclasses.asdict(model.settings),
        training=plan.training.resolved(defaults),
    )
