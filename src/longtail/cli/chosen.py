"""The settings of a training, from its recipe and flags; the flags come from the dataclasses."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from longtail.arguments import Arguments
from longtail.cli.flags import (
    MODEL,
    RUN,
    THRESHOLDS,
    format_default,
    given_flags,
    option,
    parse_settings,
    takes,
)
from longtail.errors import InputError, known_name
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
    recipe: str | None

    @property
    def names(self) -> set[str]:
        """The settings, and the constants of the loss, that flags give."""
        return {*self.flags, *self.loss_settings}

    @property
    def is_plain(self) -> bool:
        """Whether the default model is trained."""
        return self.recipe is None and "model" not in self.flags

    def resolved(self, partial: bool = False) -> dict[str, Any]:
        """Flat settings: those of the recipe, overridden by the flags.

        `partial`: a resumed run has the rest, so they are not checked as a whole.
        """
        if self.recipe is None and not partial:
            _check_names(self.flags)
        from longtail.classifier.label_texts import read_label_texts
        from longtail.reproduce import find_recipe, read_recipe, with_settings

        settings = {} if self.recipe is None else read_recipe(find_recipe(self.recipe))
        settings = with_settings(settings, self.flags)
        if isinstance(self.flags.get("label_texts"), str):
            settings["label_texts"] = read_label_texts(self.flags["label_texts"])
        if self.loss_settings:
            settings["loss_settings"] = (settings.get("loss_settings") or {}) | self.loss_settings
        return settings


def _check_names(flags: dict[str, Any]) -> None:
    """Check names and combinations of flags, before any heavy import."""
    from longtail.losses.presets import LOSSES
    from longtail.thresholds import OBJECTIVES, list_methods

    tables: tuple[tuple[str, str, Iterable[str]], ...] = (
        ("loss", "loss", LOSSES),
        ("thresholds", "threshold method", list_methods()),
        ("objective", "objective", OBJECTIVES),
    )
    for name, kind, known in tables:
        if name in flags:
            known_name(kind, flags[name], known)
    params = nested_params(flags, field_names(Arguments) | {"model"})
    check_used(params.get("training", Training()), [params["model"]])


class Row(NamedTuple):
    """What `option` needs to build the flag of a field."""

    kind: Any
    text: str
    panel: str
    shown: str
    common: bool


# Flags that are not fields of `Arguments`, and the panels of some that are.
_FIRST = {
    "recipe": Row(str, "fast, best or paper, or a YAML file; flags override it.", MODEL, "", True),
    "model": Row(str, f"{', '.join(MODELS)}.", MODEL, DEFAULT_MODEL, True),
    "loss_set": Row(list[str], "A constant of the loss, KEY=VALUE, repeatable.", MODEL, "", False),
}
_PANELS = dict.fromkeys(("thresholds", "objective", "min_labels", "max_labels"), THRESHOLDS)
_PANELS |= dict.fromkeys(("random_state", *RUNTIME), RUN)


def _settings_flags() -> list[inspect.Parameter]:
    """One flag per argument of the classifier and per field; models share fields of one name."""
    rows = {**_FIRST, **_rows(Arguments, MODEL)}
    folds = {name: model.folds for name, model in MODELS.items()}
    rows["folds"] = rows["folds"]._replace(shown=_defaults_by_model(folds))
    for name, model in MODELS.items():
        for field, row in _rows(model.settings, f"Settings of {name}").items():
            if field not in field_names(ModelSettings):
                defaults = {
                    user: other.settings.__dataclass_fields__[field].default
                    for user, other in MODELS.items()
                    if field in field_names(other.settings)
                }
                text = f"{row.text.removesuffix('.')} ({', '.join(defaults)})."
                row = row._replace(text=text, shown=_defaults_by_model(defaults))
                rows.setdefault(field, row)
    for field, row in _rows(Training, "Training").items():
        defaults = {
            name: model.settings.training_defaults.get(field) for name, model in MODELS.items()
        }
        rows[field] = row._replace(shown=row.shown or _defaults_by_model(defaults))
    return [
        option(name, row.kind, row.text, row.panel, shown=row.shown, common=row.common, both=True)
        for name, row in rows.items()
    ]


def _rows(settings: type[Settings], panel: str) -> dict[str, Row]:
    hints = typing.get_type_hints(settings)
    rows = {}
    for item in dataclasses.fields(settings):
        hint = hints[item.name]
        if isinstance(hint, types.UnionType):
            hint = next(kind for kind in typing.get_args(hint) if kind is not type(None))
        kind = str if typing.get_origin(hint) is typing.Literal else hint
        text, common = item.metadata.get("help", ""), item.metadata.get("common", False)
        where = _PANELS.get(item.name, MODEL if common else panel)
        rows[item.name] = Row(kind, text, where, format_default(item.default), common)
    return rows


def _defaults_by_model(defaults: Mapping[str, Any]) -> str:
    """One value if all models share it, else each model with its own; None is left out."""
    shown = {name: format_default(value) for name, value in defaults.items() if value is not None}
    if len(shown) == len(defaults) and len(set(shown.values())) == 1:
        return next(iter(shown.values()))
    return ", ".join(f"{name} {value}" for name, value in shown.items())


def _chosen(recipe: str | None, loss_set: list[str] | None, **flags: Any) -> Chosen:
    return Chosen(given_flags(**flags), parse_settings(loss_set or []), recipe)


takes_settings = takes("chosen", _settings_flags(), _chosen)


def check_resumed(saved: dict[str, Any], now: dict[str, Any], out: Path) -> None:
    """Raise if flags given with --resume differ from the settings that the run started with."""
    started_with = {key: value for key, value in _with_defaults(saved).items() if key in now}
    changed = differences(started_with, now, ignored=RUNTIME)
    if changed:
        raise InputError(
            f"{out} was started with other settings: {'; '.join(changed)}. Leave these flags out "
            "to resume it, or start over with --overwrite."
        )


def _with_defaults(settings: dict[str, Any]) -> dict[str, Any]:
    """Flat settings, completed with the defaults."""
    from longtail.classifier import LongTailClassifier
    from longtail.classifier.plan import to_plain

    params = to_plain(LongTailClassifier.from_settings(settings).get_params(deep=False))
    model, training = params.pop("model"), params.pop("training") or Training().to_dict()
    if isinstance(model, list):
        model = {KIND: settings["model"]}
    return {**model, **training, **params, "model": model[KIND]}
