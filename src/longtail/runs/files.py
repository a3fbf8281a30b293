"""Atomic writes: files and folders are complete or absent, whatever stops the process.

Everything is written in a private folder beside its destination, synced, and renamed. Leftovers of
killed processes carry a mark, and the next process removes them.
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

# In every private folder and workspace: who made it and, in a workspace, the list of its files.
MARK = ".longtail"
MADE_BY = "Made by longtail"  # in reports and figures, which a later one may replace
FIRST_LINE = re.compile(r"longtail ([0-9a-f]{32})\n")


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk; an error of a delayed write comes up here."""
    # Not every folder can be synced.
    with contextlib.suppress(OSError) if path.is_dir() else contextlib.nullcontext():
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync_tree(private: Path) -> None:
    """Everything in a private folder onto the disk, with the modes that the umask says."""
    use_usual_modes(private)
    for path in (*private.rglob("*"), private):
        sync(path)


def files_in(folder: Path) -> list[str]:
    """The names of all files in a folder and those within, relative to it, sorted."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path.relative_to(folder).as_posix() for path in files]


def is_inside(folder: Path, name: str) -> bool:
    """Whether a name on a list is that of something in the folder, also where it holds links."""
    parts = PurePosixPath(name).parts
    safe = parts and ".." not in parts and parts[0] != "/"
    return bool(safe) and (folder / name).parent.resolve().is_relative_to(folder.resolve())


class Lock:
    """The operating system's lock on a file or folder; it ends with its process.

    On a file system without locks it is always granted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_APPEND
        self._handle = os.open(path, flags)
        self.close = weakref.finalize(self, os.close, self._handle)

    @property
    def handle(self) -> int:
        """The open file; once it is closed its number may be that of another one."""
        if not self.close.alive:
            raise ValueError(f"{self.path} is no longer held")
        return self._handle

    def acquire(self, *, shared: bool = False, wait: bool = False) -> bool:
        """Take the lock, or change its mode; False if another process holds it."""
        import fcntl  # not on Windows, where everything but locks still imports

        mode = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
        try:
            fcntl.flock(self.handle, mode)
        except OSError as error:
            return not isinstance(error, BlockingIOError)
        return True

    def is_current(self) -> bool:
        """Whether the path still leads to what is locked."""
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
    """A private folder in `parent`, removed at the end unless it was renamed.

    What killed processes have left in `parent` is removed first.
    """
    remove_left_overs(parent)
    key = uuid.uuid4().hex
    private = parent / f".longtail-{key}"
    try:
        private.mkdir()
    except PermissionError as error:
        error.filename = str(parent)  # the user knows no private folder
        raise
    with Lock(private) as lock:
        lock.acquire()
        # Only now may others take it for a left-over, once it is not locked any more.
        (private / MARK).write_text(f"longtail {key}\n", "ascii")
        try:
            yield private
        finally:
            with contextlib.suppress(OSError):
                remove_private(private)


def remove_left_overs(parent: Path) -> None:
    """Remove private folders in `parent` whose processes are gone."""
    for path in parent.glob(".longtail-*"):
        with contextlib.suppress(OSError):
            if is_private(path):
                with Lock(path) as lock:
                    if lock.acquire() and is_private(path):
                        remove_private(path)


def is_private(path: Path) -> bool:
    """Whether longtail made a folder of this name, as the mark in it says."""
    return not path.is_symlink() and path.name == f".longtail-{key_of(path)}"


def key_of(folder: Path) -> str | None:
    """The key in the mark of a folder that longtail made; None for any other folder.

    Raises PermissionError: what may not be read may well be longtail's.
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
    """A name to write to; what is written there takes its place once it is on the disk.

    What was there before stays until then, and stays for good if anything fails. The folder is made
    if need be. Raises OSError.
    """
    # A link stays a link: what it leads to is replaced.
    place = Path(os.path.realpath(path))
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir():
        raise IsADirectoryError(f"{place} is a folder")
    if place.exists() and not place.is_file():
        yield place  # a device or pipe, such as /dev/stdout, is written to and never replaced
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
    """Give files in a private folder the modes that the umask says; safetensors makes them 0600."""
    # The mark was opened as any file is. To ask for the umask itself is to change it for a moment.
    usual = stat.S_IMODE((private / MARK).stat().st_mode)
    for path in private.rglob("*"):
        if path.is_file() and stat.S_IMODE(path.stat().st_mode) != usual:
            path.chmod(usual)


def check_new(path: Path, overwrite: bool) -> None:
    """Raise unless nothing is in a file's place, or the user asked to replace it."""
    if path.is_dir():
        raise InputError(f"{path} is a folder: expected the name of a file to write.")
    if path.exists() and not overwrite:
        raise InputError(f"{path} is there already. Replace it with --overwrite.")


def check_not_read(path: Path, source: str | Path) -> None:
    """Raise if writing to a file would change what is being read."""
    read = Path(source)
    # Other columns of the source, or another file, would be lost.
    if path.exists() and read.exists() and (read.samefile(path) or read in path.parents):
        raise InputError(f"{path} is the data being read. Choose another name for the output.")


def check_replaceable(path: Path, overwrite: bool) -> None:
    """Raise if writing to a file would lose something: it is there, and longtail did not make it.

    Reports and figures say MADE_BY inside. `overwrite`: the user asked for it.
    """
    if not path.is_file() or overwrite:
        return
    with path.open("rb") as opened:
        lines = iter(lambda: opened.readline(1 << 20), b"")
        if any(MADE_BY.encode() in line for line in lines):
            return
    raise InputError(
        f"{path} is there already, and does not say that longtail made it. Replace it with "
        "--overwrite, or choose another name."
    )


def write_text(path: str | Path, text: str) -> None:
    """Write a whole text file in UTF-8, the same bytes on every system; raises OSError."""
    with whole_file(path) as temporary:
        temporary.write_bytes(text.encode("utf-8"))


def read_regular(path: Path, links_within: Path | None = None) -> bytes:
    """The content of a regular file; raises OSError for a pipe, a device or a link.

    `links_within`: links are followed if they lead to a file inside this folder.
    """
    check_regular(path, links_within)
    return path.read_bytes()


def read_small(path: Path, limit: int = 64_000_000) -> str:
    """The text of a file that a user names, such as a recipe; raises OSError or ValueError."""
    with path.open("rb") as opened:
        content = opened.read(limit + 1)
    if len(content) > limit:
        raise OSError(f"it is larger than {limit // 1_000_000} MB")
    return content.decode("utf-8")


def check_regular(path: Path, links_within: Path | None = None) -> os.stat_result:
    """The status of a regular file; raises OSError for anything else, before it is opened."""
    status = path.lstat()
    if links_within is not None and path.resolve().is_relative_to(links_within.resolve()):
        status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(f"{path} is not a regular file")
    return status
