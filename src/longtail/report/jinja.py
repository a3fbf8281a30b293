"""HTML and Markdown from templates; values that are not `Markup` are escaped."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from longtail.report.table import (
    Table,
    escape_markdown,
    one_line,
    plural,
    render_cell,
    shorten,
    to_markdown,
)

# Colours repeat after the ninth run.
N_COLOURS = 9


def render_html(template: str, **values: Any) -> Markup:
    """Render a template as HTML."""
    return Markup(_html().get_template(template).render(values))


def render_markdown(template: str, **values: Any) -> str:
    """Render a template as Markdown."""
    return _markdown().get_template(template).render(values)


def to_html(table: Table, swatches: int = 0, kind: str = "figures") -> Markup:
    """A table with its notes; the first `swatches` rows show the colour of their run."""
    return render_html("table.html.j2", table=table, swatches=swatches, kind=kind)


def text_file(name: str) -> str:
    """The content of a file next to the templates."""
    return resources.files("longtail.report").joinpath("templates", name).read_text("utf-8")


def foreign(text: str) -> Markup:
    """Text from the data, isolated so that its writing direction stays within it."""
    return Markup("<bdi>{}</bdi>").format(one_line(text))


def _environment(finalize: Any) -> Environment:
    return Environment(
        loader=PackageLoader("longtail.report"),
        autoescape=True,
        finalize=lambda value: value if hasattr(value, "__html__") else finalize(str(value)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


@cache
def _html() -> Environment:
    environment = _environment(one_line)
    environment.filters |= {
        "cell": lambda cell: Markup(render_cell(cell, foreign, "<strong>{}</strong>")),
        "foreign": foreign,
        "shorten": shorten,
    }
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.globals["colour_of"] = lambda k: f"var(--run-{k % N_COLOURS})"
    return environment


@cache
def _markdown() -> Environment:
    environment = _environment(lambda text: Markup(escape_markdown(text)))
    environment.filters |= {
        "table": lambda table: Markup(to_markdown(table)),
        "code": Markup,
        "plural": plural,
        "thousands": "{:,}".format,
        "percent": lambda share: f"{100 * share:.1f} %",
    }
    return environment
