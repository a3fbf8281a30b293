"""python killed.py OUT ROW SEED STEP SIGNAL JOBS: reproduces until it gets a signal on the way.

The signal comes at a step of a cell; with several jobs when its process has been started.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from cases import documents, networks  # type: ignore[import-not-found]

from longtail.reproduce import reproduce
from longtail.reproduce.run import Event
from longtail.training.interrupt import StoppedError, stopping


def slow(recipes: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    """With a state after every step."""
    return {row: {**one, "epochs": 6, "checkpoint_minutes": 0.0} for row, one in recipes.items()}


def main(out: str, row: str, seed: str, step: str, name: str, jobs: str) -> int:
    kinds: list[str] = []

    def watch(event: Event) -> None:
        if (event.cell.row, str(event.cell.seed)) == (row, seed):
            kinds.append(event.kind)
            at_step = event.kind == "progress" and kinds.count("progress") == int(step)
            if at_step or (event.kind == "begins" and int(jobs) > 1):
                os.kill(os.getpid(), getattr(signal, name))

    with stopping() as stop:
        try:
            recipes = slow(networks("bce", "db"))
            reproduce(
                documents(), recipes, Path(out), seeds=2, watch=watch, stop=stop, jobs=int(jobs)
            )
        except StoppedError as stopped:
            return stopped.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
