"""Files that are whole or not there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from longtail.errors import DataError
from longtail.runs.files import (
    make_folder,
    read_regular,
    staging,
    sync_tree,
    whole_file,
    write_text,
)


def test_a_file_takes_its_place_when_it_is_whole(tmp_path: Path) -> None:
    place = tmp_path / "a.json"
    place.write_text("old")
    with whole_file(place) as temporary:
        temporary.write_text("new")
        assert place.read_text() == "old"
    assert place.read_text() == "new"
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt()])
def test_what_fails_changes_nothing(tmp_path: Path, error: BaseException) -> None:
    place = tmp_path / "a.json"
    place.write_text("old")

    def write() -> None:
        with whole_file(place) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(type(error)):
        write()
    assert place.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_nothing_written_is_an_error(tmp_path: Path) -> None:
    place = tmp_path / "a.json"
    with pytest.raises(FileNotFoundError), whole_file(place):
        pass
    assert not place.exists()


def test_a_killed_process_leaves_what_was_there(tmp_path: Path) -> None:
    place = tmp_path / "a.json"
    place.write_text("old")
    code = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from longtail.runs.files import whole_file\n"
        "with whole_file(Path(sys.argv[1])) as temporary:\n"
        "    temporary.write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(place)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert place.read_text() == "old"
    (left,) = tmp_path.glob(".longtail-*")
    assert (left / "a.json").read_text() == "half"
    with whole_file(place) as temporary:
        temporary.write_text("new")
    assert place.read_text() == "new" and os.listdir(tmp_path) == ["a.json"]


def test_two_writers_do_not_disturb_each_other(tmp_path: Path) -> None:
    place = tmp_path / "a.json"
    with whole_file(place) as first:
        first.write_text("first")
        with whole_file(place) as second:
            second.write_text("second")
        assert place.read_text() == "second"
    assert place.read_text() == "first"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_tree_is_synced_file_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inner").mkdir()
    for name in ("a", "inner/b"):
        (tmp_path / name).write_text(name)
    synced = set()
    link = "/proc/self/fd/{}"
    monkeypatch.setattr(os, "fsync", lambda handle: synced.add(os.readlink(link.format(handle))))
    sync_tree(tmp_path)
    assert synced == {str(tmp_path / name) for name in ("", "a", "inner", "inner/b")}


def test_a_folder_that_cannot_be_written_to_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot write to .*Choose another folder"):
        make_folder(tmp_path / "file" / "folder")
    make_folder(tmp_path / "one" / "two")
    assert os.listdir(tmp_path / "one" / "two") == []


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


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE, text=True) as reader:
        write_text(tmp_path / "pipe", "text")
        assert reader.communicate(timeout=30)[0] == "text"
    assert (tmp_path / "pipe").is_fifo()


def test_only_private_folders_of_processes_that_are_gone_are_removed(tmp_path: Path) -> None:
    key = "0123456789abcdef" * 2
    named = tmp_path / f".longtail-{key}"
    named.mkdir()
    (named / "notes.txt").write_text("mine")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "book.txt").write_text("mine")
    (tmp_path / f".longtail-{key[::-1]}").symlink_to(elsewhere)
    left = tmp_path / f".longtail-{'ab' * 16}"
    (left / "inner").mkdir(parents=True)
    (left / ".longtail").write_text(f"longtail {'ab' * 16}\n")
    (left / "inner" / "half.json").write_text("half")
    with staging(tmp_path) as living:
        (living / "work").write_text("under way")
        with staging(tmp_path):
            pass
        assert (living / "work").read_text() == "under way"
    assert not left.exists() and not living.exists()
    assert (named / "notes.txt").read_text() == "mine"
    assert (elsewhere / "book.txt").read_text() == "mine"


@pytest.mark.parametrize("make", ["fifo", "link", "folder"])
def test_only_regular_files_are_read(tmp_path: Path, make: str) -> None:
    path = tmp_path / "file"
    if make == "fifo":
        os.mkfifo(path)
    elif make == "folder":
        path.mkdir()
    else:
        path.symlink_to("/etc/hostname")
    with pytest.raises(OSError, match="is not a regular file"):
        read_regular(path)


def test_a_file_is_on_the_disk_before_the_old_one_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "a.json"
    place.write_text("old")
    done: list[str] = []
    sync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        done.append(f"sync {Path(os.readlink(f'/proc/self/fd/{handle}')).name}")
        sync(handle)

    def replaced(source: Path, target: Path) -> None:
        done.append(f"replace {Path(target).name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    write_text(place, "new")
    assert done == ["sync a.json", "replace a.json", f"sync {tmp_path.name}"]
