"""Files that are whole or not there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from longtail.durable import make_folder, sync_tree, whole_file
from longtail.errors import DataError


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
        "from longtail.durable import whole_file\n"
        "with whole_file(Path(sys.argv[1])) as temporary:\n"
        "    temporary.write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(place)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert place.read_text() == "old"
    assert [path.read_text() for path in tmp_path.glob("a.json.*.tmp")] == ["half"]


def test_two_processes_do_not_write_to_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "a.json"
    with whole_file(place) as first:
        first.write_text("first")
        monkeypatch.setattr(os, "getpid", lambda: -1)
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
