"""Pages that mkdocs adds to those of docs/: commands, tables of settings, and files of the project.

Each verb gets a page generated from the command. `<!-- settings: Bag -->` in a page becomes the
table of that class's settings. Results and the project's own pages are copied, and repository links
between pages become links of the site.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
from pathlib import Path
from typing import Any

import griffe
import typer
from mkdocs.structure.files import File
from typer.main import get_command

import longtail
from longtail.cli import app

ROOT = Path(__file__).parents[1]
PROJECT_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
COPIED = (".md", ".png", ".txt")
LINK = re.compile(r"\[([^][]*(?:\[[^][]*\][^][]*)*)\]\((?!\w+:)([^()#\s]+)(#[^()\s]*)?\)")
SETTINGS = re.compile(r"<!-- settings: (\w+) -->")


class Defaults(griffe.Extension):
    """Show the estimator's defaults as values where the source names a constant."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        if func.path == "longtail.classifier.estimator.LongTailClassifier.__init__":
            values = inspect.signature(longtail.LongTailClassifier).parameters
            for parameter in func.parameters:
                if parameter.name in values:
                    parameter.default = repr(values[parameter.name].default)


def on_config(config: Any) -> None:
    """Put a page for each verb into the navigation."""
    pages = [{"longtail": "commands/index.md"}]
    pages += [{name: f"commands/{name}.md"} for name in get_command(app).commands]
    for section in config.nav:
        if "Commands" in section:
            section["Commands"] = pages


def on_files(files: Any, config: Any) -> None:
    """Add the generated pages and those of the project."""
    for name, text in command_pages().items():
        files.append(File.generated(config, f"commands/{name}.md", content=text))
    results = [path for path in sorted((ROOT / "results").iterdir()) if path.suffix in COPIED]
    for path in [*results, *(ROOT / name for name in PROJECT_PAGES)]:
        uri = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, uri, abs_src_path=str(path)))


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Insert tables of settings, and turn links of the repository into links of the site."""
    uri = page.file.src_uri
    source = uri if page.file.generated_by else f"docs/{uri}"

    def linked(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        path = os.path.normpath(os.path.join(os.path.dirname(source), target))
        on_site = path.removeprefix("docs/")
        if path == on_site and files.get_file_from_path(path) is None:
            assert (ROOT / path).exists(), f"{source} links to {target}, which does not exist"
            return text  # a file or folder of the repository that the site does not have
        return f"[{text}]({os.path.relpath(on_site, os.path.dirname(uri))}{anchor})"

    if uri.startswith("commands/"):
        return markdown
    markdown = SETTINGS.sub(lambda match: settings_table(match[1]), markdown)
    return LINK.sub(linked, markdown)


def settings_table(name: str) -> str:
    """The settings of a dataclass of longtail as a table."""
    lines = ["| setting | default | meaning |", "|---|---|---|"]
    for field in dataclasses.fields(getattr(longtail, name)):
        if "help" in field.metadata:
            lines.append(
                f"| `{field.name}` | `{field.default!r}` | {escaped(field.metadata['help'])} |"
            )
    return "\n".join(lines)


def command_pages() -> dict[str, str]:
    """Name of the page -> its Markdown: an index, and every verb with all its flags."""
    root = get_command(app)
    index = f"# The command\n\n{root.help}\n\n| command | what it does |\n|---|---|\n"
    pages = {}
    for name, command in root.commands.items():
        index += f"| [`longtail {name}`]({name}.md) | {first_line(command)} |\n"
        pages[name] = f"# longtail {name}\n\n{described(command, f'longtail {name}')}"
        for verb, inner in getattr(command, "commands", {}).items():
            pages[name] += f"\n## {verb}\n\n{described(inner, f'longtail {name} {verb}')}"
    return {"index": index, **pages}


def first_line(command: Any) -> str:
    return str(command.help or "").partition("\n")[0]


def described(command: Any, path: str) -> str:
    """The help of a command, its usage, and its flags in the groups of the help."""
    context = typer.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    text = f"{command.help}\n\n```text\n{usage}\n```\n"
    groups: dict[str, list[str]] = {}
    for parameter in command.params:
        is_rare = getattr(parameter, "hidden", False)
        parameter.hidden = False  # its help record is otherwise empty
        name, help_text = parameter.get_help_record(context)
        if parameter.name != "help_all":
            panel = getattr(parameter, "rich_help_panel", None) or "Arguments and flags"
            mark = " (`--help-all`)" if is_rare else ""
            groups.setdefault(panel, []).append(f"| `{name}` | {escaped(help_text)}{mark} |")
    for panel, rows in groups.items():
        text += f"\n**{panel}**\n\n| flag | meaning |\n|---|---|\n" + "\n".join(rows) + "\n"
    return text


def escaped(text: str) -> str:
    """Text escaped for the cell of a table."""
    return re.sub(r"([|*<>\[\]])", r"\\\1", text)
