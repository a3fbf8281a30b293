"""`longtail reproduce` as a user calls it."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path

import pytest

from longtail.cli.reproduce import Counts
from longtail.reproduce.cells import Cell
from longtail.reproduce.run import Event

from .conftest import Command

SMALL = ("--set", "n_documents=120", "--set", "n_labels=8")


@pytest.fixture
def recipes(tmp_path: Path) -> Path:
    folder = tmp_path / "recipes"
    folder.mkdir()
    for loss in ("bce", "db"):
        text = f"model: bag\nloss: {loss}\nfolds: 1\ndevice: cpu\nthresholds: global\n"
        (folder / f"{loss}.yaml").write_text(text)
    return folder


def test_train_show_and_resume(
    longtail: Command, folder: Path, recipes: Path, tmp_path: Path
) -> None:
    command = ["reproduce", folder, "--recipes", recipes, "--out", tmp_path / "out"]
    _, out, err = longtail.ok(*command)
    assert "BCE" in out and "results.md" in out
    assert "0 of 2 done; training bce (seed 0)" in err and "db (seed 0) done in" in err
    words = json.loads((tmp_path / "out" / "results.json").read_text())["command"]
    assert words == shlex.join(["longtail", *map(str, command)])
    _, out, err = longtail.ok(*command, "--json", "--publish", tmp_path / "site" / "wire.md")
    assert set(json.loads(out)["rows"]) == {"bce", "db"} and "training" not in err
    assert (tmp_path / "site" / "wire.md").exists() and (tmp_path / "site" / "wire.png").exists()
    (recipes / "db.yaml").write_text("model: bag\nloss: db\nfolds: 1\nC: 10\nthresholds: global\n")
    assert "--overwrite" in longtail.fails("db (seed 0)", *command)
    err = longtail.ok(*command, "--overwrite", "--rows", "db", "--device", "cpu").err
    assert "0 of 1 done; training db (seed 0)" in err and "db (seed 0) done in" in err


def test_a_corpus_has_recipes_and_a_default_folder(
    longtail: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    out = longtail.ok("reproduce", "newswire", *SMALL, "--rows", "svm,bce", "--seeds", 1).out
    assert "SVM" in out and "DB" not in out
    results = json.loads((tmp_path / "runs" / "newswire" / "results.json").read_text())
    assert shlex.split(results["command"])[3:] == [*SMALL, "--seeds", "1", "--rows", "svm,bce"]


def test_a_failed_row_is_shown_and_the_exit_code_is_1(
    longtail: Command, folder: Path, recipes: Path, tmp_path: Path
) -> None:
    (recipes / "best.yaml").write_text(f"model: encoder\nencoder: {tmp_path / 'none'}\n")
    flags = ("--recipes", recipes, "--out", tmp_path / "out", "--seeds", 1)
    longtail.fails("error: best (seed 0) failed: ", "reproduce", folder, *flags)
    assert "best" in (tmp_path / "out" / "results.md").read_text()


def test_another_encoder(longtail: Command, folder: Path, tiny_bert: Path, tmp_path: Path) -> None:
    (tmp_path / "db.yaml").write_text(
        "model: encoder\nencoder: nobody/nothing\nepochs: 1\ndevice: cpu\nfolds: 1\n"
    )
    flags = ("--recipes", tmp_path, "--encoder", tiny_bert, "--seeds", 1, "--out", tmp_path / "out")
    longtail.ok("reproduce", folder, *flags)
    plain = json.loads((tmp_path / "out" / "results.json").read_text())
    assert plain["rows"]["db"]["recipe"]["encoder"] == str(tiny_bert)
    assert tiny_bert.name in (tmp_path / "out" / "results.md").read_text()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--recipes newswires", "Did you mean 'newswire'"),
        ("--rows dbb", "no recipe for dbb"),
        ("--encoder x", "--encoder x has no effect"),
        ("--device gpu", "device must be auto"),
        ("--against best", "row to compare with 'best'"),
    ],
)
def test_errors_come_before_training(
    longtail: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    longtail.fails(message, "reproduce", "newswire", *SMALL, *flags.split())
    assert not list(tmp_path.iterdir())


def test_data_without_recipes(longtail: Command, folder: Path) -> None:
    assert "reuters-bag" in longtail.fails("there are no recipes for", "reproduce", folder)


def test_time_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [Cell(row, seed, {}, tmp_path / row / str(seed)) for seed in (0, 1) for row in "ab"]
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    counts = Counts(cells, jobs=1)
    assert counts.add(Event("begins", cells[0])) == "0 of 4 done; training a (seed 0)"
    now[0] = 10
    assert counts.add(Event("done", cells[0])) == "a (seed 0) done in 10 s"
    assert counts.add(Event("begins", cells[1])).endswith("about 30 s left")
    now[0] = 60
    counts.add(Event("done", cells[1]))
    assert counts.add(Event("begins", cells[2])).endswith("about 60 s left")
    counts.add(Event("progress", cells[2], "epoch 1/2", 0.5))
    assert counts.left() == "about 55 s left"
