"""The folder of a saved model: its files are replaced all at once, whoever is killed when.

New files are written beside the old ones and made ready by one rename, to `.longtail-ready`. From
then on that is the model, until all of its files have taken their places. Nothing else in the
folder is touched: it may be a clone of a repository, a mounted volume, or somebody's notes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from safetensors import SafetensorError

from longtail.durable import sync_file, sync_folder, sync_tree
from longtail.errors import DataError

CONFIG_FILE = "longtail.json"
OURS = ".longtail-"
READY = f"{OURS}ready"


def check_out(folder: str | Path) -> Path:
    """The folder to save to; an error if something else is there, or if it cannot be made."""
    target = Path(folder)
    try:
        if target.exists():
            # Hidden files, such as .git, are nobody's work that a model could overwrite.
            seen = target.is_dir() and any(p.name[0] != "." for p in target.iterdir())
            if not target.is_dir() or (seen and not _is_model(target)):
                raise DataError(
                    f"{target} exists and is not a longtail model. Choose another folder."
                )
        place = next(p for p in (target, *target.absolute().parents) if p.exists())
        if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
            raise OSError(f"{place} cannot be written to")
    except OSError as error:
        raise DataError(f"cannot save to {target}: {error}. Choose another folder.") from error
    return target


def whole_folder(folder: Path) -> Path:
    """Where the whole model is: in the folder, or ready to take its place there."""
    return folder / READY if (folder / READY / CONFIG_FILE).is_file() else folder


def replace_files(folder: Path, write: Callable[[Path], None]) -> None:
    """Put what `write` writes in place of the model in a folder: all of it or, if it fails, none.

    Args:
        folder: made if need be. What is in it beside the model stays as it is.
        write: called with an empty folder, into which it writes CONFIG_FILE among others.
    """
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _held(folder):
            _clear_up(folder)
            _stage(folder, write)
            _install(folder)
    except Exception as error:
        # Tokenizers tell of a full disk by a bare Exception.
        if isinstance(error, (OSError, SafetensorError)) or type(error) is Exception:
            raise DataError(_failed(folder, error)) from error
        raise
    finally:
        if is_new:
            with contextlib.suppress(OSError):
                folder.rmdir()


def _stage(folder: Path, write: Callable[[Path], None]) -> None:
    staged = folder / f"{OURS}{uuid.uuid4().hex}"
    staged.mkdir()
    try:
        write(staged)
        sync_tree(staged)
        os.rename(staged, folder / READY)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    sync_folder(folder)


def _failed(folder: Path, error: Exception) -> str:
    if (folder / READY).exists():
        return (
            f"the model was saved to {folder / READY}, and is read from there, but could not be "
            f"moved to {folder}: {error}. Free some space, then save it again."
        )
    kept = "The model that was there before is unchanged. " if _is_model(folder) else ""
    return f"could not save to {folder}: {error}. {kept}Free some space, or choose another folder."


def _is_model(folder: Path) -> bool:
    return (whole_folder(folder) / CONFIG_FILE).is_file()


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """One process saves to a folder at a time, where the system has locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        # Some network file systems lock no folders.
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _clear_up(folder: Path) -> None:
    """Finish what a killed process had made ready, and remove what it had not."""
    if (folder / READY / CONFIG_FILE).is_file():
        _install(folder)
    for left in folder.glob(f"{OURS}*"):
        shutil.rmtree(left, ignore_errors=True)


def _install(folder: Path) -> None:
    """Give every ready file its place, CONFIG_FILE last; a second time does no harm."""
    ready = folder / READY
    names = [p.relative_to(ready).as_posix() for p in sorted(ready.rglob("*")) if p.is_file()]
    for name in names:
        if name != CONFIG_FILE:
            _put(ready / name, folder / name)
    for name in _listed(folder) - set(names):
        # What the model before had more, such as further folds.
        (folder / name).unlink(missing_ok=True)
        for within in PurePosixPath(name).parents:
            if within.name:
                with contextlib.suppress(OSError):
                    (folder / within).rmdir()
    _put(ready / CONFIG_FILE, folder / CONFIG_FILE)
    for parent in {(folder / name).parent for name in names}:
        sync_folder(parent)
    done = folder / f"{OURS}{uuid.uuid4().hex}"
    os.rename(ready, done)
    shutil.rmtree(done, ignore_errors=True)


def _put(source: Path, place: Path) -> None:
    """Replace a file as a whole; the source stays where it is as well."""
    if place.exists() and place.samefile(source):
        # To rename one name of a file to another of its names does nothing, and leaves both.
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f"{OURS}{place.name}")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:
        # Not every file system has links.
        shutil.copy2(source, temporary)
        sync_file(temporary)
    os.replace(temporary, place)


def _listed(folder: Path) -> set[str]:
    """The files of the model in a folder by its own list, none of them outside of it."""
    try:
        names = json.loads((folder / CONFIG_FILE).read_text("utf-8"))["files"]
        inside = folder.resolve()
        return {
            str(name)
            for name in names
            if (folder / name).is_file() and (folder / name).resolve().is_relative_to(inside)
        } - {CONFIG_FILE}
    except (OSError, ValueError, KeyError, TypeError):
        return set()
