"""`search`: a study in a folder, which a later call may resume.

FOLDER/study.json       what is searched, and on which documents
FOLDER/trials.journal   the trials, as Optuna writes them
FOLDER/trial/...        finished folds and checkpoints of the trial in progress
FOLDER/best.yaml, trials.md, importance.png
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from longtail.arguments import Arguments
from longtail.checks import check_integer, check_number
from longtail.classifier.crossfit import Run
from longtail.classifier.inputs import as_text_data
from longtail.classifier.plan import to_plain
from longtail.classifier.work import Work
from longtail.data import TextData
from longtail.errors import DataError, InputError, warn
from longtail.progress import Watch, watching
from longtail.runs.workspace import Workspace, differences
from longtail.search.results import BEST, FIGURE, TABLE, SearchResult, write_results
from longtail.search.scoring import Scorer
from longtail.search.space import Space, make_space
from longtail.search.trials import JOURNAL, LOCK, WORK, Outcome, Trials
from longtail.training.devices import n_processes
from longtail.training.engines import RayEngine
from longtail.training.interrupt import NEVER, Stop, StoppedError
from longtail.training.processes import Processes
from longtail.training.settings import RUNTIME

RECORD = "study.json"
OURS = "|".join([*map(re.escape, (RECORD, JOURNAL, LOCK, BEST, TABLE, FIGURE)), f"{WORK}/.*"])
"""Names of files that a search writes."""
N_TRIALS = 50
KEPT = "Finished trials are kept, and finished folds of the one in progress."
OnSpace = Callable[[Space], None]
OnTrial = Callable[[Outcome, Outcome | None], None]


def search(
    data: TextData,
    validation: TextData | None = None,
    *,
    folder: str | Path,
    settings: Mapping[str, Any] | None = None,
    fixed: Collection[str] = (),
    losses: Sequence[str] | None = None,
    trials: int | None = None,
    minutes: float | None = None,
    resume: bool = False,
    overwrite: bool = False,
    engine: RayEngine | None = None,
    progress: Watch = "auto",
    note: Callable[[str], None] = warn,
    stop: Stop = NEVER,
    begun: OnSpace = lambda space: None,
    watch: OnTrial = lambda outcome, best: None,
    trust_remote_code: bool = False,
) -> SearchResult:
    """Search for the settings with the best F1 on held-out documents.

    The folder receives the study, a table of its trials, a figure of what mattered, and the best
    settings as a recipe. The same seed (`random_state` in the settings) on the same machine gives
    the same trials, also if the study is resumed.

    Args:
        data, validation: as for `LongTailClassifier.fit`. Keep test documents out of both.
        folder: of the study: a new one, or one to `resume`.
        settings: flat settings as in a recipe, such as {"model": "bag", "folds": 3}; the first
            trial has them. Resuming needs none.
        fixed: names of settings, or of constants of the loss, that are not searched.
        losses: losses to compare; default: those of the paper except ablations, and squared hinge
            for `bag`.
        trials: in total, with those of earlier calls; default: 50, or as before.
        minutes: begin no trial after this time.
        overwrite: remove an earlier study in the folder, once this one can begin.
        engine, progress, note, stop, trust_remote_code: as for `LongTailClassifier.fit`.
        begun: called with what is searched. watch: called with each trial, and the best so far.
    """
    check_integer("trials", trials, 1, optional=True)
    check_number("minutes", minutes, 0, optional=True, exclusive=True)
    data, path = as_text_data(data, note=note), Path(folder)
    asked: dict[str, Any] = {
        "settings": to_plain(settings or {}),
        "fixed": sorted(fixed),
        "losses": None if losses is None else list(losses),
    }
    if n_processes() > 1 and not Processes(torch.device("cpu")).leads:
        raise InputError(
            "search is one process that several may help: run `longtail search` under torchrun, or "
            "unset WORLD_SIZE."
        )
    check_folder(path, resume=resume, overwrite=overwrite)
    earlier = read_study(path) if resume else None
    if earlier is not None:
        asked = _continued(earlier, asked, path)
    space = make_space(asked["settings"], asked["fixed"], asked["losses"], len(data))
    scorer = Scorer(space.start, data, validation, note)
    n_trials = trials or (earlier or {}).get("trials", N_TRIALS)
    record = {**asked, "documents": scorer.documents, "searched": space.to_dict()}
    if earlier is not None:
        _check_same(earlier, record, path)
    begun(space)
    if overwrite and Workspace.is_one(path):
        Workspace.open(path).remove_alone(OURS)
    with _opened(path, {**record, "trials": n_trials}) as workspace, watching(progress) as show:
        study = Trials(workspace, scorer.n_folds)
        work = Work(workspace.within(WORK), note)
        run = Run(work, None, show, note, stop, trust_remote_code, engine=engine)
        stopped = None
        try:
            study.run(space, scorer, run, n_trials, minutes, lambda each: watch(each, study.best()))
        except StoppedError as error:
            stopped = error
        return write_results(workspace, study, space, scorer.objective, stopped)


def check_folder(folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Raise unless a study can begin in the folder, or go on there."""
    if overwrite and resume:
        raise InputError("--overwrite starts over, --resume continues the study: not both.")
    if resume:
        read_study(folder)
    elif Workspace.is_one(folder):
        if RECORD not in Workspace.open(folder).names():
            raise DataError(f"{folder} holds something else, no study. Choose another folder.")
        if not overwrite:
            raise DataError(
                f"{folder} holds a study. Resume it with --resume, or start over with --overwrite."
            )


