"""Checkpoints on disks that cannot be written to, are too small, or fill up during a save."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from longtail.errors import DataError
from longtail.progress import Progress
from longtail.runs.workspace import Workspace
from longtail.training.checkpoints import Checkpoints

from .cases import make_network, same, states_in, train_tiny

STATE_ALONE = [".longtail", "state.safetensors"]


def test_a_disk_that_is_too_small_is_detected_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 0
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    seen: list[Progress] = []
    states = states_in(tmp_path)
    with pytest.raises(DataError, match=r"has 0 MiB free, and saving this training takes 1 MiB"):
        train_tiny(make_network(), checkpoints=states, progress=seen.append)
    assert not seen
    size, free = 10 << 20, 12 << 20
    with pytest.raises(DataError, match="has 12 MiB free, and saving this training takes 21 MiB"):
        states.check_space(size)
    # The space of the state that is there already is not needed again.
    states.save({"weights": torch.zeros(1)})
    states.check_space(size)


def test_the_size_of_a_state_is_not_underestimated(tmp_path: Path) -> None:
    sizes: list[int] = []

    class Recording(Checkpoints):
        def check_space(self, n_bytes: int) -> None:
            sizes.append(n_bytes)

    train_tiny(
        make_network(), ema=0.5, checkpoints=Recording(Workspace.begin(tmp_path, {}), minutes=0)
    )
    written = (tmp_path / "state.safetensors").stat().st_size
    # Random numbers and names come on top, for which one MiB is left free.
    assert sizes[0] <= written + 5000 and written <= sizes[0] + (1 << 20)


def test_a_disk_that_reports_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full network drive may report an error only at fsync."""
    states, fsync = states_in(tmp_path), os.fsync

    def late(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", late)
    with pytest.raises(DataError, match=r"No space left on device.*Nothing was saved before"):
        states.save({"weights": torch.ones(3)})
    assert states.load() is None
    monkeypatch.setattr(os, "fsync", fsync)
    states.save({"weights": torch.zeros(3)})
    monkeypatch.setattr(os, "fsync", late)
    with pytest.raises(DataError, match=r"No space left on device.*last good state is kept"):
        states.save({"weights": torch.ones(3)})
    assert sorted(os.listdir(tmp_path)) == STATE_ALONE
    state = states.load()
    assert state is not None and not state[0]["weights"].any()


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    states = states_in(tmp_path)
    states.save({"weights": torch.zeros(100)})
    path = tmp_path / "state.safetensors"
    for content in (path.read_bytes()[:200], b"", b"not a state"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"state\.safetensors cannot be read .*Remove it"):
            states.load()


def test_tensors_and_facts_are_read_as_written(tmp_path: Path) -> None:
    tensors = {
        "scalar": torch.tensor(3.0),
        "transposed": torch.arange(6.0).reshape(2, 3).T,
        "bytes": torch.get_rng_state(),
        "half": torch.ones(2, dtype=torch.bfloat16),
    }
    states = states_in(tmp_path)
    states.save(tensors, {"best": float("nan"), "text": "ä\n"}, "some")
    loaded, facts = states.load("some") or ({}, {})
    assert same(loaded, tensors) and facts["text"] == "ä\n" and facts["best"] != facts["best"]


def test_clearing_leaves_other_files(tmp_path: Path) -> None:
    states = states_in(tmp_path)
    for name in ("notes.txt", "mine.safetensors"):
        (tmp_path / name).write_text("mine")
    states.save({"weights": torch.zeros(1)})
    states.clear()
    assert states.load() is None
    assert sorted(os.listdir(tmp_path)) == [".longtail", "mine.safetensors", "notes.txt"]
