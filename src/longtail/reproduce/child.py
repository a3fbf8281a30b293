"""`python -m longtail.reproduce.child`: trains one cell that comes as a line of JSON on stdin.

It stops, with its state saved, when it gets SIGTERM or when whoever started it is gone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

from longtail.data import TextData
from longtail.progress import ignore
from longtail.reproduce.cells import Cell
from longtail.reproduce.running import NOTE, attempt
from longtail.training.interrupt import StoppedError, stopping


def main() -> int:
    """The exit code: 0 if the cell is finished, 1 if it failed, else of the signal."""
    job = json.loads(sys.stdin.readline())
    data, folder = Path(job.pop("data")), Path(job.pop("folder"))
    cell = Cell(**job, folder=folder)
    with stopping() as stop:
        threading.Thread(target=_stop_when_alone, daemon=True).start()
        parts = {path.stem: TextData.load(path) for path in data.glob("*.parquet")}
        try:
            return int(attempt(cell, parts, stop, ignore, _note) is not None)
        except StoppedError as stopped:
            print(stopped)
            return stopped.exit_code


def _note(text: str) -> None:
    print(NOTE + " ".join(text.split()), flush=True)


def _stop_when_alone() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # Not by way of the interpreter's end, which would wait for the thread that reads stdin.
    os._exit(code)
