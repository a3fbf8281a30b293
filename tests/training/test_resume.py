"""Killed at any moment, a training goes on to the very weights of an undisturbed one.

Real processes, see children.py: a BERT with dropout, an average of its weights, early stopping.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.torch import load_file
from torch import nn

from longtail.errors import DataError
from longtail.training import Checkpoints, Moment, Validation

from .cases import (
    Breaking,
    CutOffError,
    TokenNetwork,
    documents,
    network,
    same,
    train_tiny,
    weights_of,
)

if TYPE_CHECKING:
    from conftest import Children

KILLED = -signal.SIGKILL


@pytest.fixture(scope="module")
def undisturbed(children: Children, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its weights and facts; without a folder, so that saving must not change anything either."""
    out: Path = tmp_path_factory.mktemp("undisturbed")
    assert children.run("train", out=str(out)) == 0
    facts = json.loads((out / "facts.json").read_text())
    # The scenario has something to lose: a best epoch before the last, an end by patience.
    assert 1 < facts["best_epoch"] < facts["epochs"] < 8
    return out


def assert_same_end(undisturbed: Path, out: Path) -> None:
    assert same(
        load_file(undisturbed / "weights.safetensors"), load_file(out / "weights.safetensors")
    )
    assert (undisturbed / "facts.json").read_text() == (out / "facts.json").read_text()


def steps(out: Path) -> list[int]:
    return [int(line.split()[1]) for line in (out / "moments").read_text().splitlines()]


# An epoch has four steps. Each kill happens to the process that the one before left behind.
MOMENTS: dict[str, list[dict[str, int]]] = {
    "before anything is saved": [{"step": 1}],
    "in the middle of an epoch, twice": [{"step": 6}, {"step": 5}],
    "after the last step of an epoch": [{"step": 8}],
    "while an epoch is judged": [{"judging": 3}],
    "while the first state is written": [{"writing": 1}],
    "while a state is written": [{"writing": 7}, {"writing": 4}],
    "before a state is renamed": [{"replacing": 9}],
    "after a state is renamed": [{"replaced": 9}],
    "when patience has nearly run out": [{"judging": 6}, {"judging": 1}],
    "when all is done but the end": [{"replaced": 28}],
}


@pytest.mark.parametrize("fates", MOMENTS.values(), ids=MOMENTS.keys())
def test_killed_and_resumed(
    children: Children, undisturbed: Path, tmp_path: Path, fates: list[dict[str, int]]
) -> None:
    job: dict[str, Any] = {"out": str(tmp_path / "out"), "folder": str(tmp_path / "states")}
    for when in fates:
        assert children.run("train", when=when, **job) == KILLED
    assert children.run("train", **job) == 0
    assert_same_end(undisturbed, tmp_path / "out")
    assert not list((tmp_path / "states").glob("*.tmp"))


def test_killed_from_outside_again_and_again(
    children: Children, undisturbed: Path, tmp_path: Path
) -> None:
    """At random moments, many of them while a state is being written: writing is slow here."""
    draw = np.random.default_rng(0)
    job: dict[str, Any] = {"out": str(tmp_path / "out"), "folder": str(tmp_path / "states")}
    while_writing = 0
    for attempt in range(30):
        process = children.start("train", slowly=0.1, **job)
        if attempt < 4:
            wait_for(lambda: any((tmp_path / "states").glob(".longtail-*/*.safetensors")))
            time.sleep(0.05 + draw.uniform(0, 0.3))
            os.kill(process, signal.SIGKILL)
        code = children.wait(process)
        if code == 0:
            break
        assert code == KILLED
        while_writing += any((tmp_path / "states").glob(".longtail-*/*.safetensors"))
    assert code == 0 and attempt >= 2 and while_writing
    assert_same_end(undisturbed, tmp_path / "out")


def wait_for(come: Any, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not come():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.002)


