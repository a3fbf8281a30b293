"""Workspace: a folder of work in progress, created atomically, locked, removed file by file."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from longtail.errors import DataError, shown
from longtail.runs import files

# A file in a private folder of a running process.
PRIVATE = re.compile(r"\.longtail-[0-9a-f]{32}/")
# Number of differences shown, and characters of each value.
MAX_SHOWN, MAX_LENGTH = 5, 60


class Workspace:
    """A folder of work in progress with a list of the files that longtail wrote there.

    The list is the file MARK: a name is added before its file is written, and only listed files are
    ever removed. Processes that work in the folder hold a shared lock on MARK; the one that
    finishes or removes the folder holds an exclusive lock.
    """

    def __init__(self, folder: Path, lock: files.Lock, prefix: str = "") -> None:
        self.folder, self._lock, self._prefix = folder, lock, prefix

    @classmethod
    def begin(cls, folder: Path, first: Mapping[str, str], *, join: bool = False) -> Workspace:
        """Make a new or empty folder with its first files atomically, and lock it shared.

        `join`: if another process was faster, open its workspace.
        """
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with files.staging(folder.parent) as private:
                for name, text in first.items():
                    (private / name).write_text(text, "utf-8")
                with (private / files.MARK).open("a", encoding="utf-8") as listed:
                    listed.writelines(f"{name}\n" for name in first)
                files.sync_tree(private)
                lock = files.Lock(private / files.MARK)
                lock.acquire(shared=True)
                # Replaces an empty folder; fails for any other.
                os.rename(private, folder)
                lock.path = folder / files.MARK
            files.sync(folder.parent)
            return cls(folder, lock)
        except PermissionError:
            raise
        except OSError as error:
            if join and cls.is_one(folder):
                space = cls.open(folder)
                space.share()
                return space
            raise DataError(
                f"cannot begin in {folder}: {error.strerror or error}. Choose an empty folder or a "
                "new one."
            ) from error

    @staticmethod
    def is_one(folder: Path) -> bool:
        """Return whether longtail made this folder."""
        return not folder.is_symlink() and files.key_of(folder) is not None

    @classmethod
    def open(cls, folder: Path) -> Workspace:
        """Return the workspace in a folder, unlocked."""
        if not folder.exists():
            raise _removed_meanwhile(folder)
        if not cls.is_one(folder):
            raise DataError(f"{folder} was not made by longtail. Choose another folder.")
        try:
            return cls(folder, files.Lock(folder / files.MARK))
        except OSError as error:
            reason = str(error.strerror or error)
            raise DataError(f"{folder} cannot be used: {reason}. Choose another folder.") from error

    def share(self) -> None:
        """Take the lock shared, waiting for a process that has it exclusively."""
        self.lock(shared=True, wait=True)

    def lock(self, *, shared: bool = False, wait: bool = False) -> None:
        """Take the lock, exclusively unless `shared`; if it is taken, `wait` or raise."""
        if not self._lock.acquire(shared=shared, wait=wait):
            raise DataError(
                f"another process is at work in {self.folder}. Wait until it has ended, or choose "
                "another folder."
            )
        if not self._lock.is_current():
            raise _removed_meanwhile(self.folder)

    def try_share(self) -> None:
        """Take the lock shared, unless another process has it exclusively."""
        self._lock.acquire(shared=True)

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    def within(self, name: str) -> Workspace:
        """Return a subfolder, with its files on the same list; "." is this folder."""
        prefix = self._prefix if name == "." else f"{self._prefix}{name}/"
        return Workspace(self.folder, self._lock, prefix)

    @property
    def path(self) -> Path:
        """The path of this workspace or subfolder, which may not exist yet."""
        return self.folder / self._prefix

    def file(self, name: str) -> Path:
        """Return the path of a file to write; adds it to the list, and makes its folder."""
        path = self.path / name
        # First: a file that is not on the list is never removed.
        self._list(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def read_record(self, name: str) -> dict[str, Any] | None:
        """Return the JSON object in a file; None if missing or damaged. Raises PermissionError."""
        try:
            record = json.loads((self.path / name).read_text("utf-8"))
        except PermissionError:
            raise
        except (OSError, ValueError, RecursionError):
            return None
        return record if isinstance(record, dict) else None

    def write_record(self, name: str, record: Mapping[str, Any]) -> None:
        """Write a JSON object atomically."""
        self.write(name, json.dumps(record, indent=2).encode("utf-8"))

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically."""
        try:
            with files.whole_file(self.file(name)) as temporary:
                temporary.write_bytes(content)
        except OSError as error:
            raise DataError(
                f"could not write {self.path / name}: {error}. Free some space, or choose another "
                "folder, then resume with the same command."
            ) from error

    def adopt(self, private: Path, name: str) -> None:
        """Move a private folder here under a name, and list its files first."""
        self._list(*(f"{name}/{file}" for file in files.files_in(private)))
        os.rename(private, self.path / name)
        files.sync(self.path)

    def _list(self, *names: str) -> None:
        listed = set(self.names())
        new = [name for name in names if self._prefix + name not in listed]
        if new:
            lines = "".join(f"{self._prefix}{name}\n" for name in new)
            os.write(self._lock.handle, lines.encode("utf-8"))
            os.fsync(self._lock.handle)

    def names(self) -> list[str]:
        """Return the files that longtail wrote here, in the order of their first write."""
        text = (self.folder / files.MARK).read_bytes().decode("utf-8", "replace")
        # A last line without its end: the process was killed before it wrote the file.
        return text.split("\n")[1:-1]

    def others(self) -> list[str]:
        """Return the files here that longtail did not write."""
        ours = {*self.names(), files.MARK}
        names = files.files_in(self.folder)
        return [name for name in names if name not in ours and not PRIVATE.search(name)]

    def discard(self, name: str) -> None:
        """Remove a file if it is on the list."""
        if self._prefix + name in self.names():
            self._unlink(self._prefix + name)

    def remove(self) -> None:
        """Remove what longtail wrote here, and the folder if it is empty then.

        The first files of `begin` go first, so that nobody resumes a half-removed workspace.
        """
        self.clear()
        (self.folder / files.MARK).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()
        self.close()

    def remove_alone(self, ours: str = ".*") -> None:
        """Lock and remove; raises if the folder holds files of the user, or other names."""
        self.lock()
        others = [name for name in self.names() if not re.fullmatch(ours, name)] + self.others()
        if others:
            raise DataError(
                f"{self.folder} also holds other files, such as {others[0]}. Move them, or choose "
                "another folder."
            )
        self.remove()

    def clear(self, *, but: Collection[str] = ()) -> None:
        """Remove what longtail wrote here except the files `but`."""
        for name in self.names():
            if name not in but:
                self._unlink(name)
        for path, folders, _ in os.walk(self.folder, topdown=False):
            files.remove_left_overs(Path(path))
            for name in folders:
                # Fails unless empty; does not follow links.
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.join(path, name))

    def _unlink(self, name: str) -> None:
        path = self.folder / name
        with contextlib.suppress(OSError):
            if files.is_inside(self.folder, name) and files.check_regular(path):
                path.unlink()


def _removed_meanwhile(folder: Path) -> DataError:
    return DataError(f"{folder} was just finished or removed by another process. Try again.")


def differences(
    before: Mapping[str, Any], now: Mapping[str, Any], ignored: Collection[str] = ()
) -> list[str]:
    """Return the differences of settings, such as "epochs was 3, now 5", except `ignored` ones."""
    changes = [
        f"{name} was {shown(old, MAX_LENGTH)}, now {shown(new, MAX_LENGTH)}"
        for name, old, new in _changed(before, now)
        if name not in ignored
    ]
    more = len(changes) - MAX_SHOWN
    return [*changes[:MAX_SHOWN], f"and {more} more"] if more > 0 else changes


def _changed(before: Any, now: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the innermost values that differ, with their keys."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted({*before, *now}):
            yield from _changed(before.get(key), now.get(key), key)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for old, new in zip(before, now, strict=True):
            yield from _changed(old, new, name)
    elif before != now:
        yield name, before, now
