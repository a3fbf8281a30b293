"""The command as a user calls it, with small data and models."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from longtail import LongTailClassifier, Training
from longtail.cli import main
from longtail.corpora.newswire import load
from longtail.data import write_data

PROGRAM = (sys.executable, "-m", "longtail")
QUICK = ("--device", "cpu", "--thresholds", "global", "--folds", 1)


class Called(NamedTuple):
    """Exit code, standard output and standard error of a call of the command."""

    code: int
    out: str
    err: str


class Command:
    """Calls the command in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.capsys, self.monkeypatch = capsys, monkeypatch

    def __call__(self, *arguments: object) -> Called:
        self.monkeypatch.setattr(sys, "argv", ["longtail", *map(str, arguments)])
        self.monkeypatch.setenv("COLUMNS", "120")
        code: object = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code
        output = self.capsys.readouterr()
        return Called(code if isinstance(code, int) else 0, output.out, output.err)

    def ok(self, *arguments: object) -> Called:
        done = self(*arguments)
        assert done.code == 0, done.err
        return done

    def fails(self, message: str, *arguments: object) -> str:
        """Call the command; it must fail with one message that contains these words."""
        code, _, err = self(*arguments)
        assert code == 1 and message in err.replace("\n", " "), err
        assert f"\n{err}".count("\nerror: ") == 1 and "Traceback" not in err
        return err


@pytest.fixture
def longtail(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(capsys, monkeypatch)


@pytest.fixture
def unprivileged() -> Iterator[None]:
    """File permissions apply to this thread even if root runs the tests."""
    libc = ctypes.CDLL(None)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    effective = sets[0]
    sets[0] &= ~0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
    assert libc.capset(header, sets) == 0
    yield
    sets[0] = effective
    assert libc.capset(header, sets) == 0


def child(*arguments: object) -> subprocess.Popen[str]:
    """The command in another process."""
    return subprocess.Popen(
        [*PROGRAM, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    """Wait until another process has written a file."""
    end = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.005)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("wire")
    for part, data in load(n_documents=300, n_labels=12).items():
        write_data(data, path / f"{part}.jsonl")
    return path


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("run") / "model"
    parts = load(n_documents=300, n_labels=12)
    classifier = LongTailClassifier(folds=1, training=Training(device="cpu"))
    classifier.fit(parts["train"], validation=parts["validation"]).save_pretrained(path)
    return path
