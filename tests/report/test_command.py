"""`longtail report` says what is wrong with its arguments before it reads anything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from longtail.cli import main
from longtail.errors import InputError, UnknownNameError
from longtail.report import FORMATS, check_corpus, check_different, format_of
from longtail.report.document import SUFFIXES


def refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object
) -> str:
    """The message of a call that must fail; runs and data are not there to be read."""
    words = ["longtail", "report", *arguments, "--data", "nowhere.jsonl"]
    monkeypatch.setattr(sys, "argv", list(map(str, words)))
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code not in (0, None)
    return " ".join(capsys.readouterr().err.split())


def test_the_same_run_twice(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    said = refused(capsys, monkeypatch, "a", "b", "a")
    assert "expected different runs, got a twice. Name each run once." in said
    for other in ("link", f"../{tmp_path.name}/a", tmp_path / "a"):
        said = refused(capsys, monkeypatch, "a", other)
        assert "expected different runs, got" in said and "as a and as" in said
    check_different([Path("a"), Path("b")])


def test_an_unknown_corpus_of_the_paper(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refused(capsys, monkeypatch, "run", "--paper", "reuter")
    assert "unknown corpus of the paper 'reuter'" in said and "pubmed, reuters" in said
    check_corpus("pubmed")
    with pytest.raises(UnknownNameError, match="newswire"):
        check_corpus("newswire")


def test_a_folder_is_no_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for more in ((), ("--to", "html")):
        said = refused(capsys, monkeypatch, "run", "--out", tmp_path, *more)
        assert f"{tmp_path} is a folder" in said and str(tmp_path / "report.html") in said


def test_an_unknown_suffix_lists_the_formats(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, suffix in (("x.xyz", "'.xyz'"), ("x", "''")):
        said = refused(capsys, monkeypatch, "run", "--out", name)
        assert f"unknown format {suffix} of the file {name}" in said
        assert all(known in said for known in (*SUFFIXES, *FORMATS))
    said = refused(capsys, monkeypatch, "run", "--to", "pdf")
    assert "unknown format 'pdf'" in said and all(known in said for known in FORMATS)


def test_what_is_not_refused() -> None:
    assert format_of(None, None) == "markdown"
    assert format_of("latex", Path("x.xyz")) == "latex"
    for suffix, name in SUFFIXES.items():
        assert format_of(None, Path("X" + suffix.upper())) == name
    with pytest.raises(InputError, match="is a folder"):
        format_of("json", Path("/"))
