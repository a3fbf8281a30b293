"""Flags as parameters of a verb, and the help that shows the common ones or all.

A verb takes an object such as `Source` or `Chosen`; a decorator gives it the flags that make one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from longtail.errors import InputError

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
