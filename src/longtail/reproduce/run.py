"""`reproduce`: train missing cells, here or in processes, and write the tables after each cell.

If a cell fails, the others continue; a stopped cell is resumed by the next call.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from longtail.checks import check_integer
from longtail.classifier.work import check_shared
from longtail.data import TextData
from longtail.errors import InputError, LongtailError, UnknownNameError
from longtail.reproduce.cells import (
    FAILED,
    FINISHED,
    LOG,
    Cell,
    Finished,
    begun_with,
    read_finished,
    tidy,
    train_cell,
)
from longtail.reproduce.page import check_publish, publish_stem, write_corpus_figure, write_results
from longtail.reproduce.recipes import is_random, plans_of
from longtail.reproduce.results import Results
from longtail.runs.files import staging
from longtail.runs.workspace import Workspace
from longtail.training.devices import device_of
from longtail.training.engines import RayEngine, at_times
from longtail.training.interrupt import NEVER, Stop, StoppedError, stopping

KEPT = "Finished cells are kept."
POLL_SECONDS = 0.2
# Time for processes to save a checkpoint before they are killed.
STOP_SECONDS = 120.0


@dataclass(frozen=True)
class Event:
    """A cell `begins`, makes `progress`, is `done` or has `failed`, or a `note` about it."""

    kind: str
    cell: Cell
    message: str = ""
    share: float = 0.0
    """Fraction of the cell that is done, if known."""


OnEvent = Callable[[Event], None]


@dataclass(frozen=True)
class Reproduced:
    """The content of `results.json`, and all files written."""

    results: dict[str, Any]
    files: tuple[Path, ...]

    @property
    def failed(self) -> dict[str, str]:
        """Cell -> reason of its failure."""
        return {
            f"{row} (seed {seed})": why
            for row, result in self.results["rows"].items()
            for seed, why in result["failed"].items()
        }


def reproduce(
    parts: Mapping[str, TextData],
    recipes: Mapping[str, Mapping[str, Any]],
    out: Path,
    *,
    corpus: str = "data",
    seeds: int = 3,
    jobs: int = 1,
    engine: RayEngine | None = None,
    against: str | None = None,
    command: str = "",
    publish: Path | None = None,
    overwrite: bool = False,
    stop: Stop = NEVER,
    watch: OnEvent = lambda event: None,
) -> Reproduced:
    """Train each row with each seed unless finished, and write the tables.

    Args:
        parts: train, validation and test documents.
        recipes: row -> flat settings of the classifier, in the order of the tables.
        out: folder of cells, tables and figures; finished cells are reused.
        corpus: its name; `reuters` and `pubmed` add the paper's results.
        seeds: number of seeds; rows that use no random numbers are trained once.
        jobs: number of cells trained at a time, in separate processes; 1 uses this process.
        engine: a Ray cluster that trains the cells; its machines share `out`.
        against: the row that others are compared with; default: `bce` if present.
        command: the command that the tables give as their source.
        publish: also write the tables to this path with the suffixes .md, .json and .png.
        overwrite: start over with cells that failed, or were trained with another recipe or
            other documents.
        stop: see `longtail.training.interrupt`.
        watch: called with each event.
    """
    check_integer("--jobs", jobs, 1)
    check_integer("--seeds", seeds, 1)
    if engine is not None and jobs > 1:
        raise InputError("--engine ray trains as many cells as fit at a time. Leave out --jobs.")
    if against is None:
        against = "bce" if "bce" in recipes else None
    elif against not in recipes:
        raise UnknownNameError("row to compare with", against, recipes)
    cells = cells_of(recipes, out, seeds, parts)
    if publish is not None:
        check_publish(publish, recipes)
    with _exclusive(out):
        finished = _finished(cells, overwrite)
        missing = [cell for cell in cells if str(cell) not in finished]
        for plan in [plan for cell in missing for plan in plans_of(cell.row, cell.recipe)]:
            device_of(plan.training.device)  # raises if it does not exist
            if engine is not None:
                engine.check_device(plan.training.device)
        stems = [out / "results", *([publish_stem(publish)] if publish else [])]
        write_corpus_figure(parts["train"], corpus, stems)
        results = Results(parts, corpus, recipes, seeds, against, command)
        for result in finished.values():
            results.add(result)

        def write() -> Reproduced:
            plain = results.to_dict()
            return Reproduced(plain, write_results(plain, stems))

        # At once, so that no older table describes cells that are trained again.
        reproduced = write()

        def handle(event: Event) -> None:
            nonlocal reproduced
            watch(event)
            if event.kind == "failed":
                results.failed[event.cell.row][event.cell.seed] = event.message
            elif event.kind == "done":
                results.add(read_finished(event.cell))
            if event.kind in ("done", "failed"):
                reproduced = write()

        if engine is not None:
            _run_on(engine, missing, parts, stop, handle)
        elif jobs == 1:
            _run_here(missing, parts, stop, handle)
        else:
            _run_apart(missing, parts, stop, handle, jobs, out)
        return reproduced


def cells_of(
    recipes: Mapping[str, Mapping[str, Any]],
    out: Path,
    seeds: int,
    parts: Mapping[str, TextData] | None = None,
) -> list[Cell]:
    """All cells, seed by seed, so that the table is complete early."""
    for row, recipe in recipes.items():
        plans_of(row, recipe)
        if "random_state" in recipe:
            raise InputError(
                f"the recipe of {row} sets random_state, but every row is trained with the seeds "
                "0, 1 and so on of --seeds. Leave it out."
            )
    documents = {name: part.fingerprint()[:16] for name, part in (parts or {}).items()}
    return [
        Cell(row, seed, {**recipe, "random_state": seed}, out / row / f"seed-{seed}", documents)
        for seed in range(seeds)
        for row, recipe in recipes.items()
        if seed == 0 or is_random(row, recipe)
    ]


def _finished(cells: list[Cell], overwrite: bool) -> dict[str, Finished]:
    """Read the finished cells; raise if any was trained with other settings or documents."""
    finished, changed = {}, []
    for cell in cells:
        done = read_finished(cell) if cell.is_finished else None
        before = done["fingerprint"] if done else begun_with(cell)
        changes = [] if before is None else cell.changes(before)
        # The checkpoints of a failed cell may be the cause of its failure.
        failed = done is None and (cell.folder / FAILED).exists()
        if overwrite and (changes or failed):
            space = cell.open()
            space.discard(FINISHED)
            space.clear()
        elif changes:
            changed.append((cell, changes))
        elif done is not None:
            tidy(cell)
            finished[str(cell)] = done
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
    """Lock the folder: two commands at a time would each write tables without the other's cells."""
    space = Workspace.open(out) if Workspace.is_one(out) else Workspace.begin(out, {})
    with contextlib.closing(space):
        space.lock()
        yield


