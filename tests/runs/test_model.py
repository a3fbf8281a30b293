"""Model folders: a complete model at any time, and other files untouched."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from longtail.errors import DataError, InputError
from longtail.runs.files import files_in, staging
from longtail.runs.model import (
    CONFIG_FILE,
    READY,
    WORK,
    check_model,
    check_out,
    manifest,
    replace_model,
    seal,
    whole_folder,
)
from longtail.runs.workspace import Workspace

from .cases import killed_at

OLD_FILES = ("model.safetensors", "fold-0/head.json", "fold-7/head.json")
NEW_FILES = ("model.safetensors", "fold-0/head.json", "fold-0/extra.json")
Save = Callable[[Path], None]


def writer(version: str, names: tuple[str, ...]) -> Callable[[Path], None]:
    """Return a function that writes a model with its version in every file."""

    def write(folder: Path) -> None:
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(f"{version} {name}")
        config = seal({"version": version, "files": manifest(folder)})
        (folder / CONFIG_FILE).write_text(json.dumps(config))

    return write


def version_of(folder: Path) -> str:
    """Return the version of the model in a folder; check that all files exist and agree."""
    place = whole_folder(folder)
    config = json.loads((place / CONFIG_FILE).read_text())
    for name in config["files"]:
        assert (place / name).read_text() == f"{config['version']} {name}"
    return str(config["version"])


save_old: Save = partial(replace_model, write=writer("old", OLD_FILES))
save_new: Save = partial(replace_model, write=writer("new", NEW_FILES))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder with a model and files of the user."""
    folder = tmp_path / "run"
    save_old(folder)
    (folder / "notes.txt").write_text("mine")
    (folder / "fold-0" / "notes.txt").write_text("mine")
    return folder


def test_a_model_is_replaced_and_everything_else_stays(model: Path) -> None:
    (model / ".git").mkdir()
    (model / ".git" / "HEAD").write_text("ref")
    save_new(model)
    assert version_of(model) == "new"
    others = {"notes.txt", "fold-0/notes.txt", ".git/HEAD"}
    assert {*files_in(model)} == {CONFIG_FILE, *NEW_FILES, *others}
    assert not (model / "fold-7").exists()


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not sync: only a power cut loses unsynced writes, a kill does not."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def killed_folders(tmp_path: Path, prepare: Save, work: Save) -> Iterator[Path]:
    """Yield prepared folders in which the work was killed before its 1st, 2nd, ... change."""
    for moment in range(1, 100):
        folder = tmp_path / str(moment)
        prepare(folder)
        killed = killed_at(moment, partial(work, folder))
        yield folder
        if not killed:
            return
    raise AssertionError("never finished")


@pytest.mark.usefixtures("unsynced")
def test_killed_at_every_moment_a_whole_model_remains(tmp_path: Path) -> None:
    seen = []

    def prepare(folder: Path) -> None:
        save_old(folder)
        (folder / "notes.txt").write_text("mine")

    for folder in killed_folders(tmp_path, prepare, save_new):
        seen.append(version_of(folder))
        assert check_out(folder) == folder
        # A second process succeeds whatever the first left.
        replace_model(folder, writer("later", OLD_FILES))
        assert version_of(folder) == "later"
        assert {*files_in(folder)} == {CONFIG_FILE, "notes.txt", *OLD_FILES}
    # From one moment on it is the new one.
    assert seen == sorted(seen, reverse=True)
    assert seen.count("old") >= 3 and seen.count("new") > 10


@pytest.mark.usefixtures("unsynced")
def test_killed_at_every_moment_of_finishing_what_was_left(tmp_path: Path) -> None:
    """The second process is killed while it installs the files of the first."""

    def prepare(folder: Path) -> None:
        save_old(folder)
        with staging(folder) as private:
            writer("new", NEW_FILES)(private)
            private.rename(folder / READY)

    save_later = partial(replace_model, write=writer("later", OLD_FILES))
    for folder in killed_folders(tmp_path, prepare, save_later):
        assert version_of(folder) in ("new", "later")


@pytest.mark.usefixtures("unsynced")
def test_killed_while_it_saves_for_the_first_time(tmp_path: Path) -> None:
    for folder in killed_folders(tmp_path, lambda folder: None, save_new):
        if (whole_folder(folder) / CONFIG_FILE).exists():
            assert version_of(folder) == "new"
        assert check_out(folder) == folder
        replace_model(folder, writer("later", NEW_FILES))
        assert {*files_in(folder)} == {CONFIG_FILE, *NEW_FILES}


