"""Processes that are killed at a chosen change to the disk."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHANGES = ("os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.chmod")


def killed_at(moment: int, work: Callable[[], Any], opened_in: Path | None = None) -> bool:
    """Do the work in another process, which is killed before its n-th change to the disk.

    `opened_in`: opening a file there counts too.
    """
    with warnings.catch_warnings():
        # Later Pythons warn of threads, of which the child uses none.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        seen = 0
        # A killed process loses nothing that it has written, synced or not; a power cut does.
        os.fsync = lambda handle: None

        def hook(event: str, arguments: Any) -> None:
            nonlocal seen
            opened = event == "open" and opened_in and str(opened_in) in str(arguments[0])
            if event in CHANGES or opened:
                seen += 1
                if seen == moment:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)