def _run_here(
    cells: Sequence[Cell], parts: Mapping[str, TextData], stop: Stop, watch: OnEvent
) -> None:
    """Train one cell after the other in this process."""
    for cell in cells:
        stop.check(KEPT)

        def report(kind: str, message: str = "", share: float = 0.0, cell: Cell = cell) -> None:
            watch(Event(kind, cell, message, share))

        report("begins")
        try:
            train_cell(cell, parts, report, stop)
        except StoppedError:
            raise
        # Out of memory or a bug: the other cells continue.
        except Exception as error:
            kind = "" if isinstance(error, LongtailError) else f"{type(error).__name__}: "
            message = kind + str(error).strip().partition("\n")[0]
            failure = {"message": message, "traceback": traceback.format_exc()}
            # Fails if the folder is not ours or the disk is full.
            with contextlib.suppress(LongtailError, OSError):
                cell.open().write_record(FAILED, failure)
            report("failed", message)
        else:
            report("done")
        finally:
            # Free the GPU memory of the model.
            gc.collect()
            torch.cuda.empty_cache()


def _run_on(
    engine: RayEngine,
    cells: Sequence[Cell],
    parts: Mapping[str, TextData],
    stop: Stop,
    watch: OnEvent,
) -> None:
    """Train the cells on a cluster, as many at a time as fit."""
    cells = [replace(cell, folder=cell.folder.absolute()) for cell in cells]
    plans = [plans_of(cell.row, cell.recipe) for cell in cells]
    uses_gpu = [any(plan.model.trains_in_steps for plan in each) for each in plans]
    tasks = list(zip(cells, uses_gpu, strict=True))
    ended = engine.run(_train_task, parts, tasks, lambda number, event: watch(event), stop, KEPT)
    with contextlib.closing(ended):
        for number, get in ended:
            try:
                event: Event = get()
            except StoppedError:
                raise
            except LongtailError as error:  # its worker died again and again
                event = Event("failed", cells[number], str(error))
            watch(event)


