"""The folder of a model: its files are replaced all at once, and nothing else there is touched.

A new model becomes ready by one rename, to `.longtail-ready`, and is the model from then on, until
all of its files have taken their places. Files are removed by checksums in its own list.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from longtail.errors import DataError
from longtail.runs.files import (
    MARK,
    Lock,
    check_regular,
    has_mark,
    read_regular,
    remove_left_overs,
    remove_private,
    staging,
    sync_file,
    sync_folder,
    sync_tree,
    use_usual_modes,
    whole_file,
)

CONFIG_FILE = "longtail.json"
"""Makes a folder a model; written last, and has the list of all other files."""
CARD_FILE = "README.md"
"""The model card, which people edit: a changed one is no damage."""
READY = ".longtail-ready"
"""A whole model on its way into the folder around it."""
CHUNK = 1 << 20

Manifest = dict[str, dict[str, Any]]
"""Name -> size and sha256 of every file of a model."""


def checksum(path: Path) -> str:
    """The sha256 of a file, as hex digits."""
    found = hashlib.sha256()
    with open(path, "rb") as opened:
        while chunk := opened.read(CHUNK):
            found.update(chunk)
    return found.hexdigest()


def manifest(folder: Path) -> Manifest:
    """Size and checksum of every file in a folder but those of `runs` itself."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in files}
    return {
        name: {"size": path.stat().st_size, "sha256": checksum(path)}
        for name, path in names.items()
        if name not in (MARK, CONFIG_FILE)
    }


