"""Studies: the same score as training, resumed, pruned, killed, stopped, refused."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import optuna
import pytest

from longtail import LongTailClassifier, TextData
from longtail.corpora.newswire import load
from longtail.errors import DataError, InputError
from longtail.progress import Progress
from longtail.reproduce import read_recipe
from longtail.search import SearchResult, search
from longtail.search.trials import JOURNAL, LOCK, Trials
from longtail.thresholds.cuts import combine
from longtail.training.interrupt import Stop
from tests.conftest import TINY_WORDS

PARTS = load(n_documents=240, n_labels=8)
TRAIN, VALIDATION = PARTS["train"], PARTS["validation"]
SVM = {"model": "svm", "folds": 3, "thresholds": "global"}
BAG = {"model": "bag", "folds": 2, "thresholds": "global"}


def study(folder: Path, settings: dict[str, Any], **more: Any) -> SearchResult:
    more = {"trials": 3, "progress": None, "note": lambda text: None} | more
    return search(TRAIN, VALIDATION, folder=folder, settings=settings, **more)


def plain(done: SearchResult) -> list[tuple[Any, ...]]:
    """What must be the same in two studies: all but the times."""
    trials = [trial for trial in done.trials if trial.counts]
    return [(t.state, t.value, t.f1, t.folds, dict(t.settings)) for t in trials]


def intermediate(folder: Path, n_folds: int) -> list[optuna.trial.FrozenTrial]:
    """The trials with their values after each fold."""
    from longtail.runs.workspace import Workspace

    space = Workspace.open(folder)
    try:
        return Trials(space, n_folds).study.get_trials()
    finally:
        space.close()


@pytest.mark.parametrize(
    ("settings", "losses"),
    [
        pytest.param({"model": "bag", "folds": 3}, ["db", "squared-hinge", "bce"], id="bag"),
        pytest.param({**BAG, "objective": "macro", "max_labels": 1}, ["fl"], id="limits"),
        pytest.param({**SVM, "thresholds": "grid", "objective": "micro"}, None, id="svm"),
        pytest.param({"model": "bag", "hidden": 8, "folds": 1, "device": "cpu"}, ["db"], id="one"),
        pytest.param({**BAG, "label_texts": "names"}, ["db", "bce"], id="names"),
    ],
)
def test_the_best_recipe_trains_to_the_score_of_its_trial(
    settings: dict[str, Any], losses: Any, tmp_path: Path
) -> None:
    done = study(tmp_path / "study", settings, losses=losses, trials=4)
    assert done.best is not None and done.best.f1 is not None
    assert len({trial.f1 for trial in done.trials}) > 1, "trials differ, so equality says something"
    recipe = read_recipe(tmp_path / "study" / "best.yaml")
    assert recipe == done.settings and "device" not in recipe
    classifier = LongTailClassifier.from_settings(recipe)
    classifier.fit(TRAIN, validation=VALIDATION, progress=None, note=lambda text: None)
    assert classifier.facts_.cross_validated is not None
    whole = classifier.facts_.cross_validated["all"]
    assert (whole.micro_f1, whole.macro_f1) == done.best.f1
    objective: Any = settings.get("objective", "mean")
    assert combine(objective, whole.micro_f1, whole.macro_f1) == done.best.value
    values = [trial.value or 0 for trial in done.trials if trial.state == "complete"]
    assert done.best.value == max(values)


def test_an_encoder(tiny_bert: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [rng.choice(TINY_WORDS, 3, replace=False).tolist() for _ in range(48)]
    data = TextData.from_lists([" ".join(row) for row in rows], [row[:2] for row in rows])
    settings = {"model": "encoder", "encoder": str(tiny_bert), "folds": 2, "epochs": 2}
    settings |= {"device": "cpu", "thresholds": "global"}
    folder = tmp_path / "study"
    done = search(data, folder=folder, settings=settings, fixed=["epochs"], trials=3, progress=None)
    assert done.best is not None and {trial.state for trial in done.trials} == {"complete"}
    assert {trial.settings["learning_rate"] for trial in done.trials} > {1e-4}
    assert "epochs" not in done.best.settings and done.settings is not None
    assert done.settings["epochs"] == 2
    classifier = LongTailClassifier.from_settings({**done.settings, "device": "cpu"})
    facts = classifier.fit(data, progress=None).facts_
    assert facts.cross_validated is not None
    whole = facts.cross_validated["all"]
    assert (whole.micro_f1, whole.macro_f1) == done.best.f1


def test_a_resumed_study_is_that_of_one_call(tmp_path: Path) -> None:
    whole = study(tmp_path / "whole", SVM, trials=5)
    study(tmp_path / "parts", SVM, trials=2)
    assert study(tmp_path / "parts", {}, trials=1, resume=True).trials[1].state == "complete"
    resumed = study(tmp_path / "parts", {}, trials=5, resume=True)
    assert len(resumed.trials) == 5 and plain(resumed) == plain(whole)
    assert len({str(trial.settings) for trial in resumed.trials}) == 5, "no trial is repeated"
    assert plain(study(tmp_path / "again", SVM, trials=5)) == plain(whole), "the same seed"
    other = study(tmp_path / "other", {**SVM, "random_state": 1}, trials=5)
    assert plain(other) != plain(whole)


def test_trials_below_the_median_are_pruned_after_a_fold(tmp_path: Path) -> None:
    done = study(tmp_path / "study", SVM, trials=12)
    pruned = [trial for trial in done.trials if trial.state == "pruned"]
    assert 0 < len(pruned) < 12 - 5 and all(0 < trial.folds < 3 for trial in pruned)
    assert pruned[0].number >= 5, "five trials to compare with"
    frozen = intermediate(tmp_path / "study", 3)
    for trial in frozen[5:]:
        complete = [t for t in frozen[: trial.number] if t.state.name == "COMPLETE"]
        steps = trial.intermediate_values
        below = [
            value < median(t.intermediate_values[step] for t in complete)
            for step, value in steps.items()
        ]
        assert below.index(True) + 1 == len(steps) if any(below) else len(steps) == 2
        assert (trial.state.name == "PRUNED") == any(below)
    assert done.best is not None and done.best.state == "complete"


def test_with_one_fold_no_trial_is_pruned(tmp_path: Path) -> None:
    done = study(tmp_path / "study", {**SVM, "folds": 1, "thresholds": "global"}, trials=8)
    assert {(trial.state, trial.folds) for trial in done.trials} == {("complete", 1)}


class Killed(BaseException):
    """Ends a search at once, as a kill does: nothing is tidied."""


def kill_at(trial: int, fold: int) -> Any:
    def progress(moment: Progress) -> None:
        if moment.stage.startswith(f"trial {trial} ") and moment.fold == fold:
            raise Killed

    return progress


def test_a_killed_trial_is_failed_and_repeated_with_its_folds(tmp_path: Path) -> None:
    settings, losses = {**BAG, "folds": 3}, ["db", "bce"]
    whole = study(tmp_path / "whole", settings, losses=losses)
    folder = tmp_path / "study"
    with pytest.raises(Killed):
        study(folder, settings, losses=losses, progress=kill_at(trial=2, fold=3))
    assert sorted(path.name for path in (folder / "trial").glob("*/model")) == ["model"] * 2
    # Killed while Optuna wrote, too.
    with (folder / JOURNAL).open("ab") as journal:
        journal.write(b'{"op_code":')
    (folder / LOCK).touch()
    folds = set()
    done = study(
        folder, {}, resume=True, progress=lambda moment: folds.add((moment.stage, moment.fold))
    )
    stages = {fold for stage, fold in folds if stage.startswith("trial 2 ")}
    assert stages == {3}, "finished folds are not trained again"
    assert [trial.state for trial in done.trials] == ["complete", "stopped", "complete", "complete"]
    assert plain(done) == plain(whole) and not (folder / "trial").exists()
    assert intermediate(folder, 3)[1].state.name == "FAIL"


def test_a_stopped_study_writes_its_results(tmp_path: Path) -> None:
    stop = Stop()

    def interrupt(trial: Any, best: Any) -> None:
        stop.signal = signal.SIGINT if trial.number == 1 else None

    done = study(tmp_path / "study", SVM, stop=stop, watch=interrupt)
    assert done.stopped is not None and done.stopped.exit_code == 130
    assert len(done.trials) == 2 and done.best is not None
    names = {path.name for path in done.files}
    assert names == {"trials.md", "best.yaml"} and all(path.is_file() for path in done.files)
    assert len(study(tmp_path / "study", {}, resume=True).trials) == 3


def test_minutes_end_a_study_between_trials(tmp_path: Path) -> None:
    done = study(tmp_path / "study", SVM, minutes=1e-9)
    assert done.trials == () and done.best is None and done.stopped is None


def test_the_importance_of_settings_is_drawn_once_there_are_enough_trials(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    settings = {**BAG, "folds": 1}  # none is pruned
    study(folder, settings, losses=["bce", "db"], trials=9)
    assert not (folder / "importance.png").exists()
    done = study(folder, {}, trials=10, resume=True)
    assert (folder / "importance.png").read_bytes()[:4] == b"\x89PNG"
    assert done.files[-1].name == "importance.png"


def test_the_table_lists_every_trial_and_its_settings(tmp_path: Path) -> None:
    done = study(tmp_path / "study", BAG, losses=["bce", "db"], trials=4)
    text = (tmp_path / "study" / "trials.md").read_text("utf-8")
    header, *rows = done.table.plain()
    assert header == [
        "trial", "mean F1", "micro / macro", "C", "char_ngrams", "loss", "seconds", "state",
    ]  # fmt: skip
    assert {row[0] for row in rows} == {"0", "1", "2", "3"} and text.count("| complete |") == 4
    assert done.best is not None and rows[0][0] == str(done.best.number)
    assert any("db gamma=2 kappa=0.05" in row[5] for row in rows), "the paper's constants first"
    values = [float(row[1]) for row in rows]
    assert values == sorted(values, reverse=True)


def test_a_trial_that_fails_is_part_of_the_study(tmp_path: Path) -> None:
    settings = {"model": "bag", "hidden": 4, "folds": 2, "epochs": 1, "learning_rate": 1e30}
    fixed = ["epochs", "learning_rate"]
    done = study(tmp_path / "study", {**settings, "device": "cpu"}, fixed=fixed, losses=["bce"])
    assert done.best is None and done.settings is None
    assert {trial.state for trial in done.trials} == {"failed"} and len(done.trials) == 3
    assert all("diverged" in trial.error for trial in done.trials)
    assert any("diverged" in note for note in done.table.notes)
    assert not (tmp_path / "study" / "best.yaml").exists()


def test_other_documents_or_settings_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    study(folder, SVM, trials=1)
    before = sorted((path.name, path.read_bytes()) for path in folder.iterdir())

    def refused(words: str, data: TextData = TRAIN, **more: Any) -> None:
        with pytest.raises(InputError) as raised:
            search(data, VALIDATION, folder=folder, resume=True, progress=None, **more)
        assert words in str(raised.value)

    refused("other documents", TRAIN[1:])
    refused("folds was 3, now 4", settings={"folds": 4})
    refused("C was searched, now it is fixed", settings={"C": 1.0}, fixed=["C"])
    refused("losses was None, now ['db']", losses=["db"])
    with pytest.raises(DataError, match="--resume"):
        study(folder, SVM)
    with pytest.raises(DataError, match="no study to resume"):
        study(tmp_path / "new", SVM, resume=True)
    assert sorted((path.name, path.read_bytes()) for path in folder.iterdir()) == before
    # A default that is given is no difference, nor is the device.
    study(folder, {"objective": "mean", "device": "cpu"}, trials=1, resume=True)


def test_another_version_that_searches_other_values_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    study(folder, SVM, trials=1)
    record = json.loads((folder / "study.json").read_text())
    record["searched"]["C"] = "1 to 2"
    (folder / "study.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"another version .* C was '1 to 2'"):
        study(folder, {}, resume=True)
    (folder / "study.json").write_text("{")
    with pytest.raises(DataError, match="missing or damaged"):
        study(folder, {}, resume=True)


def test_a_copied_study_can_be_resumed(tmp_path: Path) -> None:
    study(tmp_path / "study", SVM, trials=1)
    shutil.copytree(tmp_path / "study", tmp_path / "copy")
    assert len(study(tmp_path / "copy", {}, trials=2, resume=True).trials) == 2


def test_equal_scores_have_no_importance(tmp_path: Path) -> None:
    """fANOVA raises for scores without variance, such as those of a corpus that is too easy."""
    texts, lists = ["wheat rose", "copper fell"] * 40, [["wheat"], ["copper"]] * 40
    easy = TextData.from_lists(texts, lists)
    done = search(
        easy, folder=tmp_path / "s", settings=BAG, losses=["bce"], trials=11, progress=None
    )
    assert len({trial.value for trial in done.trials}) == 1
    assert {path.name for path in done.files} == {"best.yaml", "trials.md"}


def test_overwrite_removes_studies_only(tmp_path: Path) -> None:
    fitted = tmp_path / "fitted"
    LongTailClassifier("svm", folds=2).fit(TRAIN, folder=fitted)
    before = sorted(path for path in fitted.rglob("*") if path.is_file())
    with pytest.raises(DataError, match="something else, no study"):
        study(fitted, SVM, overwrite=True)
    assert sorted(path for path in fitted.rglob("*") if path.is_file()) == before
    first = study(tmp_path / "s", SVM)
    with pytest.raises(DataError, match="--resume, or start over with --overwrite"):
        study(tmp_path / "s", SVM)
    # A search that cannot begin keeps the study.
    with pytest.raises(InputError, match="document"):
        search(TRAIN[:2], folder=tmp_path / "s", settings=SVM, overwrite=True)
    assert plain(study(tmp_path / "s", {}, resume=True)) == plain(first)
    assert len(study(tmp_path / "s", SVM, overwrite=True, trials=2).trials) == 2


def test_a_damaged_journal_is_an_error(tmp_path: Path) -> None:
    study(tmp_path / "s", SVM)
    path = tmp_path / "s" / JOURNAL
    path.write_bytes(b"{broken\n" + path.read_bytes())
    with pytest.raises(DataError, match="damaged"):
        study(tmp_path / "s", {}, resume=True)
