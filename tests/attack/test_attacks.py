"""A bounded part of every attack, and checks that each can detect a defect."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from longtail import LongTailClassifier
from longtail.data import ReadReport, read_data
from longtail.errors import InputError
from longtail.training import steps

from ..data.cases import write_files
from . import GOOD, OUR_ERROR, REPORTED, RIGHT, Outcome, files, folders, losses
from .file_samples import samples
from .kills import SCENARIOS, attack_scenario
from .models import fit_kinds, kinds
from .threads import attack_kind


@pytest.mark.parametrize(
    ("attack", "n_cases", "verdicts", "n_kinds"),
    [
        (files.attack, 600, {RIGHT, OUR_ERROR, REPORTED}, 150),
        (folders.attack, 250, {RIGHT, OUR_ERROR}, 9),
        (losses.attack, 300, {RIGHT, OUR_ERROR}, 40),
    ],
)
def test_a_bounded_part(
    attack: Callable[[int, Path], Iterator[Outcome]],
    n_cases: int,
    verdicts: set[str],
    n_kinds: int,
    tmp_path: Path,
) -> None:
    outcomes = list(islice(attack(1, tmp_path), n_cases))
    assert [outcome for outcome in outcomes if outcome.verdict not in GOOD] == []
    assert {outcome.verdict for outcome in outcomes} == verdicts
    assert len({outcome.kind for outcome in outcomes}) >= n_kinds


@pytest.mark.parametrize("name", ["jsonl", "csv", "medline", "bioasq", "reuters folder", "parquet"])
def test_a_document_that_is_lost_is_seen(tmp_path: Path, name: str) -> None:
    sample = samples()[name]
    target = next(iter(sample.files))
    damaged = {**sample.files, target: sample.files[target] + b"\n"}
    whole = read_data(write_files(tmp_path, sample.files) / sample.source, sample.format)

    def verdict(result: Any, report: ReadReport, contents: dict[str, bytes] = damaged) -> str:
        return files.verdict(sample, contents, result, report, plain=True)

    assert verdict(whole, ReadReport(documents=6), sample.files) == RIGHT
    assert "lost in silence" in verdict(whole[1:], ReadReport(documents=5))
    assert verdict(whole[1:], ReadReport(documents=5, skipped=1)) == REPORTED
    assert "undamaged" in verdict(whole[1:], ReadReport(documents=5), sample.files)
    assert "report says" in verdict(whole, ReadReport(documents=9))


def raises(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_a_raw_error_and_a_slow_reader_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = samples()
    with monkeypatch.context() as patch:
        for name in ("read_data", "read_parts"):
            patch.setattr(files, name, raises(ZeroDivisionError()))
        assert files.one_case("jsonl", table, "0:1", tmp_path).verdict.startswith("raw ZeroDiv")
    monkeypatch.setattr(files, "SECONDS", -1.0)
    assert files.one_case("jsonl", table, "0:1", tmp_path).verdict.startswith("took")


def test_what_is_not_refused_or_refused_badly_is_seen() -> None:
    assert losses.refused(raises(InputError("expected this, got that; do so"))) == OUR_ERROR
    assert losses.refused(raises(InputError("no"))) == "a message of 2 characters"
    assert losses.refused(raises(IndexError("index out of range"))).startswith("raw IndexError")
    assert losses.refused(lambda: torch.ones(1)).startswith("damaged input accepted")


# Some of the operations, and all of them in `python -m tests.attack`. Primes, so that the
# operations of a step that is repeated come in turn.
EVERY = {"train": 11, "train --overwrite": 13, "predict": 7, "reproduce": 61}
EVERY |= {"report as html": 5, "stats --plot": 5}
# Minimum number of cases: with fewer, the hook misses operations.
LEAST = {"train": 11, "train --overwrite": 10, "reproduce": 5}
LEAST |= {"report as html": 3, "stats --plot": 4}


@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_at_every_file_operation(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    outcomes = list(attack_scenario(name, tmp_path, EVERY.get(name, 1)))
    wrong = [outcome for outcome in outcomes if outcome.verdict != RIGHT]
    assert not wrong, wrong[:3]
    assert len(outcomes) >= LEAST.get(name, 8)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return fit_kinds(tmp_path_factory.mktemp("kinds"))


def test_a_wrong_answer_and_foreign_code_are_seen(
    fitted: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fitted["bag"]
    expected = folders.answers(folder)
    assert folders.judge(folder, expected) == RIGHT
    assert folders.judge(folder, expected + np.float32(1)) == "it answers differently"
    (folder / "RAN").touch()
    assert folders.judge(folder, expected) == "foreign code was run"
    (folder / "RAN").unlink()
    monkeypatch.setattr(LongTailClassifier, "from_pretrained", raises(KeyError("raw")))
    assert folders.judge(folder, expected).startswith("raw KeyError")


@pytest.mark.parametrize("kind", kinds(Path()))
def test_threads_get_the_answers_of_one(kind: str, fitted: dict[str, Path]) -> None:
    wrong = [o for o in attack_kind(kind, fitted[kind], 120, seed=0) if o.verdict != RIGHT]
    assert not wrong, wrong[:3]


def test_a_network_that_is_switched_is_seen(
    fitted: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prediction that switches the mode of the shared network, as predictions once did."""
    predict = steps._predict

    def switching(network: torch.nn.Module, *arguments: Any) -> object:
        try:
            return predict(network.eval(), *arguments)
        finally:
            network.train()(**arguments[0].batch([0]))
            network.eval()

    monkeypatch.setattr(steps, "_predict", switching)
    outcomes = attack_kind("encoder", fitted["encoder"], 800, seed=0)
    assert any(outcome.verdict != RIGHT for outcome in outcomes)
