"""Disks that cannot be written to, have no room, or fill up while a state is saved."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file

from longtail.errors import DataError
from longtail.training import Checkpoints, Moment
from longtail.training.checkpoints import read_tensors, write_tensors

from .cases import network, same, train_tiny

if TYPE_CHECKING:
    from conftest import Children


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    """Below a file, which stops root as well."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"cannot begin in .*file/states: .*\. Choose"):
        Checkpoints(tmp_path / "file" / "states")
    with pytest.raises(DataError, match=r"cannot begin in .*file: Not a directory\. Choose"):
        Checkpoints(tmp_path / "file")


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="no /proc here")
def test_a_folder_that_may_not_be_made() -> None:
    with pytest.raises(DataError, match="cannot begin in /proc/longtail"):
        Checkpoints(Path("/proc/longtail"))


def test_too_little_room_is_found_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [0]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free[0]))
    seen: list[Moment] = []
    states = Checkpoints(tmp_path, minutes=0)
    with pytest.raises(DataError, match=r"has 0 MiB free, and saving this training takes 1 MiB"):
        train_tiny(network(), checkpoints=states, progress=seen.append)
    assert not seen
    free[0] = 2 << 20
    train_tiny(network(), checkpoints=states, progress=seen.append)
    assert seen


def test_room_that_a_state_takes_already_is_not_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 10 << 20
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=size + (2 << 20)))
    states = Checkpoints(tmp_path)
    with pytest.raises(DataError, match="has 12 MiB free, and saving this training takes 21 MiB"):
        states.check_space(size)
    states.save({"one": torch.zeros(1)})
    states.check_space(size)


def test_the_size_of_a_state_is_not_underrated(tmp_path: Path) -> None:
    """`check_space` is told at least what a state takes in the end."""
    asked: list[int] = []

    class Asking(Checkpoints):
        def check_space(self, n_bytes: int) -> None:
            asked.append(n_bytes)

    made = network()
    train_tiny(made, settings={"ema": 0.5}, checkpoints=Asking(tmp_path, minutes=0))
    written = (tmp_path / "state.safetensors").stat().st_size
    # Random numbers and names come on top; the free MiB is theirs.
    assert asked[0] <= written + 5000 and written <= asked[0] + (1 << 20)


def test_a_full_disk_keeps_the_last_state(children: Children, tmp_path: Path) -> None:
    """A limit on the size of files fails in the middle of a write, as a full disk does."""
    out, states = tmp_path / "out", tmp_path / "states"
    job: dict[str, Any] = {"out": str(out), "folder": str(states)}
    assert children.run("train", when={"step": 3}, **job) == -9
    good = (states / "state.safetensors").read_bytes()
    assert children.run("train", largest_file=len(good) // 2, **job) == 1
    said = (out / "error").read_text()
    assert "could not save to" in said and "File too large" in said
    assert "The last good state is still there. Free some space, then go on with --resume" in said
    assert (states / "state.safetensors").read_bytes() == good
    assert sorted(os.listdir(states)) == [".longtail", "state.safetensors"]
    assert children.run("train", **job) == 0
    assert children.run("train", out=str(tmp_path / "whole")) == 0
    assert same(
        load_file(tmp_path / "whole" / "weights.safetensors"),
        load_file(out / "weights.safetensors"),
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("mounting a small disk takes root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_fills_up(small_disk: Path) -> None:
    states = Checkpoints(small_disk, minutes=0)
    states.save({"weights": torch.arange(60_000.0)}, {"step": 1})
    for size in (215_000, 250_000, 1_000_000):
        with pytest.raises(DataError, match=r"No space left on device.*last good state is still"):
            states.save({"weights": torch.zeros(size)}, {"step": 2})
        assert sorted(os.listdir(small_disk)) == [".longtail", "state.safetensors"]
    found = states.load()
    assert found is not None
    assert torch.equal(found[0]["weights"], torch.arange(60_000.0)) and found[1] == {"step": 1}
    with pytest.raises(DataError, match=r"1 MiB free"):
        states.check_space(1 << 20)


def test_nothing_there_before(small_disk: Path) -> None:
    states = Checkpoints(small_disk)
    with pytest.raises(DataError, match="Nothing was saved before"):
        states.save({"weights": torch.zeros(1_000_000)})
    assert states.load() is None


def test_a_disk_that_says_so_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network drive that is full tells when the file is waited for."""
    states = Checkpoints(tmp_path)
    states.save({"weights": torch.zeros(3)})

    def late(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", late)
    with pytest.raises(DataError, match=r"No space left on device.*last good state is still"):
        states.save({"weights": torch.ones(3)})
    assert sorted(os.listdir(tmp_path)) == [".longtail", "state.safetensors"]
    found = states.load()
    assert found is not None and not found[0]["weights"].any()


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    states = Checkpoints(tmp_path)
    states.save({"weights": torch.zeros(100)})
    path = tmp_path / "state.safetensors"
    for content in (path.read_bytes()[:200], b"", b"not a state"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"state\.safetensors cannot be read .*Remove it"):
            states.load()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    tensors = {
        "scalar": torch.tensor(3.0),
        "turned": torch.arange(6.0).reshape(2, 3).T,
        "bytes": torch.get_rng_state(),
        "half": torch.ones(2, dtype=torch.bfloat16),
    }
    facts = {"epoch": 3, "best": float("nan"), "none": None, "text": "ä\n"}
    write_tensors(tmp_path / "some.safetensors", tensors, facts)
    found, said = read_tensors(tmp_path / "some.safetensors")
    assert same(found, tensors) and said["text"] == "ä\n" and said["best"] != said["best"]


def test_states_go_and_other_files_stay(tmp_path: Path) -> None:
    states = Checkpoints(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "mine.safetensors").write_text("mine")
    states.save({"weights": torch.zeros(1)})
    states.clear()
    assert states.load() is None
    assert sorted(os.listdir(tmp_path)) == [".longtail", "mine.safetensors", "notes.txt"]