def _train_task(parts: Mapping[str, TextData], cell: Cell, report: OnEvent, stop: Stop) -> Event:
    """Train one cell in a worker; return the event `done` or `failed`."""
    check_shared(cell.folder.parents[1])
    events: list[Event] = []
    sometimes = at_times(report)

    def send(event: Event) -> None:
        if event.kind in ("done", "failed"):
            events.append(event)
        else:
            (sometimes if event.kind == "progress" else report)(event)

    _run_here([cell], parts, stop, send)
    return events[-1]


def _run_apart(
    cells: Sequence[Cell],
    parts: Mapping[str, TextData],
    stop: Stop,
    watch: OnEvent,
    jobs: int,
    out: Path,
) -> None:
    """Train `jobs` cells at a time, each in a process that sends events and logs to LOG."""
    spawn = multiprocessing.get_context("spawn")
    waiting, running = list(cells), dict[Connection, tuple[Cell, Any]]()
    n_threads = max(1, (os.cpu_count() or 1) // jobs)
    with staging(out) as data:
        for name, part in parts.items():
            part.save(data / f"{name}.parquet")
        try:
            while waiting or running:
                stop.check(KEPT)
                while waiting and len(running) < jobs:
                    cell = waiting.pop(0)
                    receiver, sender = spawn.Pipe(duplex=False)
                    log = cell.open().file(LOG)
                    arguments = (cell, data, log, n_threads, sender)
                    process = spawn.Process(target=_child, args=arguments)
                    process.start()
                    sender.close()
                    running[receiver] = cell, process
                for ready in wait(list(running), POLL_SECONDS):
                    assert isinstance(ready, Connection)
                    cell, process = running[ready]
                    try:
                        event: Event = ready.recv()
                    except EOFError:
                        process.join()  # for its exit code
                        message = (
                            f"its process ended with exit code {process.exitcode} (fewer --jobs "
                            f"need less memory); see its {LOG}."
                        )
                        event = Event("failed", cell, message)
                    if event.kind in ("done", "failed"):
                        del running[ready]
                        process.join()
                    watch(event)
        finally:
            # Time to save a checkpoint if stopped; none after an error. No process may survive.
            for _, process in running.values():
                process.terminate()
            try:
                for _, process in running.values():
                    process.join(STOP_SECONDS if stop.signal is not None else 0)
            finally:
                for _, process in running.values():
                    process.kill()
                    process.join()


def _child(cell: Cell, data: Path, log: Path, n_threads: int, events: Connection) -> None:
    """Train one cell; save its state and stop at SIGTERM or when the parent process ends."""
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    torch.set_num_threads(n_threads)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def stop_with_parent() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    def send(event: Event) -> None:
        if event.kind != "progress":
            events.send(event)

    with stopping() as stop:
        # Ctrl-C reaches all processes of a terminal; the parent passes it on as SIGTERM.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=stop_with_parent, daemon=True).start()
        parts = {path.stem: TextData.load(path) for path in data.glob("*.parquet")}
        try:
            _run_here([cell], parts, stop, send)
        except StoppedError as stopped:
            print(stopped, flush=True)
