"""Parameters: models as objects, flat settings, plans, and errors before anything is trained."""

from __future__ import annotations

import copy
import inspect
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from longtail import Bag, Encoder, LongTailClassifier, Svm, Training
from longtail.classifier.plan import Plan, fingerprint, make_plans, to_plain
from longtail.errors import InputError, LongtailError, UnknownNameError
from longtail.labels import LabelStats
from longtail.models import Auto

from .cases import CPU, LABELS, TEXTS, numbered, reload
from .conftest import Make

PARAMS = list(inspect.signature(LongTailClassifier).parameters)
STOPPING = {"early_stopping_patience": 1}


def test_the_constructor_only_stores_a_dozen_parameters() -> None:
    assert len(PARAMS) <= 12
    odd: dict[str, Any] = {name: object() for name in PARAMS}
    assert vars(LongTailClassifier(**odd)) == odd


def test_parameters_and_methods_are_documented() -> None:
    text = inspect.getdoc(LongTailClassifier) or ""
    arguments = text.split("Args:")[1].split("Attributes after fit:")[0]
    for name in PARAMS:
        assert name in arguments, name
    for name, method in inspect.getmembers(LongTailClassifier, inspect.isfunction):
        if not name.startswith("_") and method.__module__.startswith("longtail."):
            assert inspect.getdoc(method), name


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("auto", [Auto()]),
        ("bag", [Bag()]),
        ("svm", [Svm()]),
        (Bag(C=3.0), [Bag(C=3.0)]),
        (["svm", Encoder("a/b")], [Svm(), Encoder("a/b")]),
        (("bag",), [Bag()]),
        ([{"kind": "svm", "C": 2.0}], [Svm(C=2.0)]),
        (Encoder("a/b", loss="bce", training=Training(epochs=3)), [Encoder("a/b")]),
    ],
)
def test_models_as_names_objects_and_lists(model: Any, expected: list[Any]) -> None:
    before = copy.deepcopy(model)
    assert [plan.model for plan in LongTailClassifier(model).plans()] == expected
    assert model == before


def test_default_folds() -> None:
    def folds(model: Any, n_documents: int | None, **params: Any) -> list[int]:
        return [p.folds for p in LongTailClassifier(model, **params).plans(n_documents)]

    assert [folds("encoder", n) for n in (2, 100, None)] == [[1], [1], [1]]
    assert [folds("bag", n) for n in (2, 6, 100)] == [[1], [3], [5]]
    assert [folds(["encoder", "bag"], n) for n in (2, 6, 100)] == [[1, 1], [3, 3], [5, 5]]
    patient = Training(early_stopping_patience=1)
    assert folds(["encoder", "bag"], 100, training=patient) == [1, 1]
    assert folds(["bag", Encoder("a/b", training=patient)], 100) == [1, 1]


def test_overrides_of_a_model_in_a_blend() -> None:
    shared = Training(epochs=9, device="cpu", checkpoint_minutes=1.0)
    override = Training(epochs=2, ema=0.5)
    models = [
        Encoder("a/b", loss="fl", loss_settings={"gamma": 1.5}, training=override),
        Encoder("a/b", loss="bce"),
        Encoder("a/b", loss_settings={"kappa": 0.2}),
        Encoder("a/b", training=Training(device="cuda:1")),
    ]
    classifier = LongTailClassifier(models, "db", loss_settings={"gamma": 1.0}, training=shared)
    plans = classifier.plans()
    assert [plan.loss for plan in plans] == ["fl", "bce", "db", "db"]
    expected = [{"gamma": 1.5}, {}, {"kappa": 0.2}, {"gamma": 1.0}]
    assert [plan.loss_settings for plan in plans] == expected
    # Device and checkpoints are those of the classifier, unless the model sets them.
    assert [asdict(plan.training) for plan in plans] == [
        asdict(Training(epochs=2, ema=0.5, device="cpu", checkpoint_minutes=1.0)),
        asdict(shared),
        asdict(shared),
        asdict(Training(device="cuda:1", checkpoint_minutes=1.0)),
    ]
    assert all(plan.model == Encoder("a/b") for plan in plans)
    assert override == Training(epochs=2, ema=0.5) and models[0].training is override


@pytest.mark.parametrize(
    ("flat", "params"),
    [
        ({}, {"model": Auto()}),
        ({"model": "bag", "C": 3.0}, {"model": Bag(C=3.0)}),
        ({"model": "svm", "C": 3.0, "folds": 2}, {"model": Svm(C=3.0), "folds": 2}),
        (
            {"model": "encoder", "encoder": "a/b", "epochs": 3, "loss": "bce", "random_state": 4},
            dict(model=Encoder("a/b"), training=Training(epochs=3), loss="bce", random_state=4),
        ),
        ({"model": Bag(C=3.0), "device": "cpu"}, {"model": Bag(C=3.0), "training": CPU}),
        ({"model": {"kind": "svm", "C": 3.0}}, {"model": Svm(C=3.0)}),
        (
            {"model": [{"kind": "encoder", "encoder": "a/b", "loss": "fl", "epochs": 2}, "svm"]},
            {"model": [Encoder("a/b", loss="fl", training=Training(epochs=2)), Svm()]},
        ),
        (
            {
                "model": [{"kind": "bag", "C": 3.0, "loss_settings": {"gamma": 1.0}}],
                "device": "cpu",
            },
            {"model": [Bag(C=3.0, loss_settings={"gamma": 1.0})], "training": CPU},
        ),
    ],
)
def test_from_settings(flat: dict[str, Any], params: dict[str, Any]) -> None:
    before = copy.deepcopy(flat)
    expected = LongTailClassifier(**params).get_params(deep=False)
    assert LongTailClassifier.from_settings(flat).get_params(deep=False) == expected
    assert flat == before