def test_everything_is_on_the_disk_before_it_counts(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order that a power cut must not change: contents, readiness, places."""
    done: list[tuple[str, str]] = []
    sync, rename = os.fsync, os.rename

    def synced(handle: int) -> None:
        inode = os.fstat(handle).st_ino
        path = next(p for p in (model, *model.rglob("*")) if p.stat().st_ino == inode)
        done.append(("sync", path.name))
        sync(handle)

    def renamed(source: Path, target: Path) -> None:
        done.append(("rename", Path(target).name))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    save_new(model)
    ready = done.index(("rename", READY))
    written = {Path(name).name for name in (*NEW_FILES, CONFIG_FILE)}
    assert {name for _, name in done[:ready]} >= {*written, "fold-0"}
    (away,) = [k for k, (what, _) in enumerate(done) if what == "rename" and k != ready]
    assert {name for _, name in done[ready + 1 : away]} == {model.name, "fold-0"}
    # The folder is synced twice: with READY, and after the installation.
    assert [name for _, name in done[ready + 1 : away]].count(model.name) == 2


# Tokenizers report a full disk as a bare Exception.
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            OSError(errno.ENOSPC, "Full"),
            r"Full\. The old model is unchanged\. Free",
        ),
        (Exception("Full"), r"Full\. The old model is unchanged"),
        (InputError("as it was"), "^as it was$"),
    ],
)
def test_a_failure_leaves_the_old_model_or_nothing(
    model: Path, error: Exception, message: str
) -> None:
    def write(folder: Path) -> None:
        writer("new", NEW_FILES)(folder)
        raise error

    before = files_in(model)
    with pytest.raises((DataError, InputError), match=message):
        replace_model(model, write)
    assert version_of(model) == "old" and files_in(model) == before
    with pytest.raises((DataError, InputError), match=r"Full|as it was"):
        replace_model(model.with_name("other"), write)
    assert os.listdir(model.parent) == [model.name]


def test_a_file_system_without_links(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    save_new(model)
    assert version_of(model) == "new"
    assert not [name for name in files_in(model) if ".longtail-" in name]


def test_the_list_of_files_reaches_nothing_outside(tmp_path: Path) -> None:
    mine = (tmp_path / "thesis.txt", tmp_path / "elsewhere" / "book.txt")
    folder = tmp_path / "run"
    for path in (*mine, folder / "x"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    names = ["../thesis.txt", str(tmp_path / "thesis.txt"), "link/book.txt", "", ".", CONFIG_FILE]
    # Sizes and checksums match: only their place protects these files.
    entry = manifest(tmp_path / "elsewhere")["book.txt"]
    (folder / CONFIG_FILE).write_text(json.dumps(seal({"files": dict.fromkeys(names, entry)})))
    save_new(folder)
    assert [path.read_text() for path in mine] == ["mine"] * 2 and version_of(folder) == "new"


def test_an_old_file_is_removed_only_if_it_is_the_one_that_was_written(model: Path) -> None:
    (model / "fold-7" / "head.json").write_text("mine")
    save_new(model)
    assert version_of(model) == "new"
    assert (model / "fold-7" / "head.json").read_text() == "mine"


def test_what_somebody_else_wrote_or_changed_is_kept_beside_the_new_one(model: Path) -> None:
    (model / "fold-0" / "extra.json").write_text("mine")
    for version in ("one", "two"):
        (model / "model.safetensors").write_text(f"edited {version}")
        replace_model(model, writer(version, NEW_FILES))
        assert version_of(model) == version
    kept = {path.read_text() for path in model.rglob("*.bak")}
    assert kept == {"edited one", "edited two", "mine"}


def test_a_folder_is_not_ours_by_its_name(model: Path) -> None:
    key = "0123456789abcdef" * 2
    places = [model / name for name in (READY, f".longtail-{key}", ".longtail-notes")]
    for place in places:
        place.mkdir()
        (place / CONFIG_FILE).write_text("mine")
    (model / f".longtail-{key}" / ".longtail").write_text("longtail of another key")
    with pytest.raises(DataError, match=r"could not save"):
        save_new(model)
    assert version_of(model) == "old"
    assert [(place / CONFIG_FILE).read_text() for place in places] == ["mine"] * 3


@pytest.mark.parametrize("listed", ["null", '{"files": 3}', "{"])
def test_without_a_sound_list_everything_is_kept(model: Path, listed: str) -> None:
    (model / CONFIG_FILE).write_text(listed)
    before = {(model / name).read_text() for name in files_in(model)}
    save_new(model)
    assert version_of(model) == "new"
    assert before <= {(model / name).read_text() for name in files_in(model)}


@pytest.mark.usefixtures("unsynced")
def test_two_who_save_wait_for_each_other(tmp_path: Path) -> None:
    at_once = most = 0

    def write(target: Path) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        time.sleep(0.005)
        writer("new", NEW_FILES)(target)
        at_once -= 1

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(replace_model, [tmp_path / "run"] * 15, [write] * 15))
    assert most == 1 and version_of(tmp_path / "run") == "new"
    assert {*files_in(tmp_path / "run")} == {CONFIG_FILE, *NEW_FILES}


def test_where_one_can_save_to(tmp_path: Path, model: Path) -> None:
    for folder in ("thesis/chapter", "clone/.git"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "file").write_text("")
    for good in (model, tmp_path / "new" / "deep", tmp_path / "clone"):
        assert check_out(good) == good
    assert not (tmp_path / "new").exists()
    for bad, why in (
        ("thesis", "no model that longtail wrote"),
        ("file", "is a file, not a folder"),
    ):
        with pytest.raises(DataError, match=f"{why}. Choose another"):
            check_out(tmp_path / bad)
    with pytest.raises(DataError, match=r"cannot save to .*file/run.*Choose another folder"):
        check_out(tmp_path / "file" / "run")


def test_files_can_be_read_by_those_who_may_read_the_folder(model: Path) -> None:
    usual = model / "usual"
    usual.write_text("")
    for name in (CONFIG_FILE, *OLD_FILES):
        assert (model / name).stat().st_mode == usual.stat().st_mode


def test_an_unfinished_training_is_no_model(tmp_path: Path) -> None:
    Workspace.begin(tmp_path / "run" / WORK, {}).close()
    with pytest.raises(DataError, match=r"unfinished training.*train DATA --out .*run --resume"):
        check_model(tmp_path / "run")
