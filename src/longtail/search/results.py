"""What a study found: a table of its trials, a figure of what mattered, the best as a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna

from longtail.report.figures.importance import plot_importances
from longtail.report.table import NONE, Cell, Strong, Table, pair_cell, plural, to_markdown
from longtail.runs.workspace import Workspace
from longtail.search.space import CONSTANTS, LOSS, Settings, Space
from longtail.search.trials import Outcome, Trials
from longtail.thresholds import Objective
from longtail.training.interrupt import StoppedError
from longtail.training.settings import RUNTIME

TABLE, FIGURE, BEST = "trials.md", "importance.png", "best.yaml"
# With fewer complete trials, importances are noise.
ENOUGH_TRIALS = 10
MOST_SHOWN = 10
NOTE = (
    "F1 in percent on held-out documents, with thresholds chosen on others of them; of a pruned "
    "trial, on the folds that it finished."
)
NAMES: dict[Objective, str] = {
    "mean": "mean F1", "micro": "micro-F1", "macro": "macro-F1",
}  # fmt: skip


@dataclass(frozen=True)
class SearchResult:
    """The trials of a study, and the files that were written."""

    trials: tuple[Outcome, ...]
    best: Outcome | None
    """None: no trial was completed."""
    settings: Settings | None
    """The best flat settings, which `BEST` holds."""
    runtime: Settings
    """The device and other settings that belong to a run, not to a recipe."""
    table: Table
    """All trials."""
    top: Table
    """The best trials, for a terminal."""
    files: tuple[Path, ...]
    stopped: StoppedError | None = None
    """What ended the search early, if a signal did."""


def write_results(
    folder: Workspace,
    trials: Trials,
    space: Space,
    objective: Objective,
    stopped: StoppedError | None,
) -> SearchResult:
    """Write the table, the figure and the recipe to the folder of the study."""
    outcomes, best = trials.outcomes(), trials.best()
    table = trial_table(outcomes, best, space, objective)
    folder.write(TABLE, to_markdown(table).encode("utf-8"))
    files, settings = [TABLE], None
    if best is not None:
        settings = best_settings(space, best)
        folder.write(BEST, _recipe(settings, best, outcomes, objective).encode("utf-8"))
        files.append(BEST)
    importances = importances_of(trials.study)
    if importances:
        n_complete = sum(outcome.state == "complete" for outcome in outcomes)
        title = f"What {NAMES[objective]} depended on, by {n_complete} complete trials"
        plot_importances(importances, folder.file(FIGURE), title=title)
        files.append(FIGURE)
    paths = tuple(folder.path / name for name in files)
    top = trial_table(outcomes, best, space, objective, most=MOST_SHOWN)
    runtime = {name: value for name, value in space.base.items() if name in RUNTIME}
    return SearchResult(tuple(outcomes), best, settings, runtime, table, top, paths, stopped)


def best_settings(space: Space, best: Outcome) -> Settings:
    """The flat settings of the best trial, without the device and other settings of a run."""
    settings = {**space.base, **best.settings}
    return {
        name: value
        for name, value in settings.items()
        if name not in RUNTIME and value is not None and value != {}
    }


def _recipe(
    settings: Settings, best: Outcome, outcomes: Sequence[Outcome], objective: Objective
) -> str:
    import yaml

    assert best.value is not None and best.f1 is not None
    micro, macro = (f"{100 * f1:.2f}" for f1 in best.f1)
    number = plural(sum(outcome.counts for outcome in outcomes), "trial")
    comment = (
        f"# Trial {best.number}, the best of {number} of `longtail search`: {NAMES[objective]}\n"
        f"# {100 * best.value:.2f} (micro {micro}, macro {macro}) on held-out documents.\n"
    )
    return comment + yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)


def importances_of(study: optuna.Study) -> dict[str, float]:
    """The share of the settings that all complete trials have; empty with few of either.

    By fANOVA: Optuna's default also rates constants that only some losses have, but by 11 trials
    on Reuters it gave these 98 %, and the loss and C nothing.
    """
    complete = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    # Equal scores have no variance to explain.
    if len(complete) < ENOUGH_TRIALS or len({trial.value for trial in complete}) < 2:
        return {}
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name: float(share) for name, share in shares.items()} if len(shares) > 1 else {}


def trial_table(
    outcomes: Sequence[Outcome],
    best: Outcome | None,
    space: Space,
    objective: Objective,
    most: int | None = None,
) -> Table:
    """The trials, complete ones first and the best at the top.

    `most`: the number of rows; without what makes the table wide.
    """
    is_whole = most is None
    names = [name for name in space.settings if any(name in each.settings for each in outcomes)]
    order = {"complete": 0, "pruned": 1, "failed": 2, "stopped": 3}
    ranked = sorted(outcomes, key=lambda each: (order[each.state], -(each.value or 0)))
    rows: list[list[Cell]] = []
    for outcome in ranked[:most]:
        value = NONE if outcome.value is None else f"{100 * outcome.value:.2f}"
        is_best = best is not None and outcome.number == best.number
        f1 = outcome.f1
        row: list[Cell] = [
            str(outcome.number),
            (Strong(value),) if is_best else value,
            pair_cell(f1 and (100 * f1[0], 100 * f1[1])),
            *(_shown(outcome.settings.get(name)) for name in names),
        ]
        if space.losses:
            row.append(_loss(outcome.settings, with_constants=is_whole))
        if is_whole:
            row.append(NONE if outcome.seconds is None else f"{outcome.seconds:.0f}")
        rows.append([*row, _state(outcome)])
    header = ["trial", NAMES[objective], "micro / macro", *names]
    header += [*([LOSS] if space.losses else []), *(["seconds"] if is_whole else []), "state"]
    failed = [f"Trial {each.number} failed: {each.error}" for each in outcomes if each.error]
    return Table("Trials", header, rows, [NOTE, *failed])


def describe(outcome: Outcome) -> str:
    """What became of a trial, and its settings, on one line."""
    settings = outcome.settings
    words = [f"{k}={_shown(v)}" for k, v in settings.items() if k not in (LOSS, CONSTANTS)]
    words += [_loss(settings)] if LOSS in settings else []
    value = "" if outcome.value is None else f"{100 * outcome.value:.2f} "
    state = "" if outcome.state == "complete" else f"{_state(outcome)} "
    error = f": {outcome.error}" if outcome.error else ""
    return f"{value}{state}with {', '.join(words)}{error}"


def _state(outcome: Outcome) -> str:
    if outcome.state == "pruned":
        return f"pruned after {plural(outcome.folds, 'fold')}"
    return outcome.state


def _loss(settings: Mapping[str, Any], with_constants: bool = True) -> str:
    constants = (with_constants and settings.get(CONSTANTS)) or {}
    shown = [f"{name}={_shown(value)}" for name, value in constants.items()]
    return " ".join([str(settings.get(LOSS, NONE)), *shown])


def _shown(value: Any) -> str:
    if value is None:
        return NONE
    return f"{value:g}" if isinstance(value, float) else str(value)
