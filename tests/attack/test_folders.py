"""Some hundred damaged model folders; thousands in `python -m tests.attack`."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from longtail import LongTailClassifier

from . import GOOD, OUR_ERROR, RIGHT
from .folders import answers, attack, judge
from .models import fit_kinds


def test_damaged_folders_answer_right_or_are_refused(tmp_path: Path) -> None:
    outcomes = list(itertools.islice(attack(1, tmp_path), 400))
    wrong = [outcome for outcome in outcomes if outcome.verdict not in GOOD]
    assert not wrong, wrong[:3]
    assert {outcome.verdict for outcome in outcomes} == {RIGHT, OUR_ERROR}


def test_the_judge_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fit_kinds(tmp_path)["bag"]
    expected = answers(folder)
    assert judge(folder, expected) == RIGHT
    assert judge(folder, expected + np.float32(1)) == "it answers differently"
    (folder / "RAN").touch()
    assert judge(folder, expected) == "foreign code was run"

    def broken(*_: object, **__: object) -> None:
        raise KeyError("raw")

    monkeypatch.setattr(LongTailClassifier, "from_pretrained", broken)
    assert judge(folder, expected).startswith("KeyError")
