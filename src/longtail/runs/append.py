"""Atomic appends to a file that several processes append to."""

from __future__ import annotations

import os
from pathlib import Path

from longtail.runs.files import Lock, sync


def append_line(path: Path, line: bytes) -> None:
    """Append a line and sync it, safely for concurrent threads and processes.

    On failure the file keeps its length. Raises OSError.
    """
    is_new = not path.exists()
    path.touch()
    with Lock(path) as lock:
        lock.acquire(wait=True)
        size = os.fstat(lock.handle).st_size
        # Ends a line that a power cut left unfinished.
        is_unfinished = size > 0 and os.pread(lock.handle, 1, size - 1) != b"\n"
        rest = memoryview(b"\n" * is_unfinished + line.rstrip(b"\n") + b"\n")
        try:
            while rest:
                rest = rest[os.write(lock.handle, rest) :]
            os.fsync(lock.handle)
        except OSError:
            os.ftruncate(lock.handle, size)
            raise
    if is_new:
        sync(path.parent)
