"""The command as a user calls it, and small data and models for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from longtail import LongTailClassifier, Training
from longtail.cli import main
from longtail.corpora.newswire import load
from longtail.data import write_data


class Called(NamedTuple):
    """Exit code, output and error output of one call of the command."""

    code: int
    out: str
    err: str


@pytest.fixture
def longtail(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Called]:
    def call(*arguments: object) -> Called:
        monkeypatch.setattr(sys, "argv", ["longtail", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "120")
        code: object = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code
        output = capsys.readouterr()
        return Called(code if isinstance(code, int) else 0, output.out, output.err)

    return call


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
