"""Model folders: all files of a model are replaced at once, and no other file is touched.

A new model becomes ready by one rename, to `.longtail-ready`, and is the model from then on, until
all of its files have taken their places. Files are removed by checksums in its own list.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from longtail.checks import check_choice
from longtail.errors import DataError, InputError
from longtail.runs import files

# Makes a folder a model; written last, and has the list of all other files.
CONFIG_FILE = "longtail.json"
CARD_FILE = "README.md"  # the model card, which people edit: a changed one is no damage
READY = ".longtail-ready"  # a whole model on its way into the folder around it

ENGINES = ("torch", "onnx")
"""What computes the scores of a model; an exported one says so in its configuration."""

Manifest = dict[str, dict[str, Any]]  # name -> size and sha256 of every file of a model


def checksum(path: Path) -> str:
    """The sha256 of a file, as hex digits."""
    with open(path, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def manifest(folder: Path) -> Manifest:
    """Size and checksum of every file in a folder but those of `runs` itself."""
    return {
        name: {"size": (folder / name).stat().st_size, "sha256": checksum(folder / name)}
        for name in files.files_in(folder)
        if name not in (files.MARK, CONFIG_FILE)
    }


def seal(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with the checksum of everything else in it."""
    # As it is read back: keys are strings, tuples are lists.
    plain = json.loads(json.dumps({k: v for k, v in config.items() if k != "checksum"}))
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return {**plain, "checksum": hashlib.sha256(text.encode("utf-8")).hexdigest()}


def read_config(folder: Path) -> dict[str, Any] | None:
    """The configuration of the model in this very folder; None if it is not ours or damaged.

    Raises PermissionError.
    """
    try:
        config = json.loads(files.read_regular(folder / CONFIG_FILE))
        is_sealed = seal(config)["checksum"] == config["checksum"]
        return config if is_sealed and isinstance(config["files"], dict) else None
    except PermissionError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def whole_folder(folder: Path) -> Path:
    """The folder of the complete model: this one, or the one ready to be installed in it."""
    ready = folder / READY
    is_ours = not ready.is_symlink() and files.key_of(ready)
    return ready if is_ours and (ready / CONFIG_FILE).is_file() else folder


def check_model(folder: Path) -> None:
    """Raise if there is no model in a folder, before anything heavy is imported."""
    if folder.is_file():
        raise DataError(
            f"{folder} is a file. Expected the folder of a model, as `longtail train` writes it."
        )
    if not (whole_folder(folder) / CONFIG_FILE).exists():
        what = "has no such file" if folder.is_dir() else "does not exist"
        raise DataError(
            f"{folder} holds no longtail model: expected a {CONFIG_FILE} there, but it {what}. "
            f"Train one with: longtail train DATA --out {folder}"
        )


def check_engine(folder: Path, config: Mapping[str, Any], engine: str | None) -> None:
    """Raise if another engine is requested than the one that a model was saved for."""
    saved = config.get("engine", ENGINES[0])
    if engine is None or engine == saved:
        return
    check_choice("engine", engine, ENGINES)
    if engine == "onnx":
        raise InputError(
            f"{folder} was not exported to ONNX. Export it, then use the exported folder: "
            f"longtail export {folder} --to onnx --out {folder}-onnx"
        )
    raise InputError(
        f"{folder} was exported to ONNX and has no weights for torch. Use the run that it was "
        f"exported from, or --engine {saved}."
    )


def check_out(folder: str | Path) -> Path:
    """The folder to save to; an error if something else is there, or if it cannot be made."""
    target = Path(folder)
    place = next(p for p in (target, *target.absolute().parents) if p.exists())
    # Hidden files, such as .git, do not conflict with a model.
    if place == target and (
        not target.is_dir()
        or (
            any(p.name[0] != "." for p in target.iterdir())
            and read_config(whole_folder(target)) is None
        )
    ):
        what = "is not empty and holds no model that longtail wrote"
        what = what if target.is_dir() else "is a file, not a folder"
        raise DataError(f"{target} {what}. Choose another folder.")
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        what = f"no permission to write to {place}" if place.is_dir() else f"{place} is a file"
        raise DataError(f"cannot save to {target}: {what}. Choose another folder.")
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
        with _installing(folder):
            with files.staging(folder) as private:
                write(private)
                files.sync_tree(private)
                os.rename(private, folder / READY)
            files.sync(folder)
            _install(folder)
    finally:
        if is_new:
            with contextlib.suppress(OSError):
                folder.rmdir()