BLEND = [{"kind": "encoder"}, {"kind": "bag"}]


@pytest.mark.parametrize(
    ("flat", "message"),
    [
        ({"model": "encodre"}, "unknown model 'encodre'. Did you mean 'encoder'"),
        ({"model": 3}, r"model must be one of auto, bag, encoder, svm, or settings such as Bag"),
        ({"max_lenght": 3, "model": "encoder"}, "unknown setting 'max_lenght'.*'max_length'"),
        ({"epoch": 3}, "unknown setting 'epoch'. Did you mean 'epochs'"),
        ({"max_length": 3}, "max_length is a setting of the model encoder, got the model auto"),
        ({"model": "encoder", "ngrams": 2}, "ngrams is a setting of the model bag or svm, got"),
        ({"model": "svm", "loss": "bce"}, "loss has no effect on the model svm"),
        ({"model": BLEND, "C": 3}, "C: `model` holds models with their own settings. Move it"),
        ({"model": []}, "model must be a model or a list of at least one, got an empty list"),
        ({"model": [{"kind": "tree"}]}, "unknown model 'tree'"),
        ({"model": [{"kind": ["bag"]}]}, "unknown model"),
        ({"model": [{"kind": "encoder", "C": 1}]}, "unknown setting of the model encoder 'C'"),
        ({"model": [{"folds": 3}]}, "unknown setting of the model auto 'folds'"),
        ({"model": [["bag"]]}, "model must be one of"),
        ({"C": 3}, "C is a setting of the model bag or svm, got the model auto"),
        ({"model": "bag", "C": -1}, "C must be a number above 0, got -1"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1, got 0"),
    ],
)
def test_flat_settings_that_are_refused(flat: dict[str, Any], message: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=message):
        LongTailClassifier.from_settings(flat)


def test_numpy_numbers_paths_and_tensors_become_plain() -> None:
    cases: list[tuple[Any, Any]] = [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("db"), "db"),
        (Path("a") / "b", str(Path("a/b"))),
        (None, None),
        ((1, np.int8(2)), [1, 2]),
        (
            {"array": np.array([0.5, 2]), "x": torch.tensor([1.0])},
            {"array": [0.5, 2.0], "x": [1.0]},
        ),
        (np.array(4), 4),
        ([Svm(C=np.float64(2))], [{"kind": "svm", **asdict(Svm(C=2.0))}]),
        (Training(epochs=np.int64(2)), asdict(Training(epochs=2))),  # type: ignore[arg-type]
    ]
    for value, expected in cases:
        plain = to_plain(value)
        assert plain == expected and type(plain) is type(expected)
        assert json.loads(json.dumps(plain, allow_nan=False)) == plain


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": object()}, "a must be a number, a string, a path"),
        ({"a": {"b": [1, {3}]}}, r"a\.b\[1\] must be a number, a string.*got \{3\} \(set\)"),
        ({"a": float("nan")}, "a must be a finite number, got nan"),
        ({"a": {"b": np.inf}}, r"a\.b must be a finite number, got inf"),
        ({"a": {1: 2}}, "the keys of .*a must be strings, got 1"),
    ],
)
def test_values_that_cannot_be_saved(value: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        to_plain(value)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"loss": "dbb"}, "Did you mean 'db'"),
        ({"model": "encodre"}, "Did you mean 'encoder'"),
        ({"model": None}, "model must be one of auto, bag, encoder, svm, or settings"),
        ({"training": {"epochs": 3}}, r"training must be a Training\(...\), got \{'ep"),
        ({"model": "auto"}, r"epochs .*no effect, as a linear model chosen"),
        ({"model": "bag"}, r"epochs \(--epochs\).*no effect, as TF-IDF with a linear head is not"),
        ({"model": [Bag(training=Training(ema=0.5)), "encoder"]}, r"ema \(--ema\): no effect"),
        ({"model": ["encoder", Svm(loss="bce")]}, "loss has no effect on the model svm"),
        ({"model": ["encoder", Svm(loss_settings={})]}, "loss has no effect on the model svm"),
        ({"thresholds": "globl"}, "Did you mean 'global'"),
        ({"objective": "mikro"}, "Did you mean 'micro'"),
        ({"loss_settings": {"gama": 3}}, "Did you mean 'gamma'"),
        ({"loss_settings": {"gamma": -1}}, "gamma must be"),
        ({"loss_settings": {"gamma": {1}}}, r"loss_settings\.gamma must be"),
        ({"loss_settings": {"reduction": "none"}}, "needs a scalar loss"),
        ({"loss_settings": {"label_weight": [1.0, 2]}}, "each of the 3 labels, got 2"),
        ({"loss_settings": 3}, "loss_settings must be a dict, got 3"),
        ({"label_texts": "Names"}, "label_texts must be 'names', or a mapping"),
        ({"random_state": -1}, "random_state must be a whole number"),
        ({"folds": 0}, "folds must be a whole number"),
        ({"folds": 25}, "cannot make 25 folds of 24 documents. Use fewer folds"),
        ({"folds": 2, "early_stopping_patience": 1}, "folds=1 with early stopping"),
        (STOPPING | {"early_stopping_metric": "mikro_f1"}, "Did you mean 'micro_f1'"),
        *(({"validation_fraction": odd}, "a number above 0 and at") for odd in (0, 1, "x", True)),
        *(({"max_labels": odd}, "max_labels must be a whole number") for odd in (0, 1.5, True)),
        ({"min_labels": -1}, "min_labels must be a whole number of at least 0"),
        ({"min_labels": 3, "max_labels": 2}, "min_labels is 3, more than max_labels, which is 2"),
    ],
)
def test_errors_before_training(params: dict[str, Any], message: str, make: Make) -> None:
    moments: list[object] = []
    with pytest.raises(LongtailError, match=message):
        make(**params).fit(TEXTS, LABELS, progress=moments.append)
    assert moments == []


