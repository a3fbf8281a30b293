"""Arguments: the same as the settings of training, plain before training, refused with a cure."""

from __future__ import annotations

import dataclasses
import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longtail import LongTailClassifier
from longtail.classifier.arguments import plain_arguments
from longtail.errors import InputError, LongtailError, UnknownNameError
from longtail.settings import TrainingConfig

from .cases import LABELS, TEXTS

PARAMETERS = inspect.signature(LongTailClassifier.__init__).parameters


def test_every_setting_of_training_is_an_argument_with_the_same_default() -> None:
    for field in dataclasses.fields(TrainingConfig):
        assert PARAMETERS[field.name].default == field.default, field.name
        assert type(PARAMETERS[field.name].default) is type(field.default), field.name


def test_the_constructor_only_stores() -> None:
    odd = {name: object() for name in PARAMETERS if name != "self"}
    classifier = LongTailClassifier(**odd)  # type: ignore[arg-type]
    assert vars(classifier) == odd


def test_every_argument_is_documented() -> None:
    text = inspect.getdoc(LongTailClassifier) or ""
    arguments = text.split("Args:")[1].split("Attributes after fit:")[0]
    trained = {field.name for field in dataclasses.fields(TrainingConfig)}
    for name in set(PARAMETERS) - trained - {"self"}:
        assert name in arguments, name
    assert "TrainingConfig" in arguments
    for field in dataclasses.fields(TrainingConfig):
        assert field.metadata["help"]


def test_every_method_is_documented() -> None:
    for name, method in inspect.getmembers(LongTailClassifier, inspect.isfunction):
        if not name.startswith("_") and method.__module__.startswith("longtail."):
            assert inspect.getdoc(method), name


