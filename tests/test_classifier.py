"""The estimator on tiny real models: learning, manners, saving, and odd input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone

from longtail import LongTailClassifier
from longtail.corpora import load_corpus
from longtail.data import TextData
from longtail.errors import DataError, InputError, LongtailError, NotFittedError, UnknownNameError

TEXTS = ["copper rose", "wheat fell", "copper and nickel rose", "wheat rose again"] * 6
LABELS = [["copper"], ["wheat"], ["copper", "nickel"], ["wheat"]] * 6
FAST = {"epochs": 15, "batch_size": 8, "device": "cpu"}


@pytest.fixture(scope="module")
def fitted() -> LongTailClassifier:
    return LongTailClassifier(**FAST).fit(TEXTS, LABELS)


def test_it_learns_and_answers_in_every_form(fitted: LongTailClassifier) -> None:
    asked = ["copper and nickel", "wheat"]
    assert fitted.predict_labels(asked) == [["copper", "nickel"], ["wheat"]]
    assert fitted.classes_.tolist() == ["copper", "nickel", "wheat"]
    logits = fitted.decision_function(asked)
    assert logits.shape == (2, 3)
    assert fitted.predict_proba(asked) == pytest.approx(1 / (1 + np.exp(-logits)), abs=1e-6)
    assert (fitted.predict(asked).toarray() == (logits >= fitted.thresholds_.value)).all()
    assert fitted.score(TEXTS, LABELS) > 0.95
    assert fitted.predict_labels([]) == []


@pytest.mark.parametrize("model", ["bag", "svm"])
def test_save_and_load_give_the_same_scores(model: str, tmp_path: Path) -> None:
    before = LongTailClassifier(model=model, **FAST).fit(TEXTS, LABELS)
    before.save_pretrained(tmp_path / "run")
    before.save_pretrained(tmp_path / "run")  # over itself
    after = LongTailClassifier.from_pretrained(tmp_path / "run")
    assert after.decision_function(TEXTS) == pytest.approx(before.decision_function(TEXTS))
    assert after.predict_labels(TEXTS) == before.predict_labels(TEXTS)
    files = {path.name for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert not [name for name in files if not name.endswith((".json", ".safetensors"))]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_saving_does_not_overwrite_something_else(
    fitted: LongTailClassifier, tmp_path: Path
) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(DataError, match="not a longtail model"):
        fitted.save_pretrained(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"
    with pytest.raises(DataError, match="longtail train DATA"):
        LongTailClassifier.from_pretrained(tmp_path)


def test_indicator_matrices_and_text_data_are_labels_too(fitted: LongTailClassifier) -> None:
    data = TextData.from_lists(TEXTS, LABELS)
    by_matrix = LongTailClassifier(**FAST).fit(TEXTS, data.Y.toarray())
    assert by_matrix.classes_.tolist() == ["0", "1", "2"]
    by_data = LongTailClassifier(**FAST).fit(data)
    expected = fitted.decision_function(TEXTS)
    for other in (by_matrix, by_data):
        assert other.decision_function(TEXTS) == pytest.approx(expected, abs=1e-5)
    assert isinstance(by_data.predict(TEXTS), sp.csr_matrix)


def test_the_same_seed_gives_the_same_model_and_leaves_the_callers_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    threads = torch.get_num_threads()
    torch.manual_seed(7)
    first = LongTailClassifier(**FAST).fit(TEXTS, LABELS).decision_function(TEXTS)
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads
    again = LongTailClassifier(**FAST).fit(TEXTS, LABELS).decision_function(TEXTS)
    assert np.array_equal(first, again)


def test_scikit_learn_manners() -> None:
    classifier = LongTailClassifier(loss="bce", seed=3)
    twin = clone(classifier)
    assert twin.get_params() == classifier.get_params()
    assert twin.set_params(loss="cb").loss == "cb"
    with pytest.raises(NotFittedError, match="not fitted yet"):
        classifier.predict(TEXTS)


@pytest.mark.parametrize(
    ("arguments", "texts", "labels", "error", "message"),
    [
        ({"loss": "dbb"}, TEXTS, LABELS, UnknownNameError, "Did you mean 'db'"),
        ({"model": "bagg"}, TEXTS, LABELS, UnknownNameError, "Did you mean 'bag'"),
        ({"model_settings": {"width": 3}}, TEXTS, LABELS, InputError, "width"),
        ({"loss": "dbb", "model": "svm"}, TEXTS, LABELS, UnknownNameError, "Did you mean 'db'"),
        ({"seed": -1}, TEXTS, LABELS, InputError, "seed must be"),
        ({"epochs": "3"}, TEXTS, LABELS, InputError, "epochs must be a positive number"),
        ({"validation_fraction": 2}, TEXTS, LABELS, InputError, "between 0 and 1, got 2"),
        ({"loss_settings": {"reduction": "none"}}, TEXTS, LABELS, InputError, "is a number"),
        ({}, TEXTS, [[]] * len(TEXTS), InputError, "at least one label"),
        ({}, TEXTS, np.full((len(TEXTS), 2), 0.5), InputError, "must hold 0 and 1"),
        ({"epochs": 0}, TEXTS, LABELS, InputError, "epochs must be a positive number, got 0"),
        ({}, TEXTS, LABELS[:-1], InputError, "24 texts and 23 lists"),
        ({}, TEXTS, None, InputError, "labels are missing"),
        ({}, "one text", LABELS, InputError, r"Write \[text\]"),
        ({}, [1, 2], [["a"], ["b"]], InputError, "text 0 must be a string, got 1"),
        ({}, ["a", "b"], [["x"], ["y"]], InputError, "no words of two or more letters"),
    ],
)
def test_bad_input_is_explained(
    arguments: dict, texts: object, labels: object, error: type[LongtailError], message: str
) -> None:
    with pytest.raises(error, match=message):
        LongTailClassifier(**{**FAST, **arguments}).fit(texts, labels)  # type: ignore[arg-type]


def test_svm_has_no_probabilities() -> None:
    svm = LongTailClassifier(model="svm").fit(TEXTS, LABELS)
    with pytest.raises(InputError, match="decision_function"):
        svm.predict_proba(TEXTS)


def test_labels_without_training_documents_are_kept() -> None:
    data = TextData.from_lists(TEXTS, LABELS, ["copper", "nickel", "tin", "wheat"])
    for model in ("bag", "svm"):
        classifier = LongTailClassifier(model=model, **FAST).fit(data)
        assert classifier.label_stats_.label_counts[2] == 0
        assert np.isfinite(classifier.decision_function(TEXTS)).all()
        assert not [own for own in classifier.predict_labels(TEXTS) if "tin" in own]


def test_db_keeps_the_tail_that_bce_loses() -> None:
    parts = load_corpus("newswire")
    tail = {}
    for loss in ("bce", "db"):
        classifier = LongTailClassifier(loss=loss, device="cpu")
        classifier.fit(parts["train"], validation=parts["validation"])
        tail[loss] = classifier.evaluate(parts["test"]).tail.macro_f1
    assert tail["bce"] < 0.2
    assert tail["db"] > tail["bce"] + 0.1
