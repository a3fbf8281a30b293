"""`fit_members`: fit the models of a blend one after another, or all their folds on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from typing import Any, NamedTuple

from longtail.classifier.crossfit import Fitted, Run, fit_and_score, fit_plan
from longtail.classifier.folds import FoldedData
from longtail.classifier.plan import Plan
from longtail.classifier.work import Place, rejoin_work
from longtail.errors import InputError
from longtail.progress import Progress
from longtail.training.engines import Report, at_times
from longtail.training.interrupt import Stop


class FoldTask(NamedTuple):
    """What another process needs to fit a fold of a plan, beside the documents."""

    plan: Plan
    fold: int
    place: Place
    trust_remote_code: bool


def fit_members(
    members: Iterable[tuple[Plan, Run]], folded: FoldedData, run: Run
) -> list[Fitted | None]:
    """Fit the plan of each member; with an engine, all folds of all members at once."""
    if run.engine is None:
        return [fit_plan(plan, folded, member_run) for plan, member_run in members]
    if run.only_fold is not None:
        raise InputError("an engine fits all folds. Leave out only_fold (--fold) or engine.")
    fits = list(members)
    for plan, _ in fits:
        run.engine.check_device(plan.training.device)
    tasks = [
        (FoldTask(plan, fold, member.work.place, run.trust_remote_code), plan.model.trains_in_steps)
        for plan, member in fits
        for fold in range(plan.folds)
    ]
    progress = _Together(len(tasks), run)
    ended = run.engine.run(fit_fold_apart, folded, tasks, progress.receive, run.stop, run.work.kept)
    with closing(_in_order(ended, progress.end)) as scores:
        return [fit_plan(plan, folded, member, scores) for plan, member in fits]


def fit_fold_apart(folded: FoldedData, task: FoldTask, report: Report, stop: Stop) -> Any:
    """Fit a fold in another process, into the folder of the fit; return its held-out scores."""
    with rejoin_work(task.place, report) as work:
        run = Run(work, None, at_times(report), report, stop, task.trust_remote_code)
        return fit_and_score(task.plan, folded, run, task.fold)


def _in_order(
    ended: Generator[tuple[int, Callable[[], Any]], None, None], end: Callable[[int], None]
) -> Generator[Any, None, None]:
    """The results in the order of the tasks; an error of any task is raised at once."""
    results: dict[int, Any] = {}
    n_before = 0
    with closing(ended):
        for number, get in ended:
            results[number] = get()
            end(number)
            while n_before in results:
                yield results.pop(n_before)
                n_before += 1


class _Together:
    """The progress of many folds as one, and each of their notes once."""

    def __init__(self, n_folds: int, run: Run) -> None:
        self._shares, self._run = [0.0] * n_folds, run
        self._ended, self._noted = set[int](), set[str]()

    def receive(self, number: int, item: Progress | str) -> None:
        if isinstance(item, Progress):
            self._shares[number] = min(1.0, item.done / item.total) if item.total else 0.0
            self._show()
        elif item not in self._noted:
            self._noted.add(item)
            self._run.note(item)

    def end(self, number: int) -> None:
        self._ended.add(number)
        self._show()

    def _show(self) -> None:
        n_folds = len(self._shares)
        shares = [1.0 if k in self._ended else share for k, share in enumerate(self._shares)]
        stage = f"{len(self._ended)} of {n_folds} folds trained"
        self._run.progress(Progress(stage, int(100 * sum(shares) / n_folds), 100, "%"))
