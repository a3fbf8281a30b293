"""Killed or stopped at any moment, a training resumes to the weights of an uninterrupted one.

In processes, see children.py: a BERT with dropout, an average of its weights, early stopping.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from safetensors.torch import load_file
from torch import nn

from longtail.errors import DataError
from longtail.progress import Progress
from longtail.runs.workspace import Workspace
from longtail.training.checkpoints import Checkpoints
from longtail.training.interrupt import Stop, StoppedError, stopping

from .cases import (
    Breaking,
    CutOffError,
    TokenNetwork,
    make_network,
    same,
    states_in,
    train_tiny,
    trained,
)

if TYPE_CHECKING:
    from conftest import Children

KILLED = -signal.SIGKILL
Job = dict[str, Any]


@pytest.fixture(scope="module")
def uninterrupted(children: Children, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights and facts of a training without a folder: saving must not change anything either."""
    out: Path = tmp_path_factory.mktemp("uninterrupted")
    assert children.run("train", out=str(out)) == 0
    facts = json.loads((out / "facts.json").read_text())
    # There is something to lose: the best epoch is not the last, and early stopping ends it.
    assert 1 < facts["best_epoch"] < facts["epoch"] < 8
    return out


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return {"out": str(tmp_path / "out"), "folder": str(tmp_path / "states")}


def assert_same_end(uninterrupted: Path, job: Job) -> None:
    out = Path(job["out"])
    weights = [load_file(folder / "weights.safetensors") for folder in (uninterrupted, out)]
    assert same(*weights)
    assert (uninterrupted / "facts.json").read_text() == (out / "facts.json").read_text()
    assert not list(Path(job["folder"]).glob("*.tmp"))


def steps(job: Job) -> list[int]:
    lines = (Path(job["out"]) / "moments").read_text().splitlines()
    return [int(line.split()[1]) for line in lines]


def wait_for_writing(job: Job, seconds: float = 30) -> None:
    """Until a checkpoint is being written."""
    end = time.monotonic() + seconds
    while not list(Path(job["folder"]).glob(".longtail-*/*.safetensors")):
        assert time.monotonic() < end
        time.sleep(0.002)


# An epoch has four steps. Each kill happens to the process that resumed after the one before.
EVENTS: dict[str, list[dict[str, int]]] = {
    "before anything is saved": [{"step": 1}],
    "after the last step of an epoch": [{"step": 8}],
    "during validation": [{"validating": 3}],
    "while a state is written": [{"writing": 7}, {"writing": 4}],
    "after a state is renamed": [{"replaced": 9}],
    "when early stopping is near": [{"validating": 6}, {"validating": 1}],
    "after the last state is saved": [{"replaced": 28}],
}


@pytest.mark.parametrize("kills", EVENTS.values(), ids=EVENTS.keys())
def test_killed_and_resumed(
    children: Children, uninterrupted: Path, job: Job, kills: list[dict[str, int]]
) -> None:
    for when in kills:
        assert children.run("train", when=when, **job) == KILLED
    assert children.run("train", **job) == 0
    assert_same_end(uninterrupted, job)
    if "replaced" in kills[0]:
        # No step is lost or taken twice.
        assert steps(job) == list(range(1, 29))


@pytest.mark.parametrize(
    ("name", "when", "exit_code"),
    [
        ("SIGTERM", {"step": 6}, 143),
        ("SIGINT", {"step": 6}, 130),
        ("SIGTERM", {"step": 8}, 143),  # the last step of an epoch
        ("SIGTERM", {"validating": 2}, 143),
        ("SIGINT", {"replacing": 1}, 130),  # while the only state is saved
    ],
)
def test_a_signal_saves_and_exits(
    children: Children, uninterrupted: Path, job: Job, name: str, when: Job, exit_code: int
) -> None:
    """The interval never elapses: only the signal makes it save."""
    job["training"] = {"checkpoint_minutes": 0.0 if "replacing" in when else 60.0}
    assert children.run("train", when=when, signal=name, **job) == exit_code
    error = (Path(job["out"]) / "error").read_text()
    assert error == f"stopped by {name}. The training so far is saved: resume it with --resume."
    before = len(steps(job))
    assert children.run("train", **job) == 0
    assert_same_end(uninterrupted, job)
    # No step before the signal is taken again.
    assert steps(job) == list(range(1, 29)) and before < 28


