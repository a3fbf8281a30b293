"""`longtail reproduce` as a user calls it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longtail.cli.reproduce import Status
from longtail.reproduce.cells import Cell
from longtail.reproduce.running import Event

Command = Callable[..., Any]


@pytest.fixture
def recipes(tmp_path: Path) -> Path:
    folder = tmp_path / "recipes"
    folder.mkdir()
    for loss in ("bce", "db"):
        text = f"loss: {loss}\nfolds: 1\ndevice: cpu\nthresholds: global\n"
        (folder / f"{loss}.yaml").write_text(text)
    return folder


def test_it_trains_tells_and_goes_on(
    longtail: Command, folder: Path, recipes: Path, tmp_path: Path
) -> None:
    arguments = ["reproduce", folder, "--recipes", recipes, "--out", tmp_path / "out"]
    code, out, err = longtail(*arguments)
    assert code == 0 and "BCE" in out and "results.md" in out
    assert "0 of 2 done; training bce (seed 0)" in err and "db (seed 0) done in" in err
    command = json.loads((tmp_path / "out" / "results.json").read_text())["command"]
    assert command.startswith(f"longtail reproduce {folder} --recipes {recipes}")
    code, out, err = longtail(*arguments, "--json", "--publish", tmp_path / "site" / "wire.md")
    assert code == 0 and set(json.loads(out)["rows"]) == {"bce", "db"} and "training" not in err
    assert (tmp_path / "site" / "wire.md").exists() and (tmp_path / "site" / "wire.png").exists()
    (recipes / "db.yaml").write_text("loss: db\nfolds: 1\nC: 10\nthresholds: global\n")
    code, _, err = longtail(*arguments)
    assert code == 1 and "db (seed 0)" in err and "--overwrite" in err and "Traceback" not in err
    code, _, err = longtail(*arguments, "--overwrite", "--rows", "db", "--device", "cpu")
    assert code == 0 and "db (seed 0) done in" in err


def test_a_corpus_has_recipes_of_its_own_and_a_default_folder(
    longtail: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ("--set", "n_documents=120", "--set", "n_labels=8")
    code, out, _ = longtail("reproduce", "newswire", *small, "--rows", "svm,bce", "--seeds", 1)
    assert code == 0 and "SVM" in out and "DB" not in out
    assert (tmp_path / "runs" / "newswire" / "results.md").exists()


def test_a_failed_row_is_told_and_the_exit_code_says_so(
    longtail: Command, folder: Path, recipes: Path, tmp_path: Path
) -> None:
    (recipes / "best.yaml").write_text(f"model: encoder\nencoder: {tmp_path / 'none'}\n")
    code, out, err = longtail(
        "reproduce", folder, "--recipes", recipes, "--out", tmp_path / "out", "--seeds", 1
    )
    assert code == 1 and "best" in out and "error: best (seed 0) failed: " in err
    assert "Traceback" not in err and (tmp_path / "out" / "results.md").exists()


def test_another_encoder(longtail: Command, folder: Path, tiny_bert: Path, tmp_path: Path) -> None:
    recipes = tmp_path / "mine"
    recipes.mkdir()
    text = "model: encoder\nencoder: nobody/nothing\nepochs: 1\ndevice: cpu\nfolds: 1\n"
    (recipes / "db.yaml").write_text(text)
    code, _, err = longtail(
        "reproduce", folder, "--recipes", recipes, "--encoder", tiny_bert, "--seeds", 1,
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert code == 0, err
    plain = json.loads((tmp_path / "out" / "results.json").read_text())
    assert plain["rows"]["db"]["recipe"]["encoder"] == str(tiny_bert)
    assert tiny_bert.name in (tmp_path / "out" / "results.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--recipes", "newswires"], "Did you mean 'newswire'"),
        (["--rows", "dbb"], "no recipe for dbb"),
        (["--encoder", "x"], "--encoder x has no effect"),
        (["--device", "gpu"], "device must be auto"),
        (["--against", "best"], "row to compare with 'best'"),
    ],
)
def test_errors_come_before_work(
    longtail: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ("--set", "n_documents=60", "--set", "n_labels=5")
    code, _, err = longtail("reproduce", "newswire", *small, *arguments)
    assert code == 1 and message in err and "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_data_without_recipes(longtail: Command, folder: Path) -> None:
    code, _, err = longtail("reproduce", folder)
    assert code == 1 and "there are no recipes for" in err and "reuters-bag" in err


def test_a_row_takes_as_long_as_with_another_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [Cell(row, seed, {}, tmp_path / row / str(seed)) for seed in (0, 1) for row in "ab"]
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    status = Status(cells, jobs=1)
    assert status.line(Event("begins", cells[0])) == "0 of 4 done; training a (seed 0)"
    now[0] = 10
    assert status.line(Event("done", cells[0])) == "a (seed 0) done in 10 s"
    assert status.line(Event("begins", cells[1])).endswith("about 30 s left")
    now[0] = 60
    status.line(Event("done", cells[1]))
    assert status.line(Event("begins", cells[2])).endswith("about 60 s left")
    status.line(Event("progress", cells[2], "epoch 1/2", 0.5))
    assert status.left() == "about 55 s left"
