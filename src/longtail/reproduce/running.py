"""Train cells one after the other, or several at a time in separate processes.

A failed cell is recorded, and the others continue; a stopped cell is resumed the next time.
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
from longtail.progress import OnProgress, Progress
from longtail.reproduce.cells import FAILED, LOG, Cell, train_cell
from longtail.runs import staging
from longtail.training.interrupt import Stop, StoppedError

# Prefix of lines in the log of a process that are shown to the user.
NOTE = "note: "
POLL_SECONDS = 0.1
# Seconds that a process has to save a checkpoint before it is killed.
STOP_SECONDS = 120.0
Note = Callable[[str], None]


@dataclass(frozen=True)
class Event:
    """A cell `begins`, makes `progress`, is `done` or has `failed`."""

    kind: str
    cell: Cell
    message: str = ""
    share: float = 0.0
    """How much of the cell is done, if known."""


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

        def progress(progress: Progress, cell: Cell = cell) -> None:
            watch(Event("progress", cell, str(progress), progress.share))

        why = attempt(cell, parts, documents, stop, progress, note)
        watch(Event("done", cell) if why is None else Event("failed", cell, why))


def attempt(
    cell: Cell,
    parts: Mapping[str, TextData],
    documents: Mapping[str, str],
    stop: Stop,
    progress: OnProgress,
    note: Note,
) -> str | None:
    """Train a cell; return why it failed, which is also recorded in its folder."""
    try:
        train_cell(cell, parts, documents, stop=stop, progress=progress, note=note)
    except StoppedError:
        raise
    # Out of memory or a bug: the other cells continue.
    except Exception as error:
        named = "" if isinstance(error, LongtailError) else f"{type(error).__name__}: "
        lines = str(error).strip().splitlines() or [""]
        failure = {"message": f"{named}{lines[0]}", "traceback": traceback.format_exc()}
        # Not possible in a folder that is not ours, or on a full disk.
        with contextlib.suppress(LongtailError, OSError):
            cell.open().write_record(FAILED, failure)
        return failure["message"]
    finally:
        _free_memory()
    cell.open().discard(FAILED)
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
    """Several cells at a time, each in a separate process."""
    waiting, running = list(cells), list[_Child]()
    with staging(out) as shared, _ended(running):
        for name, part in parts.items():
            part.save(shared / f"{name}.parquet")
        while waiting or running:
            if stop.signal is not None:
                _stop_all(running)
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
            time.sleep(POLL_SECONDS)


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
        space = cell.open()
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
            # A new session: Ctrl-C reaches this process alone, which then stops the others.
            self.process = subprocess.Popen(
                [sys.executable, "-m", "longtail.reproduce.child"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"OMP_NUM_THREADS": threads, **os.environ},
                start_new_session=True,
            )
        assert self.process.stdin is not None
        # One that ended at once does not read it; its log says why.
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
        """Its messages to the user."""
        try:
            lines = (self.cell.folder / LOG).read_text("utf-8", "replace").splitlines()
        except OSError:
            return []
        return [line.removeprefix(NOTE) for line in lines if line.startswith(NOTE)]

    def failure(self) -> str | None:
        """Why there is no result; None if there is one."""
        code = self.process.returncode
        if code == 0:
            self.cell.open().discard(LOG)
            return None
        try:
            return str(json.loads((self.cell.folder / FAILED).read_text("utf-8"))["message"])
        except (OSError, ValueError, KeyError):
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
            hint = " (the memory may have been full: try fewer --jobs)" if code == -9 else ""
            return f"its process ended {how}{hint}; see {self.cell.folder / LOG}."


def _stop_all(running: Sequence[_Child]) -> None:
    """Let every process save a checkpoint; kill those that take too long."""
    for child in running:
        child.process.send_signal(signal.SIGTERM)
    until = time.monotonic() + STOP_SECONDS
    for child in running:
        try:
            child.process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.process.kill()


def check_jobs(jobs: int) -> None:
    """Raise unless there is at least one process."""
    if jobs < 1:
        raise InputError(f"--jobs: expected a whole number of at least 1, got {jobs}.")


def _free_memory() -> None:
    """Free the GPU memory of the last model."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
