"""Output folders: the command loses no file that it did not write."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import QUICK, Command, child, wait_for

SLOW = ("--model", "bag", "--hidden", 8, "--epochs", 4000, "--checkpoint-minutes", 0, *QUICK)


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
    message = "nothing to resume" if "--resume" in flags else "Choose another folder"
    longtail.fails(message, "train", "training", "--out", ".", *flags)
    assert contents(home) == before


@pytest.mark.parametrize(
    "name", ["training", ".longtail-work", ".longtail-ready", ".longtail", "run.json"]
)
@pytest.mark.parametrize("flag", ["--resume", "--overwrite"])
def test_file_names_prove_nothing(
    longtail: Command, folder: Path, tmp_path: Path, name: str, flag: str
) -> None:
    run = tmp_path / "run"
    (run / name).mkdir(parents=True)
    (run / name / "arguments.json").write_text("{}")
    (run / "longtail.json").write_text('{"format": 3, "files": {"data.csv": 1}}')
    (run / "data.csv").write_text("mine")
    before = contents(run)
    longtail.fails("", "train", folder, "--out", run, flag)
    assert contents(run) == before


def test_overwriting_replaces_the_model_and_nothing_else(
    longtail: Command, folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train = ("train", folder, "--out", run, *QUICK)
    longtail.ok(*train, "--model", "svm", "--folds", 2)
    mine = (run / "notes.txt", run / "fold-1" / "notes.txt", run / "vocabulary.json")
    for path in mine:
        path.write_text("mine")
    longtail.ok(*train, "--model", "bag", "--C", 9, "--loss", "bce", "--overwrite")
    # The user's file is kept beside the model's.
    assert [path.read_text() for path in run.glob("vocabulary.json.*.bak")] == ["mine"]
    config = json.loads((run / "longtail.json").read_text())
    assert config["sizes"] == [1] and config["arguments"]["loss"] == "bce"
    assert all(path.read_text() == "mine" for path in mine[:2])
    assert not (run / "fold-0").exists() and not (run / "fold-1" / "model.safetensors").exists()
    assert not list(run.glob(".*"))


def test_a_training_without_its_settings_is_not_resumed(
    longtail: Command, folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train = ("train", folder, "--out", run)
    longtail.fails("there is nothing to resume", *train, "--resume")
    assert not run.exists()
    longtail.ok(*train, *QUICK, "--folds", 2, "--fold", 0)
    (run / ".longtail-work" / "run.json").write_text("{")
    for flags in (("--resume",), ("--fold", 1)):
        longtail.fails("Start over with --overwrite", *train, *flags)
    # As left by a process killed before the first checkpoint of a fold.
    (run / ".longtail-work" / "fold-1").mkdir()
    longtail.ok(*train, *QUICK, "--overwrite")
    assert not list(run.glob(".*"))


@pytest.fixture
def busy(folder: Path, tmp_path: Path) -> Iterator[Path]:
    """A run folder in which another process trains."""
    run = tmp_path / "run"
    process = child("train", folder, "--out", run, *SLOW)
    wait_for(run / ".longtail-work" / "fold-0" / "state.safetensors", process)
    yield run
    process.kill()
    process.communicate()


def test_two_processes_do_not_write_to_one_run(longtail: Command, folder: Path, busy: Path) -> None:
    train = ("train", folder, "--out", busy)
    longtail.fails("another process is at work", *train, *QUICK, "--overwrite")
    longtail.fails("unfinished training", *train, *QUICK)
    # A second process that resumes waits, and can be stopped.
    waiting = child(*train, "--resume")
    assert waiting.stderr is not None
    assert "is being trained by another process: waiting for it" in waiting.stderr.readline()
    waiting.send_signal(signal.SIGTERM)
    waiting.communicate(timeout=60)
    assert waiting.returncode == 128 + signal.SIGTERM
    assert (busy / ".longtail-work" / "run.json").exists()


def test_converted_data_does_not_replace_its_source(longtail: Command, tmp_path: Path) -> None:
    table, out = tmp_path / "data.csv", tmp_path / "out.jsonl"
    text = "text,labels,price\ncopper rose,copper,3\nwheat fell,wheat,4\n"
    table.write_text(text)
    out.write_text("mine")
    convert = ("corpus", "convert", table, "--out")
    for flags in ((), ("--overwrite",)):
        longtail.fails("is the data being read", *convert, table, *flags)
    longtail.fails("--overwrite", *convert, out)
    assert out.read_text() == "mine" and table.read_text() == text
    longtail.ok(*convert, out, "--overwrite")
    assert len(out.read_text().splitlines()) == 2


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


def test_a_report_replaces_only_reports(
    longtail: Command, folder: Path, trained: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    for name in ("notes.md", "page.html", "table.tex", "all.json"):
        out = tmp_path / name
        out.write_text("mine")
        command = ("report", run, "--data", folder, "--out", out)
        longtail.fails("was not made by longtail", *command)
        assert out.read_text() == "mine"
        longtail.ok(*command, "--overwrite")
        longtail.ok(*command)
    before = contents(run)
    for name in ("longtail.json", "vocabulary.json"):
        flags = ("--to", "json", "--out", run / name, "--overwrite")
        longtail.fails("is an input of the report", "report", run, "--data", folder, *flags)
    assert contents(run) == before


def test_figures_replace_only_figures(longtail: Command, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.png").write_text("mine")
    longtail.fails("was not made by longtail", "stats", folder, "--plot", tmp_path)
    assert contents(tmp_path) == {"labels.png": b"mine"}
    for flags in (("--overwrite",), ()):
        longtail.ok("stats", folder, "--plot", tmp_path, *flags)
