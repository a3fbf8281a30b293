"""Folders that the command writes to: nothing in them is lost that longtail did not write."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]
QUICK = ("--device", "cpu", "--thresholds", "global", "--folds", 1)
SLOW = ("--hidden", 8, "--epochs", 4000, "--folds", 1, "--device", "cpu", "--checkpoint-minutes", 0)


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture
def home(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the user's own files, and with the data in a subfolder called `training`."""
    place = tmp_path / "home"
    shutil.copytree(folder, place / "training")
    (place / "thesis.tex").write_text("years of work")
    (place / "fold-0").mkdir()
    (place / "fold-0" / "model.safetensors").write_text("mine")
    monkeypatch.chdir(place)
    return place


@pytest.mark.parametrize("flags", [(), ("--resume",), ("--overwrite",), ("--fold", 0)], ids=str)
def test_a_folder_with_other_files_is_refused(
    longtail: Command, home: Path, flags: tuple[object, ...]
) -> None:
    before = contents(home)
    done = longtail("train", "training", "--out", ".", *flags)
    assert done.code == 1, done.out
    assert "Choose another folder" in done.err or "nothing to resume" in done.err
    assert contents(home) == before


@pytest.mark.parametrize(
    "name", ["training", ".longtail-work", ".longtail-ready", ".longtail", "run.json"]
)
@pytest.mark.parametrize("flags", [("--resume",), ("--overwrite",)], ids=str)
def test_names_prove_nothing(
    longtail: Command, folder: Path, tmp_path: Path, name: str, flags: tuple[str, ...]
) -> None:
    run = tmp_path / "run"
    (run / name).mkdir(parents=True)
    (run / name / "arguments.json").write_text("{}")
    (run / "longtail.json").write_text('{"format": 3, "files": {"data.csv": 1}}')
    (run / "data.csv").write_text("mine")
    before = contents(run)
    done = longtail("train", folder, "--out", run, *flags)
    assert done.code == 1 and "Traceback" not in done.err
    assert contents(run) == before


