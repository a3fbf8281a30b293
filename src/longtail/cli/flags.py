"""Flags as parameters of a verb; --help shows the common ones, --help-all every one.

A verb takes an object such as `Source` or `Chosen`; `takes` replaces it with the flags that set it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from longtail.errors import InputError

Verb = Callable[..., Any]
# Panels of the help.
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

    Args:
        shown: the default in the help of a flag whose own default is None, meaning "not given".
        common: list it in --help too, not only in --help-all.
        both: a boolean flag also has the form --no-NAME.
    """
    names = f"{flag(name)}/--no-{flag(name)[2:]}" if both and kind is bool else flag(name)
    shown = shown or format_default(default)
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


def format_default(default: Any) -> str:
    """A default as the help shows it; empty for None, which the help text explains."""
    if isinstance(default, bool):
        return "yes" if default else "no"
    return "" if default is None else str(default)


def _show_all(context: typer.Context, requested: bool) -> None:
    if requested:
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
            help="Show all flags, including the rarely used ones.",
        ),
    ],
)


def takes(
    name: str, flags: list[inspect.Parameter], make: Callable[..., Any]
) -> Callable[[Verb], Verb]:
    """Replace the argument `name` of a verb with flags; `make` builds its value from theirs.

    The first flag stands where the argument stood, the others after the verb's own parameters.
    Adds --help-all.
    """

    def decorate(verb: Verb) -> Verb:
        signature = inspect.signature(verb, eval_str=True).parameters.values()
        # A verb that is wrapped twice has --help-all already.
        before = [p for p in signature if p.name != HELP_ALL.name]
        parameters = [flags[0] if p.name == name else p for p in before] + flags[1:]
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
        parameters.append(HELP_ALL)

        def wrapper(**values: Any) -> Any:
            values.pop(HELP_ALL.name, None)
            settings = {parameter.name: values.pop(parameter.name) for parameter in flags}
            return verb(**{name: make(**settings)}, **values)

        wrapper.__name__, wrapper.__doc__ = verb.__name__, verb.__doc__
        wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
        return wrapper

    return decorate


def given_flags(**values: Any) -> dict[str, Any]:
    """The flags that were given: None stands for "not given"."""
    return {name: value for name, value in values.items() if value is not None}


def command_line(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    """The values that differ from their defaults, as flags on a command line."""
    arguments = []
    for name, value in values.items():
        if value != defaults.get(name):
            arguments += [flag(name)] if value is True else [flag(name), str(value)]
    return arguments


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """Parse KEY=VALUE pairs; values are YAML, so numbers and booleans keep their types."""
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
