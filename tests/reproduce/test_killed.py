"""However a reproduction ends, finished cells are kept and unfinished ones resumed."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from longtail.reproduce import reproduce
from longtail.reproduce.run import Event
from longtail.training.interrupt import StoppedError, stopping

from ..runs.cases import in_child
from .cases import documents, networks, run


def slow(recipes: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The recipes with a checkpoint after each step."""
    return {row: {**one, "epochs": 6, "checkpoint_minutes": 0.0} for row, one in recipes.items()}


def end(out: Path, row: str, name: str, jobs: int) -> int:
    """Exit code of a process signalled at step 12 of a cell, or at its start with several jobs."""
    kinds: list[str] = []

    def watch(event: Event) -> None:
        if (event.cell.row, event.cell.seed) == (row, 0):
            kinds.append(event.kind)
            at_step = event.kind == "progress" and kinds.count("progress") == 12
            if at_step or (event.kind == "begins" and jobs > 1):
                os.kill(os.getpid(), getattr(signal, name))

    def work() -> int:
        settings: Any = {"seeds": 2, "watch": watch, "jobs": jobs}
        with stopping() as stop:
            try:
                reproduce(documents(), slow(networks("bce", "db")), out, stop=stop, **settings)
            except StoppedError as stopped:
                return stopped.exit_code
        return 0

    return in_child(work)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results without interruption."""
    out = tmp_path_factory.mktemp("whole")
    return run(slow(networks("bce", "db")), out, seeds=2)[0].results["rows"]


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_killed_on_the_way(name: str, whole: dict[str, Any], tmp_path: Path) -> None:
    code = end(tmp_path, "db", name, jobs=1)
    assert code == (-signal.SIGKILL if name == "SIGKILL" else 128 + signal.SIGTERM)
    table = json.loads((tmp_path / "results.json").read_text())
    assert table["rows"]["bce"]["mean"] and not table["rows"]["db"]["mean"]
    begun = tmp_path / "db" / "seed-0"
    assert (begun / "fold-0").is_dir() and not (begun / "finished.json").exists()
    outcome, events = run(slow(networks("bce", "db")), tmp_path, seeds=2)
    assert events[:2] == ["begins db 0", "done db 0"] and "begins bce 0" not in events
    spans = json.loads((begun / "finished.json").read_text())["spans"]
    assert len(spans) == 2 and (spans[0][1] is None) == (name == "SIGKILL") and spans[1][1]
    assert outcome.results["killed"] == (name == "SIGKILL")
    for row in ("bce", "db"):
        assert outcome.results["rows"][row]["seeds"] == whole[row]["seeds"]
    assert outcome.results["rows"]["db"]["seconds"] is not None, (
        "of the seed that was not interrupted"
    )


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_processes_end_with_the_one_that_began_them(
    name: str, whole: dict[str, Any], tmp_path: Path
) -> None:
    code = end(tmp_path, "bce", name, jobs=2)
    assert code == (-signal.SIGKILL if name == "SIGKILL" else 128 + signal.SIGTERM)
    log = tmp_path / "bce" / "seed-0" / "log.txt"
    until = time.monotonic() + 60
    while name == "SIGKILL" and "stopped by SIGTERM" not in log.read_text():
        assert time.monotonic() < until
        time.sleep(0.05)
    outcome, _ = run(slow(networks("bce")), tmp_path, seeds=1)
    assert not outcome.failed
    assert outcome.results["rows"]["bce"]["seeds"][0] == whole["bce"]["seeds"][0]
