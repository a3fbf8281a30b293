"""The trials of a study: asked of Optuna one by one, pruned after a fold, repeated if killed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState

from longtail.classifier.crossfit import Run
from longtail.errors import DataError, LongtailError
from longtail.progress import Progress
from longtail.runs.workspace import Workspace
from longtail.search.scoring import Scorer
from longtail.search.space import Space
from longtail.training.interrupt import StoppedError

JOURNAL, WORK = "trials.journal", "trial"
LOCK = f"{JOURNAL}.lock"  # Optuna's, beside its file
# Attributes of trials.
SETTINGS, MICRO, MACRO, ERROR, REPEATS = "settings", "micro_f1", "macro_f1", "error", "repeats"
# Trials are pruned against the median of the finished ones once there are this many.
BEFORE_PRUNING = 5


@dataclass(frozen=True)
class Outcome:
    """What became of a trial."""

    number: int
    state: str
    """complete, pruned, failed, or stopped: killed or interrupted, to be repeated."""
    value: float | None
    """The objective (0 to 1): of a pruned trial, on the documents held out so far."""
    f1: tuple[float, float] | None
    """Micro- and macro-F1 of a complete trial."""
    folds: int
    """Folds that were evaluated; all of a complete trial."""
    seconds: float | None
    settings: Mapping[str, Any]
    """The settings that were searched."""
    error: str = ""

    @property
    def counts(self) -> bool:
        """Whether it counts as one of the trials of the study."""
        return self.state != "stopped"


def outcome_of(trial: FrozenTrial, n_folds: int) -> Outcome:
    """Read a trial of the study."""
    attributes = trial.user_attrs
    state = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned"}.get(trial.state)
    if state is None:
        state = "failed" if ERROR in attributes else "stopped"
    is_complete = state == "complete"
    return Outcome(
        number=trial.number,
        state=state,
        value=trial.value,
        f1=(attributes[MICRO], attributes[MACRO]) if is_complete else None,
        folds=n_folds if is_complete else len(trial.intermediate_values),
        seconds=trial.duration.total_seconds() if trial.duration else None,
        settings=attributes.get(SETTINGS, {}),
        error=attributes.get(ERROR, ""),
    )


class MedianOfFold(optuna.pruners.BasePruner):
    """Prunes a trial that is below the median of the complete ones after the same fold.

    Optuna's MedianPruner takes the best value of all folds so far: where the first fold is easier
    than the others, it would prune after that fold only.
    """

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        step, values = trial.last_step, trial.intermediate_values
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if step is None or len(complete) < BEFORE_PRUNING:
            return False
        return values[step] < median(other.intermediate_values[step] for other in complete)


class Trials:
    """The trials in a folder that this process has locked."""

    def __init__(self, space: Workspace, n_folds: int) -> None:
        self.folder, self.n_folds = space, n_folds
        path = space.file(JOURNAL)
        space.file(LOCK)
        # A process that was killed while it wrote leaves Optuna's lock, or half a line.
        space.discard(LOCK)
        _drop_half_line(path)
        try:
            with _quiet():
                backend = JournalFileBackend(str(path), JournalFileOpenLock(str(path)))
                self.study = optuna.create_study(
                    storage=JournalStorage(backend),
                    study_name="search",
                    direction="maximize",
                    pruner=MedianOfFold(),
                    load_if_exists=True,
                )
        except (ValueError, KeyError) as error:
            raise DataError(
                f"{path} is damaged ({error}), so that the study cannot be resumed. Start over "
                "with --overwrite."
            ) from error

    def outcomes(self) -> list[Outcome]:
        """All trials that were begun."""
        trials = self.study.get_trials(deepcopy=False)
        begun = [trial for trial in trials if trial.state != TrialState.WAITING]
        return [outcome_of(trial, self.n_folds) for trial in begun]

    def best(self) -> Outcome | None:
        """The first complete trial with the highest value."""
        complete = [outcome for outcome in self.outcomes() if outcome.state == "complete"]
        return max(complete, key=lambda outcome: outcome.value or 0.0, default=None)

    def run(
        self,
        space: Space,
        scorer: Scorer,
        run: Run,
        n_trials: int,
        minutes: float | None,
        watch: Callable[[Outcome], None],
    ) -> None:
        """Run trials until there are `n_trials` in all, or the time is over."""
        end = None if minutes is None else time.monotonic() + 60 * minutes
        with _quiet():
            self._repeat_stopped()
            if not self.study.get_trials(deepcopy=False):
                self.study.enqueue_trial(dict(space.first))
            while (n_done := sum(outcome.counts for outcome in self.outcomes())) < n_trials:
                if end is not None and time.monotonic() >= end:
                    break
                run.stop.check(run.work.kept)
                # A seed for each trial: a resumed study continues as it would have.
                seed = scorer.random_state + 7919 * n_done
                self.study.sampler = optuna.samplers.TPESampler(seed=seed)
                best = self.best()
                stage = f"trial {n_done + 1} of {n_trials}"
                if best is not None:
                    stage += f", best {100 * (best.value or 0):.2f}"
                number = self._run_next(space, scorer, _with_stage(run, stage))
                self._clear()
                watch(outcome_of(self.study.get_trials(deepcopy=False)[number], self.n_folds))

    def _run_next(self, space: Space, scorer: Scorer, run: Run) -> int:
        """Run one trial; its errors are part of the study. Returns its number."""
        trial = self.study.ask()
        if REPEATS not in trial.user_attrs:
            self._clear()
        settings = space.suggest(trial)
        trial.set_user_attr(SETTINGS, space.searched_of(settings))

        def after_fold(fold: int, value: float) -> None:
            trial.report(value, fold)
            if trial.should_prune():
                raise optuna.TrialPruned

        try:
            f1 = scorer.score(settings, run, after_fold)
        except optuna.TrialPruned:
            self.study.tell(trial, state=TrialState.PRUNED)
        except StoppedError:
            raise
        except Exception as error:
            # Training that diverged, out of memory or a bug: the other trials continue.
            kind = "" if isinstance(error, LongtailError) else f"{type(error).__name__}: "
            trial.set_user_attr(ERROR, kind + str(error).strip().partition("\n")[0])
            self.study.tell(trial, state=TrialState.FAIL)
        else:
            trial.set_user_attr(MICRO, f1.micro_f1)
            trial.set_user_attr(MACRO, f1.macro_f1)
            self.study.tell(trial, f1.of(scorer.objective))
        return trial.number

    def _repeat_stopped(self) -> None:
        """Count trials that a stop or a kill ended as failed, and queue them again."""
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            self.study.enqueue_trial(trial.params, user_attrs={REPEATS: trial.number})
            self.study.tell(trial.number, state=TrialState.FAIL)

    def _clear(self) -> None:
        """Remove the folds of the last trial."""
        names = self.folder.names()
        self.folder.clear(but=[name for name in names if not name.startswith(f"{WORK}/")])


def _with_stage(run: Run, stage: str) -> Run:
    def progress(moment: Progress) -> None:
        # Without the loss, whose scale differs from trial to trial.
        run.progress(replace(moment, stage=stage, loss=None))

    return replace(run, progress=progress)


def _drop_half_line(path: Path) -> None:
    if path.exists():
        content = path.read_bytes()
        os.truncate(path, content.rfind(b"\n") + 1)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's log of each trial, which the caller reports."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
