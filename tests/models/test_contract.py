"""The contract of all kinds in MODELS, and how users specify a model."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone

from longtail import LongTailClassifier
from longtail.classifier.plan import to_plain
from longtail.errors import InputError
from longtail.models import (
    MODELS,
    Bag,
    Encoder,
    ModelSettings,
    Svm,
    build_model,
    kind_of,
    parse_model,
)
from longtail.training import Training

from .cases import NAMES, ODD, TEXTS, fit_model

KINDS: dict[str, ModelSettings] = {
    "bag": Bag(C=100.0, min_df=1),
    "bag, characters": Bag(C=100.0, min_df=1, char_ngrams=3),
    "bag, squared hinge": Bag(C=1.0, min_df=1, loss="squared-hinge"),
    "bag, hidden layer": Bag(hidden=5, min_df=1),
    "encoder": Encoder(max_length=16),
    "encoder, its head": Encoder(max_length=16, pooling="cls"),
    "svm": Svm(),
}
assert {kind_of(settings) for settings in KINDS.values()} == MODELS.keys() - {"auto"}


@pytest.fixture(params=KINDS, scope="module")
def model(request: pytest.FixtureRequest, tiny_bert: Path) -> Any:
    settings = KINDS[request.param]
    if isinstance(settings, Encoder):
        settings = dataclasses.replace(settings, encoder=str(tiny_bert))
    return fit(settings)


def fit(settings: ModelSettings) -> Any:
    steps = {"epochs": 2} if settings.trains_in_steps else {}
    return fit_model(settings, loss=settings.loss or "db", **steps)


def test_scores_of_odd_texts(model: Any) -> None:
    scores = model.scores([*TEXTS, *ODD])
    assert scores.shape == (len(TEXTS) + len(ODD), len(NAMES)) and scores.dtype == np.float32
    assert np.isfinite(scores).all() and model.scale in ("logit", "margin")
    np.testing.assert_array_equal(model.scores(TEXTS, model.encode(TEXTS)), model.scores(TEXTS))


def test_refitted_and_loaded_models_score_the_same(model: Any, tmp_path: Path) -> None:
    expected = model.scores(TEXTS + ODD)
    np.testing.assert_array_equal(fit(model.settings).scores(TEXTS + ODD), expected)
    model.save(tmp_path)
    loaded = build_model(model.settings)
    loaded.load(tmp_path, len(NAMES), torch.device("cpu"))
    np.testing.assert_array_equal(loaded.scores(TEXTS + ODD), expected)
    # No pickle.
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}


def test_every_setting_has_a_help_text() -> None:
    overrides = {item.name for item in dataclasses.fields(ModelSettings)}
    for settings in (Training, *(row.settings for row in MODELS.values())):
        for item in dataclasses.fields(settings):
            assert item.name in overrides or item.metadata["help"], item.name


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        *((Bag, {name: -1}) for name in ("hidden", "char_ngrams")),
        *((Bag, {name: 0}) for name in ("C", "ngrams", "min_df", "max_features")),
        (Bag, {"dropout": 1.5, "hidden": 5}),
        (Svm, {"C": 0}),
        (Svm, {"class_weight": "equal"}),
        (Svm, {"ngrams": 0}),
        (Svm, {"sublinear": 1}),
        (Encoder, {"encoder": 3}),
        (Encoder, {"pooling": "max"}),
        (Encoder, {"max_length": 0}),
    ],
    ids=str,
)
def test_wrong_settings_are_named(kind: type[ModelSettings], settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(settings))):
        kind(**settings)


def test_settings_without_effect() -> None:
    with pytest.raises(InputError, match="no effect on a linear head"):
        Bag(dropout=0.1)
    for settings in ({"C": 10.0}, {"informed": False}):
        with pytest.raises(InputError, match="no effect on a hidden layer"):
            Bag(hidden=5, **settings)


def test_flat_settings_of_the_training_of_a_model() -> None:
    nested = parse_model({"kind": "bag", "hidden": 4, "epochs": 3, "training": {"ema": 0.5}})
    assert nested == Bag(4, training=Training(epochs=3, ema=0.5))
    assert parse_model(to_plain(nested)) == nested
    assert parse_model(nested) == nested and parse_model(nested) is not nested


def test_the_folder_of_an_encoder_may_be_a_path(tiny_bert: Path) -> None:
    path: Any = tiny_bert
    settings = Encoder(path)
    assert settings == Encoder(str(tiny_bert)) and type(settings.encoder) is str
    assert clone(LongTailClassifier(settings)).model == settings


def test_settings_without_a_row_are_refused() -> None:
    with pytest.raises(InputError, match="ModelSettings is not a kind of model: add a row"):
        kind_of(ModelSettings())
