"""Classifiers, fitted once for all tests that do not change them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from longtail import Bag, Encoder, LongTailClassifier, Svm, Training
from longtail.models import MODELS

from .cases import LABELS, REMEMBERING, TEXTS

Classifier: TypeAlias = LongTailClassifier
Make: TypeAlias = Callable[..., LongTailClassifier]
Patch: TypeAlias = pytest.MonkeyPatch
Request: TypeAlias = pytest.FixtureRequest


@pytest.fixture(scope="session")
def make(tiny_bert: Path) -> Make:
    """Makes a classifier with a tiny encoder; arguments may be those of its parts."""
    training = Training(epochs=12, batch_size=8, learning_rate=5e-3, device="cpu")

    def make_classifier(**settings: Any) -> LongTailClassifier:
        fields = {k: settings.pop(k) for k in ("pooling", "max_length") if k in settings}
        names = [name for name in settings if hasattr(training, name)]
        changed = replace(training, **{name: settings.pop(name) for name in names})
        model = Encoder(str(tiny_bert), **{"max_length": 8, **fields})
        return LongTailClassifier(**{"model": model, "training": changed, **settings})

    return make_classifier


@pytest.fixture(scope="session")
def encoder(make: Make) -> LongTailClassifier:
    return make().fit(TEXTS, LABELS)


@pytest.fixture(scope="session")
def cross_fitted(make: Make) -> LongTailClassifier:
    """Two encoders, each trained on one half."""
    return make(folds=2).fit(TEXTS, LABELS)


@pytest.fixture(scope="session")
def blended(tiny_bert: Path) -> LongTailClassifier:
    """An encoder, with its own loss and training, a bag and an SVM."""
    cpu = Training(device="cpu")
    encoder = Encoder(
        str(tiny_bert),
        loss="fl",
        loss_settings={"gamma": 1.5},
        training=Training(epochs=2, batch_size=8),
    )
    models = [encoder, Bag(C=100.0, min_df=1), "svm"]
    return LongTailClassifier(
        models, "cb", loss_settings={"gamma": 1.0}, training=cpu, folds=2, label_texts="names"
    ).fit(TEXTS, LABELS)


@pytest.fixture(scope="session")
def saved(encoder: LongTailClassifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("saved") / "run"
    encoder.save_pretrained(folder)
    return folder


@pytest.fixture
def copied(saved: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(saved, tmp_path / "run"))


@pytest.fixture(params=["bag", "svm", "encoder"])
def make_any(request: pytest.FixtureRequest, make: Make) -> Make:
    """Makes classifiers with each kind of model."""
    if request.param == "encoder":
        return lambda **settings: make(epochs=2, **settings)
    model = {"bag": Bag(C=100.0), "svm": Svm()}[request.param]
    cpu = Training(device="cpu")
    return lambda **settings: LongTailClassifier(model, training=cpu, **settings)


@pytest.fixture(scope="module")
def remember() -> Iterator[None]:
    """`cases.Remembering` as a kind of model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MODELS, "remembering", REMEMBERING)
        yield
