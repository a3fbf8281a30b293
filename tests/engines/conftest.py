"""A Ray cluster of two nodes on this machine, and how to kill a worker in the middle of a fold."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from longtail.training.engines import RayEngine, check_engine, open_engine

# One CPU each: a worker takes seconds of a core to start.
NODE = {"num_cpus": 1, "object_store_memory": 100_000_000}


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """The address of a cluster of two nodes."""
    pytest.importorskip("ray", reason="needs the extra ray")
    check_engine("ray")
    from ray.cluster_utils import Cluster

    started = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    started.add_node(**NODE)
    yield started.address
    started.shutdown()


@pytest.fixture(scope="session")
def engine(cluster: str) -> Iterator[RayEngine]:
    """One connection for all tests: a new one starts new workers, which takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", cluster)
        with open_engine("ray") as opened:
            assert opened is not None
            yield opened


def holder_of(lock: Path) -> int | None:
    """The process that holds an flock on a file."""
    if not lock.exists():
        return None
    inode = lock.stat().st_ino
    for line in Path("/proc/locks").read_text().splitlines():
        _, kind, *_, pid, place, _, _ = line.split()
        if kind == "FLOCK" and place.rpartition(":")[2] == str(inode):
            return int(pid)
    return None


class Killer:
    """Kills the process that holds a lock, once a file exists; in a thread."""

    def __init__(self, lock: Path, exists: Path, ends: Callable[[], bool]) -> None:
        self.killed: list[int] = []
        self._ends = ends
        self._thread = threading.Thread(target=self._kill, args=(lock, exists))

    def _kill(self, lock: Path, exists: Path) -> None:
        while not self._ends():
            pid = holder_of(lock) if exists.exists() else None
            if pid is not None and pid != os.getpid():
                os.kill(pid, signal.SIGKILL)
                self.killed.append(pid)
                return
            time.sleep(0.002)

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends = lambda: True
        self._thread.join()
