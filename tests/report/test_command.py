"""`longtail report` refuses wrong arguments before it reads anything."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from longtail.cli import main
from longtail.report import FORMATS, format_of
from longtail.report.page import SUFFIXES

Refused = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Refused:
    """The message of a call that must fail; runs and data are not there to be read."""

    def call(*arguments: object) -> str:
        words = ["longtail", "report", *arguments, "--data", "nowhere.jsonl"]
        monkeypatch.setattr(sys, "argv", list(map(str, words)))
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code not in (0, None)
        return " ".join(capsys.readouterr().err.split())

    return call


def test_arguments_that_are_refused(refused: Refused, tmp_path: Path) -> None:
    message = refused("run", "--paper", "reuter")
    assert "unknown corpus of the paper 'reuter'" in message and "pubmed, reuters" in message
    for name, suffix in (("x.xyz", "'.xyz'"), ("x", "''")):
        message = refused("run", "--out", name)
        assert f"unknown format {suffix} of the file {name}" in message
        assert all(known in message for known in (*SUFFIXES, *FORMATS))
    message = refused("run", "--to", "pdf")
    assert "unknown format 'pdf'" in message and all(known in message for known in FORMATS)


def test_formats() -> None:
    assert format_of(None, None) == "markdown"
    assert format_of("latex", Path("x.xyz")) == "latex"
    for suffix, name in SUFFIXES.items():
        assert format_of(None, Path("X" + suffix.upper())) == name
