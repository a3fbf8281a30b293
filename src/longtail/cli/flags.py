"""The flags of `longtail train`: the fields of the settings' dataclasses, and a recipe under them.

A new field is a flag at once. A flag that the chosen model has no use for is refused by name.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from longtail.cli.reading import parse_settings
from longtail.errors import InputError, UnknownNameError
from longtail.settings import MODEL_SETTINGS, TrainingConfig

TRAINING = {field.name: field for field in dataclasses.fields(TrainingConfig)}
# Of these, what all members of a blend have in common.
SHARED = ("seed", "device", "checkpoint_minutes")


@dataclasses.dataclass(frozen=True)
class Chosen:
    """What the command line says about model and training; only what was said."""

    arguments: dict[str, Any]
    flags: dict[str, Any]
    loss_settings: dict[str, Any]
    recipe: Path | None

    def resolved(self) -> dict[str, Any]:
        """Arguments of LongTailClassifier: the recipe's, and over them the flags."""
        found = {} if self.recipe is None else read_recipe(self.recipe)
        found |= self.arguments
        if isinstance(self.arguments.get("label_texts"), str):
            from longtail.fitting.label_texts import read_label_texts

            found["label_texts"] = read_label_texts(self.arguments["label_texts"])
        if found.get("members") is not None:
            return self._of_members(found)
        model = found.get("model", "bag")
        if model not in MODEL_SETTINGS:
            raise UnknownNameError("model", model, MODEL_SETTINGS)
        own = {field.name for field in dataclasses.fields(MODEL_SETTINGS[model])}
        of_model = {}
        for name, value in self.flags.items():
            if name in own:
                of_model[name] = value
            elif name in TRAINING:
                found[name] = value
            else:
                users = [m for m, s in MODEL_SETTINGS.items() if name in fields_of(s)]
                raise InputError(
                    f"{flag(name)} goes with --model {' or '.join(users)}, got --model {model}."
                )
        if self.arguments.get("loss") is not None and model == "svm":
            raise InputError("--loss goes with --model bag or encoder; the svm has its own loss.")
        for key, said in (("model_settings", of_model), ("loss_settings", self.loss_settings)):
            if said:
                found[key] = dict(found.get(key) or {}) | said
        return found

    def _of_members(self, found: dict[str, Any]) -> dict[str, Any]:
        """With several models, a flag can mean what is common to all of them, and nothing else."""
        for name, value in self.flags.items():
            if name not in SHARED:
                raise InputError(
                    f"{flag(name)}: {self.recipe} blends several members. Set {name} in the member "
                    "that it is meant for."
                )
            found[name] = value
        if self.loss_settings:
            found["loss_settings"] = dict(found.get("loss_settings") or {}) | self.loss_settings
        return found


def fields_of(kind: type) -> dict[str, Any]:
    return {field.name: field for field in dataclasses.fields(kind)}


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def read_recipe(path: Path) -> dict[str, Any]:
    """A recipe is a YAML mapping of LongTailClassifier arguments."""
    from longtail.reproduce import read_recipe as read

    return read(path)


def takes_settings(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb a flag for every setting in place of its `chosen`."""
    signature = inspect.signature(verb, eval_str=True)
    kept = [p for p in signature.parameters.values() if p.name != "chosen"]
    arguments, settings = _arguments(), _settings()
    own = [*arguments, *settings]
    keyword = inspect.Parameter.KEYWORD_ONLY

    def called(**given: Any) -> Any:
        said = {p.name: given.pop(p.name) for p in own}
        recipe, loss_set = said.pop("config"), said.pop("loss_set") or []
        return verb(
            chosen=Chosen(
                {p.name: v for p in arguments if (v := said.get(p.name)) is not None},
                {p.name: v for p in settings if (v := said.get(p.name)) is not None},
                parse_settings(loss_set),
                recipe,
            ),
            **given,
        )

    parameters = [p.replace(kind=keyword) for p in (*kept, *own)]
    called.__name__, called.__doc__ = verb.__name__, verb.__doc__
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in parameters}
    return called


def _arguments() -> list[inspect.Parameter]:
    table: list[tuple[str, Any, str, tuple[str, ...]]] = [
        ("config", Path, "A recipe: a YAML file of settings; flags go before it.", ()),
        ("model", str, f"{', '.join(MODEL_SETTINGS)}; default: bag.", ()),
        ("loss", str, "A loss of docs/losses.md, such as bce; default: db.", ()),
        ("loss_set", list[str], "A constant of the loss, KEY=VALUE, repeatable.", ()),
        (
            "thresholds",
            str,
            "grid, global, per-label, micromacro, frequency or auto; default: auto.",
            (),
        ),
        ("objective", str, "What thresholds aim at: micro, macro or mean; default: mean.", ()),
        (
            "folds",
            int,
            "Cross-fit so many models; 1: one, and a validation part. Default: 5, encoder: 1.",
            (),
        ),
        (
            "label_texts",
            str,
            "names, or a JSON file of label names and descriptions: rare labels learn from these.",
            (),
        ),
        ("max_labels", int, "At most so many labels for each text.", ()),
        ("at_least_one", bool, "At least one label for each text.", ("--at-least-one",)),
    ]
    return [_parameter(n, kind, text, "Model and thresholds", f) for n, kind, text, f in table]


def _settings() -> list[inspect.Parameter]:
    """One flag per field; models that share a name share the flag."""
    found: dict[str, inspect.Parameter] = {}
    for model, kind in MODEL_SETTINGS.items():
        hints = typing.get_type_hints(kind)
        for name, field in fields_of(kind).items():
            users = [m for m, s in MODEL_SETTINGS.items() if name in fields_of(s)]
            text = f"{field.metadata['help']} [{', '.join(users)}]"
            found.setdefault(name, _parameter(name, hints[name], text, f"Settings of {model}"))
    hints = typing.get_type_hints(TrainingConfig)
    for name, field in TRAINING.items():
        default = "" if field.default is None else f" Default: {field.default}."
        text = field.metadata["help"] + default
        found.setdefault(name, _parameter(name, hints[name], text, "Training"))
    return list(found.values())


def _parameter(
    name: str, kind: Any, text: str, panel: str, flags: tuple[str, ...] = ()
) -> inspect.Parameter:
    plain = _plain(kind)
    if plain is bool and not flags:
        flags = (f"{flag(name)}/--no-{flag(name)[2:]}",)
    option = typer.Option(
        *(flags or (flag(name),)), help=text, rich_help_panel=panel, show_default=False
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[plain | None, option],
    )


def _plain(kind: Any) -> Any:
    """The type of a field without None."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return next(one for one in typing.get_args(kind) if one is not type(None))
    if typing.get_origin(kind) is typing.Literal:
        return str
    return kind


def check_resumed(saved: dict[str, Any], said: dict[str, Any], out: Path) -> None:
    """Raise if flags given with --resume differ from what the run was begun with."""
    changed = []
    for key, value in said.items():
        before = saved.get(key)
        if isinstance(value, dict):
            pairs = [(k, v, (before or {}).get(k)) for k, v in value.items()]
        else:
            pairs = [(key, value, before)]
        changed += [f"{flag(k)} was {old!r}, now {new!r}" for k, new, old in pairs if new != old]
    free = ("--device", "--checkpoint-minutes")
    changed = [one for one in changed if not one.startswith(free)]
    if changed:
        raise InputError(
            f"{out} was begun with other settings: {'; '.join(changed)}. Leave these flags out to "
            "resume it, or start over with --overwrite."
        )
