"""Classifiers that are fitted once for all tests that only ask them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from longtail import LongTailClassifier

from .cases import LABELS, TEXTS, make_bert


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bert(tmp_path_factory.mktemp("encoders") / "tiny-bert")


@pytest.fixture(scope="session")
def encoder_arguments(tiny_bert: Path) -> dict[str, Any]:
    """An encoder that learns the documents in a tenth of a second."""
    return {
        "model": "encoder",
        "model_settings": {"encoder": str(tiny_bert), "max_length": 8},
        "epochs": 12,
        "batch_size": 8,
        "learning_rate": 5e-3,
        "device": "cpu",
    }


@pytest.fixture(scope="session")
def encoder(encoder_arguments: dict[str, Any]) -> LongTailClassifier:
    return LongTailClassifier(**encoder_arguments).fit(TEXTS, LABELS)


@pytest.fixture(scope="session")
def cross_fitted(encoder_arguments: dict[str, Any]) -> LongTailClassifier:
    """Two encoders, each trained without a half."""
    return LongTailClassifier(**encoder_arguments, folds=2).fit(TEXTS, LABELS)


@pytest.fixture(scope="session")
def saved(encoder: LongTailClassifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("saved") / "run"
    encoder.save_pretrained(folder)
    return folder


@pytest.fixture
def copied(saved: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(saved, tmp_path / "run"))
