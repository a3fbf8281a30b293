"""A short fuzzing of the service; in full: `python -m tests.attack --only service`."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("schemathesis", reason="needs the extra dev")

from ..attack import GOOD, OUR_ERROR, RIGHT, service


def test_requests_of_any_kind_are_answered(tmp_path: Path) -> None:
    outcomes = list(islice(service.attack(1, tmp_path), 300))
    assert [outcome for outcome in outcomes if outcome.verdict not in GOOD] == []
    assert {outcome.verdict for outcome in outcomes} == {RIGHT, OUR_ERROR}


def answer(status: int, body: Any, **headers: str) -> SimpleNamespace:
    headers = {"content-security-policy": "x", "content-type": "application/json", **headers}
    return SimpleNamespace(status_code=status, headers=headers, json=lambda: body, text=str(body))


def test_wrong_answers_are_detected() -> None:
    sentence = {"error": "expected this, got that; do so"}
    assert service.verdict_on(answer(422, sentence), "/") == OUR_ERROR
    assert service.verdict_on(answer(500, sentence), "/") == "status 500"
    assert "without a sentence" in service.verdict_on(answer(422, {"detail": []}), "/")
    bare = SimpleNamespace(status_code=200, headers={})
    assert "security headers" in service.verdict_on(bare, "/")
