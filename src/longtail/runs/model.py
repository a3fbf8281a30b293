"""Model folders: all files of a model are replaced at once, and no other file is touched.

One rename, to `.longtail-ready`, makes a new model current; its files are then moved into place.
Old files are removed only if their checksums match the old model's list.
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

# Makes a folder a model folder: written last, with the list of all other files.
CONFIG_FILE = "longtail.json"
CARD_FILE = "README.md"  # the model card, which users may edit
WORK = ".longtail-work"  # the unfinished training of a model, in its folder
READY = ".longtail-ready"  # a complete model, to be moved into the folder that contains it

ENGINES = ("torch", "onnx")
"""What computes a model's scores; the configuration of an exported model names it."""

Manifest = dict[str, dict[str, Any]]  # name -> size and sha256 of a model's files


def checksum(path: Path) -> str:
    """Return the sha256 of a file as hex digits."""
    with open(path, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def manifest(folder: Path) -> Manifest:
    """Return size and checksum of every file in a folder except CONFIG_FILE and the mark."""
    return {
        name: {"size": (folder / name).stat().st_size, "sha256": checksum(folder / name)}
        for name in files.files_in(folder)
        if name not in (files.MARK, CONFIG_FILE)
    }


def seal(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with a checksum of everything else in it."""
    # As read back: keys are strings, tuples are lists.
    plain = json.loads(json.dumps({k: v for k, v in config.items() if k != "checksum"}))
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return {**plain, "checksum": hashlib.sha256(text.encode("utf-8")).hexdigest()}


def read_config(folder: Path) -> dict[str, Any] | None:
    """Return the configuration in a folder; None if it is missing, foreign or damaged.

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
    """Return the folder of the current model: this one, or the READY one inside it."""
    ready = folder / READY
    is_ours = not ready.is_symlink() and files.key_of(ready)
    return ready if is_ours and (ready / CONFIG_FILE).is_file() else folder


def check_model(folder: Path) -> None:
    """Raise if there is no model in a folder, before anything heavy is imported."""
    if folder.is_file():
        raise DataError(
            f"{folder} is a file. Expected a model folder, as written by `longtail train`."
        )
    if not (whole_folder(folder) / CONFIG_FILE).exists():
        if files.key_of(folder / WORK):
            raise DataError(
                f"{folder} holds an unfinished training, and no model yet. Finish it with: "
                f"longtail train DATA --out {folder} --resume"
            )
        what = "has no such file" if folder.is_dir() else "does not exist"
        raise DataError(
            f"{folder} holds no longtail model: expected a {CONFIG_FILE} there, but the folder "
            f"{what}. Train one with: longtail train DATA --out {folder}"
        )


def check_engine(folder: Path, config: Mapping[str, Any], engine: str | None) -> None:
    """Raise if an engine is requested for which the model was not saved."""
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
    """Return the folder to save to; raise if it cannot be made or holds something else."""
    target = Path(folder)
    place = next(p for p in (target, *target.absolute().parents) if p.exists())
    if place == target and not target.is_dir():
        raise DataError(f"{target} is a file, not a folder. Choose another folder.")
    # Hidden files, such as .git, do not conflict with a model.
    is_used = place == target and any(p.name[0] != "." for p in target.iterdir())
    if is_used and read_config(whole_folder(target)) is None:
        raise DataError(
            f"{target} is not empty and holds no model that longtail wrote. Choose another folder."
        )
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        what = f"no permission to write to {place}" if place.is_dir() else f"{place} is a file"
        raise DataError(f"cannot save to {target}: {what}. Choose another folder.")
    return target


def replace_model(folder: Path, write: Callable[[Path], None]) -> None:
    """Replace the model in a folder atomically.

    Args:
        folder: made if need be; files that are not the model's stay.
        write: called with an empty folder; writes the model's files, and CONFIG_FILE, sealed, with
            their list.
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
    """Lock a folder, and finish the installation that a killed process began."""
    with _as_data_error(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with files.Lock(folder) as lock:
            lock.acquire(wait=True)
            if whole_folder(folder) != folder:
                _install(folder)
            yield


def write_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Write a new or empty folder atomically, without a mark: it is for other programs."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f"{folder} exists already and is not an empty folder. Choose another.")
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
    """Convert write errors to DataError, which says whether the old model is unchanged."""
    try:
        yield
    except PermissionError:
        raise
    except Exception as error:
        # Tokenizers report a full disk as a bare Exception, safetensors as SafetensorError.
        is_full_disk = type(error) is Exception or type(error).__name__ == "SafetensorError"
        if not (is_full_disk or isinstance(error, OSError)):
            raise
        is_kept = whole_folder(folder) == folder and read_config(folder) is not None
        kept = " The old model is unchanged." if is_kept else ""
        raise DataError(
            f"could not save to {folder}: {error}.{kept} Free some space, or choose another folder."
        ) from error


def _install(folder: Path) -> None:
    """Move the READY model into place, CONFIG_FILE last; may be repeated after a kill."""
    ready = folder / READY
    old, new = _listed(folder), _listed(ready)
    with files.staging(folder) as private:
        for name, entry in new.items():
            _set_aside(folder / name, old.get(name, entry), entry)
            _put(ready / name, folder / name, private / "file")
        for name in old.keys() - new.keys():
            # Files of the old model only, such as more folds; kept if they were changed.
            if _is_unchanged(folder / name, old[name]):
                (folder / name).unlink()
                with contextlib.suppress(OSError):
                    # Removes empty parents; this folder is not empty.
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
    """Back up a file that longtail did not write or the user edited, such as the card."""
    if place.is_file() and not any(_is_unchanged(place, entry) for entry in known):
        os.replace(place, f"{place}.{checksum(place)[:8]}.bak")


def _put(source: Path, place: Path, temporary: Path) -> None:
    """Replace a file atomically by a link to the source, or by a copy."""
    if place.exists() and place.samefile(source):
        # A rename between two names of one file does nothing, and leaves both.
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, temporary)
    except OSError:
        # The file system has no links.
        shutil.copy2(source, temporary)
        files.sync(temporary)
    os.replace(temporary, place)


def _listed(folder: Path) -> Manifest:
    """Return the files inside a folder that its model lists."""
    config = read_config(folder) or {"files": {}}
    return {
        name: entry
        for name, entry in config["files"].items()
        if isinstance(entry, dict) and name not in (CONFIG_FILE, files.MARK)
        if files.is_inside(folder, name)
    }


def _is_unchanged(path: Path, entry: Mapping[str, Any]) -> bool:
    """Return whether a file has the size and checksum of its entry."""
    try:
        size = files.check_regular(path).st_size
        return size == entry.get("size") and checksum(path) == entry.get("sha256")
    except OSError:
        return False
