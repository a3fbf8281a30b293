"""Work in another process, which may be killed at a chosen change to the disk."""

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
    """The exit code of work in a forked process, minus the number of the signal that ended it."""
    with warnings.catch_warnings():
        # Later Pythons warn of threads, of which the child uses none.
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
    """Do the work in another process, which is killed before its n-th change to the disk.

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
        # A killed process loses nothing that it has written, synced or not; a power cut does.
        os.fsync = lambda handle: None
        sys.addaudithook(hook)
        work()
        return 0

    return in_child(watched) == -signal.SIGKILL
