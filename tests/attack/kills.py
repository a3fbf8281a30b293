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
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from longtail import LongTailClassifier
from longtail.cli import main
from longtail.data import TextData, write_data
from longtail.runs.files import files_in
from longtail.runs.model import read_config, whole_folder

from ..runs.cases import killed_at
from . import RIGHT, Outcome

# One round of all commands; `reproduce` alone has some 350 operations.
MINIMUM = 850
NOTES = "my notes.txt"
WORDS = ("copper", "nickel", "tin", "wheat", "zinc")
QUICK = ("--device", "cpu", "--thresholds", "global")
SETTINGS = ("--loss", "fl", "--ngrams", "2", "--folds", "1", *QUICK)
# More files than the model that replaces it.
OTHER = ("--loss", "bce", "--folds", "2", *QUICK)


def documents(n: int = 40) -> TextData:
    """Texts that name their labels."""
    draw = random.Random(5)
    labels = [draw.sample(WORDS, draw.randrange(1, 4)) for _ in range(n)]
    return TextData.from_lists([" ".join([*names, "rose"]) for names in labels], labels, WORDS)


def call(*arguments: object) -> tuple[int, str]:
    """The command as a user calls it: exit code and all that it printed."""
    printed = io.StringIO()
    code: object = 0
    before = sys.argv
    sys.argv = ["longtail", *map(str, arguments)]
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
        finally:
            sys.argv = before
    return (code if isinstance(code, int) else 0), printed.getvalue()


@dataclass(frozen=True)
class Scenario:
    """A command to be killed.

    `prepare` makes what is there before; `act` is the command; `look` says what is wrong right
    after the kill, and `finish` runs the command again and says what is wrong then (None: nothing).
    """

    prepare: Callable[[Path], None]
    act: Callable[[Path], Any]
    look: Callable[[Path], str | None]
    finish: Callable[[Path], str | None]


def attack_scenario(name: str, scratch: Path, every: int = 1) -> Iterator[Outcome]:
    """One case for every file operation of a command, or for every so many."""
    scenario = SCENARIOS[name]
    template = scratch / f"{name}-template"
    scenario.prepare(template)
    moment, killed = 1 - every, True
    while killed:
        moment += every
        folder = scratch / f"{name}-{moment}"
        shutil.copytree(template, folder)
        killed = killed_at(moment, partial(scenario.act, folder), folder)
        wrong = scenario.look(folder) or scenario.finish(folder)
        wrong = wrong or (None if (folder / NOTES).read_text() == "mine" else "notes are lost")
        kind = f"{name} killed" if killed else f"{name} not killed"
        yield Outcome(kind, wrong or RIGHT, f"{name}, operation {moment}")
        shutil.rmtree(folder)


def attack(seed: int, scratch: Path) -> Iterator[Outcome]:
    """All of them, again and again."""
    for number, name in enumerate(cycle(SCENARIOS)):
        yield from attack_scenario(name, scratch / str(number))


# ---- training


def _data(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / NOTES).write_text("mine")
    write_data(documents(), folder / "data.jsonl")


def _train(folder: Path, *flags: str) -> tuple[int, str]:
    return call("train", folder / "data.jsonl", "--out", folder / "run", *flags)


def _loss_of(folder: Path) -> str | None:
    """The loss of the whole model in a folder, which must answer; None if there is no model."""
    if read_config(whole_folder(folder / "run")) is None:
        return None
    classifier = LongTailClassifier.from_pretrained(folder / "run")
    classifier.predict_labels(["copper rose"])
    return str(classifier.loss)


MODEL_FILES = {"README.md", "data.json", "longtail.json", "vocabulary.json"}
MODEL_FILES |= {"idf.safetensors", "model.safetensors"}


def _finish_training(folder: Path, *start_over: str) -> str | None:
    """Resume as the command printed it; where there is nothing to resume, start again."""
    before = _loss_of(folder)
    code, printed = _train(folder, "--resume")
    if code != 0:
        if "nothing to resume" not in printed:
            return f"resuming is refused: {printed[-200:]}"
        code, printed = _train(folder, *SETTINGS, *start_over)
    if code != 0:
        return f"starting again is refused: {printed[-200:]}"
    if start_over and before == "bce" and _loss_of(folder) == "bce":
        # Killed before the new training was begun: --resume says that the old one is finished.
        code, printed = _train(folder, *SETTINGS, *start_over)
    if _loss_of(folder) != "fl":
        return f"the model has other settings than the training: {_loss_of(folder)}"
    others = {*files_in(folder / "run")} ^ MODEL_FILES
    return f"stray or lost {others}" if others - {"kept.txt"} else None


