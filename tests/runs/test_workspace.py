"""Workspaces: created atomically, locked by their users, removed by their list."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from longtail.errors import DataError
from longtail.runs.files import files_in, staging
from longtail.runs.workspace import Workspace, differences

PLAN = {"plan.json": "{}"}


@pytest.fixture(params=["new", "empty"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A new or an empty folder."""
    place = tmp_path / "work"
    if request.param == "empty":
        place.mkdir()
    return place


def test_it_removes_what_it_lists_and_nothing_else(folder: Path) -> None:
    space = Workspace.begin(folder, PLAN)
    for name in ("state.safetensors", "deep/model.json"):
        space.within("fold-0").file(name).write_text("ours")
    (folder / "fold-0" / "notes.txt").write_text("mine")
    (folder / "state.safetensors").write_text("mine")
    assert space.others() == ["fold-0/notes.txt", "state.safetensors"]
    for name in ("state.safetensors", "notes.txt"):
        space.within("fold-0").discard(name)
    assert "fold-0/state.safetensors" not in files_in(folder)
    space.remove()
    assert files_in(folder) == ["fold-0/notes.txt", "state.safetensors"]
    assert not Workspace.is_one(folder)


def test_it_leaves_nothing_if_nothing_else_is_there(folder: Path) -> None:
    space = Workspace.begin(folder, PLAN)
    space.within("fold-0").file("state").write_text("ours")
    with staging(space.within("fold-0").path) as private:
        (private / "model.json").write_text("ours")
        space.within("fold-0").adopt(private, "model")
    assert space.others() == []
    Workspace.open(folder).remove()
    assert not folder.exists() and list(folder.parent.iterdir()) == []


def test_a_list_leads_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "book.txt").write_text("mine")
    space = Workspace.begin(tmp_path / "work", PLAN)
    (tmp_path / "work" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "work" / "same").symlink_to(tmp_path / "thesis.txt")
    with (tmp_path / "work" / ".longtail").open("a") as listed:
        listed.write(f"../thesis.txt\n{tmp_path}/thesis.txt\nlink/book.txt\nsame\n\nhalf a li")
    Workspace.open(tmp_path / "work").remove()
    assert (tmp_path / "thesis.txt").read_text() == "mine"
    assert (tmp_path / "elsewhere" / "book.txt").read_text() == "mine"
    assert (tmp_path / "work" / "same").is_symlink()
    space.close()


@pytest.mark.parametrize("content", [None, "", "mine", "longtail", "longtail 0123\n"])
def test_other_folders_are_refused(tmp_path: Path, content: str | None) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    if content is not None:
        (tmp_path / ".longtail").write_text(content)
    assert not Workspace.is_one(tmp_path)
    with pytest.raises(DataError, match=r"not made by longtail.*Choose another"):
        Workspace.open(tmp_path)
    with pytest.raises(DataError, match=r"not empty.*Choose an empty folder"):
        Workspace.begin(tmp_path, PLAN)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_who_works_there_is_not_disturbed(folder: Path) -> None:
    first = Workspace.begin(folder, PLAN)
    second = Workspace.open(folder)
    second.share()
    with pytest.raises(DataError, match=r"another process is at work in .*Wait"):
        second.lock()
    first.close()
    second.lock()
    third = Workspace.open(folder)
    with pytest.raises(DataError, match="another process is at work"):
        third.lock()
    second.remove()
    with pytest.raises(DataError, match="was just finished or removed"):
        third.share()


def test_who_is_late_joins_or_is_refused(folder: Path) -> None:
    first = Workspace.begin(folder, PLAN)
    with pytest.raises(DataError, match="not empty"):
        Workspace.begin(folder, {"plan.json": "other"})
    joined = Workspace.begin(folder, {"plan.json": "other"}, join=True)
    assert (folder / "plan.json").read_text() == "{}"
    joined.file("new").write_text("ours")
    assert first.names() == ["plan.json", "new"]
    assert [p.name for p in folder.parent.iterdir()] == ["work"]


def test_a_file_is_listed_before_it_is_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = Workspace.begin(folder, PLAN)
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda _: synced.append((folder / ".longtail").read_text()))
    place = space.file("state")
    assert not place.exists() and synced[-1].endswith("state\n")


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 2}, []),
        ({"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 3}]}}, ["c was 2, now 3"]),
        ({"a": [1]}, {"a": [1, 2]}, ["a was [1], now [1, 2]"]),
        ({}, {"a": "x" * 99, "ignored": 1}, [f"a was None, now '{'x' * 59}..."]),
        ({}, dict.fromkeys("abcde", 1), [f"{key} was None, now 1" for key in "abcde"]),
        (
            {},
            dict.fromkeys("abcdef", 1),
            [*(f"{k} was None, now 1" for k in "abcde"), "and 1 more"],
        ),
    ],
)
def test_what_differs_is_named(before: Any, now: Any, expected: list[str]) -> None:
    assert differences(before, now, ignored=["ignored"]) == expected
