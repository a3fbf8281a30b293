"""Flags from settings: a new field of a dataclass is a flag at once.

A verb takes an object such as `Source` or `Chosen`; a decorator gives it the flags that make one.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

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

Verb = Callable[..., Any]


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def option(
    name: str, kind: Any, text: str, panel: str, default: Any = None, *, both: bool = False
) -> inspect.Parameter:
    """A flag as a parameter of a verb; `both`: a switch has also the flag --no-NAME."""
    names = f"{flag(name)}/--no-{flag(name)[2:]}" if both and kind is bool else flag(name)
    settings = typer.Option(names, help=text, rich_help_panel=panel)
    annotation: Any = Annotated[kind | None if default is None else kind, settings]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=default, annotation=annotation)


def takes(
    name: str, flags: list[inspect.Parameter], make: Callable[..., Any]
) -> Callable[[Verb], Verb]:
    """Give a verb these flags in place of its argument `name`, which `make` makes of them.

    The first takes the place of the argument, the others follow all that the verb has.
    """

    def decorate(verb: Verb) -> Verb:
        kept = dict(inspect.signature(verb, eval_str=True).parameters)
        parameters = [flags[0] if p.name == name else p for p in kept.values()] + flags[1:]
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]

        def called(**values: Any) -> Any:
            given = {parameter.name: values.pop(parameter.name) for parameter in flags}
            return verb(**{name: make(**given)}, **values)

        called.__name__, called.__doc__ = verb.__name__, verb.__doc__
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {p.name: p.annotation for p in parameters}
        return called

    return decorate


def as_words(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    """The flags whose values differ from their defaults, as on the command line."""
    words = []
    for name, value in values.items():
        if value != defaults.get(name):
            words += [flag(name)] if value is True else [flag(name), str(value)]
    return words


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """KEY=VALUE pairs, values read as YAML: numbers are numbers, true is true."""
    import yaml

    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InputError(f"expected KEY=VALUE, got {pair!r}, as in --set n_documents=5000.")
        try:
            settings[key.strip().replace("-", "_")] = yaml.safe_load(value)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            why = (str(error).splitlines() or ["?"])[0]
            raise InputError(f"the value of {pair!r} cannot be read ({why}).") from error
    return settings


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
            of_recipe = settings.get("loss_settings") or {}
            settings["loss_settings"] = {**of_recipe, **self.loss_settings}
        return settings


def _check_names(flags: dict[str, Any]) -> None:
    """Check flags before anything heavy is imported: a mistake is answered at once."""
    from longtail.losses.presets import LOSSES
    from longtail.thresholds import OBJECTIVES, list_methods

    tables: tuple[tuple[str, str, Iterable[str]], ...] = (
        ("loss", "loss", LOSSES),
        ("thresholds", "threshold method", list_methods()),
        ("objective", "objective", OBJECTIVES),
    )
    for name, kind, known in tables:
        if name in flags and flags[name] not in known:
            raise UnknownNameError(kind, flags[name], known)
    params = nested_params(flags, set(ARGUMENTS))
    check_used(params.get("training", Training()), [params["model"]])


_FOLDS = ", ".join(f"{name} {row.folds}" for name, row in MODELS.items())
ARGUMENTS: dict[str, tuple[Any, str]] = {
    "config": (Path, "A recipe: a YAML file of settings, which flags override."),
    "model": (str, f"{', '.join(MODELS)}; default: {DEFAULT_MODEL}."),
    "loss": (str, "A loss of docs/losses.md, such as bce; default: db, or what auto chooses."),
    "loss_set": (list[str], "A constant of the loss, KEY=VALUE, repeatable."),
    "thresholds": (str, "A method of docs/evaluation.md, such as global; default: auto."),
    "objective": (str, "The objective of thresholds: micro, macro or mean; default: mean."),
    "folds": (int, f"Models to cross-fit; 1: one, and a validation part. Default: {_FOLDS}."),
    "label_texts": (
        str,
        "names, or a JSON file of label descriptions: rare labels learn from them too.",
    ),
    "min_labels": (int, "Minimum number of labels per text. Default: 0."),
    "max_labels": (int, "Maximum number of labels per text."),
    "random_state": (int, "Seed: the same seed gives the same model. Default: 0."),
}


def _model_fields() -> dict[str, list[str]]:
    """The names of models' settings, and the models that have each."""
    users: dict[str, list[str]] = {}
    for model, row in MODELS.items():
        for name in field_names(row.settings) - field_names(ModelSettings):
            users.setdefault(name, []).append(model)
    return users


def _settings() -> list[inspect.Parameter]:
    """One flag per argument of the classifier and per field; models that share a name share it."""
    rows = {name: (*row, "Model and thresholds") for name, row in ARGUMENTS.items()}
    users = _model_fields()
    for model, kind in MODELS.items():
        for name, hint, text in _fields(kind.settings):
            if name in users:
                text = f"{text} [{', '.join(users[name])}]"
                rows.setdefault(name, (hint, text, f"Settings of {model}"))
    for name, hint, text in _fields(Training):
        rows.setdefault(name, (hint, text, "Training"))
    return [option(name, *row, both=True) for name, row in rows.items()]


def _fields(settings: type[Settings]) -> list[tuple[str, Any, str]]:
    """Name, type and help of each field, with its default where that is a value."""
    hints = typing.get_type_hints(settings)
    rows = []
    for item in dataclasses.fields(settings):
        shown = settings is Training and item.default is not None
        default = f" Default: {item.default}." if shown else ""
        hint = hints[item.name]
        if isinstance(hint, types.UnionType):
            hint = next(kind for kind in typing.get_args(hint) if kind is not type(None))
        rows.append((item.name, hint, item.metadata.get("help", "") + default))
    return rows


def _chosen(config: Path | None, loss_set: list[str] | None, **flags: Any) -> Chosen:
    given = {name: value for name, value in flags.items() if value is not None}
    return Chosen(given, parse_settings(loss_set or []), config)


takes_settings = takes("chosen", _settings(), _chosen)


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