@contextmanager
def _opened(folder: Path, record: Mapping[str, Any]) -> Iterator[Workspace]:
    """The study's folder, new or not, locked."""
    if Workspace.is_one(folder):
        workspace = Workspace.open(folder)
    else:
        workspace = Workspace.begin(folder, {RECORD: json.dumps(record, indent=2)})
    try:
        workspace.lock()
        workspace.write_record(RECORD, record)  # with the number of trials
        yield workspace
    finally:
        workspace.close()


def read_study(folder: Path) -> dict[str, Any]:
    """What a study was started with."""
    if not Workspace.is_one(folder):
        raise DataError(f"there is no study to resume in {folder}. Leave out --resume to begin.")
    record = Workspace.open(folder).read_record(RECORD)
    if record is None or not {"settings", "fixed", "losses", "documents", "searched"} <= set(
        record
    ):
        raise DataError(
            f"{folder} cannot be resumed: {RECORD} is missing or damaged. Start over with "
            "--overwrite."
        )
    return record


def _continued(earlier: dict[str, Any], now: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What the study was started with, and the device of now; raises if more is asked for."""
    before = Arguments().to_dict() | earlier["settings"]
    given = now["settings"]
    changed = differences({name: before.get(name) for name in given}, given, ignored=RUNTIME)
    fixed = [name for name in now["fixed"] if name in earlier["searched"]]
    changed += [f"{name} was searched, now it is fixed" for name in fixed]
    if now["losses"] is not None and now["losses"] != earlier["losses"]:
        changed += differences({"losses": earlier["losses"]}, {"losses": now["losses"]})
    if changed:
        raise InputError(
            f"{folder} was started with other settings: {'; '.join(changed)}. Leave these flags "
            "out to resume it, or start over with --overwrite."
        )
    runtime = {name: value for name, value in given.items() if name in RUNTIME}
    kept = {name: earlier[name] for name in now}
    return {**kept, "settings": {**earlier["settings"], **runtime}}


def _check_same(earlier: dict[str, Any], now: dict[str, Any], folder: Path) -> None:
    if earlier["documents"] != now["documents"]:
        raise InputError(
            f"{folder} was started with other documents or labels. Resume with the same DATA and "
            "reading options, or start over with --overwrite."
        )
    changed = differences(earlier["searched"], now["searched"])
    if changed:
        raise InputError(
            f"{folder} was started by another version of longtail, which searched other values: "
            f"{'; '.join(changed)}. Start over with --overwrite."
        )
