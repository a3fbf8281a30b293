"""`reproduce`: train missing cells, evaluate all, write the tables after every cell."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longtail.checks import check_integer
from longtail.data import TextData
from longtail.errors import InputError, UnknownNameError
from longtail.reproduce.cells import FAILED, Cell, Finished, read_begun, read_finished
from longtail.reproduce.recipes import is_random, plans_of
from longtail.reproduce.running import Event, Watch, run_apart, run_here
from longtail.reproduce.summary import Evaluator, Summary
from longtail.reproduce.writing import (
    check_publish,
    publish_stem,
    write_corpus_figure,
    write_results,
)
from longtail.runs.workspace import Workspace
from longtail.training.devices import device_of
from longtail.training.interrupt import NEVER, Stop


@dataclass(frozen=True)
class Reproduced:
    """The results, and the files they were written to."""

    summary: Summary
    files: tuple[Path, ...]

    @property
    def failed(self) -> dict[str, str]:
        """Cell -> why it has no result."""
        return {
            f"{row} (seed {seed})": why
            for row, result in self.summary.rows.items()
            for seed, why in result.failed.items()
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
    """Train every row for every seed that is not finished, and write the tables.

    Args:
        parts: train, validation and test documents.
        recipes: row -> flat settings of the classifier, in the order of the tables.
        out: the folder of cells, tables and figures; finished cells are reused.
        corpus: its name; `reuters` and `pubmed` have the paper's figures beside ours.
        seeds: 0, 1 and so on; rows that use no random numbers are trained once.
        jobs: cells trained at a time, in separate processes; 1: in this process.
        against: the row that others are compared with; default: `bce` if it is one of them.
        command: the command that the tables name as their source.
        publish: also write the tables to this path with the suffixes .md, .json and .png.
        overwrite: start over with cells that failed, or were trained with another recipe or
            other documents.
        stop, watch, note: see `longtail.training.interrupt`, `running.Event`.
    """
    check_integer("--jobs", jobs, 1)
    check_integer("--seeds", seeds, 1)
    if against is None:
        against = "bce" if "bce" in recipes else None
    elif against not in recipes:
        raise UnknownNameError("row to compare with", against, recipes)
    cells = cells_of(recipes, out, seeds, parts)
    if publish is not None:
        check_publish(publish, recipes)
    with _exclusive(out):
        evaluator = Evaluator(parts, corpus, recipes, seeds, against)
        evaluator.finished = finished = _finished(cells, overwrite)
        missing = [cell for cell in cells if (cell.row, cell.seed) not in finished]
        stems = [out / "results", *([publish_stem(publish)] if publish else [])]
        write_corpus_figure(parts["train"], corpus, stems)

        def write() -> Reproduced:
            summary = evaluator.summary()
            return Reproduced(summary, write_results(summary, command, stems))

        # At once, so that no earlier table describes cells that are trained again.
        result = write()

        def handle(event: Event) -> None:
            nonlocal result
            cell = event.cell
            if event.kind == "done":
                done = read_finished(cell)
                assert done is not None
                finished[cell.row, cell.seed] = done
            elif event.kind == "failed":
                evaluator.failed[cell.row][cell.seed] = event.message
            watch(event)
            if event.kind in ("done", "failed"):
                result = write()

        for plan in [plan for cell in missing for plan in plans_of(cell.row, cell.recipe)]:
            # Raises before training if a device does not exist.
            device_of(plan.training.device)
        if jobs == 1:
            run_here(missing, parts, stop, handle, note)
        else:
            run_apart(missing, parts, stop, handle, note, jobs, out)
        return result


def cells_of(
    recipes: Mapping[str, Mapping[str, Any]],
    out: Path,
    seeds: int,
    parts: Mapping[str, TextData] | None = None,
) -> list[Cell]:
    """All cells: every row with the first seed, then with the second, for an early table."""
    for row, recipe in recipes.items():
        plans_of(row, recipe)
        if "random_state" in recipe:
            raise InputError(
                f"the recipe of {row} sets random_state, but every row is trained with "
                "the seeds 0, 1 and so on of --seeds. Leave it out."
            )
    documents = {name: part.fingerprint()[:16] for name, part in (parts or {}).items()}
    return [
        Cell(row, seed, {**recipe, "random_state": seed}, out / row / f"seed-{seed}", documents)
        for seed in range(seeds)
        for row, recipe in recipes.items()
        if seed == 0 or is_random(row, recipe)
    ]


def _finished(cells: list[Cell], overwrite: bool) -> dict[tuple[str, int], Finished]:
    """The finished cells; raises if they were trained with other settings or documents."""
    finished, changed = {}, []
    for cell in cells:
        done = read_finished(cell)
        if done is None and overwrite and (cell.folder / FAILED).exists():
            # Its checkpoints may be the reason of the failure.
            cell.remove_results()
            continue
        before = done.fingerprint if done else (read_begun(cell) or {}).get("fingerprint")
        changes = [] if before is None else cell.changes(before)
        if changes and overwrite:
            cell.remove_results()
        elif changes:
            changed.append((cell, changes))
        elif done is not None:
            finished[cell.row, cell.seed] = done
    if changed:
        cell, changes = changed[0]
        more = f" (and {len(changed) - 1} more cells)" if len(changed) > 1 else ""
        raise InputError(
            f"{cell} in {cell.folder} was trained with other settings: {'; '.join(changes)}{more}. "
            "Train it again with --overwrite, which keeps the other cells, or choose another "
            "--out."
        )
    return finished


@contextlib.contextmanager
def _exclusive(out: Path) -> Iterator[None]:
    """Hold the folder: of two commands each would leave out the cells of the other."""
    space = Workspace.open(out) if Workspace.is_one(out) else Workspace.begin(out, {})
    try:
        space.own()
        yield
    finally:
        space.close()
