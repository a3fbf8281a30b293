"""Training cells one after the other, or several at a time in processes of their own.

A cell that fails is written down and the others go on; whoever asks to stop is obeyed at the next
safe moment, and what was begun goes on from there the next time.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from longtail.data import TextData
from longtail.errors import InputError, LongtailError
from longtail.reproduce.cells import FAILED, LOG, Cell, open_cell, train_cell
from longtail.runs import staging, write_text
from longtail.training.interrupt import Stop, StoppedError
from longtail.training.loop import Moment

# How lines of a process's log begin that are meant for the user.
NOTE = "note: "
# Seconds between two looks at the processes.
LOOK_AGAIN = 0.1
# Seconds that a process has to save its state before it is ended.
PATIENCE = 120.0
Note = Callable[[str], None]


@dataclass(frozen=True)
class Event:
    """Something worth telling: a cell `begins`, `goes` on, is `done` or has `failed`."""

    kind: str
    cell: Cell
    told: str = ""
    share: float = 0.0
    """Of this cell, where known."""


Watch = Callable[[Event], None]


def run_here(
    cells: Sequence[Cell],
    parts: Mapping[str, TextData],
    documents: Mapping[str, str],
    stop: Stop,
    watch: Watch,
    note: Note,
) -> None:
    """One cell after the other in this process."""
    for cell in cells:
        stop.check("What is finished is kept.")
        watch(Event("begins", cell))

        def progress(moment: Moment, cell: Cell = cell) -> None:
            folds = max(moment.folds, 1)
            share = min(1.0, (moment.fold - 1 + moment.step / max(moment.steps, 1)) / folds)
            watch(Event("goes", cell, _place(moment), share))

        why = attempt(cell, parts, documents, stop, progress, note)
        watch(Event("done", cell) if why is None else Event("failed", cell, why))


def attempt(
    cell: Cell,
    parts: Mapping[str, TextData],
    documents: Mapping[str, str],
    stop: Stop,
    progress: Callable[[Moment], None] | None,
    note: Note,
) -> str | None:
    """Train a cell; returns why that failed, which is also written down beside it."""
    try:
        train_cell(cell, parts, documents, stop=stop, progress=progress, note=note)
    except StoppedError:
        raise
    # Whatever it is, a memory that is full or a bug: the other rows are worth their time.
    except Exception as error:
        named = "" if isinstance(error, LongtailError) else f"{type(error).__name__}: "
        lines = str(error).strip().splitlines() or [""]
        told = {"message": f"{named}{lines[0]}", "traceback": traceback.format_exc()}
        # Nothing is written to a folder of somebody else's, or to a disk that is full.
        with contextlib.suppress(LongtailError, OSError):
            write_text(open_cell(cell).file(FAILED), json.dumps(told, indent=2))
        return told["message"]
    finally:
        _free_memory()
    open_cell(cell).discard(FAILED)
    return None


def run_apart(
    cells: Sequence[Cell],
    parts: Mapping[str, TextData],
    documents: Mapping[str, str],
    stop: Stop,
    watch: Watch,
    note: Note,
    jobs: int,
    out: Path,
) -> None:
    """Several cells at a time, each in a process of its own."""
    waiting, running = list(cells), list[_Child]()
    with staging(out) as shared, _ended(running):
        for name, part in parts.items():
            part.save(shared / f"{name}.parquet")
        while waiting or running:
            if stop.signal is not None:
                _ask_to_stop(running)
                stop.check("What is finished is kept.")
            while waiting and len(running) < jobs:
                cell = waiting.pop(0)
                running.append(_Child(cell, documents, shared, jobs))
                watch(Event("begins", cell))
            for child in [child for child in running if child.ended()]:
                running.remove(child)
                for text in child.notes():
                    note(f"{child.cell}: {text}")
                why = child.failure()
                watch(
                    Event("done", child.cell) if why is None else Event("failed", child.cell, why)
                )
            time.sleep(LOOK_AGAIN)


@contextmanager
def _ended(running: Sequence[_Child]) -> Iterator[None]:
    """After an error or a second Ctrl-C, end the processes that are still there."""
    try:
        yield
    finally:
        for child in running:
            child.process.kill()
            child.process.wait()


class _Child:
    """The process of one cell. It ends by itself when this one does, which closes its stdin."""

    def __init__(self, cell: Cell, documents: Mapping[str, str], shared: Path, jobs: int) -> None:
        self.cell = cell
        space = open_cell(cell)
        space.discard(FAILED)
        threads = str(max(1, (os.cpu_count() or 1) // jobs))
        job = {
            "row": cell.row,
            "seed": cell.seed,
            "recipe": dict(cell.recipe),
            "folder": str(cell.folder),
            "documents": dict(documents),
            "data": str(shared),
        }
        with space.file(LOG).open("wb") as log:
            # A session of its own: Ctrl-C reaches this process alone, which then asks the others.
            self.process = subprocess.Popen(
                [sys.executable, "-m", "longtail.reproduce.child"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"OMP_NUM_THREADS": threads, **os.environ},
                start_new_session=True,
            )
        assert self.process.stdin is not None
        # One that ended at once has no use for it; its log says why.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(job).encode("utf-8") + b"\n")
            self.process.stdin.flush()

    def ended(self) -> bool:
        if self.process.poll() is None:
            return False
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        return True

    def notes(self) -> list[str]:
        """What it had to say."""
        try:
            lines = (self.cell.folder / LOG).read_text("utf-8", "replace").splitlines()
        except OSError:
            return []
        return [line.removeprefix(NOTE) for line in lines if line.startswith(NOTE)]

    def failure(self) -> str | None:
        """Why there is no result; None if there is one."""
        code = self.process.returncode
        if code == 0:
            open_cell(self.cell).discard(LOG)
            return None
        try:
            return str(json.loads((self.cell.folder / FAILED).read_text("utf-8"))["message"])
        except (OSError, ValueError, KeyError):
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
            hint = " (the memory may have been full: try fewer --jobs)" if code == -9 else ""
            return f"its process ended {how}{hint}; see {self.cell.folder / LOG}."


def _ask_to_stop(running: Sequence[_Child]) -> None:
    """Let every process save its state; who takes too long is ended."""
    for child in running:
        child.process.send_signal(signal.SIGTERM)
    until = time.monotonic() + PATIENCE
    for child in running:
        try:
            child.process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.process.kill()


def check_jobs(jobs: int) -> None:
    """Raise unless so many processes make sense."""
    if jobs < 1:
        raise InputError(f"--jobs: expected a whole number of at least 1, got {jobs}.")


def _place(moment: Moment) -> str:
    fold = f"fold {moment.fold}/{moment.folds} " if moment.folds > 1 else ""
    return fold + (f"epoch {moment.epoch}/{moment.epochs}" if moment.epochs else "solving")


def _free_memory() -> None:
    """What one model held on a GPU is for the next."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
