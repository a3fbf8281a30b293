"""Atomic writes: files and folders are complete or absent, even if the process is killed.

Everything is written in a private folder beside its destination, synced, and renamed. Private
folders of killed processes carry a mark, and the next process removes them.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from longtail.errors import InputError

# In every private folder and workspace: its key and, in a workspace, the list of its files.
MARK = ".longtail"
MADE_BY = "Made by longtail"  # in reports and figures, which later ones may replace
FIRST_LINE = re.compile(r"longtail ([0-9a-f]{32})\n")


def sync(path: Path) -> None:
    """Flush a file or folder to disk; errors of delayed writes are raised here."""
    # Some file systems cannot sync folders.
    with contextlib.suppress(OSError) if path.is_dir() else contextlib.nullcontext():
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync_tree(private: Path) -> None:
    """Flush everything in a private folder to disk, with the usual modes."""
    use_usual_modes(private)
    for path in (*private.rglob("*"), private):
        sync(path)


def files_in(folder: Path) -> list[str]:
    """Return the relative names of all files below a folder, sorted."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path.relative_to(folder).as_posix() for path in files]


def is_inside(folder: Path, name: str) -> bool:
    """Return whether a relative name leads to a place inside the folder, links followed."""
    parts = PurePosixPath(name).parts
    safe = parts and ".." not in parts and parts[0] != "/"
    return bool(safe) and (folder / name).parent.resolve().is_relative_to(folder.resolve())


class Lock:
    """An flock on a file or folder, released when the process ends.

    Always granted on a file system without locks.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_APPEND
        self._handle = os.open(path, flags)
        self.close = weakref.finalize(self, os.close, self._handle)

    @property
    def handle(self) -> int:
        """The file descriptor; raises once it is closed and may belong to another file."""
        if not self.close.alive:
            raise ValueError(f"{self.path} is no longer locked")
        return self._handle

    def acquire(self, *, shared: bool = False, wait: bool = False) -> bool:
        """Take the lock, or change its mode; False if another process holds it."""
        import fcntl  # here, because Windows does not have it

        mode = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
        try:
            fcntl.flock(self.handle, mode)
        except OSError as error:
            return not isinstance(error, BlockingIOError)
        return True

    def is_current(self) -> bool:
        """Return whether the path still leads to the locked file."""
        try:
            return os.path.samestat(os.fstat(self.handle), os.stat(self.path))
        except OSError:
            return False

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def staging(parent: Path) -> Iterator[Path]:
    """Make a private folder in `parent`, removed at the end unless it was renamed.

    Removes private folders of killed processes first.
    """
    remove_left_overs(parent)
    key = uuid.uuid4().hex
    private = parent / f".longtail-{key}"
    try:
        private.mkdir()
    except PermissionError as error:
        error.filename = str(parent)  # the user does not know the private folder
        raise
    with Lock(private) as lock:
        lock.acquire()
        # After locking: a marked folder without a lock is a leftover.
        (private / MARK).write_text(f"longtail {key}\n", "ascii")
        try:
            yield private
        finally:
            with contextlib.suppress(OSError):
                remove_private(private)


def remove_left_overs(parent: Path) -> None:
    """Remove private folders in `parent` whose processes have ended."""
    for path in parent.glob(".longtail-*"):
        with contextlib.suppress(OSError):
            if is_private(path):
                with Lock(path) as lock:
                    if lock.acquire() and is_private(path):
                        remove_private(path)


def is_private(path: Path) -> bool:
    """Return whether this is a private folder: the mark in it has the key in its name."""
    return not path.is_symlink() and path.name == f".longtail-{key_of(path)}"


def key_of(folder: Path) -> str | None:
    """Return the key in the mark of a folder that longtail made; None for any other folder.

    Raises PermissionError, because an unreadable folder may be longtail's.
    """
    try:
        mark = FIRST_LINE.match(read_regular(folder / MARK).decode("ascii", "replace"))
    except PermissionError:
        raise
    except OSError:
        return None
    return mark and mark[1]


def remove_private(folder: Path) -> None:
    """Remove a private folder, its mark last."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != MARK:
            path.unlink()
    (folder / MARK).unlink(missing_ok=True)
    folder.rmdir()


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path to write to, which replaces `path` once it is on disk.

    If anything fails, the old file stays. Missing folders are made. Raises OSError.
    """
    # A link stays a link: its target is replaced.
    place = Path(os.path.realpath(path))
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir():
        raise IsADirectoryError(f"{place} is a folder")
    if place.exists() and not place.is_file():
        yield place  # a device or pipe, such as /dev/stdout, cannot be replaced
        return
    with staging(place.parent) as private:
        temporary = private / place.name
        yield temporary
        if place.exists():
            shutil.copymode(place, temporary)
        else:
            use_usual_modes(private)
        sync(temporary)
        os.replace(temporary, place)
        sync(place.parent)


def use_usual_modes(private: Path) -> None:
    """Give files in a private folder the modes of the umask; safetensors writes them as 0600."""
    # The mark has the usual mode; reading the umask itself would change it for a moment.
    usual = stat.S_IMODE((private / MARK).stat().st_mode)
    for path in private.rglob("*"):
        if path.is_file() and stat.S_IMODE(path.stat().st_mode) != usual:
            path.chmod(usual)


def check_new(path: Path, overwrite: bool) -> None:
    """Raise if a file to write exists, unless the user asked to replace it."""
    if path.is_dir():
        raise InputError(f"{path} is a folder: expected the name of a file to write.")
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists already. Replace it with --overwrite.")


def check_not_read(path: Path, source: str | Path) -> None:
    """Raise if the file to write is, or lies in, the data being read."""
    read = Path(source)
    if path.exists() and read.exists() and (read.samefile(path) or read in path.parents):
        raise InputError(f"{path} is the data being read. Choose another name for the output.")


def check_replaceable(path: Path, overwrite: bool) -> None:
    """Raise if a file to write exists and does not contain MADE_BY, as reports and figures do.

    `overwrite`: the user asked to replace it.
    """
    if not path.is_file() or overwrite:
        return
    with path.open("rb") as opened:
        lines = iter(lambda: opened.readline(1 << 20), b"")
        if any(MADE_BY.encode() in line for line in lines):
            return
    raise InputError(
        f"{path} exists already and was not made by longtail. Replace it with --overwrite, or "
        "choose another name."
    )


def write_text(path: str | Path, text: str) -> None:
    """Write a text file atomically in UTF-8 without newline conversion; raises OSError."""
    with whole_file(path) as temporary:
        temporary.write_bytes(text.encode("utf-8"))


def read_regular(path: Path, links_within: Path | None = None) -> bytes:
    """Return the content of a regular file; raise OSError for a pipe, a device or a link.

    `links_within`: follow links to files inside this folder.
    """
    check_regular(path, links_within)
    return path.read_bytes()


def read_small(path: Path, limit: int = 64_000_000) -> str:
    """Return the text of a small file such as a recipe; raises OSError or ValueError."""
    with path.open("rb") as opened:
        content = opened.read(limit + 1)
    if len(content) > limit:
        raise OSError(f"it is larger than {limit // 1_000_000} MB")
    return content.decode("utf-8")


def check_regular(path: Path, links_within: Path | None = None) -> os.stat_result:
    """Return the status of a regular file; raise OSError for anything else, without opening it."""
    status = path.lstat()
    if links_within is not None and path.resolve().is_relative_to(links_within.resolve()):
        status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(f"{path} is not a regular file")
    return status
