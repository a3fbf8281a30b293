"""The service answers over HTTP what the classifier predicts."""

from __future__ import annotations

import sys

import pytest

from longtail import LongTailClassifier, Training
from longtail.errors import MissingExtraError
from longtail.serve import create_app

TEXTS = ["copper rose", "wheat fell"] * 8
LABELS = [["copper"], ["wheat"]] * 8


@pytest.fixture(scope="module")
def classifier() -> LongTailClassifier:
    return LongTailClassifier(folds=1, training=Training(device="cpu")).fit(TEXTS, LABELS)


def test_health_and_predict(classifier: LongTailClassifier) -> None:
    pytest.importorskip("fastapi", reason="needs the extra serve")
    from fastapi.testclient import TestClient

    client = TestClient(create_app(classifier))
    assert client.get("/health").json()["labels"] == 2
    answer = client.post("/predict", json={"texts": ["wheat", "copper"]})
    assert answer.json() == {"labels": [["wheat"], ["copper"]]}
    assert client.post("/predict", json={"text": "wheat"}).status_code == 422


def test_without_the_extra_the_pip_command_is_named(
    classifier: LongTailClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'longtail\[serve\]'"):
        create_app(classifier)
