"""A bounded part of the attack on files, and that its verdict can be bad."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from longtail.data import ReadReport, TextData, read_data
from longtail.errors import DataError

from . import GOOD, OUR_ERROR, RIGHT, TOLD, files
from .file_bombs import detonate
from .file_samples import samples

N_CASES = 600


def test_damaged_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BOMB_EVERY", N_CASES + 1)
    cases = list(itertools.islice(files.attack(0, tmp_path), N_CASES))
    assert [case for case in cases if case.verdict not in GOOD] == []
    verdicts = Counter(case.verdict for case in cases)
    assert min(verdicts[verdict] for verdict in GOOD) > N_CASES // 20
    formats = {case.kind.partition(",")[0] for case in cases}
    assert formats == set(samples())


@pytest.mark.parametrize("bomb", ["brackets.jsonl", "laughs.xml", "tar_digits.tar.gz"])
def test_bombs(tmp_path: Path, bomb: str) -> None:
    case = detonate(bomb, random.Random(0), tmp_path)
    assert case.verdict in GOOD, case


@pytest.mark.parametrize("name", ["jsonl", "csv", "medline", "bioasq", "reuters folder", "parquet"])
def test_a_document_that_is_lost_is_seen(tmp_path: Path, name: str) -> None:
    sample = samples()[name]
    target = next(iter(sample.files))
    damaged = {**sample.files, target: sample.files[target] + b"\n"}
    for path, content in sample.files.items():
        (tmp_path / path).write_bytes(content)
    whole = read_data(tmp_path / sample.source, sample.format)

    def verdict(result: Any, report: ReadReport, contents: dict[str, bytes] = damaged) -> str:
        return files.verdict(sample, contents, result, report, plain=True)

    assert verdict(whole, ReadReport(documents=6), sample.files) == RIGHT
    assert "lost in silence" in verdict(whole[1:], ReadReport(documents=5))
    assert verdict(whole[1:], ReadReport(documents=5, skipped=1)) == TOLD
    assert "undamaged" in verdict(whole[1:], ReadReport(documents=5), sample.files)
    assert "report says" in verdict(whole, ReadReport(documents=9))
    assert verdict(DataError("broken"), ReadReport()) == OUR_ERROR


def test_a_raw_error_and_a_slow_reader_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any, **options: Any) -> TextData:
        raise ZeroDivisionError("division by zero")

    table = samples()
    monkeypatch.setattr(files, "read_data", broken)
    monkeypatch.setattr(files, "read_parts", broken)
    assert files.one_case("jsonl", table, "0:1", tmp_path).verdict.startswith("raw ZeroDivision")
    monkeypatch.undo()
    monkeypatch.setattr(files, "SECONDS", -1.0)
    assert files.one_case("jsonl", table, "0:1", tmp_path).verdict.startswith("took")
