"""`reproduce`: train missing cells, evaluate all, write the tables after every cell."""

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
    changes,
    part_fingerprints,
    read_begun,
    read_finished,
)
from longtail.reproduce.recipes import plans_of, uses_chance
from longtail.reproduce.running import Event, Watch, check_jobs, run_apart, run_here
from longtail.reproduce.summary import Evaluator, Summary
from longtail.reproduce.writing import check_publish, write_corpus_figure, write_results
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
    against = _against(against, recipes)
    check_jobs(jobs)
    if seeds < 1:
        raise InputError(f"--seeds: expected a whole number of at least 1, got {seeds}.")
    cells = cells_of(recipes, out, seeds)
    if publish is not None:
        check_publish(publish, recipes)
    with _exclusive(out):
        documents = part_fingerprints(parts)
        finished = _finished(cells, documents, overwrite)
        failed: dict[str, dict[int, str]] = {}
        evaluator = Evaluator(parts, corpus)
        write_corpus_figure(parts["train"], corpus, out, publish)

        def write() -> Reproduced:
            summary = evaluator.summary(recipes, by_row(finished), failed, seeds, against)
            return Reproduced(summary, write_results(summary, command, out, publish))

        # At once, so that no earlier table describes cells that are trained again.
        written: list[Reproduced] = [write()]

        def handle(event: Event) -> None:
            cell = event.cell
            if event.kind == "done":
                result = read_finished(cell)
                assert result is not None
                finished[cell.row, cell.seed] = result
            elif event.kind == "failed":
                failed.setdefault(cell.row, {})[cell.seed] = event.message
            watch(event)
            if event.kind in ("done", "failed"):
                written[:] = [write()]

        missing = [cell for cell in cells if (cell.row, cell.seed) not in finished]
        _check_devices(missing)
        if jobs == 1:
            run_here(missing, parts, documents, stop, handle, note)
        else:
            run_apart(missing, parts, documents, stop, handle, note, jobs, out)
        return written[0]


def cells_of(recipes: Mapping[str, Mapping[str, Any]], out: Path, seeds: int) -> list[Cell]:
    """All cells: every row with the first seed, then with the second, for an early table."""
    for row, recipe in recipes.items():
        plans_of(row, recipe)
        if "random_state" in recipe:
            raise InputError(
                f"the recipe of {row} sets random_state, but every row is trained with "
                "the seeds 0, 1 and so on of --seeds. Leave it out."
            )
    n_seeds = {row: seeds if uses_chance(row, recipe) else 1 for row, recipe in recipes.items()}
    return [
        Cell(row, seed, {**recipe, "random_state": seed}, out / row / f"seed-{seed}")
        for seed in range(seeds)
        for row, recipe in recipes.items()
        if seed < n_seeds[row]
    ]


def by_row(finished: Mapping[tuple[str, int], Finished]) -> dict[str, list[Finished]]:
    """The finished cells of every row, by seed."""
    rows: dict[str, list[Finished]] = {}
    for (row, _), cell in sorted(finished.items(), key=lambda item: item[0]):
        rows.setdefault(row, []).append(cell)
    return rows


def _finished(
    cells: list[Cell], documents: Mapping[str, str], overwrite: bool
) -> dict[tuple[str, int], Finished]:
    """The finished cells; raises if they were trained with other settings or documents."""
    finished, changed = {}, []
    for cell in cells:
        done = read_finished(cell)
        if done is None and overwrite and (cell.folder / FAILED).exists():
            # Its checkpoints may be the reason of the failure.
            cell.remove_results()
            continue
        begun = read_begun(cell) if done is None else None
        before = done.fingerprint if done is not None else (begun or {}).get("fingerprint")
        other = [] if before is None else changes(before, cell.fingerprint(documents))
        if other and overwrite:
            cell.remove_results()
        elif other:
            changed.append((cell, other))
        elif done is not None:
            finished[cell.row, cell.seed] = done
    if changed:
        cell, other = changed[0]
        more = f" (and {len(changed) - 1} more cells)" if len(changed) > 1 else ""
        raise InputError(
            f"{cell} in {cell.folder} was trained with other settings: {'; '.join(other)}{more}. "
            "Train it again with --overwrite, which keeps the other cells, or choose another "
            "--out."
        )
    return finished


def _check_devices(cells: list[Cell]) -> None:
    """Raise before training if a device does not exist."""
    plans = [plan for cell in cells for plan in plans_of(cell.row, cell.recipe)]
    for device in {plan.training.device for plan in plans}:
        device_of(device)


def _against(row: str | None, recipes: Mapping[str, Any]) -> str | None:
    if row is None:
        return "bce" if "bce" in recipes else None
    if row not in recipes:
        raise UnknownNameError("row to compare with", row, recipes)
    return row


@contextlib.contextmanager
def _exclusive(out: Path) -> Iterator[None]:
    """Hold the folder: of two commands each would leave out the cells of the other."""
    space = Workspace.open(out) if Workspace.is_one(out) else Workspace.begin(out, {})
    try:
        space.own()
        yield
    finally:
        space.close()
