"""Saved folders: a whole model at every moment, and nothing of anybody else's touched."""

from __future__ import annotations

import errno
import json
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from longtail.errors import DataError, InputError
from longtail.runs.files import files_in, staging
from longtail.runs.model import (
    CONFIG_FILE,
    READY,
    check_out,
    manifest,
    replace_model,
    seal,
    whole_folder,
)

from .cases import killed_at

OLD_FILES = ("model.safetensors", "fold-0/head.json", "fold-7/head.json")
NEW_FILES = ("model.safetensors", "fold-0/head.json", "fold-0/extra.json")


def writer(version: str, names: tuple[str, ...]) -> Callable[[Path], None]:
    """Writes a model every file of which says its version."""

    def write(folder: Path) -> None:
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(f"{version} {name}")
        config = seal({"version": version, "files": manifest(folder)})
        (folder / CONFIG_FILE).write_text(json.dumps(config))

    return write


def version_of(folder: Path) -> str:
    """The version of the model in a folder, all of whose files must be there and agree."""
    place = whole_folder(folder)
    config = json.loads((place / CONFIG_FILE).read_text())
    for name in config["files"]:
        assert (place / name).read_text() == f"{config['version']} {name}"
    return str(config["version"])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder with a model, and with a file of the user's."""
    folder = tmp_path / "run"
    replace_model(folder, writer("old", OLD_FILES))
    (folder / "notes.txt").write_text("mine")
    (folder / "fold-0" / "notes.txt").write_text("mine")
    return folder


def test_a_model_is_replaced_and_everything_else_stays(model: Path) -> None:
    (model / ".git").mkdir()
    (model / ".git" / "HEAD").write_text("ref")
    replace_model(model, writer("new", NEW_FILES))
    assert version_of(model) == "new"
    others = {"notes.txt", "fold-0/notes.txt", ".git/HEAD"}
    assert files_in(model) == {CONFIG_FILE, *NEW_FILES, *others}
    assert not (model / "fold-7").exists()


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process loses nothing that it has written, synced or not; a power cut does."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.mark.usefixtures("unsynced")
def test_killed_at_every_moment_a_whole_model_remains(tmp_path: Path) -> None:
    moment, seen = 0, []
    while True:
        moment += 1
        folder = tmp_path / str(moment)
        replace_model(folder, writer("old", OLD_FILES))
        (folder / "notes.txt").write_text("mine")
        killed = killed_at(moment, lambda: replace_model(folder, writer("new", NEW_FILES)))  # noqa: B023
        seen.append(version_of(folder))
        assert check_out(folder) == folder
        # A second one finds its way whatever the first has left.
        replace_model(folder, writer("later", OLD_FILES))
        assert version_of(folder) == "later"
        expected = {CONFIG_FILE, "notes.txt", *OLD_FILES}
        assert files_in(folder) == expected
        if not killed:
            break
    # There is one moment from which on it is the new one.
    assert seen == sorted(seen, reverse=True)
    assert seen.count("old") >= 3 and seen.count("new") > 10


@pytest.mark.usefixtures("unsynced")
def test_killed_at_every_moment_of_finishing_what_was_left(tmp_path: Path) -> None:
    """The second process is killed while it puts the files of the first into their places."""
    for moment in range(1, 100):
        folder = tmp_path / str(moment)
        replace_model(folder, writer("old", OLD_FILES))
        with staging(folder) as private:
            writer("new", NEW_FILES)(private)
            private.rename(folder / READY)
        killed = killed_at(moment, lambda: replace_model(folder, writer("later", OLD_FILES)))  # noqa: B023
        assert version_of(folder) in ("new", "later")
        if not killed:
            return
    raise AssertionError("never finished")


@pytest.mark.usefixtures("unsynced")
def test_killed_while_it_saves_for_the_first_time(tmp_path: Path) -> None:
    for moment in range(1, 100):
        folder = tmp_path / str(moment)
        killed = killed_at(moment, lambda: replace_model(folder, writer("new", NEW_FILES)))  # noqa: B023
        if (whole_folder(folder) / CONFIG_FILE).exists():
            assert version_of(folder) == "new"
        assert check_out(folder) == folder
        replace_model(folder, writer("later", NEW_FILES))
        assert files_in(folder) == {CONFIG_FILE, *NEW_FILES}
        if not killed:
            return
    raise AssertionError("never finished")


