"""Explanations name the words that matter, add up, and change nothing."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from longtail import Bag, Encoder, LongTailClassifier, Svm, Training
from longtail.data import TextData
from longtail.errors import InputError, NotFittedError, UnknownNameError
from longtail.models import Auto, ModelSettings
from longtail.models.explanation import Explanation
from longtail.models.integrated import integrated_gradients

from .cases import CPU, LABELS, TEXTS, WORDS, fit_one, numbered, remembering
from .conftest import Make

FILLER = ("and", "fell", "of", "rose", "the")
ODD = [
    "",
    " \n ",
    "...",
    "\U0001f44d\U0001f3fd \u2615",
    "铜价上涨 copper",
    "[SEP] [PAD]",
    "e\u0301",
]


def planted(n: int, seed: int) -> TextData:
    """Texts of filler with the names of their labels somewhere."""
    rng = np.random.default_rng(seed)
    labels = [rng.choice(WORDS, rng.integers(1, 3), replace=False).tolist() for _ in range(n)]
    words = [[*each, *rng.choice(FILLER, rng.integers(8, 20))] for each in labels]
    texts = [" ".join(rng.permutation(each)) for each in words]
    return TextData.from_lists(texts, labels, WORDS)


def sums(explanation: Explanation) -> list[float]:
    total: list[float] = (explanation.base + explanation.values.sum(axis=1)).tolist()
    return total


@pytest.mark.parametrize("kind", ["bag", "hidden", "svm", "encoder"])
def test_planted_words_are_among_the_first_three(kind: str, tiny_bert: Path) -> None:
    steps = Training(epochs=8, batch_size=8, learning_rate=5e-3, device="cpu")
    model: ModelSettings = {
        "bag": Bag(C=100.0, char_ngrams=3),
        "hidden": Bag(hidden=16, training=Training(epochs=40, batch_size=8)),
        "svm": Svm(),
        "encoder": Encoder(str(tiny_bert), max_length=32, training=steps),
    }[kind]
    classifier = LongTailClassifier(model, folds=1, training=CPU).fit(planted(200, 0))
    test = planted(60, 1)
    hits = []
    for explanation, actual in zip(classifier.explain(test.texts), test.Y, strict=True):
        for label in {WORDS[k] for k in actual.indices} & set(explanation.labels):
            hits.append(label in [word for word, _ in explanation.best(label, 3)])
        assert (explanation.error < (0.01 if kind == "encoder" else 1e-5)).all()
    assert len(hits) > 60 and np.mean(hits) >= 0.95


def test_a_blend_adds_up_its_members_and_folds(blended: LongTailClassifier) -> None:
    texts = [*TEXTS[:4], "zinc and tin"]
    ensemble, scores = blended.ensemble_, blended.decision_function(texts)
    assert len(ensemble.weights) == 3
    for expected, row in zip(blended.explain(texts, blended.classes_), scores, strict=True):
        order = [blended.classes_.tolist().index(label) for label in expected.labels]
        assert order == np.argsort(-row, kind="stable").tolist()
        np.testing.assert_allclose(expected.scores, row[order])
        np.testing.assert_allclose(sums(expected), expected.scores, rtol=0.02, atol=1e-3)
        assert (expected.error < 0.02).all()


@pytest.mark.parametrize("kind", ["bag", "svm", "auto"])
def test_linear_models_add_up_exactly(kind: str) -> None:
    model = {"bag": Bag(C=100.0, ngrams=2, char_ngrams=4), "svm": Svm(), "auto": Auto()}[kind]
    classifier = LongTailClassifier(model, folds=2, training=CPU).fit(TEXTS, LABELS)
    for explanation in classifier.explain([*TEXTS[:4], *ODD], classifier.classes_):
        np.testing.assert_allclose(sums(explanation), explanation.scores, atol=1e-5)


def test_odd_texts(encoder: LongTailClassifier) -> None:
    for text, explanation in zip(ODD, encoder.explain(ODD, ["wheat"]), strict=True):
        assert explanation.text == text and explanation.values.shape == (1, len(explanation.words))
        assert explanation.error[0] < 0.01
        if not text.strip():
            assert explanation.base == pytest.approx(explanation.scores)


def test_words_past_the_maximum_length_add_nothing(encoder: LongTailClassifier) -> None:
    (explanation,) = encoder.explain(["wheat " * 9 + "copper"], ["copper", "wheat"])
    assert explanation.values.shape == (2, 10)
    assert explanation.values[:, :6].all() and not explanation.values[:, 6:].any()


def test_which_labels(encoder: LongTailClassifier) -> None:
    texts = TEXTS[:4]
    for explanation, predicted in zip(
        encoder.explain(texts), encoder.predict_labels(texts), strict=True
    ):
        assert sorted(explanation.labels) == predicted or len(predicted) == 0
        assert explanation.scores.tolist() == sorted(explanation.scores, reverse=True)
    never = LongTailClassifier(Bag(C=1.0), folds=1, training=CPU).fit(TEXTS, LABELS)
    never.thresholds_ = replace(never.thresholds_, values=np.full(3, np.inf))
    assert [len(each.labels) for each in never.explain(texts)] == [1] * 4
    assert never.explain([]) == [] and never.explain(["copper"], [])[0].labels == []


def test_wrong_arguments_are_explained(encoder: LongTailClassifier) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown label 'coper'\. Did you mean 'copper'"):
        encoder.explain(["copper"], ["coper"])
    with pytest.raises(InputError, match="expected a list of labels, got 'copper'"):
        encoder.explain(["copper"], "copper")
    with pytest.raises(InputError, match="expected a list of texts, got one string"):
        encoder.explain("copper")
    with pytest.raises(InputError, match="'tin' is not among the labels explained"):
        encoder.explain(["copper"], ["copper"])[0].best("tin")
    with pytest.raises(NotFittedError):
        LongTailClassifier().explain(["copper"])


def test_a_model_without_explanations(remember: None) -> None:
    fitted = fit_one(remembering(folds=1), numbered(np.eye(4)), numbered(np.eye(4)))
    with pytest.raises(InputError, match="Remembering has no explanations"):
        fitted.ensemble.explain("1", np.array([0]))


def test_explaining_does_not_affect_predictions_in_other_threads(
    encoder: LongTailClassifier,
) -> None:
    expected, scores = encoder.explain(TEXTS[:4]), encoder.decision_function(TEXTS)
    failures: list[object] = []

    def work(explains: bool) -> None:
        try:
            with torch.inference_mode(explains):
                for _ in range(5):
                    if explains:
                        for one, other in zip(encoder.explain(TEXTS[:4]), expected, strict=True):
                            np.testing.assert_allclose(one.values, other.values, atol=1e-6)
                    else:
                        np.testing.assert_array_equal(encoder.decision_function(TEXTS), scores)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k % 2 == 0,)) for k in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failures == []
    network = encoder.ensemble_.models[0].network  # type: ignore[attr-defined]
    assert not any(module.training for module in network.modules())
    assert all(p.grad is None and p.requires_grad for p in network.labels.parameters())


def test_a_loaded_model_with_cls_pooling(make: Make, tmp_path: Path) -> None:
    make(pooling="cls").fit(TEXTS, LABELS).save_pretrained(tmp_path / "run")
    loaded = LongTailClassifier.from_pretrained(tmp_path / "run")
    for explanation in loaded.explain(TEXTS[:2], loaded.classes_):
        np.testing.assert_allclose(sums(explanation), explanation.scores, rtol=0.02, atol=1e-3)


def test_integrated_gradients_equal_those_of_captum() -> None:
    captum = pytest.importorskip("captum.attr")
    torch.manual_seed(0)
    layer = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    start, end = torch.zeros(4, 3), torch.randn(4, 3)

    def forward(points: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = layer(points).sum(dim=1) ** 2
        return logits

    base, values = integrated_gradients(forward, start, end)
    for label in range(2):
        reference = captum.IntegratedGradients(forward).attribute(
            end[None], target=label, n_steps=64
        )
        np.testing.assert_allclose(
            values[label], reference[0].sum(dim=1).numpy(), rtol=0.02, atol=1e-3
        )
        assert base[label] == pytest.approx(forward(start[None])[0, label].item())


def test_the_best_attempt_is_kept_if_no_number_of_steps_suffices() -> None:
    def jump(points: torch.Tensor) -> torch.Tensor:
        return torch.tanh(1e6 * (points.sum(dim=(1, 2)) - 0.123)).unsqueeze(1)

    base, values = integrated_gradients(jump, torch.zeros(1, 1), torch.ones(1, 1))
    assert base[0] == pytest.approx(-1) and abs(values.sum() - 2) > 0.02


def test_short_repr_and_plain_numbers(encoder: LongTailClassifier) -> None:
    (explanation,) = encoder.explain(["copper and nickel rose " * 50], ["copper", "nickel"])
    assert len(repr(explanation)) < 200 and "copper" in repr(explanation)
    plain = explanation.to_dict()
    assert plain["words"][1] == [7, 10] and len(plain["labels"][0]["values"]) == 200
    assert plain["labels"][0]["label"] == explanation.labels[0]
