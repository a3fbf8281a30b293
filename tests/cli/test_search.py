"""`longtail search`: flags, the next command, interruptions; the test part stays closed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
from pathlib import Path

import pytest
import yaml

from .conftest import Command, child, wait_for

pytest.importorskip("optuna", reason="needs the extra search")
FAST = ("--model", "bag", "--folds", 2, "--thresholds", "global", "--losses", "bce,db")


@pytest.fixture(scope="module")
def no_test(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder, with a test part that cannot be read."""
    path: Path = tmp_path_factory.mktemp("closed") / "wire"
    shutil.copytree(folder, path)
    (path / "test.jsonl").write_text("not JSON\n")
    return path


def test_the_printed_command_trains_to_the_score_of_the_best_trial(
    longtail: Command, no_test: Path, folder: Path, tmp_path: Path
) -> None:
    study = tmp_path / "my study"
    longtail.fails("test.jsonl", "train", no_test, "--out", tmp_path / "run", "--device", "cpu")
    done = longtail.ok("search", no_test, "--out", study, *FAST, "--trials", 3, "--device", "cpu")
    assert "C: 0.1 to 1000 (log)" in done.out and "┃ trial ┃ mean F1 ┃ micro / macro ┃" in done.out
    assert len(re.findall(r"^trial \d: \d\d\.\d\d with C=", done.err, re.MULTILINE)) == 3
    assert "(best so far)" in done.err
    program, *words = shlex.split(done.out.splitlines()[-1].partition(": ")[2])
    assert program == "longtail" and words[-2:] == ["--device", "cpu"]
    assert words[:4] == ["train", str(no_test), "--recipe", str(study / "best.yaml")]
    shutil.copy(folder / "test.jsonl", no_test / "test.jsonl")
    longtail.ok(*words)
    run = Path(words[words.index("--out") + 1])
    facts = json.loads((run / "longtail.json").read_text())["facts"]["cross_validated"]["all"]
    best = (study / "best.yaml").read_text().splitlines()
    expected = f"(micro {100 * facts['micro_f1']:.2f}, macro {100 * facts['macro_f1']:.2f})"
    assert expected in best[1], best


