"""Help and `import longtail` load none of the heavy packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import longtail

HEAVY = ("torch", "transformers", "sklearn", "scipy", "matplotlib", "optuna", "requests")


def loaded_by(code: str) -> set[str]:
    """The heavy packages in sys.modules after the code ran in a fresh interpreter."""
    probe = (
        f"{code}\nimport sys\nprint('LOADED', *[name for name in {HEAVY!r} if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    last = run.stdout.strip().splitlines()[-1]
    assert last.startswith("LOADED")
    return set(last.split()[1:])


HELP = """
import sys
sys.argv = ["longtail", *{arguments!r}]
from longtail.cli import main
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
"""


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["train", "--help"], ["search", "--help"], ["corpus", "--help"]],
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    assert loaded_by(HELP.format(arguments=arguments)) == set()


@pytest.mark.parametrize(
    "flags",
    ["--los db", "--loss dbb", "--model bagg", "--encoder x", "--epochs 3", "--min-df 0", "--C x"],
)
def test_a_mistake_in_a_flag_imports_no_torch(flags: str, tmp_path: Path) -> None:
    arguments = ["train", "newswire", "--out", str(tmp_path / "run"), *flags.split()]
    code = HELP.format(arguments=arguments).replace("assert not stop.code", "assert stop.code")
    assert not loaded_by(code) & {"torch", "transformers", "sklearn", "matplotlib"}


@pytest.mark.parametrize("flags", ["--out .", "--out a.csv", "--out new --format cvs"])
def test_a_wrong_folder_or_format_imports_no_torch(
    flags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("text,labels\none,x\n")
    code = HELP.format(arguments=["train", "a.csv", *flags.split()])
    loaded = loaded_by(code.replace("assert not stop.code", "assert stop.code"))
    assert not loaded & {"torch", "transformers", "sklearn", "matplotlib"}


def test_import_longtail_is_light() -> None:
    assert loaded_by("import longtail; dir(longtail)") == set()


def test_reading_and_corpora_import_no_torch_and_no_requests() -> None:
    loaded = loaded_by("import longtail.corpora; from longtail.data import read_data")
    assert not loaded & {"torch", "transformers", "sklearn", "matplotlib", "requests"}


def test_the_probe_detects_what_is_loaded() -> None:
    assert "scipy" in loaded_by("from longtail import LabelStats")


def test_public_names_load() -> None:
    for name in longtail.__all__:
        assert getattr(longtail, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = longtail.no_such_name
