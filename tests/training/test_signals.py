"""SIGTERM and SIGINT: the state is saved, the process leaves with the usual exit code."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from safetensors.torch import load_file

from longtail.training import Checkpoints, Moment, Stop, StoppedError, stopping

from .cases import network, same, train_tiny, weights_of

if TYPE_CHECKING:
    from conftest import Children


@pytest.fixture(scope="module")
def undisturbed(children: Children, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out: Path = tmp_path_factory.mktemp("undisturbed")
    assert children.run("train", out=str(out)) == 0
    return out


@pytest.mark.parametrize(
    ("name", "when", "exit_code"),
    [
        ("SIGTERM", {"step": 6}, 143),
        ("SIGINT", {"step": 6}, 130),
        ("SIGTERM", {"step": 8}, 143),  # the last step of an epoch
        ("SIGTERM", {"judging": 2}, 143),
        ("SIGINT", {"replacing": 1}, 130),  # while the only state is saved
    ],
)
def test_saves_and_leaves(
    children: Children,
    undisturbed: Path,
    tmp_path: Path,
    name: str,
    when: dict[str, int],
    exit_code: int,
) -> None:
    """With an interval that is never over: what is saved is saved because of the signal."""
    out, states = tmp_path / "out", tmp_path / "states"
    minutes = 0.0 if "replacing" in when else 60.0
    job: dict[str, Any] = {"out": str(out), "folder": str(states)}
    job["training"] = {"checkpoint_minutes": minutes}
    assert children.run("train", when=when, signal=name, **job) == exit_code
    said = (out / "error").read_text()
    assert said == f"stopped by {name}. What was learned so far is saved: go on with --resume."
    before = len((out / "moments").read_text().splitlines())
    assert children.run("train", **job) == 0
    assert same(
        load_file(undisturbed / "weights.safetensors"), load_file(out / "weights.safetensors")
    )
    # Nothing that was done before the signal is done again.
    steps = [int(line.split()[1]) for line in (out / "moments").read_text().splitlines()]
    assert steps == list(range(1, 29)) and steps[before - 1] == before


def test_a_second_signal_ends_at_once(children: Children, tmp_path: Path) -> None:
    """While the first one waits for a save that takes for ever."""
    out, states = tmp_path / "out", tmp_path / "states"
    job: dict[str, Any] = {"out": str(out), "folder": str(states), "slowly": 30.0}
    process = children.start("train", **job)
    while not list(states.glob(".longtail-*/*.safetensors")):
        time.sleep(0.01)
    os.kill(process, signal.SIGINT)
    time.sleep(0.2)
    begin = time.monotonic()
    os.kill(process, signal.SIGINT)
    assert children.wait(process) == 99  # KeyboardInterrupt, as without us
    assert time.monotonic() - begin < 10


def test_without_a_folder_the_message_says_so() -> None:
    stop = Stop()

    def ask(_: Moment) -> None:
        stop.signal = signal.SIGTERM

    with pytest.raises(
        StoppedError, match="Nothing was saved: the training has no folder"
    ) as caught:
        train_tiny(network(), progress=ask, stop=stop)
    assert caught.value.exit_code == 143


def test_a_stop_after_the_last_epoch_is_resumed_to_the_same(tmp_path: Path) -> None:
    whole, stopped = network(), network()
    train_tiny(whole)
    stop = Stop()

    def ask(moment: Moment) -> None:
        if moment.step == moment.steps:
            stop.signal = signal.SIGINT

    with pytest.raises(StoppedError):
        train_tiny(stopped, progress=ask, stop=stop, checkpoints=Checkpoints(tmp_path, 60))
    seen: list[Moment] = []
    train_tiny(stopped, checkpoints=Checkpoints(tmp_path), progress=seen.append)
    assert same(weights_of(whole), weights_of(stopped)) and not seen


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with stopping() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.signal is signal.SIGTERM
        # From the first signal on both are as they were.
        assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stopping() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.signal is None
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_cannot_catch_signals_and_goes_on_without() -> None:
    found: list[Stop] = []

    def work() -> None:
        with stopping() as stop:
            found.append(stop)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found[0].signal is None