def test_no_step_is_lost_or_taken_twice(children: Children, tmp_path: Path) -> None:
    job: dict[str, Any] = {"out": str(tmp_path / "out"), "folder": str(tmp_path / "states")}
    assert children.run("train", when={"replaced": 6}, **job) == KILLED
    assert children.run("train", **job) == 0
    # The sixth save comes after the judgement of the first epoch and the first step of the second:
    # steps 1, 2, 3, (end of epoch), 5, 6.
    assert steps(tmp_path / "out") == list(range(1, 29))


def test_an_interval_loses_no_more_than_itself(tmp_path: Path) -> None:
    clock, saved = [0.0], []

    class Timed(Checkpoints):
        def save(self, *args: Any, **more: Any) -> None:
            super().save(*args, **more)
            saved.append(clock[0])

    def tick(_: Moment) -> None:
        clock[0] += 25.0

    states = Timed(tmp_path, minutes=1.0, clock=lambda: clock[0])
    train_tiny(network(), settings={"epochs": 4}, checkpoints=states, progress=tick)
    # Twelve steps of 25 seconds; a step is not left in its middle.
    assert saved == [75.0, 150.0, 225.0, 300.0]


STATES: list[dict[str, Any]] = [
    {},
    {"ema": 0.9},
    {"precision": "bf16"},
    {"precision": "bf16", "ema": 0.9, "micro_batch": 3},
    {"schedule": "cosine", "clip": 0.0, "weight_decay": 0.1, "head_learning_rate": 0.1},
]


@pytest.mark.parametrize("settings", STATES, ids=lambda s: " ".join(s) or "plain")
def test_every_kind_of_state_is_whole(tmp_path: Path, settings: dict[str, Any]) -> None:
    settings = {"epochs": 3, **settings}
    whole = network(dropout=0.3)
    train_tiny(whole, settings=settings)
    for after in (1, 3, 8):
        folder = tmp_path / str(after)
        with pytest.raises(CutOffError):
            train_tiny(network(0.3), settings=settings, checkpoints=Breaking(folder, after))
        again = network(dropout=0.3, seed=7)
        train_tiny(again, settings=settings, checkpoints=Checkpoints(folder, minutes=0))
        assert same(weights_of(whole), weights_of(again)), after


def test_the_best_epoch_survives(tmp_path: Path) -> None:
    encoded, _ = documents()
    made = network()
    ends: dict[int, dict[str, Any]] = {}

    def remember(moment: Moment) -> None:
        if moment.step % 3 == 0:
            ends[moment.epoch] = weights_of(made)

    train_tiny(made, settings={"epochs": 4}, progress=remember)

    def judged(judged: nn.Module) -> Validation:
        """Scores by epoch, which is read off the weights: a counter would not survive either."""

        def score(_: Any) -> float:
            epoch = next(k for k, weights in ends.items() if same(weights, weights_of(judged)))
            return {1: 0.2, 2: 0.9, 3: 0.3, 4: 0.4}[epoch]

        return Validation(encoded, score)

    for after in (5, 6, 7, 11):
        folder, stopped, again = tmp_path / str(after), network(), network(seed=3)
        with pytest.raises(CutOffError):
            train_tiny(
                stopped,
                settings={"epochs": 4},
                checkpoints=Breaking(folder, after),
                validation=judged(stopped),
            )
        found = train_tiny(
            again,
            settings={"epochs": 4},
            checkpoints=Checkpoints(folder, minutes=0),
            validation=judged(again),
        )
        assert (found.best_epoch, found.best, found.epochs) == (2, 0.9, 4)
        assert same(weights_of(again), ends[2])


def test_a_state_of_another_network_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CutOffError):
        train_tiny(network(), checkpoints=Breaking(tmp_path, 1))

    class Other(TokenNetwork):
        def __init__(self) -> None:
            super().__init__()
            self.extra = nn.Linear(3, 3)

    with pytest.raises(DataError, match=r"another network or version .*Remove that folder"):
        train_tiny(Other(), checkpoints=Checkpoints(tmp_path))
