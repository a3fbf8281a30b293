"""The format of a report, by name or suffix; a wrong one is refused before anything is read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from longtail.cli import main
from longtail.errors import InputError, UnknownNameError
from longtail.report import FORMATS, format_of
from longtail.report.page import SUFFIXES


def test_formats() -> None:
    assert format_of(None, None) == "markdown"
    assert format_of("latex", Path("x.xyz")) == "latex"
    for suffix, name in SUFFIXES.items():
        assert format_of(None, Path("X" + suffix.upper())) == name
    for out in ("x.xyz", "x"):
        with pytest.raises(InputError, match=f"unknown format .* of the file {out}") as refused:
            format_of(None, Path(out))
        assert all(name in str(refused.value) for name in (*SUFFIXES, *FORMATS))
    with pytest.raises(UnknownNameError, match=f"format 'pdf'.*{', '.join(sorted(FORMATS))}"):
        format_of("pdf", None)


def test_a_wrong_format_is_refused_before_anything_is_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("longtail.json", "data.jsonl"):
        (tmp_path / name).touch()
    data = str(tmp_path / "data.jsonl")
    command = ["longtail", "report", str(tmp_path), "--out", "x.xyz", "--data", data]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code not in (0, None)
    assert "unknown format '.xyz'" in capsys.readouterr().err
