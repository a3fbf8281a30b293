"""Atomic files: complete or absent."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from longtail.errors import InputError
from longtail.runs import files
from longtail.runs.files import staging, whole_file, write_text

from .cases import killed_at


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An existing file, alone in its folder."""
    path = tmp_path / "a.json"
    path.write_text("old")
    return path


def test_a_file_takes_its_place_when_it_is_whole(place: Path) -> None:
    with whole_file(place) as temporary:
        temporary.write_text("new")
        assert place.read_text() == "old"
    assert place.read_text() == "new" and os.listdir(place.parent) == ["a.json"]


def write_half(place: Path, error: BaseException) -> None:
    with whole_file(place) as temporary:
        temporary.write_text("half")
        raise error


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt()])
def test_what_fails_changes_nothing(place: Path, error: BaseException) -> None:
    with pytest.raises(type(error)):
        write_half(place, error)
    with pytest.raises(FileNotFoundError), whole_file(place):
        pass  # nothing is written
    assert place.read_text() == "old" and os.listdir(place.parent) == ["a.json"]


def test_a_killed_process_leaves_what_was_there(place: Path) -> None:
    # Before the rename come two folders and the mode.
    assert killed_at(4, partial(write_text, place, "half"))
    assert place.read_text() == "old"
    (left,) = place.parent.glob(".longtail-*")
    assert (left / "a.json").read_text() == "half"
    write_text(place, "new")
    assert place.read_text() == "new" and os.listdir(place.parent) == ["a.json"]


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The syncs and replacements, in order."""
    done: list[str] = []
    replace = os.replace

    def replaced(source: Path, target: Path) -> None:
        done.append(f"replace {target}")
        replace(source, target)

    link = "/proc/self/fd/{}"
    monkeypatch.setattr(os, "fsync", lambda fd: done.append(f"sync {os.readlink(link.format(fd))}"))
    monkeypatch.setattr(os, "replace", replaced)
    return done


def test_a_file_is_on_the_disk_before_the_old_one_goes(place: Path, done: list[str]) -> None:
    write_text(place, "new")
    first, *rest = done
    assert first.startswith("sync ") and first.endswith("/a.json") and str(place) not in first
    assert rest == [f"replace {place}", f"sync {place.parent}"]


def test_modes_follow_the_umask_and_the_file_before(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "new", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640
    (tmp_path / "new").chmod(0o600)
    write_text(tmp_path / "new", "other")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600


def test_a_private_folder_gets_the_usual_modes_before_it_is_adopted(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with staging(tmp_path) as private:
            for name in ("a", "within/b"):
                (private / name).parent.mkdir(exist_ok=True)
                (private / name).touch(0o600)
            files.sync_tree(private)
            modes = [(private / name).stat().st_mode & 0o777 for name in ("a", "within/b")]
    finally:
        os.umask(before)
    assert modes == [0o640, 0o640]


def test_a_link_stays_a_link(place: Path) -> None:
    link = place.with_name("link")
    link.symlink_to(place.name)
    write_text(link, "new")
    assert link.is_symlink() and place.read_text() == "new"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE, text=True) as reader:
        write_text(tmp_path / "pipe", "text")
        assert reader.communicate(timeout=30)[0] == "text"
    assert (tmp_path / "pipe").is_fifo()


def test_only_private_folders_of_processes_that_are_gone_are_removed(tmp_path: Path) -> None:
    keys = ["0123456789abcdef" * 2, "ab" * 16, "cd" * 16]
    named, left, other = (tmp_path / f".longtail-{key}" for key in keys)
    mine = (named / "notes.txt", other / "notes.txt", tmp_path / "elsewhere" / "book.txt")
    for path in (*mine, left / "inner" / "half.json"):
        path.parent.mkdir(parents=True)
        path.write_text("mine")
    (tmp_path / f".longtail-{'ef' * 16}").symlink_to(tmp_path / "elsewhere")
    for folder, key in ((left, "ab"), (other, "ef"), (tmp_path / "elsewhere", "ef")):
        (folder / ".longtail").write_text(f"longtail {key * 16}\n")
    with staging(tmp_path) as living:
        (living / "work").write_text("under way")
        with staging(tmp_path):
            pass
        assert (living / "work").read_text() == "under way"
    assert not left.exists() and not living.exists()
    assert [path.read_text() for path in mine] == ["mine"] * 3


@pytest.mark.parametrize(
    "make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/etc/hostname")]
)
def test_only_regular_files_are_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "file")
    with pytest.raises(OSError, match="is not a regular file"):
        files.read_regular(tmp_path / "file")


def test_only_what_longtail_made_is_replaced(place: Path) -> None:
    with pytest.raises(InputError, match=r"was not made by longtail\. Replace it with --overwrite"):
        files.check_replaceable(place, overwrite=False)
    files.check_replaceable(place, overwrite=True)
    # Also across the pieces in which a large file is read.
    place.write_text("x\n" * ((1 << 19) - 4) + files.MADE_BY)
    files.check_replaceable(place, overwrite=False)
