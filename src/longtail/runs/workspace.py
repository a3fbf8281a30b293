"""The folder of work under way: it is made whole, locked, resumed and removed by its own list."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Mapping
from errno import ENOTEMPTY
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import uuid4

from longtail.errors import DataError
from longtail.runs.files import (
    MARK,
    PRIVATE,
    Lock,
    check_regular,
    has_mark,
    remove_left_overs,
    staging,
    sync_file,
    sync_folder,
    sync_tree,
    whole_file,
    write_text,
)


class Workspace:
    """A folder of work under way, with a list of the files that longtail wrote there.

    The list is the file MARK: a name is added before its file is written, and nothing that is not
    on the list is ever removed. The same file is locked, shared by those who work here and alone by
    whoever finishes or removes it.
    """

    def __init__(self, folder: Path, lock: Lock, prefix: str = "") -> None:
        self.folder, self._lock, self._prefix = folder, lock, prefix
        self._known = set(self.names())

    @classmethod
    def begin(cls, folder: Path, files: Mapping[str, str], *, join: bool = False) -> Workspace:
        """Make the folder, which must be empty or not there, with its first files all at once.

        It is held shared. `join`: if another process was faster, that one's is opened.
        """
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            make = cls._begin_inside if folder.is_dir() else cls._begin_beside
            lock = make(folder, files)
        except OSError as error:
            if cls.is_one(folder) and join:
                found = cls.open(folder)
                found.share()
                return found
            if cls.is_one(folder):
                raise DataError(
                    f"another process has just begun in {folder}. Choose another folder."
                ) from error
            raise DataError(
                f"cannot begin in {folder}: {error.strerror or error}. Choose an empty folder, or "
                "one that is not there yet."
            ) from error
        return cls(folder, lock)

    @staticmethod
    def _begin_beside(folder: Path, files: Mapping[str, str]) -> Lock:
        with staging(folder.parent) as private:
            for name, text in files.items():
                (private / name).write_text(text, "utf-8")
            with (private / MARK).open("a", encoding="utf-8") as listed:
                listed.writelines(f"{name}\n" for name in files)
            sync_tree(private)
            lock = Lock(private / MARK)
            lock.acquire(shared=True)
            lock.path = folder / MARK
            os.rename(private, folder)
        sync_folder(folder.parent)
        return lock

    @staticmethod
    def _begin_inside(folder: Path, files: Mapping[str, str]) -> Lock:
        """In an empty folder that is there already: it may be a mounted volume, or a link."""
        others = [path for path in folder.iterdir() if not PRIVATE.fullmatch(path.name)]
        if any(not path.is_dir() or path.is_symlink() or any(path.iterdir()) for path in others):
            raise OSError(ENOTEMPTY, "it is not empty")
        with staging(folder) as private:
            mark = private / "mark"
            mark.write_text("".join([f"longtail {uuid4().hex}\n", *(f"{n}\n" for n in files)]))
            sync_file(mark)
            # Fails, other than a rename, if another process was faster.
            os.link(mark, folder / MARK)
        lock = Lock(folder / MARK)
        lock.acquire(shared=True)
        for name, text in files.items():
            write_text(folder / name, text)
        return lock

    @staticmethod
    def is_one(folder: Path) -> bool:
        """Whether longtail made this folder."""
        return not folder.is_symlink() and has_mark(folder)

    @classmethod
    def open(cls, folder: Path) -> Workspace:
        """The workspace in a folder, not held."""
        if not folder.exists():
            raise DataError(
                f"another process has just finished or removed {folder}. Try once more."
            )
        if not cls.is_one(folder):
            raise DataError(
                f"{folder} was not made by longtail, and is left as it is. Choose another folder."
            )
        try:
            return cls(folder, Lock(folder / MARK))
        except OSError as error:
            raise DataError(f"{folder} cannot be used: {error}. Choose another folder.") from error

    def share(self) -> None:
        """Hold it together with others who work here; waits for one who has it alone."""
        self._lock.acquire(shared=True, wait=True)
        self._check_current()

    def own(self, *, wait: bool = False) -> None:
        """Hold it alone; an error if another process works here."""
        if not self._lock.acquire(wait=wait):
            raise DataError(
                f"another process is at work in {self.folder}. Wait until it has ended, or choose "
                "another folder."
            )
        self._check_current()

    def _check_current(self) -> None:
        if not self._lock.is_current():
            raise DataError(
                f"another process has just finished or removed {self.folder}. Try once more."
            )

    def close(self) -> None:
        """Let go of it."""
        self._lock.close()

    def within(self, name: str) -> Workspace:
        """A folder inside, on the same list."""
        return Workspace(self.folder, self._lock, f"{self._prefix}{name}/")

    @property
    def path(self) -> Path:
        """Where this part of the workspace is; it may not be there yet."""
        return self.folder / self._prefix

    def file(self, name: str) -> Path:
        """The path of a file to write, which is now on the list; its folder is made."""
        path = self.path / name
        # First of all: what is not on the list is never removed, not even an empty folder.
        self._list([self._prefix + name])
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def read_record(self, name: str) -> dict[str, Any] | None:
        """The JSON object in a file; None if it is missing or damaged."""
        try:
            record = json.loads((self.path / name).read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return record if isinstance(record, dict) else None

    def write_record(self, name: str, record: Mapping[str, Any]) -> None:
        """Write a JSON object, all or nothing."""
        self.write(name, json.dumps(record, indent=2).encode("utf-8"))

    def write(self, name: str, content: bytes) -> None:
        """Write a file, all or nothing."""
        try:
            with whole_file(self.file(name)) as temporary:
                temporary.write_bytes(content)
        except OSError as error:
            raise DataError(
                f"could not write {self.path / name}: {error}. Free some space, or choose another "
                "folder, then resume with the same command."
            ) from error

    def adopt(self, private: Path, name: str) -> None:
        """Rename a private folder to a name here, all of its files being on the list by then."""
        files = sorted(path for path in private.rglob("*") if path.is_file())
        names = [path.relative_to(private).as_posix() for path in files]
        self._list([f"{self._prefix}{name}/{one}" for one in names])
        os.rename(private, self.path / name)
        sync_folder(self.path)

    def _list(self, names: list[str]) -> None:
        new = [name for name in names if name not in self._known]
        if new:
            os.write(self._lock.handle, "".join(f"{name}\n" for name in new).encode("utf-8"))
            os.fsync(self._lock.handle)
            self._known.update(new)

    def names(self) -> list[str]:
        """What longtail wrote here, in the order in which it was first written."""
        text = (self.folder / MARK).read_bytes().decode("utf-8", "replace")
        # A last line without its end is of a process that was killed before it wrote the file.
        return text.split("\n")[1:-1]

    def others(self) -> list[str]:
        """Files here that longtail did not write."""
        ours = {*self.names(), MARK}
        found = []
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder)
            if name.as_posix() in ours or path.is_dir():
                continue
            if not any(PRIVATE.fullmatch(part) for part in name.parts):
                found.append(name.as_posix())
        return found

    def discard(self, name: str) -> None:
        """Remove a file that is on the list, here or in `name` and the folders within."""
        start = self._prefix + name
        for one in self.names():
            if one == start or one.startswith(f"{start}/"):
                self._unlink(one)

    def remove(self) -> None:
        """Remove what longtail wrote here, and the folder if nothing else is in it.

        The first files of `begin` go first, so that nobody resumes what is half removed.
        """
        self.clear()
        (self.folder / MARK).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()
        self.close()

    def clear(self, *, but: Collection[str] = ()) -> None:
        """Remove what longtail wrote here, except for files of these names."""
        names = [name for name in self.names() if name not in but]
        for name in names:
            self._unlink(name)
        for path, folders, _ in os.walk(self.folder, topdown=False):
            remove_left_overs(Path(path))
            for name in folders:
                # Only an empty one can be removed; a link is not followed.
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.join(path, name))

    def _unlink(self, name: str) -> None:
        path = self.folder / name
        with contextlib.suppress(OSError):
            inside = path.parent.resolve().is_relative_to(self.folder.resolve())
            if inside and ".." not in PurePosixPath(name).parts:
                check_regular(path)
                path.unlink()
