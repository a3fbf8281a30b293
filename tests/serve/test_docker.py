"""The Dockerfile, as far as it can be checked without Docker."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from typer.main import get_command

from longtail.cli import app

ROOT = Path(__file__).parents[2]
FILE = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
STEPS = [line.split(maxsplit=1) for line in FILE.splitlines() if line and line[0] not in "# "]


def steps(name: str) -> list[str]:
    return [rest for step, rest in STEPS if step == name]


def test_copied_files_exist_and_are_in_the_context() -> None:
    context = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    copied = [step for step in steps("COPY") if not step.startswith("--from")]
    sources = [source for step in copied for source in step.split()[:-1]]
    assert {"src", "pyproject.toml", "constraints.txt"} <= set(sources)
    for source in sources:
        assert (ROOT / source).exists() and f"!{source}" in context, source
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    forced = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    needed = {*forced, project["project"]["readme"], *project["project"]["license-files"]}
    assert needed <= set(sources), "what the wheel is built of"


def test_it_installs_the_tested_versions_and_existing_extras() -> None:
    (install,) = [step for step in steps("RUN") if "pip install" in step]
    assert "-c constraints.txt" in install
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", install)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert "serve" in extras.split(",")
    assert set(extras.split(",")) <= set(project["project"]["optional-dependencies"])
    (python,) = {base.split()[0] for base in steps("FROM")}
    assert python.startswith("python:3.") and python.endswith("-slim")


def test_the_command_exists_and_does_not_run_as_root() -> None:
    words = [*json.loads(steps("ENTRYPOINT")[0]), *json.loads(steps("CMD")[0])]
    assert words[:2] == ["longtail", "serve"]
    command = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    # The folder of the run exists only in the container.
    flags = dict(zip(words[3::2], words[4::2], strict=True))
    known = {flag for parameter in command.params for flag in parameter.opts}
    assert set(flags) <= known and flags["--host"] == "0.0.0.0"
    assert flags["--port"] == steps("EXPOSE")[0]
    order = [step for step, _ in STEPS]
    assert steps("USER") == ["longtail"] and order.index("USER") < order.index("ENTRYPOINT")
    assert str(Path(flags["--corrections"]).parent) == steps("VOLUME")[0]


def test_the_health_check_asks_the_service() -> None:
    (check,) = steps("HEALTHCHECK")
    words = json.loads(check[check.index("[") :])
    assert words[:2] == ["python", "-c"]
    compile(words[2], "HEALTHCHECK", "exec")
    assert f"127.0.0.1:{steps('EXPOSE')[0]}/ready" in words[2]