def seal(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with the checksum of everything else in it."""
    # As it is read back: keys are strings, tuples are lists.
    plain = json.loads(json.dumps({k: v for k, v in config.items() if k != "checksum"}))
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return {**plain, "checksum": hashlib.sha256(text.encode("utf-8")).hexdigest()}


def read_config(folder: Path, links_within: Path | None = None) -> dict[str, Any] | None:
    """The configuration of the model in this very folder; None if it is not ours or damaged."""
    try:
        found = json.loads(read_regular(folder / CONFIG_FILE, links_within))
        sealed = seal(found)["checksum"] == found["checksum"]
        return found if sealed and isinstance(found["files"], dict) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def whole_folder(folder: Path) -> Path:
    """Where the whole model is: in the folder, or ready to take its place there."""
    ready = folder / READY
    is_ours = not ready.is_symlink() and has_mark(ready)
    return ready if is_ours and (ready / CONFIG_FILE).is_file() else folder


def holds_model(folder: Path) -> bool:
    """Whether there is a model that longtail wrote."""
    return read_config(whole_folder(folder)) is not None


def check_out(folder: str | Path) -> Path:
    """The folder to save to; an error if something else is there, or if it cannot be made."""
    target = Path(folder)
    try:
        if target.exists():
            # Hidden files, such as .git, are nobody's work that a model could overwrite.
            seen = target.is_dir() and any(p.name[0] != "." for p in target.iterdir())
            if not target.is_dir() or (seen and not holds_model(target)):
                raise DataError(
                    f"{target} is not empty and holds no model that longtail wrote. Choose another "
                    "folder."
                )
        place = next(p for p in (target, *target.absolute().parents) if p.exists())
        if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
            raise OSError(f"{place} cannot be written to")
    except OSError as error:
        raise DataError(f"cannot save to {target}: {error}. Choose another folder.") from error
    return target


def replace_model(folder: Path, write: Callable[[Path], None]) -> None:
    """Put what `write` writes in place of the model in a folder: all of it or, if it fails, none.

    Args:
        folder: made if need be. What is in it beside the model stays as it is.
        write: called with an empty folder, into which it writes CONFIG_FILE, sealed, and the files
            that are listed there.
    """
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with Lock(folder) as lock:
            lock.acquire(wait=True)
            _finish_install(folder)
            with staging(folder) as private:
                write(private)
                _check_names(folder, private)
                use_usual_modes(private)
                sync_tree(private)
                os.rename(private, folder / READY)
            sync_folder(folder)
            _install(folder)
    except Exception as error:
        # Tokenizers report a full disk as a bare Exception, safetensors as its own kind.
        if (
            isinstance(error, OSError)
            or type(error) is Exception
            or type(error).__name__ == "SafetensorError"
        ):
            raise DataError(_not_saved(folder, error)) from error
        raise
    finally:
        if is_new:
            with contextlib.suppress(OSError):
                folder.rmdir()


def finish_install(folder: Path) -> None:
    """Do what a killed process did not get to: give the files of a ready model their places."""
    try:
        with Lock(folder) as lock:
            lock.acquire(wait=True)
            _finish_install(folder)
            remove_left_overs(folder)
    except OSError as error:
        raise DataError(_not_saved(folder, error)) from error


def _finish_install(folder: Path) -> None:
    if whole_folder(folder) != folder:
        _check_names(folder, folder / READY)
        _install(folder)


def _not_saved(folder: Path, error: Exception) -> str:
    if whole_folder(folder) != folder:
        return (
            f"the model was saved to {folder / READY}, and is read from there, but could not be "
            f"moved to {folder}: {error}. Free some space, then save it again."
        )
    kept = "The model that was there before is unchanged. " if holds_model(folder) else ""
    return f"could not save to {folder}: {error}. {kept}Free some space, or choose another folder."


def _check_names(folder: Path, source: Path) -> None:
    """Raise if a file of the new model would take the place of one that is not longtail's."""
    files = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    others = files - _listed(source).keys() - {CONFIG_FILE, MARK}
    if others:
        raise DataError(f"{source / min(others)} is no part of the model that is saved. Move it.")
    ours = {*_listed(folder), *([CONFIG_FILE] if read_config(folder) else [])}
    for name, entry in {**_listed(source), CONFIG_FILE: {}}.items():
        place = folder / name
        # After a kill some files of the new model have their places already.
        if name in ours or not os.path.lexists(place) or _is_file(place, entry):
            continue
        raise DataError(
            f"{place} is in the way: the model has a file of that name, and longtail did not write "
            "this one. Nothing was changed. Move it, or choose another folder."
        )


def _install(folder: Path) -> None:
    """Give every ready file its place, CONFIG_FILE last; a second time does no harm."""
    ready = folder / READY
    old, new = _listed(folder), _listed(ready)
    _keep_changed(folder, old, new)
    with staging(folder) as private:
        for name in new:
            _put(ready / name, folder / name, private / "file")
        for name in old.keys() - new.keys():
            # What the model before had more, such as further folds; not if somebody changed it.
            if _is_file(folder / name, old[name]):
                (folder / name).unlink()
                _remove_empty_parents(folder, name)
        _put(ready / CONFIG_FILE, folder / CONFIG_FILE, private / "file")
    for parent in {(folder / name).parent for name in (*new, CONFIG_FILE)}:
        sync_folder(parent)
    done = folder / f".longtail-{_key(ready)}"
    os.rename(ready, done)
    with contextlib.suppress(OSError):
        remove_private(done)


def _keep_changed(folder: Path, old: Manifest, new: Manifest) -> None:
    """What somebody has changed since it was saved, such as the card, is kept beside the new one.

    A file that is the new one already was put there by a process that was killed.
    """
    for name in old.keys() & new.keys():
        path = folder / name
        if not path.is_file() or _is_file(path, old[name]) or _is_file(path, new[name]):
            continue
        copies = [path.with_name(f"{path.name}.{n}.bak") for n in range(1, 1000)]
        if not any(copy.is_file() and checksum(copy) == checksum(path) for copy in copies):
            free = next(copy for copy in copies if not os.path.lexists(copy))
            with whole_file(free) as temporary:
                shutil.copy2(path, temporary)


def _put(source: Path, place: Path, temporary: Path) -> None:
    """Replace a file as a whole, by way of a private name; the source stays where it is as well."""
    if place.exists() and place.samefile(source):
        # To rename one name of a file to another of its names does nothing, and leaves both.
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, temporary)
    except OSError:
        # Not every file system has links.
        shutil.copy2(source, temporary)
        sync_file(temporary)
    os.replace(temporary, place)


def _listed(folder: Path) -> Manifest:
    """The files of the model in this very folder by its own list, none of them outside of it."""
    config = read_config(folder)
    if config is None:
        return {}
    inside = folder.resolve()
    return {
        name: entry
        for name, entry in config["files"].items()
        if name
        and name not in (CONFIG_FILE, MARK)
        and isinstance(entry, dict)
        and not PurePosixPath(name).is_absolute()
        and ".." not in PurePosixPath(name).parts
        and (folder / name).parent.resolve().is_relative_to(inside)
    }


def _is_file(path: Path, entry: Mapping[str, Any]) -> bool:
    """Whether the very file that the list describes is there."""
    try:
        found = check_regular(path)
        return found.st_size == entry.get("size") and checksum(path) == entry.get("sha256")
    except OSError:
        return False


def _key(folder: Path) -> str:
    return read_regular(folder / MARK).decode("ascii")[len("longtail ") :][:32]


def _remove_empty_parents(folder: Path, name: str) -> None:
    for within in PurePosixPath(name).parents:
        if within.name:
            with contextlib.suppress(OSError):
                (folder / within).rmdir()
