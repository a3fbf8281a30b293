"""Run work in another process, and kill it at a given change to the disk."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHANGES = ("os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.chmod")


def in_child(work: Callable[[], int]) -> int:
    """Run work in a forked process; return its exit code, or minus the signal that killed it."""
    with warnings.catch_warnings():
        # Newer Pythons warn about threads, which the child does not use.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 99
        try:
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_at(moment: int, work: Callable[[], Any], opened_in: Path | None = None) -> bool:
    """Run the work in another process, killed before its n-th change to the disk.

    `opened_in`: opening a file there counts too.
    """
    seen = 0

    def hook(event: str, arguments: Any) -> None:
        nonlocal seen
        opened = event == "open" and opened_in and str(opened_in) in str(arguments[0])
        if event in CHANGES or opened:
            seen += 1
            if seen == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    def watched() -> int:
        # Only a power cut loses unsynced writes, a kill does not.
        os.fsync = lambda handle: None
        sys.addaudithook(hook)
        work()
        return 0

    return in_child(watched) == -signal.SIGKILL