def test_assigned_fields_are_checked_by_fit(make: Make) -> None:
    for part, name, value in (("model", "pooling", "max"), ("training", "epochs", "3")):
        classifier = make()
        setattr(getattr(classifier, part), name, value)
        with pytest.raises(InputError, match=f"{name} must be"):
            classifier.fit(TEXTS, LABELS)


def test_a_wrong_loss_is_detected_before_the_encoder_is_loaded() -> None:
    settings = {"label_weight": [1.0, 2.0]}
    with pytest.raises(InputError, match="each of the 3 labels"):
        LongTailClassifier(Encoder("/no/such/folder"), loss_settings=settings).fit(TEXTS, LABELS)


def test_numpy_parameters_train_and_are_saved(make: Make, tmp_path: Path) -> None:
    """Such as searches over np.arange or scipy's distributions pass."""
    integers = {
        "epochs": 1,
        "max_length": 7,
        "folds": 2,
        "random_state": 4,
        "min_labels": 1,
        "max_labels": 2,
    }
    classifier = make(
        **{name: np.int64(value) for name, value in integers.items()},
        learning_rate=np.float64(1e-3),
        validation_fraction=np.float32(0.2),
        loss_settings={"gamma": np.float32(1.0)},
    ).fit(TEXTS, LABELS)
    loaded = reload(classifier, tmp_path / "run")
    assert (loaded.thresholds_.min_labels, loaded.thresholds_.max_labels) == (1, 2)
    assert loaded.loss_settings == {"gamma": 1.0} and loaded.plans_ == classifier.plans_


def test_a_model_is_saved_with_the_parameters_of_its_fit(tmp_path: Path) -> None:
    classifier = LongTailClassifier(Svm(C=2.0), thresholds="per-label", folds=2).fit(TEXTS, LABELS)
    classifier.set_params(thresholds="global", model__C=9.0, max_labels=1)
    for folder in (tmp_path / "first", tmp_path / "second"):
        classifier.save_pretrained(folder)
        classifier = LongTailClassifier.from_pretrained(folder)
        assert classifier.thresholds == classifier.thresholds_.method == "per-label"
        assert classifier.model == classifier.plans_[0].model == Svm(C=2.0)
        # Takes effect without a new fit.
        assert classifier.max_labels == classifier.thresholds_.max_labels == 1


def test_the_loss_of_a_plan() -> None:
    stats = LabelStats.from_counts([5, 1, 2], n_samples=6)
    loss = Plan().new_loss(stats)
    assert loss.reduction == "batchmean" and not loss.check_targets and loss.n_labels == 3
    assert Plan().new_loss(stats, reduction="sum").reduction == "sum"
    weighted = Plan(loss="bce", loss_settings={"label_weight": [1.0, 2.0, 3.0]})
    assert weighted.new_loss(stats).label_weight is not None


def test_the_fingerprint_covers_what_is_learned() -> None:
    data = numbered(np.eye(3))

    def prints(**params: Any) -> str:
        defaults = LongTailClassifier().get_params(deep=False)
        return json.dumps(fingerprint(make_plans({**defaults, **params}, None), data, None))

    weights = [1.0, 2.0, 3.0]
    forms = (weights, np.array(weights), torch.tensor(weights))
    same = {prints(loss_settings={"label_weight": form}) for form in forms}
    assert len(same) == 1
    assert prints(loss_settings={"label_weight": [1.0, 2.0, 4.0]}) not in same
    assert prints() == prints(training=Training(device="cpu", checkpoint_minutes=0.5))
    others = [{}, {"random_state": 1}, {"model": Bag(C=2.0)}, {"loss": "bce"}, {"folds": 3}]
    assert len({prints(**params) for params in others}) == 5
