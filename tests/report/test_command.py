"""`longtail report` refuses wrong arguments before it reads anything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from longtail.cli import main
from longtail.report import FORMATS, format_of
from longtail.report.page import SUFFIXES


@pytest.mark.parametrize(
    ("flag", "value", "message", "known"),
    [
        ("--out", "x.xyz", "unknown format '.xyz' of the file x.xyz", (*SUFFIXES, *FORMATS)),
        ("--out", "x", "unknown format '' of the file x", (*SUFFIXES, *FORMATS)),
        ("--to", "pdf", "unknown format 'pdf'", FORMATS),
    ],
)
def test_arguments_that_are_refused(
    flag: str,
    value: str,
    message: str,
    known: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    # Neither is read.
    (tmp_path / "longtail.json").touch()
    (tmp_path / "data.jsonl").touch()
    words = ["longtail", "report", str(tmp_path), flag, value]
    monkeypatch.setattr(sys, "argv", [*words, "--data", str(tmp_path / "data.jsonl")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code not in (0, None)
    printed = " ".join(capsys.readouterr().err.split())
    assert all(text in printed for text in (message, *known))


def test_formats() -> None:
    assert format_of(None, None) == "markdown"
    assert format_of("latex", Path("x.xyz")) == "latex"
    for suffix, name in SUFFIXES.items():
        assert format_of(None, Path("X" + suffix.upper())) == name
