"""Commands killed before each of their file operations, one after the other.

After a kill the result is the old one or the new one, nothing of the user's is touched, and the
same command (or the resume command that was printed) ends as if nothing had happened.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import pytest

from longtail import LongTailClassifier
from longtail.cli import main, texts
from longtail.data import TextData, write_data
from longtail.runs import parts
from longtail.runs.files import files_in
from longtail.runs.model import read_config, whole_folder

from ..runs.cases import killed_at
from . import RIGHT, Outcome

# One round of all commands; `reproduce` alone has some 350 operations.
MINIMUM = 850
NOTES = "my notes.txt"
WORDS = ("copper", "nickel", "tin", "wheat", "zinc")
QUICK = ("--device", "cpu", "--thresholds", "global")
BAG = ("--model", "bag", "--C", "10")
SETTINGS = (*BAG, "--loss", "fl", "--ngrams", "2", "--folds", "1", *QUICK)
# More files than the model that replaces it.
OTHER = ("--model", "svm", "--folds", "2", *QUICK)


def documents(n: int = 40) -> TextData:
    """Texts that name their labels."""
    draw = random.Random(5)
    labels = [draw.sample(WORDS, draw.randrange(1, 4)) for _ in range(n)]
    return TextData.from_lists([" ".join([*names, "rose"]) for names in labels], labels, WORDS)


def call(*arguments: object) -> tuple[int, str]:
    """Run the command as a user would; return the exit code and the output."""
    printed, before = io.StringIO(), sys.argv
    sys.argv = ["longtail", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            main()
    except SystemExit as stop:
        return int(stop.code or 0), printed.getvalue()
    finally:
        sys.argv = before
    return 0, printed.getvalue()


class Scenario(NamedTuple):
    """A command to be killed."""

    prepare: Callable[[Path], None]  # makes the folder
    act: Callable[[Path], tuple[int, str]]  # the command
    look: Callable[[Path], None]  # checks right after the kill
    finish: Callable[[Path], None]  # runs the command again, and checks


def attack_scenario(name: str, scratch: Path, every: int = 1) -> Iterator[Outcome]:
    """Yield a case for each n-th file operation of a command, n = `every`."""
    scenario = SCENARIOS[name]
    template = scratch / f"{name}-template"
    scenario.prepare(template)
    moment, killed = 1 - every, True
    while killed:
        moment += every
        folder = scratch / f"{name}-{moment}"
        shutil.copytree(template, folder)
        killed = killed_at(moment, partial(scenario.act, folder), folder)
        verdict = RIGHT
        try:
            scenario.look(folder)
            scenario.finish(folder)
            assert (folder / NOTES).read_text() == "mine", "notes are lost"
        except AssertionError as error:
            verdict = str(error)
        kind = f"{name} killed" if killed else f"{name} not killed"
        yield Outcome(kind, verdict, f"{name}, operation {moment}")
        shutil.rmtree(folder)


def attack(seed: int, scratch: Path) -> Iterator[Outcome]:
    """Yield the cases of all commands, again and again."""
    for number, name in enumerate(cycle(SCENARIOS)):
        yield from attack_scenario(name, scratch / str(number))


def check_files(folder: Path, expected: set[str]) -> None:
    others = {*files_in(folder)} ^ expected
    assert not others, f"stray or lost {others}"


# ---- training


def _data(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / NOTES).write_text("mine")
    write_data(documents(), folder / "data.jsonl")


def _train(folder: Path, *flags: str) -> tuple[int, str]:
    return call("train", folder / "data.jsonl", "--out", folder / "run", *flags)


def _trained(folder: Path, *settings: str) -> None:
    _data(folder)
    assert _train(folder, *(settings or SETTINGS))[0] == 0


def _trained_otherwise(folder: Path) -> None:
    _trained(folder, *OTHER)
    (folder / "run" / "kept.txt").write_text("mine")


def _loss_of(folder: Path) -> str | None:
    """Return the loss of the model in a folder, which must predict; None if there is no model."""
    if read_config(whole_folder(folder / "run")) is None:
        return None
    classifier = LongTailClassifier.from_pretrained(folder / "run")
    classifier.predict_labels(["copper rose"])
    return str(classifier.loss or "svm")


def _look_trained(folder: Path) -> None:
    assert _loss_of(folder) in (None, "fl"), "neither none nor the new model"


def _look_overwritten(folder: Path) -> None:
    assert (folder / "run" / "kept.txt").read_text() == "mine", "a file of the user is lost"
    assert _loss_of(folder) in ("svm", "fl"), "neither the old nor the new model"


def _finish_training(folder: Path, *start_over: str) -> None:
    """Resume with the printed command; if there is nothing to resume, start again."""
    before = _loss_of(folder)
    code, printed = _train(folder, "--resume")
    # Killed before the new training began: --resume finds the old one finished.
    not_begun = start_over and before == "svm" and code == 0 and _loss_of(folder) == "svm"
    if not_begun or "nothing to resume" in printed:
        code, printed = _train(folder, *SETTINGS, *start_over)
    assert code == 0, f"refused: {printed[-200:]}"
    assert _loss_of(folder) == "fl", f"another model than the training: {_loss_of(folder)}"
    names = {"README.md", "data.json", "longtail.json", "vocabulary.json"}
    names |= {"documents.safetensors", "held_out.safetensors"}
    names |= {"idf.safetensors", "model.safetensors", *(["kept.txt"] if start_over else [])}
    check_files(folder / "run", names)


# ---- predicting


def _predict(folder: Path, *flags: str, out: str = "out.jsonl") -> tuple[int, str]:
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        for module, name in ((parts, "MOST_RECORDS"), (texts, "BATCH")):
            patch.setattr(module, name, 10)
        return call("predict", "run", "data.jsonl", "--device", "cpu", "--out", out, *flags)


def _prepare_predicting(folder: Path) -> None:
    _trained(folder)
    assert _predict(folder, out="whole.jsonl")[0] == 0


def _look_predicted(folder: Path) -> None:
    whole, out = folder / "whole.jsonl", folder / "out.jsonl"
    assert not out.exists() or out.read_bytes() == whole.read_bytes(), "a part of the predictions"


def _finish_predicting(folder: Path) -> None:
    code, printed = _predict(folder, "--resume")
    if "is not started" in printed:
        code, printed = _predict(folder)
    assert code == 0 or "is complete" in printed, f"refused: {printed[-200:]}"
    assert (folder / "out.jsonl").exists(), "nothing was written"
    _look_predicted(folder)
    # A kill before the mark is written leaves an empty private folder.
    left = {name for name in files_in(folder) if not name.startswith("run/")}
    assert left == {NOTES, "data.jsonl", "whole.jsonl", "out.jsonl"}, f"stray or lost: {left}"


# ---- files


def _files(names: tuple[str, ...], prepare: Callable[[Path], None], *arguments: str) -> Scenario:
    """A command that replaces files: each is old or completely new, in the end all are new."""
    whole: dict[str, bytes] = {}

    def before(folder: Path) -> None:
        prepare(folder)
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text("old")

    def act(folder: Path) -> tuple[int, str]:
        with contextlib.chdir(folder):
            return call(*arguments, "--overwrite")

    def look(folder: Path) -> None:
        for name in names:
            content = (folder / name).read_bytes()
            assert content in (b"old", whole.get(name, content)), f"{name} is neither old nor new"

    def finish(folder: Path) -> None:
        there = {path for path in files_in(folder) if ".longtail-" not in path}
        code, printed = act(folder)
        assert code == 0, f"the command fails afterwards: {printed[-200:]}"
        for name in names:
            content = (folder / name).read_bytes()
            assert b"old" != content == whole.setdefault(name, content), f"{name} is not new"
        check_files(folder, there | {*names})

    return Scenario(before, act, look, finish)


def _convert(name: str) -> Scenario:
    return _files((name,), _data, "corpus", "convert", "data.jsonl", "--out", name)


def _report(name: str) -> Scenario:
    return _files((name,), _trained, "report", "run", "--data", "data.jsonl", "--out", name)


# ---- reproduce


def _prepare_recipes(folder: Path) -> None:
    _data(folder)
    (folder / "recipes").mkdir()
    for row in ("bce", "fl"):
        recipe = f"model: bag\nC: 10\nloss: {row}\nfolds: 2\nthresholds: global\ndevice: cpu\n"
        (folder / "recipes" / f"{row}.yaml").write_text(recipe)


def _reproduce(folder: Path) -> tuple[int, str]:
    command = "reproduce data.jsonl --recipes recipes --out runs --seeds 1"
    with contextlib.chdir(folder):
        return call(*command.split())


def _look_reproduced(folder: Path) -> None:
    for path in folder.rglob("results.json"):
        json.loads(path.read_text())


def _finish_reproduced(folder: Path) -> None:
    code, printed = _reproduce(folder)
    assert code == 0, f"the command fails afterwards: {printed[-200:]}"
    rows = json.loads((folder / "runs" / "results.json").read_text())["rows"]
    assert all(row["mean"] for row in rows.values()), "a row has no result"
    names = {".longtail", "results.md", "results.json", "results.png", "results-labels.png"}
    for cell in ("bce/seed-0", "fl/seed-0"):
        names |= {f"{cell}/{name}" for name in (".longtail", "finished.json", "decisions.npz")}
    check_files(folder / "runs", names)


SCENARIOS = {
    "train": Scenario(
        _data, lambda folder: _train(folder, *SETTINGS), _look_trained, _finish_training
    ),
    "train --overwrite": Scenario(
        _trained_otherwise,
        lambda folder: _train(folder, *SETTINGS, "--overwrite"),
        _look_overwritten,
        lambda folder: _finish_training(folder, "--overwrite"),
    ),
    "predict": Scenario(_prepare_predicting, _predict, _look_predicted, _finish_predicting),
    "convert to jsonl": _convert("out.jsonl"),
    "convert to csv.gz": _convert("out.csv.gz"),
    "convert to parquet": _convert("out.parquet"),
    "report as html": _report("report.html"),
    "report as markdown": _report("report.md"),
    "stats --plot": _files(
        ("figures/labels.png", "figures/documents.png"),
        *(_data, "stats", "data.jsonl", "--plot", "figures"),
    ),
    "reproduce": Scenario(_prepare_recipes, _reproduce, _look_reproduced, _finish_reproduced),
}
