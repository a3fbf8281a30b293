"""Wheel and sdist are built from the sources, hold what they should, and run elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import longtail
from tests.documents.blocks import ROOT

FOLDERS = {"src", "tests", "docs", "examples", "recipes", "benchmarks", "results"}
FILES = {"LICENSE", "Makefile", "constraints.txt", "mkdocs.yml", "pyproject.toml", "PKG-INFO"}
HIDDEN = {".ci", ".github", ".gitignore"}


def python(*arguments: str, cwd: Path, **environment: str) -> str:
    """Run this interpreter and return what it printed."""
    # -P: what stands in the working directory is not imported.
    command = [sys.executable, "-P", *arguments]
    run = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert run.returncode == 0, f"{arguments}\n{run.stdout}\n{run.stderr}"
    return run.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("built")
    python("-m", "hatchling", "build", "-t", "sdist", "-d", str(folder), cwd=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    unpacked = folder / sdist.name.removesuffix(".tar.gz")
    python("-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=unpacked)
    return folder


def sources(folder: str) -> set[str]:
    """The files of a folder of the project."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    about = f"longtail-{longtail.__version__}.dist-info/"
    names = set(zipfile.ZipFile(wheel).namelist())
    package = {name for name in names if not name.startswith(about)}
    expected = {name.removeprefix("src/") for name in sources("src/longtail")}
    assert package == expected | {f"longtail/{name}" for name in sources("recipes")}
    assert {"longtail/report/templates/page.html.j2", "longtail/recipes/best.yaml"} <= package
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read(f"{about}licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
        metadata = archive.read(f"{about}METADATA").decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert "Provides-Extra: serve" in metadata


def test_the_sdist_holds_the_project_and_nothing_else(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    pages = {path.name for path in ROOT.glob("*.md")}
    assert {name.partition("/")[0] for name in names} == FOLDERS | FILES | HIDDEN | pages
    for folder in FOLDERS:
        assert sources(folder) <= names, folder


def test_the_wheel_runs_in_an_empty_place(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    place, away = tmp_path / "place", tmp_path / "away"
    away.mkdir()
    pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    python(*pip, "--disable-pip-version-check", "--target", str(place), str(wheel), cwd=away)

    def run(*arguments: str) -> str:
        return python(*arguments, cwd=away, PYTHONPATH=str(place))

    where = run("-c", "import longtail; print(longtail.__file__)").strip()
    assert Path(where).is_relative_to(place)
    assert (place / "bin" / "longtail").is_file()
    run("-m", "longtail", "corpus", "get", "newswire", "--set", "n_documents=300", "--out", "data")
    train = ("train", "data", "--recipe", "fast", "--model", "svm", "--folds", "2", "--out", "run")
    assert "Saved to run" in run("-m", "longtail", *train)
    run("-m", "longtail", "report", "run", "--data", "data", "--out", "report.html")
    assert "<html" in (away / "report.html").read_text("utf-8")