def _prepare_overwrite(folder: Path) -> None:
    _trained(folder, *OTHER)
    (folder / "run" / "kept.txt").write_text("mine")


def _look_at_model(folder: Path, *losses: str | None) -> str | None:
    return None if _loss_of(folder) in losses else "neither the old nor the new model"


def _look_overwritten(folder: Path) -> str | None:
    if (folder / "run" / "kept.txt").read_text() != "mine":
        return "a file of the user beside the model is lost"
    return _look_at_model(folder, "bce", "fl")


# ---- files


def _files(names: tuple[str, ...], prepare: Callable[[Path], None], *arguments: str) -> Scenario:
    """A command that replaces files: each is the old one or a whole new one, then all are new."""
    whole: dict[str, bytes] = {}

    def before(folder: Path) -> None:
        prepare(folder)
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text("old")

    def act(folder: Path) -> tuple[int, str]:
        with contextlib.chdir(folder):
            return call(*arguments, "--overwrite")

    def look(folder: Path) -> str | None:
        for name in names:
            content = (folder / name).read_bytes()
            if content != b"old" and name in whole and content != whole[name]:
                return f"{name} is neither the old nor the new one"
        return None

    def finish(folder: Path) -> str | None:
        there = {path for path in files_in(folder) if ".longtail-" not in path}
        code, printed = act(folder)
        if code != 0:
            return f"the command fails afterwards: {printed[-200:]}"
        for name in names:
            content = (folder / name).read_bytes()
            if content != whole.setdefault(name, content) or content == b"old":
                return f"{name} is not the new one"
        extra = {*files_in(folder)} - there - {*names}
        return f"stray {extra}" if extra else None

    return Scenario(before, act, look, finish)


def _convert(name: str) -> Scenario:
    return _files((name,), _data, "corpus", "convert", "data.jsonl", "--out", name)


def _trained(folder: Path, *settings: str) -> None:
    _data(folder)
    assert _train(folder, *(settings or SETTINGS))[0] == 0


def _report(name: str) -> Scenario:
    return _files((name,), _trained, "report", "run", "--data", "data.jsonl", "--out", name)


# ---- reproduce


def _prepare_recipes(folder: Path) -> None:
    _data(folder)
    (folder / "recipes").mkdir()
    for row in ("bce", "fl"):
        recipe = f"model: bag\nloss: {row}\nfolds: 2\nthresholds: global\ndevice: cpu\n"
        (folder / "recipes" / f"{row}.yaml").write_text(recipe)


def _reproduce(folder: Path) -> tuple[int, str]:
    command = "reproduce data.jsonl --recipes recipes --out runs --seeds 1"
    with contextlib.chdir(folder):
        return call(*command.split())


def _look_reproduced(folder: Path) -> str | None:
    for path in folder.rglob("results.json"):
        json.loads(path.read_text())
    return None


REPRODUCED = {".longtail", "results.md", "results.json", "results.png", "results-labels.png"}
for _cell in ("bce/seed-0", "fl/seed-0"):
    REPRODUCED |= {f"{_cell}/{name}" for name in (".longtail", "finished.json", "decisions.npz")}


def _finish_reproduced(folder: Path) -> str | None:
    code, printed = _reproduce(folder)
    if code != 0:
        return f"the command fails afterwards: {printed[-200:]}"
    rows = json.loads((folder / "runs" / "results.json").read_text())["rows"]
    if not all(row["mean"] for row in rows.values()):
        return "a row has no result"
    others = {*files_in(folder / "runs")} ^ REPRODUCED
    return f"stray or lost {others}" if others else None


SCENARIOS: dict[str, Scenario] = {
    "train": Scenario(
        _data,
        lambda folder: _train(folder, *SETTINGS),
        lambda folder: _look_at_model(folder, None, "fl"),
        _finish_training,
    ),
    "train --overwrite": Scenario(
        _prepare_overwrite,
        lambda folder: _train(folder, *SETTINGS, "--overwrite"),
        _look_overwritten,
        lambda folder: _finish_training(folder, "--overwrite"),
    ),
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