def test_a_second_signal_ends_at_once(children: Children, job: Job) -> None:
    """While the first one waits for a slow save."""
    process = children.start("train", slowly=30.0, **job)
    wait_for_writing(job)
    os.kill(process, signal.SIGINT)
    time.sleep(0.2)
    begin = time.monotonic()
    os.kill(process, signal.SIGINT)
    assert children.wait(process) == 99  # KeyboardInterrupt
    assert time.monotonic() - begin < 10


def stop_at(step: int, stop: Stop) -> Callable[[Progress], None]:
    def progress(moment: Progress) -> None:
        if moment.done == step:
            stop.signal = signal.SIGTERM

    return progress


def test_stopped_without_a_folder() -> None:
    stop = Stop()
    with pytest.raises(StoppedError, match="Nothing was saved: the training has no f") as caught:
        train_tiny(make_network(), progress=stop_at(1, stop), stop=stop)
    assert caught.value.exit_code == 143


def test_stopped_after_the_last_step(tmp_path: Path) -> None:
    stop, states, seen = Stop(), states_in(tmp_path, 60), []
    with pytest.raises(StoppedError):
        trained(progress=stop_at(6, stop), stop=stop, checkpoints=states)
    assert same(trained(), trained(checkpoints=states, progress=seen.append)) and not seen


def test_handlers_are_restored() -> None:
    def handlers() -> list[Any]:
        return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    before = handlers()
    with stopping() as stop:
        assert handlers() != before
        os.kill(os.getpid(), signal.SIGTERM)
        # From the first signal on: a second one ends at once.
        assert stop.signal is signal.SIGTERM and handlers() == before
    with stopping():
        pass
    assert handlers() == before


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stopping() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.signal is None
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_catches_no_signals() -> None:
    def work() -> Any:
        with stopping() as stop:
            return stop.signal

    with ThreadPoolExecutor() as executor:
        assert executor.submit(work).result() is None


def test_the_interval_of_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, saved = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    class Timed(Checkpoints):
        def save(self, *args: Any, **more: Any) -> None:
            super().save(*args, **more)
            saved.append(clock[0])

    def tick(_: Progress) -> None:
        clock[0] += 25.0

    states = Timed(Workspace.begin(tmp_path, {}), minutes=1.0)
    train_tiny(make_network(), epochs=4, checkpoints=states, progress=tick)
    assert saved == [75.0, 150.0, 225.0, 300.0]


STATES: list[dict[str, Any]] = [
    {},
    {"ema": 0.9},
    {"precision": "bf16"},
    {"precision": "bf16", "ema": 0.9, "micro_batch": 3},
    {"schedule": "cosine", "max_grad_norm": 0.0, "weight_decay": 0.1, "head_learning_rate": 0.1},
]


@pytest.mark.parametrize("settings", STATES, ids=lambda s: " ".join(s) or "plain")
def test_a_state_is_complete(tmp_path: Path, settings: dict[str, Any]) -> None:
    settings = {"epochs": 3, **settings}
    whole = trained(make_network(dropout=0.3), **settings)
    for after in (1, 3, 8):
        folder, other = tmp_path / str(after), make_network(dropout=0.3, seed=7)
        with pytest.raises(CutOffError):
            trained(make_network(0.3), checkpoints=Breaking(folder, after), **settings)
        resumed = trained(other, checkpoints=states_in(folder), **settings)
        assert same(whole, resumed), after


def test_a_state_of_another_network_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CutOffError):
        train_tiny(make_network(), checkpoints=Breaking(tmp_path, 1))
    other = TokenNetwork()
    other.extra = nn.Linear(3, 3)
    with pytest.raises(DataError, match=r"another network or version .*Remove that folder"):
        train_tiny(other, checkpoints=states_in(tmp_path))
