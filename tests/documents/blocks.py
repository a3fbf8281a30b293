"""The fenced blocks of a page, and what it means that one of them runs.

`python` is executed, in one namespace for the page. In `sh` every `longtail` command is run in this
process, and the rest is looked up: files, targets, extras. A line that ends in a comment `# needs
...`, or stands below one, is only parsed, with all its flags; so is a block of Python below one.
"""

from __future__ import annotations

import io
import json
import re
import runpy
import shlex
import sys
import tomllib
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import typer
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from longtail.cli import app

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if path.name != "CHANGELOG.md"
)
NEEDS = re.compile(r"# needs \w+")
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"^print\(.*\)  # (.+)$", re.MULTILINE)
STDIN = "copper rose\nmy parcel is late\n"
PLAIN = {"text", "csv", "html", "dockerfile"}
"""Output, formulas, and files that other programs read."""
LAUNCHERS = {"torchrun", "accelerate"}
"""Programs that start the command in several processes."""
OTHERS = {"cd", "git", "docker", "curl", "cat", "ray", "."}
ELSEWHERE = {"demo"}
"""Verbs that tests/cli runs as they stand here, and that take seconds."""


class Block(NamedTuple):
    place: str
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    name = page.relative_to(ROOT).as_posix()
    return [
        Block(f"{name}:{text[: match.start()].count(chr(10)) + 1}", match[1], match[2])
        for match in FENCE.finditer(text)
    ]


def run(block: Block, names: dict[str, Any]) -> None:
    """Run a block, or raise an AssertionError that names it."""
    if block.language == "python":
        run_python(block, names)
    elif block.language == "sh":
        mark = ""
        for line in re.sub(r"\\\n\s*", " ", block.text).splitlines():
            is_comment = line.startswith("#")
            mark = line if is_comment else mark if line else ""
            run_line("" if is_comment else f"{line}  {mark}", block.place)
    elif block.language == "json":
        # JSON, or JSON Lines.
        lines = [block.text] if block.text.startswith("{\n") else block.text.splitlines()
        assert [json.loads(line) for line in lines], block.place
    elif block.language == "yaml":
        assert yaml.safe_load(block.text), block.place
    else:
        assert block.language in PLAIN, f"{block.place}: say what the block is, such as sh or text"


def run_python(block: Block, names: dict[str, Any]) -> None:
    code = compile(block.text, block.place, "exec")
    if not NEEDS.match(block.text):
        with redirect_stdout(io.StringIO()) as printed:
            exec(code, names)
        for line in PRINTED.findall(block.text):
            assert line in printed.getvalue(), f"{block.place}: {line}"


def run_line(line: str, place: str) -> None:
    """Run or look up one line of a shell."""
    words = shlex.split(line, comments=True)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    while "|" in words:
        words = words[words.index("|") + 1 :]
    words = [word for word in words if word != "&"]
    if not words or words[0] in OTHERS:
        return
    program, arguments = words[0].rpartition("/")[2], words[1:]
    if program in LAUNCHERS:
        program, arguments = "longtail", words[words.index("longtail") + 1 :]
    if program == "longtail":
        parse(arguments)
        if not NEEDS.search(line) and arguments[0] not in ELSEWHERE:
            result = CliRunner().invoke(app, arguments, input=STDIN)
            assert result.exit_code == 0, f"{place}: {line}\n{result.output}\n{result.exception!r}"
    elif program == "make":
        targets = re.findall("^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        assert set(arguments) <= set(targets), f"{place}: {line}"
    elif program == "pip":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        extras = set(re.findall(r"[\w-]+", "".join(re.findall(r"\[(.*)\]", line))))
        assert extras <= set(project["optional-dependencies"]), f"{place}: {line}"
    elif program.startswith("python"):
        run_program(arguments, line)
    else:
        raise AssertionError(f"{place}: {program} is a program that this test does not know")


def parse(arguments: list[str]) -> None:
    """Look up a verb and its flags, without their values, which may name what is not there."""
    command: Any = get_command(app)
    context = typer.Context(command, info_name="longtail")
    rest = list(arguments)
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(context, rest)
        context = typer.Context(command, info_name=name, parent=context)
    command.make_parser(context).parse_args(rest)


def run_program(arguments: list[str], line: str) -> None:
    """Run the program that writes the tickets; other programs have to exist, and their flags."""
    if arguments[0] == "-m":
        module = ROOT.joinpath(*arguments[1].split("."))
        assert module.is_dir() or module.with_suffix(".py").is_file(), line
        return
    program = ROOT / arguments[0]
    text = program.read_text("utf-8")
    for flag in (word for word in arguments if word.startswith("--")):
        assert f'"{flag}"' in text, f"{line}: {flag}"
    if program.name == "make_tickets.py":
        # Few, so that all pages together take seconds.
        few = re.sub(r"--documents \d+", "", " ".join(arguments[1:])).split()
        with patch.object(sys, "argv", [str(program), *few, "--documents", "240"]):
            runpy.run_path(str(program), run_name="__main__")
