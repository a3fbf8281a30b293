"""Flags from settings: a new field of a dataclass is a flag at once.

A verb takes an object such as `Source` or `Chosen`; a decorator gives it the flags that make one.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from longtail.arguments import Arguments
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

Verb = Callable[..., Any]
# Groups of flags.
MODEL, THRESHOLDS, RUN = "Model", "Thresholds", "Run"


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def option(
    name: str,
    kind: Any,
    text: str,
    panel: str,
    default: Any = None,
    *,
    shown: str = "",
    common: bool = True,
    both: bool = False,
) -> inspect.Parameter:
    """A flag as a parameter of a verb.

    `shown`: the default, where that of the flag is None, which stands for not given. Without
    `common` only --help-all shows it. `both`: a switch has also the flag --no-NAME.
    """
    names = f"{flag(name)}/--no-{flag(name)[2:]}" if both and kind is bool else flag(name)
    shown = shown or in_words(default)
    settings = typer.Option(
        names,
        help=f"{text} Default: {shown}." if shown else text,
        rich_help_panel=panel,
        show_default=False,
        hidden=not common,
    )
    annotation: Any = Annotated[kind | None if default is None else kind, settings]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=default, annotation=annotation)


def in_words(default: Any) -> str:
    """A default as help shows it; nothing for None, whose meaning stands in the text."""
    if isinstance(default, bool):
        return "yes" if default else "no"
    return "" if default is None else str(default)


def _show_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        for parameter in context.command.params:
            parameter.hidden = False  # type: ignore[attr-defined]
        typer.echo(context.get_help())
        raise typer.Exit


HELP_ALL = inspect.Parameter(
    "help_all",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool,
        typer.Option(
            "--help-all",
            callback=_show_all,
            is_eager=True,
            show_default=False,
            help="Show the flags that are seldom needed too.",
        ),
    ],
)


def takes(
    name: str, flags: list[inspect.Parameter], make: Callable[..., Any]
) -> Callable[[Verb], Verb]:
    """Give a verb these flags in place of its argument `name`, which `make` makes of them.

    The first takes the place of the argument, the others follow all that the verb has, and
    --help-all.
    """

    def decorate(verb: Verb) -> Verb:
        kept = dict(inspect.signature(verb, eval_str=True).parameters)
        has_all = kept.pop(HELP_ALL.name, None) is not None
        parameters = [flags[0] if p.name == name else p for p in kept.values()] + flags[1:]
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
        parameters.append(HELP_ALL)

        def called(**values: Any) -> Any:
            if not has_all:
                del values[HELP_ALL.name]
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
    """What a flag needs to know of a field."""

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
_PANELS = dict.fromkeys(("thresholds", "objective", "max_labels", "at_least_one"), THRESHOLDS)
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
