"""`longtail train` under torchrun and accelerate, with two processes on the CPU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from .conftest import Command, wait_for

if TYPE_CHECKING:
    from subprocess import Popen

TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "-m")
# Its launcher for several CPUs is MPI.
ACCELERATE = ("-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "-m")
STATE = ".longtail-work/fold-0/state.safetensors"


def start(*arguments: object, launcher: tuple[str, ...] = TORCHRUN) -> Popen[str]:
    return subprocess.Popen(
        [sys.executable, *launcher, "longtail", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def finish(process: Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def process_of(launcher: Popen[str], rank: int) -> int:
    """The process id of a rank."""
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    for child in children:
        if f"RANK={rank}" in Path(f"/proc/{child}/environ").read_text().split("\0"):
            return int(child)
    raise AssertionError(children)


@pytest.fixture(scope="module")
def arguments(folder: Path, steady_bert: Path) -> tuple[Any, ...]:
    flags = ("--model", "encoder", "--encoder", steady_bert, "--dropout", 0, "--epochs", 8)
    flags = (*flags, "--batch-size", 16, "--device", "cpu", "--thresholds", "global")
    return (folder, *flags, "--checkpoint-minutes", 0)


def assert_same_model(one: Path, other: Path, atol: float) -> None:
    for name in ("model.safetensors", "head.safetensors"):
        first, second = load_file(one / name), load_file(other / name)
        assert first.keys() == second.keys()
        for key, value in first.items():
            np.testing.assert_allclose(value, second[key], atol=atol, err_msg=key)


def test_killed_resumed_and_refused(
    longtail: Command, arguments: tuple[Any, ...], tmp_path: Path
) -> None:
    """One training, started by torchrun, resumed by accelerate, and not started again."""
    alone, run = tmp_path / "alone", tmp_path / "run"
    longtail.ok("train", *arguments, "--out", alone)
    killed = start("train", *arguments, "--out", run)
    wait_for(run / STATE, killed)
    os.kill(process_of(killed, 1), signal.SIGKILL)
    code, out, err = finish(killed)
    assert code == 1 and out == ""
    assert err.count("error: ") == 1 and "error: another process of this training has ended" in err
    assert f"The command: longtail train {arguments[0]} --out {run} --resume" in err
    assert not (run / "longtail.json").exists()

    resumed = start("train", arguments[0], "--out", run, "--resume", launcher=ACCELERATE)
    code, out, err = finish(resumed)
    assert code == 0, err
    # Once, by the main process.
    assert out.count("Saved to") == 1 and err.count("epoch 8/8, 96 of 96 steps") == 1
    assert_same_model(alone, run, atol=1e-5)

    code, out, err = finish(start("train", *arguments, "--out", run))
    assert code == 1 and out == "" and err.count("error: ") == 1
    assert f"error: {run} holds a trained model. Replace it with --overwrite." in err
