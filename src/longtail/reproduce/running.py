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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from longtail.data import TextData
from longtail.errors import LongtailError
from longtail.progress import OnProgress, Progress
from longtail.reproduce.cells import FAILED, LOG, Cell, train_cell
from longtail.runs.files import staging
from longtail.training.interrupt import Stop, StoppedError

# Prefix of lines in the log of a process that are shown to the user.
NOTE = "note: "
KEPT = "What is finished is kept."
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
    cells: Sequence[Cell], parts: Mapping[str, TextData], stop: Stop, watch: Watch, note: Note
) -> None:
    """One cell after the other in this process."""
    for cell in cells:
        stop.check(KEPT)
        watch(Event("begins", cell))

        def progress(progress: Progress, cell: Cell = cell) -> None:
            watch(Event("progress", cell, str(progress), progress.share))

        watch(_end(cell, attempt(cell, parts, stop, progress, note)))


def attempt(
    cell: Cell,
    parts: Mapping[str, TextData],
    stop: Stop,
    progress: OnProgress,
    note: Note,
) -> str | None:
    """Train a cell; return why it failed, which is also recorded in its folder."""
    try:
        train_cell(cell, parts, stop=stop, progress=progress, note=note)
    except StoppedError:
        raise
    # Out of memory or a bug: the other cells continue.
    except Exception as error:
        kind = "" if isinstance(error, LongtailError) else f"{type(error).__name__}: "
        message = kind + str(error).strip().partition("\n")[0]
        # Not possible in a folder that is not ours, or on a full disk.
        with contextlib.suppress(LongtailError, OSError):
            failure = {"message": message, "traceback": traceback.format_exc()}
            cell.open().write_record(FAILED, failure)
        return message
    finally:
        # Free the GPU memory of the last model.
        gc.collect()
        torch.cuda.empty_cache()
    cell.open().discard(FAILED)
    return None


def run_apart(
    cells: Sequence[Cell],
    parts: Mapping[str, TextData],
    stop: Stop,
    watch: Watch,
    note: Note,
    jobs: int,
    out: Path,
) -> None:
    """Several cells at a time, each in a separate process."""
    waiting, running = list(cells), list[_Child]()
    with staging(out) as data, contextlib.ExitStack() as stack:
        for name, part in parts.items():
            part.save(data / f"{name}.parquet")
        while waiting or running:
            if stop.signal is not None:
                _stop_all(running)
                stop.check(KEPT)
            while waiting and len(running) < jobs:
                cell = waiting.pop(0)
                running.append(_Child(cell, data, jobs))
                # After an error or a second Ctrl-C no process stays.
                stack.callback(running[-1].kill)
                watch(Event("begins", cell))
            for child in [child for child in running if child.process.poll() is not None]:
                running.remove(child)
                child.process.communicate()
                for text in child.notes():
                    note(f"{child.cell}: {text}")
                watch(_end(child.cell, child.failure()))
            time.sleep(POLL_SECONDS)


class _Child:
    """The process of one cell. It ends by itself when this one does, which closes its stdin."""

    def __init__(self, cell: Cell, data: Path, jobs: int) -> None:
        self.cell = cell
        space = cell.open()
        space.discard(FAILED)
        threads = str(max(1, (os.cpu_count() or 1) // jobs))
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
        job = json.dumps({**asdict(cell), "data": data}, default=str)
        # One that ended at once does not read it; its log says why.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{job}\n".encode())
            self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def notes(self) -> list[str]:
        """Its messages to the user."""
        lines = (self.cell.folder / LOG).read_text("utf-8", "replace").splitlines()
        return [line.removeprefix(NOTE) for line in lines if line.startswith(NOTE)]

    def failure(self) -> str | None:
        """Why there is no result; None if there is one."""
        code, space = self.process.returncode, self.cell.open()
        if code == 0:
            space.discard(LOG)
            return None
        failure = space.read_record(FAILED) or {}
        if "message" in failure:
            return str(failure["message"])
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        hint = " (the memory may have been full: try fewer --jobs)" if code == -9 else ""
        return f"its process ended {how}{hint}; see {self.cell.folder / LOG}."


def _stop_all(running: Sequence[_Child]) -> None:
    """Let every process save a checkpoint; the caller kills those that take too long."""
    for child in running:
        child.process.send_signal(signal.SIGTERM)
    until = time.monotonic() + STOP_SECONDS
    for child in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.process.wait(max(0.1, until - time.monotonic()))


def _end(cell: Cell, failure: str | None) -> Event:
    return Event("done", cell) if failure is None else Event("failed", cell, failure)