def test_numbers_of_numpy_and_the_like_become_plain() -> None:
    found = plain_arguments(
        {
            "epochs": np.int64(3),
            "clip": np.float32(0.5),
            "flag": np.bool_(True),
            "name": np.str_("db"),
            "path": Path("a") / "b",
            "nothing": None,
            "pair": (1, np.int8(2)),
            "nested": {"weights": np.array([0.5, 2]), "tensor": torch.tensor([1.0])},
            "scalar": np.array(4),
        }
    )
    assert found == {
        "epochs": 3,
        "clip": 0.5,
        "flag": True,
        "name": "db",
        "path": str(Path("a/b")),
        "nothing": None,
        "pair": [1, 2],
        "nested": {"weights": [0.5, 2.0], "tensor": [1.0]},
        "scalar": 4,
    }
    assert [type(found[name]) for name in ("epochs", "clip", "flag", "name")] == [
        int,
        float,
        bool,
        str,
    ]
    assert json.loads(json.dumps(found, allow_nan=False)) == found


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_what_is_plain_stays_and_is_copied(arguments: dict[str, Any]) -> None:
    before = json.dumps(arguments)
    found = plain_arguments(arguments)
    assert found == arguments and found is not arguments
    assert json.dumps(found) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"a": object()}, "a must be a number, a text, a path"),
        ({"a": {"b": [1, {3}]}}, r"a\.b\[1\] must be a number, a text, a path.*got \{3\} \(set\)"),
        ({"a": print}, "a must be a number"),
        ({"a": float("nan")}, "a must be a finite number, got nan"),
        ({"a": {"b": np.inf}}, r"a\.b must be a finite number, got inf"),
        ({"a": {1: 2}}, "the keys of a must be strings, got 1"),
        ({"a": b"x"}, "a must be a number"),
    ],
)
def test_what_could_not_be_saved(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plain_arguments(arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"loss": "dbb"}, UnknownNameError, "Did you mean 'db'"),
        ({"model": "encodre"}, UnknownNameError, "Did you mean 'encoder'"),
        ({"thresholds": "globl"}, UnknownNameError, "Did you mean 'global'"),
        ({"objective": "mikro"}, UnknownNameError, "Did you mean 'micro'"),
        ({"model_settings": {"pooling": "max"}}, InputError, "pooling must be one of mean, cls"),
        ({"model_settings": {"width": 3}}, LongtailError, "width"),
        ({"loss_settings": {"gama": 3}}, UnknownNameError, "Did you mean 'gamma'"),
        ({"loss_settings": {"reduction": "none"}}, InputError, "is a number"),
        ({"seed": -1}, InputError, "seed must be"),
        ({"epochs": "3"}, InputError, "epochs must be a whole number"),
        ({"epochs": 0}, InputError, "epochs must be a whole number of at least 1, got 0"),
        ({"folds": 0}, InputError, "folds must be a whole number"),
        ({"folds": 25}, InputError, "cannot make 25 folds of 24 documents. Use fewer folds"),
        ({"folds": 2, "patience": 1}, InputError, "Use folds=1 with patience"),
        ({"patience": 1, "stop_on": "mikro_f1"}, UnknownNameError, "Did you mean 'micro_f1'"),
        ({"validation_fraction": 2}, InputError, "must lie between 0 and 1, got 2"),
        ({"validation_fraction": "x"}, InputError, "must lie between 0 and 1, got 'x'"),
        ({"validation_fraction": True}, InputError, "must lie between 0 and 1, got True"),
        ({"max_labels": 0}, InputError, "max_labels must be a whole number of at least 1"),
        ({"max_labels": 1.5}, InputError, "max_labels must be a whole number"),
        ({"max_labels": True}, InputError, "max_labels must be a whole number"),
        ({"at_least_one": 1}, InputError, "at_least_one must be True or False"),
        ({"device": "gpu"}, InputError, "device must be"),
        ({"loss_settings": {"gamma": {1}}}, InputError, r"loss_settings\.gamma must be"),
    ],
)
def test_bad_arguments_are_explained_before_training(
    arguments: dict[str, Any],
    error: type[LongtailError],
    message: str,
    encoder_arguments: dict[str, Any],
) -> None:
    seen: list[object] = []
    with pytest.raises(error, match=message):
        LongTailClassifier(**encoder_arguments | arguments).fit(TEXTS, LABELS, progress=seen.append)
    assert seen == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gama": 1}, "Did you mean 'gamma'"),
        ({"label_weight": [1.0, 2.0]}, "one number for each of the 3 labels, got 2"),
    ],
)
def test_a_wrong_constant_is_found_before_any_text_is_read(
    settings: dict[str, Any], message: str
) -> None:
    nowhere = {"encoder": "/nowhere/to/be/found"}
    classifier = LongTailClassifier("encoder", model_settings=nowhere, loss_settings=settings)
    with pytest.raises(LongtailError, match=message):
        classifier.fit(TEXTS, LABELS)


def test_arguments_of_numpy_train_and_are_saved(
    encoder_arguments: dict[str, Any], tmp_path: Path
) -> None:
    """As a search over np.arange or scipy's distributions passes them."""
    settings = encoder_arguments["model_settings"]
    classifier = LongTailClassifier(
        **encoder_arguments
        | {
            "epochs": np.int64(1),
            "learning_rate": np.float64(1e-3),
            "folds": np.int32(2),
            "seed": np.int64(4),
            "max_labels": np.int64(2),
            "at_least_one": np.bool_(True),
            "model_settings": {**settings, "encoder": Path(settings["encoder"])},
            "loss_settings": {"gamma": np.float32(1.0)},
        }
    ).fit(TEXTS, LABELS)
    classifier.save_pretrained(tmp_path / "run")
    after = LongTailClassifier.from_pretrained(tmp_path / "run")
    assert np.array_equal(after.decision_function(TEXTS), classifier.decision_function(TEXTS))
    assert after.thresholds_.top_k == 2 and after.thresholds_.at_least_one is True
    assert after.loss_settings == {"gamma": 1.0}


def test_the_plan_of_few_documents() -> None:
    folds = {n: LongTailClassifier(model="encoder").plans(n)[0].folds for n in (2, 100)}
    assert folds == {2: 1, 100: 1}
    blended = LongTailClassifier(members=[{"model": "encoder"}, {}])
    assert {n: blended.plans(n)[1].folds for n in (2, 6, 100)} == {2: 1, 6: 3, 100: 5}
