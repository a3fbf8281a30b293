"""`reproduce`: train what is missing, judge all of it, write the tables after every cell."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longtail.data import TextData
from longtail.errors import InputError, UnknownNameError
from longtail.reproduce.cells import (
    FAILED,
    Cell,
    Finished,
    differences,
    forget,
    prints_of,
    read_begun,
    read_finished,
)
from longtail.reproduce.recipes import plans_of, uses_chance
from longtail.reproduce.running import Event, Watch, check_jobs, run_apart, run_here
from longtail.reproduce.summary import Judge, Summary
from longtail.reproduce.writing import check_publish, write_corpus_figure, write_results
from longtail.runs import Workspace
from longtail.training.devices import device_of
from longtail.training.interrupt import NEVER, Stop


@dataclass(frozen=True)
class Reproduced:
    """What came out, and where it was written."""

    summary: Summary
    files: tuple[Path, ...]

    @property
    def failed(self) -> dict[str, str]:
        """Cell -> why it has no result."""
        return {
            f"{row} (seed {seed})": why
            for row, found in self.summary.rows.items()
            for seed, why in found.failed.items()
        }


def reproduce(
    parts: Mapping[str, TextData],
    recipes: Mapping[str, Mapping[str, Any]],
    out: Path,
    *,
    corpus: str = "data",
    seeds: int = 3,
    jobs: int = 1,
    against: str | None = None,
    command: str = "",
    publish: Path | None = None,
    overwrite: bool = False,
    stop: Stop = NEVER,
    watch: Watch = lambda event: None,
    note: Callable[[str], None] = lambda text: None,
) -> Reproduced:
    """Train every row for every seed, as far as that is not done, and write the tables.

    Args:
        parts: train, validation and test documents.
        recipes: row -> arguments of LongTailClassifier, in the order of the tables.
        out: the folder of finished cells, tables and figures; what is finished there stays.
        corpus: its name; `reuters` and `pubmed` have the paper's figures beside ours.
        seeds: 0, 1 and so on; rows that use no random numbers are trained once.
        jobs: how many cells at a time, in processes of their own; 1: here, one after the other.
        against: the row that others are compared with; default: `bce` if it is one of them.
        command: what the tables name as the command that makes them.
        publish: also write the tables as this name with .md, .json and .png behind it.
        overwrite: train again, from the beginning, what failed, or was begun or finished with
            another recipe or on other documents.
        stop, watch, note: see `longtail.training.stopping`, `running.Event`.
    """
    against = _against(against, recipes)
    check_jobs(jobs)
    if seeds < 1:
        raise InputError(f"--seeds: expected a whole number of at least 1, got {seeds}.")
    cells = cells_of(recipes, out, seeds)
    if publish is not None:
        check_publish(publish, recipes)
    with _alone(out):
        documents = prints_of(parts)
        finished = _finished(cells, documents, overwrite)
        failed: dict[str, dict[int, str]] = {}
        judge = Judge(parts, corpus)
        write_corpus_figure(parts["train"], corpus, out, publish)

        def write() -> Reproduced:
            summary = judge.summary(recipes, by_row(finished), failed, seeds, against)
            return Reproduced(summary, write_results(summary, command, out, publish))

        # At once, so that no earlier table stands there for what is trained anew.
        written: list[Reproduced] = [write()]

        def told(event: Event) -> None:
            cell = event.cell
            if event.kind == "done":
                found = read_finished(cell)
                assert found is not None
                finished[cell.row, cell.seed] = found
            elif event.kind == "failed":
                failed.setdefault(cell.row, {})[cell.seed] = event.told
            watch(event)
            if event.kind in ("done", "failed"):
                written[:] = [write()]

        missing = [cell for cell in cells if (cell.row, cell.seed) not in finished]
        _check_devices(missing)
        if jobs == 1:
            run_here(missing, parts, documents, stop, told, note)
        else:
            run_apart(missing, parts, documents, stop, told, note, jobs, out)
        return written[0]


def cells_of(recipes: Mapping[str, Mapping[str, Any]], out: Path, seeds: int) -> list[Cell]:
    """All cells: every row with the first seed, then with the second, so that a table is early."""
    for row, recipe in recipes.items():
        plans_of(row, recipe)
        if "random_state" in recipe:
            raise InputError(
                f"the recipe of {row} sets random_state, but every row is trained with "
                "the seeds 0, 1 and so on of --seeds. Leave it out."
            )
    often = {row: seeds if uses_chance(row, recipe) else 1 for row, recipe in recipes.items()}
    return [
        Cell(row, seed, {**recipe, "random_state": seed}, out / row / f"seed-{seed}")
        for seed in range(seeds)
        for row, recipe in recipes.items()
        if seed < often[row]
    ]


def by_row(finished: Mapping[tuple[str, int], Finished]) -> dict[str, list[Finished]]:
    """The finished cells of every row, by seed."""
    found: dict[str, list[Finished]] = {}
    for (row, _), cell in sorted(finished.items(), key=lambda item: item[0]):
        found.setdefault(row, []).append(cell)
    return found


def _finished(
    cells: list[Cell], documents: Mapping[str, str], overwrite: bool
) -> dict[tuple[str, int], Finished]:
    """What is finished; raises if it is something else than what is asked for now."""
    found, changed = {}, []
    for cell in cells:
        done = read_finished(cell)
        before = read_begun(cell) if done is None else done.fingerprint
        if done is None and overwrite and (cell.folder / FAILED).exists():
            # What made it fail may be in what it has saved.
            forget(cell)
            continue
        other = [] if before is None else differences(before, cell.fingerprint(documents))
        if other and overwrite:
            forget(cell)
        elif other:
            changed.append((cell, "begun" if done is None else "finished", other))
        elif done is not None:
            found[cell.row, cell.seed] = done
    if changed:
        cell, how, other = changed[0]
        more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
        raise InputError(
            f"{cell} in {cell.folder} was {how} with something else: {'; '.join(other)}{more}. "
            "Train it again with --overwrite, which leaves the others as they are, or choose "
            "another --out."
        )
    return found


def _check_devices(cells: list[Cell]) -> None:
    """Once for all, and not by every cell's failing."""
    plans = [plan for cell in cells for plan in plans_of(cell.row, cell.recipe)]
    for device in {plan.training.device for plan in plans}:
        device_of(device)


def _against(asked: str | None, recipes: Mapping[str, Any]) -> str | None:
    if asked is None:
        return "bce" if "bce" in recipes else None
    if asked not in recipes:
        raise UnknownNameError("row to compare with", asked, recipes)
    return asked


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Two commands that write the same tables would each leave out what the other has done."""
    space = Workspace.open(out) if Workspace.is_one(out) else Workspace.begin(out, {})
    try:
        space.own()
        yield
    finally:
        space.close()
