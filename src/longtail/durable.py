"""Files that are whole or not there, whatever stops the process: a kill, a full disk, no power."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from longtail.errors import DataError


def make_folder(folder: Path) -> None:
    """Make a folder to write to; an error now rather than after hours."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".write-{os.getpid()}.tmp"
        probe.write_bytes(b"longtail")
        # Another process that begins here at this moment may have taken it for a left-over.
        probe.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(
            f"cannot write to {folder}: {error.strerror or error}. Choose another folder."
        ) from error


@contextmanager
def whole_file(place: Path) -> Iterator[Path]:
    """A name to write to; what is written there takes its place once it is on the disk.

    What was there before stays until then, and stays for good if anything fails. A process that is
    killed leaves a file that ends in `.tmp`.
    """
    temporary = place.with_name(f"{place.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        sync_file(temporary)
        os.replace(temporary, place)
        sync_folder(place.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def sync_file(path: Path) -> None:
    """Wait until a file is on the disk; an error of a delayed write comes up here."""
    with open(path, "rb") as written:
        os.fsync(written.fileno())


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync_tree(folder: Path) -> None:
    """Everything in a folder onto the disk."""
    for path in folder.rglob("*"):
        if path.is_dir():
            sync_folder(path)
        else:
            sync_file(path)
    sync_folder(folder)