def test_everything_is_on_the_disk_before_it_counts(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a power cut must not undo in another order: contents, readiness, places."""
    done: list[tuple[str, str]] = []
    sync, rename = os.fsync, os.rename

    def synced(handle: int) -> None:
        inode = os.fstat(handle).st_ino
        found = next(p for p in (model, *model.rglob("*")) if p.stat().st_ino == inode)
        done.append(("sync", found.name))
        sync(handle)

    def renamed(source: Path, target: Path) -> None:
        done.append(("rename", Path(target).name))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    replace_model(model, writer("new", NEW_FILES))
    ready = done.index(("rename", READY))
    written = {Path(name).name for name in (*NEW_FILES, CONFIG_FILE)}
    assert {name for _, name in done[:ready]} >= {*written, "fold-0"}
    (away,) = [k for k, (what, _) in enumerate(done) if what == "rename" and k != ready]
    assert {name for _, name in done[ready + 1 : away]} == {model.name, "fold-0"}
    # The folder twice: with what is ready, and with what has taken its place.
    assert [name for _, name in done[ready + 1 : away]].count(model.name) == 2


@contextmanager
def files_limited_to(n_bytes: int) -> Iterator[None]:
    """A disk that takes no larger files, for this process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_the_old_model(model: Path) -> None:
    before = files_in(model)

    def write(folder: Path) -> None:
        writer("new", NEW_FILES)(folder)
        (folder / "large.safetensors").write_bytes(bytes(10_000))

    with files_limited_to(5000), pytest.raises(DataError, match=r"before is unchanged. Free some"):
        replace_model(model, write)
    assert version_of(model) == "old"
    assert files_in(model) == before


def test_a_failure_leaves_no_new_folder(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        (folder / CONFIG_FILE).write_text("{}")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DataError, match=r"No space left on device. Free some space"):
        replace_model(tmp_path / "run", write)
    assert list(tmp_path.iterdir()) == []


def test_errors_of_ours_pass_as_they_are(model: Path) -> None:
    def write(folder: Path) -> None:
        raise InputError("as it was")

    with pytest.raises(InputError, match="as it was"):
        replace_model(model, write)
    assert version_of(model) == "old"


def test_a_file_system_without_links(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    replace_model(model, writer("new", NEW_FILES))
    assert version_of(model) == "new"
    assert not [name for name in files_in(model) if ".longtail-" in name]


def test_the_list_of_files_reaches_nothing_outside(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "book.txt").write_text("mine")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    names = ["../thesis.txt", str(tmp_path / "thesis.txt"), "link/book.txt", "", ".", CONFIG_FILE]
    # The right sizes and checksums: what protects these files is where they are.
    entry = manifest(tmp_path / "elsewhere")["book.txt"]
    (folder / CONFIG_FILE).write_text(json.dumps(seal({"files": dict.fromkeys(names, entry)})))
    replace_model(folder, writer("new", NEW_FILES))
    assert (tmp_path / "thesis.txt").read_text() == "mine"
    assert (tmp_path / "elsewhere" / "book.txt").read_text() == "mine"
    assert version_of(folder) == "new"


def test_an_old_file_is_removed_only_if_it_is_the_one_that_was_written(model: Path) -> None:
    (model / "fold-7" / "head.json").write_text("mine")
    replace_model(model, writer("new", NEW_FILES))
    assert version_of(model) == "new"
    assert (model / "fold-7" / "head.json").read_text() == "mine"


def test_a_file_of_the_user_is_not_overwritten(model: Path) -> None:
    (model / "fold-0" / "extra.json").write_text("mine")
    before = files_in(model)
    with pytest.raises(DataError, match=r"extra.json is in the way.*Nothing was changed. Move it"):
        replace_model(model, writer("new", NEW_FILES))
    assert version_of(model) == "old" and files_in(model) == before
    assert (model / "fold-0" / "extra.json").read_text() == "mine"


def test_an_edited_card_is_kept_beside_the_new_one(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    replace_model(folder, writer("old", ("README.md",)))
    replace_model(folder, writer("newer", ("README.md",)))
    assert files_in(folder) == {CONFIG_FILE, "README.md"}
    for version in ("one", "two"):
        (folder / "README.md").write_text(f"edited {version}")
        replace_model(folder, writer(version, ("README.md",)))
        assert version_of(folder) == version
    assert (folder / "README.md.1.bak").read_text() == "edited one"
    assert (folder / "README.md.2.bak").read_text() == "edited two"


def test_a_folder_is_not_ours_by_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    replace_model(folder, writer("old", OLD_FILES))
    key = "0123456789abcdef" * 2
    for name in (READY, f".longtail-{key}", ".longtail-notes", ".longtail-work"):
        (folder / name).mkdir()
        (folder / name / CONFIG_FILE).write_text("mine")
    (folder / f".longtail-{key}" / ".longtail").write_text("longtail of another key")
    assert version_of(folder) == "old"
    with pytest.raises(DataError, match=r"could not save"):
        replace_model(folder, writer("new", NEW_FILES))
    assert version_of(folder) == "old"
    for name in (READY, f".longtail-{key}", ".longtail-notes", ".longtail-work"):
        assert (folder / name / CONFIG_FILE).read_text() == "mine"


@pytest.mark.parametrize("listed", ["null", "[]", '{"files": 3}', '{"files": [3]}', "{", '"x"'])
def test_without_a_sound_list_nothing_is_replaced(model: Path, listed: str) -> None:
    (model / CONFIG_FILE).write_text(listed)
    before = {name: (model / name).read_bytes() for name in files_in(model)}
    with pytest.raises(DataError, match=r"is in the way.*Nothing was changed"):
        replace_model(model, writer("new", NEW_FILES))
    assert {name: (model / name).read_bytes() for name in files_in(model)} == before


@pytest.mark.usefixtures("unsynced")
def test_two_who_save_wait_for_each_other(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    at_once = most = 0
    errors: list[BaseException] = []

    def write(version: str, target: Path) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        time.sleep(0.005)
        writer(version, NEW_FILES)(target)
        at_once -= 1

    def save(version: str) -> None:
        try:
            for _ in range(5):
                replace_model(folder, lambda target: write(version, target))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=save, args=(f"v{k}",)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and most == 1
    assert version_of(folder) in {"v0", "v1", "v2"}
    assert files_in(folder) == {CONFIG_FILE, *NEW_FILES}


def test_where_one_can_save_to(tmp_path: Path, model: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("mine")
    (tmp_path / "file").write_text("")
    (tmp_path / "clone" / ".git").mkdir(parents=True)
    for good in (model, tmp_path / "new" / "deep", tmp_path / "clone"):
        assert check_out(good) == good
    assert not (tmp_path / "new").exists()
    for bad in ("thesis", "file"):
        with pytest.raises(DataError, match=r"no model that longtail wrote. Choose another"):
            check_out(tmp_path / bad)
    with pytest.raises(DataError, match=r"cannot save to .*file/run.*Choose another folder"):
        check_out(tmp_path / "file" / "run")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(DataError, match=r"cannot be written to. Choose another folder"):
        check_out(tmp_path / "run")


def test_files_can_be_read_by_those_who_may_read_the_folder(model: Path) -> None:
    usual = model / "usual"
    usual.write_text("")
    for name in (CONFIG_FILE, *OLD_FILES):
        assert (model / name).stat().st_mode == usual.stat().st_mode


def test_what_somebody_changed_is_kept_beside_the_new_one(model: Path) -> None:
    (model / "model.safetensors").write_text("mine")
    replace_model(model, writer("new", NEW_FILES))
    assert version_of(model) == "new"
    assert (model / "model.safetensors.1.bak").read_text() == "mine"


def test_a_ready_model_elsewhere_is_neither_read_nor_removed(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    replace_model(folder, writer("old", OLD_FILES))
    replace_model(elsewhere, writer("other", OLD_FILES))
    (elsewhere / ".longtail").write_text(f"longtail {'ab' * 16}\n")
    (elsewhere / "notes.txt").write_text("mine")
    (folder / READY).symlink_to(elsewhere)
    before = files_in(elsewhere)
    assert version_of(folder) == "old"
    with pytest.raises(DataError, match="could not save"):
        replace_model(folder, writer("new", NEW_FILES))
    assert files_in(elsewhere) == before and version_of(folder) == "old"