def test_overwriting_replaces_the_model_and_nothing_else(
    longtail: Command, folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert longtail("train", folder, "--out", run, *QUICK[:-1], 2).code == 0
    (run / "notes.txt").write_text("mine")
    (run / "fold-1" / "notes.txt").write_text("mine")
    done = longtail("train", folder, "--out", run, *QUICK, "--loss", "bce", "--overwrite")
    assert done.code == 0, done.err
    assert (run / "notes.txt").read_text() == "mine"
    assert (run / "fold-1" / "notes.txt").read_text() == "mine"
    assert not (run / "fold-0").exists() and not (run / "fold-1" / "model.safetensors").exists()
    assert json.loads((run / "longtail.json").read_text())["arguments"]["loss"] == "bce"
    assert not list(run.glob(".*"))


def test_a_file_in_the_way_is_found_and_the_folds_are_kept(
    longtail: Command, folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert longtail("train", folder, "--out", run, *QUICK[:-1], 2).code == 0
    (run / "vocabulary.json").write_text("mine")
    done = longtail("train", folder, "--out", run, *QUICK, "--overwrite")
    assert done.code == 1 and "vocabulary.json is in the way" in done.err
    assert (run / "vocabulary.json").read_text() == "mine"
    assert json.loads((run / "longtail.json").read_text())["n_models"] == 2
    (run / "vocabulary.json").rename(tmp_path / "mine.json")
    done = longtail("train", folder, "--out", run, "--resume")
    assert done.code == 0 and "solving" not in done.err, done.err
    assert json.loads((run / "longtail.json").read_text())["n_models"] == 1


def test_nothing_is_resumed_without_its_arguments(
    longtail: Command, folder: Path, tmp_path: Path
) -> None:
    done = longtail("train", folder, "--out", tmp_path / "run", "--resume")
    assert done.code == 1 and "there is nothing to resume" in done.err
    assert not (tmp_path / "run").exists()
    done = longtail("train", folder, "--out", tmp_path / "run", *QUICK[:-1], 2, "--fold", 0)
    assert done.code == 0, done.err
    (tmp_path / "run" / ".longtail-work" / "run.json").write_text("{")
    for flags in (("--resume",), ("--fold", 1)):
        done = longtail("train", folder, "--out", tmp_path / "run", *flags)
        assert done.code == 1 and "Start over with --overwrite" in done.err
    done = longtail("train", folder, "--out", tmp_path / "run", *QUICK, "--overwrite")
    assert done.code == 0, done.err


@pytest.fixture
def busy(folder: Path, tmp_path: Path) -> Any:
    """A run folder in which another process trains."""
    run = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "longtail", "train", folder, "--out", run, *map(str, SLOW)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    end = time.monotonic() + 60
    while not (run / ".longtail-work" / "fold-0" / "state.safetensors").exists():
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.01)
    yield run
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_two_processes_do_not_write_to_one_run(longtail: Command, folder: Path, busy: Path) -> None:
    done = longtail("train", folder, "--out", busy, *QUICK, "--overwrite")
    assert done.code == 1 and "another process is at work" in done.err
    done = longtail("train", folder, "--out", busy, *QUICK)
    assert done.code == 1 and "unfinished training" in done.err
    # A second one that resumes waits, and can be stopped.
    waiting = subprocess.Popen(
        [sys.executable, "-m", "longtail", "train", folder, "--out", busy, "--resume"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert waiting.stdout is not None
    line = waiting.stdout.readline()
    assert "is being trained by another process: waiting for it" in line
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(60) == 128 + signal.SIGTERM
    waiting.stdout.close()
    assert (busy / ".longtail-work" / "run.json").exists()


def test_converted_data_do_not_replace_what_they_are_made_of(
    longtail: Command, folder: Path, tmp_path: Path
) -> None:
    table = tmp_path / "data.csv"
    table.write_text("text,labels,price\ncopper rose,copper,3\nwheat fell,wheat,4\n")
    before = table.read_text()
    for flags in ((), ("--overwrite",)):
        done = longtail("corpus", "convert", table, "--out", table, *flags)
        assert done.code == 1 and "is what is being read" in done.err
    (tmp_path / "out.jsonl").write_text("mine")
    done = longtail("corpus", "convert", table, "--out", tmp_path / "out.jsonl")
    assert done.code == 1 and "--overwrite" in done.err
    assert (tmp_path / "out.jsonl").read_text() == "mine" and table.read_text() == before
    done = longtail("corpus", "convert", table, "--out", tmp_path / "out.jsonl", "--overwrite")
    assert done.code == 0 and len((tmp_path / "out.jsonl").read_text().splitlines()) == 2


def test_a_full_disk_leaves_the_old_report_and_figure(
    longtail: Command, folder: Path, trained: Path, tmp_path: Path
) -> None:
    from resource import RLIMIT_FSIZE, getrlimit, setrlimit

    report, figures = tmp_path / "report.html", tmp_path / "figures"
    figures.mkdir()
    for path in (report, figures / "labels.png"):
        path.write_text("old")
    before = getrlimit(RLIMIT_FSIZE)
    setrlimit(RLIMIT_FSIZE, (2000, before[1]))
    try:
        first = longtail("report", trained, "--data", folder, "--out", report, "--overwrite")
        second = longtail("stats", folder, "--plot", figures, "--overwrite")
    finally:
        setrlimit(RLIMIT_FSIZE, before)
    assert first.code == 1 and second.code == 1
    assert contents(tmp_path) == {"report.html": b"old", "figures/labels.png": b"old"}


def test_control_characters_do_not_reach_the_terminal(longtail: Command, tmp_path: Path) -> None:
    name = tmp_path / "a\x1b[31m\x07.csv"
    name.write_text("text,labels\n")
    for command in (("stats", name), ("train", name, "--out", tmp_path / "run")):
        done = longtail(*command)
        assert done.code == 1 and "\x1b[31m" not in done.err + done.out and "\\x1b" in done.err


def test_a_report_replaces_only_reports(
    longtail: Command, folder: Path, trained: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    for name in ("notes.md", "page.html", "table.tex", "all.json"):
        out = tmp_path / name
        out.write_text("mine")
        command = ("report", run, "--data", folder, "--out", out)
        done = longtail(*command)
        assert done.code == 1 and "longtail did not make it" in done.err
        assert out.read_text() == "mine"
        assert longtail(*command, "--overwrite").code == 0
        assert longtail(*command).code == 0, "its own report"
    before = contents(run)
    for name in ("longtail.json", "vocabulary.json"):
        flags = ("--to", "json", "--out", run / name, "--overwrite")
        done = longtail("report", run, "--data", folder, *flags)
        assert done.code == 1 and "is what the report is made of" in done.err
    assert contents(run) == before


def test_figures_replace_only_figures(longtail: Command, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.png").write_text("mine")
    done = longtail("stats", folder, "--plot", tmp_path)
    assert done.code == 1 and contents(tmp_path) == {"labels.png": b"mine"}
    for flags in (("--overwrite",), ()):
        done = longtail("stats", folder, "--plot", tmp_path, *flags)
        assert done.code == 0, done.err


@pytest.mark.parametrize("mask", [0o027, 0o002])
def test_file_modes_follow_the_umask(
    longtail: Command, folder: Path, tmp_path: Path, mask: int
) -> None:
    before = os.umask(mask)
    try:
        done = longtail("train", folder, "--out", tmp_path / "run", *QUICK)
    finally:
        os.umask(before)
    assert done.code == 0, done.err
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "run").rglob("*")}
    assert modes == {0o666 & ~mask}


def test_a_training_killed_before_its_first_state_is_started_over(
    longtail: Command, folder: Path, tmp_path: Path
) -> None:
    """The folder of a fold was made, and nothing in it."""
    run = tmp_path / "run"
    done = longtail("train", folder, "--out", run, *QUICK[:-1], 2, "--fold", 0)
    assert done.code == 0, done.err
    (run / ".longtail-work" / "fold-1").mkdir()
    for path in sorted((run / ".longtail-work" / "fold-0").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    done = longtail("train", folder, "--out", run, *QUICK, "--overwrite")
    assert done.code == 0, done.err
    assert not list(run.glob(".*"))
