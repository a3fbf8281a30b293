"""The settings of a training from its recipe and its flags, which fields of dataclasses are."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from longtail.arguments import Arguments
from longtail.cli.flags import MODEL, RUN, THRESHOLDS, in_words, option, parse_settings, takes
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
    def is_plain(self) -> bool:
        """Whether the default model was left as it is."""
        return self.recipe is None and "model" not in self.flags

    def resolved(self, partial: bool = False) -> dict[str, Any]:
        """Flat settings: the recipe's, overridden by the flags.

        `partial`: the others are those of the run that is resumed.
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
        if name in flags:
            known_name(kind, flags[name], known)
    params = nested_params(flags, field_names(Arguments) | {"model"})
    check_used(params.get("training", Training()), [params["model"]])


class Row(NamedTuple):
    """A field, as the flag for it is built."""

    kind: Any
    text: str
    panel: str
    shown: str
    common: bool


# The flags that are no arguments of the estimator, and the groups of those that are.
_FIRST = {
    "recipe": Row(str, "fast, best or paper, or a YAML file; flags override it.", MODEL, "", True),
    "model": Row(str, f"{', '.join(MODELS)}.", MODEL, DEFAULT_MODEL, True),
    "loss_set": Row(list[str], "A constant of the loss, KEY=VALUE, repeatable.", MODEL, "", False),
}
_PANELS = dict.fromkeys(("thresholds", "objective", "min_labels", "max_labels"), THRESHOLDS)
_PANELS |= dict.fromkeys(("random_state", *RUNTIME), RUN)


def _settings() -> list[inspect.Parameter]:
    """One flag per argument of the classifier and per field; models that share a name share it."""
    rows = {**_FIRST, **_rows(Arguments, MODEL)}
    folds = {name: kind.folds for name, kind in MODELS.items()}
    rows["folds"] = rows["folds"]._replace(shown=_of_each(folds, MODELS))
    for name, kind in MODELS.items():
        for field, row in _rows(kind.settings, f"Settings of {name}").items():
            if field not in field_names(ModelSettings):
                users = [each for each in MODELS if field in field_names(MODELS[each].settings)]
                of_users = {each: _default(MODELS[each].settings, field) for each in users}
                text = f"{row.text.removesuffix('.')} ({', '.join(users)})."
                rows.setdefault(field, row._replace(text=text, shown=_of_each(of_users, users)))
    for field, row in _rows(Training, "Training").items():
        of_kinds = {
            name: kind.settings.training_defaults.get(field) for name, kind in MODELS.items()
        }
        rows[field] = row._replace(shown=row.shown or _of_each(of_kinds, MODELS))
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
        rows[item.name] = Row(kind, text, where, in_words(item.default), common)
    return rows


def _default(settings: type[Settings], field: str) -> Any:
    return settings.__dataclass_fields__[field].default


def _of_each(values: Mapping[str, Any], users: Collection[str]) -> str:
    """One default, or that of each model."""
    given = {user: in_words(value) for user, value in values.items() if value is not None}
    if len(given) == len(users) and len(set(given.values())) == 1:
        return next(iter(given.values()))
    return ", ".join(f"{user} {value}" for user, value in given.items())


def _chosen(recipe: str | None, loss_set: list[str] | None, **flags: Any) -> Chosen:
    given = {name: value for name, value in flags.items() if value is not None}
    return Chosen(given, parse_settings(loss_set or []), recipe)


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
