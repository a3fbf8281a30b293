"""Lines added to a file that others add to as well: whole, one after the other, on the disk."""

from __future__ import annotations

import os
from pathlib import Path

from longtail.runs.files import Lock, sync


def append_line(path: Path, line: bytes) -> None:
    """Add a line; if that fails, the file is as long as before. Raises OSError.

    Any number of threads and processes may do so at once.
    """
    is_new = not path.exists()
    path.touch()
    with Lock(path) as lock:
        lock.acquire(wait=True)
        size = os.fstat(lock.handle).st_size
        # A line that a power cut left unfinished ends here, and spoils no other.
        is_open = size > 0 and os.pread(lock.handle, 1, size - 1) != b"\n"
        rest = memoryview(b"\n" * is_open + line.rstrip(b"\n") + b"\n")
        try:
            while rest:
                rest = rest[os.write(lock.handle, rest) :]
            os.fsync(lock.handle)
        except OSError:
            os.ftruncate(lock.handle, size)
            raise
    if is_new:
        sync(path.parent)
