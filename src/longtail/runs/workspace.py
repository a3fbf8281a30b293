"""The folder of work in progress: created whole, locked, resumed, and removed file by file."""

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

# A file in a private folder of a process at work.
PRIVATE = re.compile(r"\.longtail-[0-9a-f]{32}/")
# Differences of settings that are named, and characters of each value.
MAX_SHOWN, MAX_LENGTH = 5, 60


class Workspace:
    """A folder of work in progress, with a list of the files that longtail wrote there.

    The list is the file MARK: a name is added before its file is written, and only listed files are
    ever removed. The same file is locked: shared by the processes that work here, exclusively by
    the one that finishes or removes the folder.
    """

    def __init__(self, folder: Path, lock: files.Lock, prefix: str = "") -> None:
        self.folder, self._lock, self._prefix = folder, lock, prefix

    @classmethod
    def begin(cls, folder: Path, first: Mapping[str, str], *, join: bool = False) -> Workspace:
        """Make the folder, which must be empty or not there, with its first files all at once.

        It is held shared. `join`: if another process was faster, that one's is opened.
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
                # Takes the place of an empty folder; fails if there is anything in it.
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
                f"cannot begin in {folder}: {error.strerror or error}. Choose an empty folder, or "
                "one that is not there yet."
            ) from error

    @staticmethod
    def is_one(folder: Path) -> bool:
        """Whether longtail made this folder."""
        return not folder.is_symlink() and files.key_of(folder) is not None

    @classmethod
    def open(cls, folder: Path) -> Workspace:
        """The workspace in a folder, not held."""
        if not cls.is_one(folder):
            reason = "was not made by longtail, and is left as it is. Choose another folder."
            if not folder.exists():
                reason = "was just finished or removed by another process. Try again."
            raise DataError(f"{folder} {reason}")
        try:
            return cls(folder, files.Lock(folder / files.MARK))
        except OSError as error:
            reason = str(error.strerror or error)
            raise DataError(f"{folder} cannot be used: {reason}. Choose another folder.") from error

    def share(self) -> None:
        """Take the lock shared, waiting for a process that holds it exclusively."""
        self.lock(shared=True, wait=True)

    def lock(self, *, shared: bool = False, wait: bool = False) -> None:
        """Take the lock, exclusively unless `shared`; raise if it is held elsewhere, or `wait`."""
        if not self._lock.acquire(shared=shared, wait=wait):
            raise DataError(
                f"another process is at work in {self.folder}. Wait until it has ended, or choose "
                "another folder."
            )
        if not self._lock.is_current():
            raise DataError(
                f"{self.folder} was just finished or removed by another process. Try again."
            )

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    def within(self, name: str) -> Workspace:
        """A folder inside, on the same list."""
        return Workspace(self.folder, self._lock, f"{self._prefix}{name}/")

    @property
    def path(self) -> Path:
        """The folder of this part of the workspace, which may not exist yet."""
        return self.folder / self._prefix

    def file(self, name: str) -> Path:
        """The path of a file to write, which is now on the list; its folder is made."""
        path = self.path / name
        # First of all: what is not on the list is never removed, not even an empty folder.
        self._list(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def read_record(self, name: str) -> dict[str, Any] | None:
        """The JSON object in a file; None if it is missing or damaged. Raises PermissionError."""
        try:
            record = json.loads((self.path / name).read_text("utf-8"))
        except PermissionError:
            raise
        except (OSError, ValueError, RecursionError):
            return None
        return record if isinstance(record, dict) else None

    def write_record(self, name: str, record: Mapping[str, Any]) -> None:
        """Write a JSON object, all or nothing."""
        self.write(name, json.dumps(record, indent=2).encode("utf-8"))

    def write(self, name: str, content: bytes) -> None:
        """Write a file, all or nothing."""
        try:
            with files.whole_file(self.file(name)) as temporary:
                temporary.write_bytes(content)
        except OSError as error:
            raise DataError(
                f"could not write {self.path / name}: {error}. Free some space, or choose another "
                "folder, then resume with the same command."
            ) from error

    def adopt(self, private: Path, name: str) -> None:
        """Rename a private folder to a name here, all of its files being on the list by then."""
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
        """The files that longtail wrote here, in the order of their first write."""
        text = (self.folder / files.MARK).read_bytes().decode("utf-8", "replace")
        # A last line without its end is of a process that was killed before it wrote the file.
        return text.split("\n")[1:-1]

    def others(self) -> list[str]:
        """Files here that longtail did not write."""
        ours = {*self.names(), files.MARK}
        names = files.files_in(self.folder)
        return [name for name in names if name not in ours and not PRIVATE.search(name)]

    def discard(self, name: str) -> None:
        """Remove a file if it is on the list."""
        if self._prefix + name in self.names():
            self._unlink(self._prefix + name)

    def remove(self) -> None:
        """Remove what longtail wrote here, and the folder if nothing else is in it.

        The first files of `begin` go first, so that a half-removed workspace is not resumed.
        """
        self.clear()
        (self.folder / files.MARK).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()
        self.close()

    def clear(self, *, but: Collection[str] = ()) -> None:
        """Remove what longtail wrote here, except for files of these names."""
        for name in self.names():
            if name not in but:
                self._unlink(name)
        for path, folders, _ in os.walk(self.folder, topdown=False):
            files.remove_left_overs(Path(path))
            for name in folders:
                # Only an empty one can be removed; a link is not followed.
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.join(path, name))

    def _unlink(self, name: str) -> None:
        path = self.folder / name
        with contextlib.suppress(OSError):
            if files.is_inside(self.folder, name) and files.check_regular(path):
                path.unlink()


def differences(
    before: Mapping[str, Any], now: Mapping[str, Any], ignored: Collection[str] = ()
) -> list[str]:
    """The differences of two settings, as "epochs was 3, now 5"; `ignored`: may differ."""
    changes = [
        f"{name} was {shown(old, MAX_LENGTH)}, now {shown(new, MAX_LENGTH)}"
        for name, old, new in _changed(before, now)
        if name not in ignored
    ]
    more = len(changes) - MAX_SHOWN
    return [*changes[:MAX_SHOWN], f"and {more} more"] if more > 0 else changes


def _changed(before: Any, now: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The innermost values that differ, with the key of each."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted({*before, *now}):
            yield from _changed(before.get(key), now.get(key), key)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for old, new in zip(before, now, strict=True):
            yield from _changed(old, new, name)
    elif before != now:
        yield name, before, now
