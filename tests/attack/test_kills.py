"""Every command that writes, killed before each of its file operations."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from . import RIGHT
from .kills import SCENARIOS, attack_scenario

# Here some of the operations, and all of them in `python -m tests.attack`. Primes, so that the
# operations of a step that is repeated come in turn.
EVERY = {
    "train": 5,
    "train --overwrite": 7,
    "report as html": 5,
    "stats --plot": 5,
    "reproduce": 43,
}
# What a command does at the very least: fewer would mean that the hook does not see them.
LEAST = {"train": 25, "train --overwrite": 20, "report as html": 3, "stats --plot": 4}


@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_at_every_file_operation(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    outcomes = list(attack_scenario(name, tmp_path, EVERY.get(name, 1)))
    wrong = [outcome for outcome in outcomes if outcome.verdict != RIGHT]
    assert not wrong, wrong[:3]
    assert len(outcomes) >= LEAST.get(name, 8)
