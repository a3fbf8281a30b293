"""The flags of `longtail train`: the fields of the settings, and a recipe that they override.

A new field is a flag at once. A flag that the chosen model does not have is refused by name.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from longtail.cli.reading import parse_settings
from longtail.errors import InputError, UnknownNameError
from longtail.models import (
    DEFAULT_MODEL,
    KIND,
    MODELS,
    ModelSettings,
    check_used,
    nested_params,
)
from longtail.runs.workspace import differences
from longtail.settings import Settings, field_names
from longtail.training.settings import RUNTIME, Training


@dataclasses.dataclass(frozen=True)
class Chosen:
    """The recipe and the flags of the command line, without defaults."""

    flags: dict[str, Any]
    loss_settings: dict[str, Any]
    recipe: Path | None

    def resolved(self, partial: bool = False) -> dict[str, Any]:
        """Flat settings: the recipe's, overridden by the flags.

        `partial`: the others are those of the run that is resumed.
        """
        if self.recipe is None and not partial:
            _check_names(self.flags)
        from longtail.classifier.label_texts import read_label_texts
        from longtail.reproduce import read_recipe

        settings = {} if self.recipe is None else read_recipe(self.recipe)
        if isinstance(settings.get("model"), list):
            for name in self.flags:
                if name in _model_fields() and name not in field_names(Training):
                    raise InputError(
                        f"{flag(name)}: {self.recipe} blends several models. Set {name} in the "
                        "model that it is meant for."
                    )
        settings |= self.flags
        if isinstance(self.flags.get("label_texts"), str):
            settings["label_texts"] = read_label_texts(self.flags["label_texts"])
        if self.loss_settings:
            settings["loss_settings"] = {
                **(settings.get("loss_settings") or {}),
                **self.loss_settings,
            }
        return settings


def _check_names(flags: dict[str, Any]) -> None:
    """Check flags before anything heavy is imported: a mistake is answered at once."""
    from longtail.losses.presets import LOSSES
    from longtail.thresholds import METHODS, OBJECTIVES

    tables: tuple[tuple[str, str, Iterable[str]], ...] = (
        ("loss", "loss", LOSSES),
        ("thresholds", "threshold method", [*METHODS, "auto"]),
        ("objective", "objective", OBJECTIVES),
    )
    for name, kind, known in tables:
        if name in flags and flags[name] not in known:
            raise UnknownNameError(kind, flags[name], known)
    params = nested_params(flags, {parameter.name for parameter in _arguments()})
    check_used(params.get("training", Training()), [params["model"]])


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def takes_settings(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb a flag for every setting in place of its `chosen`."""
    signature = inspect.signature(verb, eval_str=True)
    kept = [p for p in signature.parameters.values() if p.name != "chosen"]
    flags = [*_arguments(), *_settings()]

    def called(**values: Any) -> Any:
        chosen = {p.name: values.pop(p.name) for p in flags}
        recipe, loss_set = chosen.pop("config"), chosen.pop("loss_set") or []
        given = {name: value for name, value in chosen.items() if value is not None}
        return verb(chosen=Chosen(given, parse_settings(loss_set), recipe), **values)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [p.replace(kind=keyword) for p in (*kept, *flags)]
    called.__name__, called.__doc__ = verb.__name__, verb.__doc__
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in parameters}
    return called


def _arguments() -> list[inspect.Parameter]:
    folds = ", ".join(f"{name} {row.folds}" for name, row in MODELS.items())
    table: list[tuple[str, Any, str]] = [
        ("config", Path, "A recipe: a YAML file of settings, which flags override."),
        ("model", str, f"{', '.join(MODELS)}; default: {DEFAULT_MODEL}."),
        ("loss", str, "A loss of docs/losses.md, such as bce; default: db."),
        ("loss_set", list[str], "A constant of the loss, KEY=VALUE, repeatable."),
        (
            "thresholds",
            str,
            "grid, global, per-label, micromacro, frequency or auto; default: auto.",
        ),
        ("objective", str, "The objective of thresholds: micro, macro or mean; default: mean."),
        (
            "folds",
            int,
            f"Models to cross-fit; 1: one, and a validation part. Default: {folds}.",
        ),
        (
            "label_texts",
            str,
            "names, or a JSON file of label descriptions: rare labels learn from them too.",
        ),
        ("max_labels", int, "Maximum number of labels per text."),
        ("at_least_one", bool, "Predict at least one label for each text."),
        ("random_state", int, "Seed: the same seed gives the same model. Default: 0."),
    ]
    return [_parameter(name, kind, text, "Model and thresholds") for name, kind, text in table]


def _model_fields() -> dict[str, list[str]]:
    """The names of models' settings, and the models that have each."""
    users: dict[str, list[str]] = {}
    for model, row in MODELS.items():
        for item in dataclasses.fields(row.settings):
            if item.name not in field_names(ModelSettings):
                users.setdefault(item.name, []).append(model)
    return users


def _settings() -> list[inspect.Parameter]:
    """One flag per field; models that share a name share the flag."""
    parameters: dict[str, inspect.Parameter] = {}
    users = _model_fields()
    for model, row in MODELS.items():
        for name, kind, text in _fields(row.settings):
            if name in users:
                text = f"{text} [{', '.join(users[name])}]"
                parameter = _parameter(name, kind, text, f"Settings of {model}")
                parameters.setdefault(name, parameter)
    for name, kind, text in _fields(Training):
        parameters.setdefault(name, _parameter(name, kind, text, "Training"))
    return list(parameters.values())


def _fields(settings: type[Settings]) -> list[tuple[str, Any, str]]:
    """Name, type and help of each field, with its default where that is a value."""
    hints = typing.get_type_hints(settings)
    rows = []
    for item in dataclasses.fields(settings):
        shown = settings is Training and item.default is not None
        default = f" Default: {item.default}." if shown else ""
        rows.append((item.name, hints[item.name], item.metadata.get("help", "") + default))
    return rows


def _parameter(name: str, kind: Any, text: str, panel: str) -> inspect.Parameter:
    if isinstance(kind, types.UnionType):
        kind = next(item for item in typing.get_args(kind) if item is not type(None))
    names = f"{flag(name)}/--no-{flag(name)[2:]}" if kind is bool else flag(name)
    option = typer.Option(names, help=text, rich_help_panel=panel, show_default=False)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


def check_resumed(saved: dict[str, Any], now: dict[str, Any], out: Path) -> None:
    """Raise if flags given with --resume differ from the settings that the run started with."""
    before = {key: value for key, value in _with_defaults(saved).items() if key in now}
    changed = differences(before, now, ignored=RUNTIME)
    if changed:
        raise InputError(
            f"{out} was started with other settings: {'; '.join(changed)}. Leave these flags out "
            "to resume it, or start over with --overwrite."
        )


def _with_defaults(settings: dict[str, Any]) -> dict[str, Any]:
    """Flat settings with the defaults of those that are not given."""
    from longtail.classifier import LongTailClassifier
    from longtail.classifier.plan import to_plain

    params = to_plain(LongTailClassifier.from_settings(settings).get_params(deep=False))
    model, training = params.pop("model"), params.pop("training") or Training().to_dict()
    of_model = {KIND: settings["model"]} if isinstance(model, list) else model
    return {**of_model, **training, **params, "model": of_model[KIND]}
