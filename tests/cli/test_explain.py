"""`longtail explain`: on the terminal, as JSON Lines, as a page, and its errors."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from longtail import LongTailClassifier

from .conftest import Command

TEXT = "Wheat and corn <b>exports</b> rose"


def test_texts_on_the_command_line(longtail: Command, trained: Path) -> None:
    out = longtail.ok("explain", trained, "--text", TEXT, "--text", "Oil", "--label", "wheat").out
    lines = out.splitlines()
    assert (
        lines[0].startswith("1: wheat  score ")
        and "(error 0.0 %), above the threshold " in lines[0]
    )
    assert lines[1] == TEXT and "wheat +" in lines[2]
    assert "2: wheat" in out and "\nOil\n" in out


def test_json_is_that_of_the_classifier(
    longtail: Command, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{TEXT}\n\n铜\n".encode())))
    records = [
        json.loads(line) for line in longtail.ok("explain", trained, "--json").out.splitlines()
    ]
    classifier = LongTailClassifier.from_pretrained(trained)
    assert [record.pop("id") for record in records] == ["1", "2", "3"]
    assert records == [each.to_dict() for each in classifier.explain([TEXT, "", "铜"])]


def test_files(longtail: Command, trained: Path, folder: Path, tmp_path: Path) -> None:
    page, lines = tmp_path / "page.html", tmp_path / "lines.jsonl"
    assert longtail.ok("explain", trained, "--text", TEXT, "--out", page).out == f"Wrote {page}.\n"
    html = page.read_text("utf-8")
    assert "<b>" not in html and "&lt;" in html and '<mark class="for"' in html
    data = folder / "test.jsonl"
    longtail.ok("explain", trained, data, "--limit", 3, "--out", lines)
    assert len(lines.read_text("utf-8").splitlines()) == 3
    longtail.fails("exists already. Replace it with --overwrite", *_explain(trained, page))
    longtail.ok(*_explain(trained, page), "--overwrite")
    longtail.fails("is the data being read", "explain", trained, lines, "--out", lines)


def _explain(run: Path, out: Path) -> tuple[object, ...]:
    return "explain", run, "--text", TEXT, "--out", out


def test_mistakes(longtail: Command, trained: Path, tmp_path: Path) -> None:
    text = ("explain", trained, "--text", TEXT)
    longtail.fails("unknown label 'whaet'. Did you mean 'wheat'", *text, "--label", "whaet")
    longtail.fails("got --text and DATA (x.txt)", *text[:2], "x.txt", *text[2:])
    longtail.fails(".html, .htm, .jsonl, got", *text, "--out", tmp_path / "page.png")
    longtail.fails("--json prints", *text, "--json", "--out", tmp_path / "a.jsonl")
    longtail.fails("have no parts", *text, "--split", "test")
    longtail.fails("no such file or folder", "explain", trained, tmp_path / "none.txt")
    assert not [*tmp_path.iterdir()]
