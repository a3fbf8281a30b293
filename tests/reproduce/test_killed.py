"""Whatever ends a reproduction, nothing finished is lost and what was begun goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from .cases import networks, run
from .killed import slow

PROGRAM = Path(__file__).with_name("killed.py")


def end(out: Path, *arguments: str) -> int:
    return subprocess.run([sys.executable, str(PROGRAM), str(out), *arguments]).returncode


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What comes out if nothing happens."""
    out = tmp_path_factory.mktemp("whole")
    return run(slow(networks("bce", "db")), out, seeds=2)[0].results["rows"]


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_killed_on_the_way(name: str, whole: dict[str, Any], tmp_path: Path) -> None:
    code = end(tmp_path, "db", "0", "12", name, "1")
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
    code = end(tmp_path, "bce", "0", "0", name, "2")
    assert code == (-signal.SIGKILL if name == "SIGKILL" else 128 + signal.SIGTERM)
    log = tmp_path / "bce" / "seed-0" / "log.txt"
    until = time.monotonic() + 60
    while name == "SIGKILL" and "stopped by SIGTERM" not in log.read_text():
        assert time.monotonic() < until
        time.sleep(0.05)
    outcome, _ = run(slow(networks("bce")), tmp_path, seeds=1)
    assert not outcome.failed
    assert outcome.results["rows"]["bce"]["seeds"][0] == whole["bce"]["seeds"][0]