def finish_install(folder: Path) -> None:
    """Complete the installation of a model whose process was killed."""
    with _installing(folder):
        files.remove_left_overs(folder)


@contextmanager
def _installing(folder: Path) -> Iterator[None]:
    """Hold a folder alone, once what a killed process was installing has its place."""
    with _as_data_error(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with files.Lock(folder) as lock:
            lock.acquire(wait=True)
            if whole_folder(folder) != folder:
                _install(folder)
            yield


def write_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Make a folder, which must not be there or be empty, of what `write` writes: all or nothing.

    Nothing in it says that longtail made it: it is for other programs.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f"{folder} is there already and not an empty folder. Choose another.")
    with _as_data_error(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with files.staging(folder.parent) as private:
            write(private)
            files.sync_tree(private)
            (private / files.MARK).unlink()
            os.rename(private, folder)
        files.sync(folder.parent)


@contextmanager
def _as_data_error(folder: Path) -> Iterator[None]:
    """Say what a full disk leaves behind."""
    try:
        yield
    except PermissionError:
        raise
    except Exception as error:
        # Tokenizers report a full disk as a bare Exception, safetensors as its own kind.
        full_disk = type(error) is Exception or type(error).__name__ == "SafetensorError"
        if not (full_disk or isinstance(error, OSError)):
            raise
        is_old = whole_folder(folder) == folder and read_config(folder) is not None
        kept = " The model that was there before is unchanged." if is_old else ""
        raise DataError(
            f"could not save to {folder}: {error}.{kept} Free some space, or choose another folder."
        ) from error


def _install(folder: Path) -> None:
    """Give every ready file its place, CONFIG_FILE last; a second time does no harm."""
    ready = folder / READY
    old, new = _listed(folder), _listed(ready)
    with files.staging(folder) as private:
        for name, entry in new.items():
            _set_aside(folder / name, old.get(name, entry), entry)
            _put(ready / name, folder / name, private / "file")
        for name in old.keys() - new.keys():
            # Files of the old model alone, such as further folds; kept if they were changed.
            if _is_file(folder / name, old[name]):
                (folder / name).unlink()
                with contextlib.suppress(OSError):
                    # Up to the first that is not empty, as this folder is not.
                    os.removedirs((folder / name).parent)
        if read_config(folder) is None:
            _set_aside(folder / CONFIG_FILE)
        _put(ready / CONFIG_FILE, folder / CONFIG_FILE, private / "file")
    for parent in {(folder / name).parent for name in (*new, CONFIG_FILE)}:
        files.sync(parent)
    done = folder / f".longtail-{files.key_of(ready)}"
    os.rename(ready, done)
    with contextlib.suppress(OSError):
        files.remove_private(done)


def _set_aside(place: Path, *known: Mapping[str, Any]) -> None:
    """Back up a file that longtail did not write, or that was edited since, such as the card."""
    if place.is_file() and not any(_is_file(place, entry) for entry in known):
        os.replace(place, f"{place}.{checksum(place)[:8]}.bak")


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
        files.sync(temporary)
    os.replace(temporary, place)


def _listed(folder: Path) -> Manifest:
    """The files of the model in this very folder by its own list, none of them outside of it."""
    config = read_config(folder) or {"files": {}}
    return {
        name: entry
        for name, entry in config["files"].items()
        if isinstance(entry, dict) and name not in (CONFIG_FILE, files.MARK)
        if files.is_inside(folder, name)
    }


def _is_file(path: Path, entry: Mapping[str, Any]) -> bool:
    """Whether the very file that the list describes is there."""
    try:
        size = files.check_regular(path).st_size
        return size == entry.get("size") and checksum(path) == entry.get("sha256")
    except OSError:
        return False
