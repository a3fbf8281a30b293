"""Resumable output: kept, resumed, replaced and removed; tests/attack/kills.py kills it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from longtail.errors import DataError, InputError
from longtail.runs import parts
from longtail.runs.parts import STARTED, Parts
from longtail.runs.workspace import Workspace

SETTINGS = {"k": (1, 2), "raise": True}


def start(out: Path, **flags: Any) -> Parts:
    opened = Parts.open(out, lambda: SETTINGS, **flags)
    assert opened is not None
    return opened


def write(path: Path, records: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(f"{record['n']}\n" for record in records))


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(parts, "MOST_RECORDS", 2)
    return tmp_path / "new" / "out.txt"


def test_records_are_kept_and_continued(out: Path) -> None:
    first = start(out)
    first.add([{"n": "0\u2028"}])
    assert first.kept == 0
    first.add([{"n": 1}, {"n": 2}])
    assert first.kept == 3
    first.add([{"n": 3}])
    first.close()
    again = start(out, resume=True)
    assert again.kept == 4 and not again.is_finished and not out.exists()
    again.add([{"n": 4}])
    again.finish(write)
    again.close()
    assert again.is_finished and out.read_text() == "0\u2028\n1\n2\n3\n4\n"
    assert [path.name for path in out.parent.iterdir()] == ["out.txt"]


def test_nothing_kept_is_nothing_in_the_way(out: Path) -> None:
    start(out).close()
    assert list(out.parent.iterdir()) == []
    with pytest.raises(DataError, match=r"nothing to resume: .* is not started"):
        start(out, resume=True)


def test_one_process_at_a_time(out: Path) -> None:
    first = start(out)
    for flags in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(DataError, match="another process is at work"):
            start(out, **flags)
    first.close()


def test_other_settings_are_refused(out: Path) -> None:
    first = start(out)
    first.add([{"n": 0}])
    first.close()
    other = {"k": (1, 3), "raise": False}
    with pytest.raises(InputError, match=r"k was 2, now 3; raise was True, now False. Resume with"):
        Parts.open(out, lambda: other, resume=True)
    with pytest.raises(InputError, match=r"settings: k was 2, now 3. Resume"):
        Parts.open(out, lambda: other, resume=True, ignored=("raise",))
    with pytest.raises(DataError, match=r"is unfinished. Resume it with --resume, or start over"):
        start(out)
    started_over = start(out, overwrite=True)
    assert started_over.kept == 0
    started_over.close()


def test_the_old_file_stays_until_the_new_one_is_whole(out: Path) -> None:
    out.parent.mkdir()
    out.write_text("old")
    with pytest.raises(InputError, match=r"out.txt exists already. Replace it with --overwrite"):
        start(out)
    first = start(out, overwrite=True)
    first.add([{"n": 0}])
    first.close()
    # Resuming may replace the file if the start was allowed to.
    again = start(out, resume=True)
    assert out.read_text() == "old"

    def fail(path: Path, records: Iterable[dict[str, Any]]) -> None:
        write(path, records)
        raise OSError("disk full")

    with pytest.raises(DataError, match=r"cannot be written .*then resume"):
        again.finish(fail)
    assert out.read_text() == "old"
    again.finish(write)
    assert out.read_text() == "0\n"


def test_what_was_half_removed_is_not_resumed(out: Path) -> None:
    first = start(out)
    first.add([{"n": 0}])
    first.close()
    (place,) = out.parent.iterdir()
    (place / STARTED).unlink()
    with pytest.raises(DataError, match="nothing to resume"):
        start(out, resume=True)
    assert not place.exists()


def test_a_folder_of_somebody_else_is_left_alone(out: Path) -> None:
    place = out.parent / f".{out.name}.longtail-work"
    place.mkdir(parents=True)
    (place / STARTED).write_text(json.dumps({"settings": {}, "overwrite": True}))
    assert not Workspace.is_one(place)
    with pytest.raises(
        DataError, match=r"folder for its parts, cannot be made \(Directory not empty"
    ):
        start(out, overwrite=True)
    assert (place / STARTED).exists()
    with pytest.raises(DataError, match=r"cannot be made \((Not|File) .*\). Choose another"):
        start(place / STARTED / "out.txt")