def test_flags_and_recipes_mean_what_they_mean_to_train(
    longtail: Command, folder: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("{model: bag, C: 20, folds: 2, thresholds: global, ngrams: 2}")
    study = tmp_path / "study"
    flags = ("--recipe", recipe, "--objective", "macro", "--char-ngrams", 3, "--losses", "fl")
    done = longtail.ok("search", folder, "--out", study, *flags, "--loss-set", "gamma=1",
                       "--trials", 2)  # fmt: skip
    assert re.findall(r"^  (\w+): ", done.out, re.MULTILINE) == ["C"], "all else is given"
    assert "trial 0: " in done.err and "with C=20, fl gamma=1" in done.err
    best = yaml.safe_load((study / "best.yaml").read_text())
    given = {"model": "bag", "char_ngrams": 3, "ngrams": 2, "objective": "macro", "folds": 2}
    assert {**best, **given} == best and best["loss_settings"] == {"gamma": 1}


def test_a_killed_search_is_resumed(longtail: Command, folder: Path, tmp_path: Path) -> None:
    flags = (*FAST, "--trials", 4, "--folds", 3)
    longtail.ok("search", folder, "--out", tmp_path / "whole", *flags)
    study = tmp_path / "study"
    process = child("search", folder, "--out", study, *flags)
    wait_for(study / "trial" / "fold-1" / "model", process)
    process.kill()
    process.communicate()
    longtail.fails("--resume", "search", folder, "--out", study, *flags)
    resumed = ("search", folder, "--out", study, "--resume")
    longtail.fails("folds was 3, now 2", *resumed, "--folds", 2)
    longtail.fails("C was searched, now it is fixed", *resumed, "--C", 3)
    longtail.ok(*resumed)
    both = [
        yaml.safe_load((tmp_path / name / "best.yaml").read_text()) for name in ("whole", "study")
    ]
    assert both[0] == both[1]
    assert "| stopped |" in (study / "trials.md").read_text()
    assert "5" in longtail.ok(*resumed, "--trials", 5).err.partition("trial ")[2]


def test_sigterm_shows_what_was_found_and_how_to_resume(folder: Path, tmp_path: Path) -> None:
    study = tmp_path / "study"
    process = child("search", folder, "--out", study, *FAST, "--trials", 1000)
    while not any("trial 1: " in line for line in iter(process.stderr.readline, "")):
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143 and "Traceback" not in err
    assert "┃ trial ┃" in out and (study / "best.yaml").is_file()
    words = shlex.split(err.split("The command: ")[1].splitlines()[0])
    assert words == ["longtail", "search", str(folder), "--out", str(study), "--resume"]


def test_what_cannot_be_searched_is_refused_before_data_is_read(
    longtail: Command, no_test: Path, tmp_path: Path
) -> None:
    (no_test / "train.jsonl").rename(tmp_path / "train.jsonl")
    (no_test / "train.jsonl").write_text("not JSON\n")
    try:
        search = ("search", no_test, "--out", tmp_path / "study")
        longtail.fails("Did you mean 'db'", *search, "--losses", "dbb")
        longtail.fails("unknown argument of loss", *search, "--loss-set", "gama=1")
        longtail.fails("Leave one of them out", *search, "--loss", "db", "--losses", "fl")
        longtail.fails("blend 2 models", *search, "--recipe", "best")
        longtail.fails("no effect", *search, "--model", "bag", "--epochs", 3)
        longtail.fails("nothing to search", *search, "--model", "svm", "--C", 1,
                       "--class-weight", "balanced")  # fmt: skip
        assert longtail(*search, "--minutes", 0).code == 2
        longtail.fails("not both", *search, "--resume", "--overwrite")
        longtail.fails("no study to resume", *search, "--resume")
        assert not (tmp_path / "study").exists()
    finally:
        (tmp_path / "train.jsonl").replace(no_test / "train.jsonl")


def test_overwrite_removes_only_a_study(longtail: Command, folder: Path, tmp_path: Path) -> None:
    study = tmp_path / "study"
    search = ("search", folder, "--out", study, *FAST, "--trials", 1)
    longtail.ok(*search)
    longtail.fails("--overwrite", *search)
    longtail.ok(*search, "--overwrite", "--random-state", 1)
    assert json.loads((study / "study.json").read_text())["settings"]["random_state"] == 1
    (study / "notes.txt").write_text("mine")
    longtail.fails("notes.txt", *search, "--overwrite")
    assert (study / "best.yaml").is_file()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    longtail.fails("Choose an empty folder", "search", folder, "--out", tmp_path / "other", *FAST)


def test_if_every_trial_fails_the_last_error_is_shown(
    longtail: Command, folder: Path, tmp_path: Path
) -> None:
    flags = ("--model", "bag", "--hidden", 4, "--epochs", 1, "--learning-rate", "1e30")
    flags += ("--losses", "bce", "--folds", 2, "--device", "cpu", "--trials", 2)
    longtail.fails("no trial was completed. The last one: the trained model gives scores",
                   "search", folder, "--out", tmp_path / "study", *flags)  # fmt: skip


def test_without_optuna_the_error_names_the_extra(
    longtail: Command, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longtail.search.find_spec", lambda name: None)
    longtail.fails("pip install 'longtail[search]'", "search", folder, "--out", tmp_path / "study")


def test_help_lists_the_verb_and_its_flags(longtail: Command) -> None:
    assert "search" in longtail.ok("--help").out
    text = longtail.ok("search", "--help").out
    assert all(
        flag in text for flag in ("--trials", "--minutes", "--losses", "--resume", "--model")
    )
