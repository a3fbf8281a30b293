"""Odd sets of labels and documents: every model fits, predicts, saves and loads them."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import LongTailClassifier
from longtail.data import TextData
from longtail.errors import InputError

from .cases import LABELS, TEXTS

MODELS = ("bag", "svm", "encoder")


@pytest.fixture(params=MODELS)
def arguments(request: pytest.FixtureRequest, encoder_arguments: dict[str, Any]) -> dict[str, Any]:
    if request.param == "encoder":
        return encoder_arguments | {"epochs": 2}
    return {"model": request.param, "device": "cpu"}


def check(classifier: LongTailClassifier, folder: Path) -> Any:
    """The decisions on the training texts; scores are numbers, and the same after loading."""
    scores = classifier.decision_function(TEXTS)
    assert scores.shape == (len(TEXTS), len(classifier.classes_))
    assert np.isfinite(scores).all()
    assert not np.isnan(classifier.thresholds_.values).any()
    classifier.save_pretrained(folder)
    loaded = LongTailClassifier.from_pretrained(folder)
    assert np.array_equal(loaded.decision_function(TEXTS), scores)
    assert (loaded.predict(TEXTS) != classifier.predict(TEXTS)).nnz == 0
    return classifier.predict(TEXTS).toarray()


def test_one_label(arguments: dict[str, Any], tmp_path: Path) -> None:
    labels = [["copper"] if "copper" in text else [] for text in TEXTS]
    classifier = LongTailClassifier(**arguments).fit(TEXTS, labels)
    assert check(classifier, tmp_path / "run").shape == (24, 1)
    assert classifier.facts_.without_labels > 0
    found = classifier.evaluate(TextData.from_lists(TEXTS, labels))
    assert found.overall.n_labels == 1


def test_one_label_as_a_matrix(arguments: dict[str, Any]) -> None:
    labels = np.array([["copper" in text] for text in TEXTS])
    classifier = LongTailClassifier(**arguments).fit(TEXTS, labels)
    assert 0 <= classifier.score(TEXTS, labels) <= 1


def test_a_label_on_every_document(arguments: dict[str, Any], tmp_path: Path) -> None:
    labels = [["every", *own] for own in LABELS]
    classifier = LongTailClassifier(**arguments).fit(TEXTS, labels)
    decided = check(classifier, tmp_path / "run")
    assert decided[:, classifier.classes_.tolist().index("every")].all()


def test_only_a_label_on_every_document(arguments: dict[str, Any], tmp_path: Path) -> None:
    classifier = LongTailClassifier(**arguments).fit(TEXTS, [["every"]] * len(TEXTS))
    assert check(classifier, tmp_path / "run").all()


def test_a_label_on_no_document(arguments: dict[str, Any], tmp_path: Path) -> None:
    data = TextData.from_lists(TEXTS, LABELS, ["copper", "nickel", "tin", "wheat"])
    classifier = LongTailClassifier(**arguments).fit(data)
    assert classifier.label_stats_.label_counts[2] == 0
    assert not check(classifier, tmp_path / "run")[:, 2].any()


def test_a_label_on_one_document(arguments: dict[str, Any], tmp_path: Path) -> None:
    labels = [[*own, "once"] if k == 5 else own for k, own in enumerate(LABELS)]
    classifier = LongTailClassifier(**arguments).fit(TEXTS, labels)
    check(classifier, tmp_path / "run")


def test_two_documents(arguments: dict[str, Any], tmp_path: Path) -> None:
    classifier = LongTailClassifier(**arguments)
    classifier.fit(["copper rose", "wheat fell"], [["copper"], ["wheat"]])
    check(classifier, tmp_path / "run")


def test_documents_without_labels(arguments: dict[str, Any], tmp_path: Path) -> None:
    labels = [own if k % 3 else [] for k, own in enumerate(LABELS)]
    classifier = LongTailClassifier(**arguments).fit(TEXTS, labels)
    check(classifier, tmp_path / "run")
    assert classifier.score(TEXTS[:1], [[]]) in (0.0, 1.0)


def test_all_labels_on_all_documents(arguments: dict[str, Any], tmp_path: Path) -> None:
    classifier = LongTailClassifier(**arguments).fit(TEXTS, np.ones((len(TEXTS), 4)))
    assert check(classifier, tmp_path / "run").all()


def test_a_validation_part_with_labels_of_its_own(arguments: dict[str, Any]) -> None:
    data = TextData.from_lists(TEXTS, LABELS)
    held = TextData.from_lists(TEXTS[:4], [["tin"], ["copper"], ["zinc", "wheat"], []])
    with pytest.warns(UserWarning, match=r"2 labels of the validation part .* 'tin', 'zinc'"):
        classifier = LongTailClassifier(**arguments).fit(data, validation=held)
    assert classifier.classes_.tolist() == ["copper", "nickel", "wheat"]


def test_a_validation_part_of_unknown_labels_only(arguments: dict[str, Any]) -> None:
    data = TextData.from_lists(TEXTS, LABELS)
    held = TextData.from_lists(TEXTS[:2], [["tin"], ["tin"]])
    told: list[str] = []
    classifier = LongTailClassifier(**arguments, folds=1)
    classifier.fit(data, validation=held, note=told.append)
    assert len(told) == 1
    assert np.isfinite(classifier.decision_function(TEXTS)).all()


def test_more_folds_than_documents(arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"cannot make 25 folds of 24 documents. Use fewer"):
        LongTailClassifier(**arguments, folds=25).fit(TEXTS, LABELS)


def test_as_many_folds_as_documents(arguments: dict[str, Any], tmp_path: Path) -> None:
    texts, labels = TEXTS[:4], LABELS[:4]
    classifier = LongTailClassifier(**arguments, folds=4).fit(texts, labels)
    assert len(classifier.ensemble_.models) == 4
    check(classifier, tmp_path / "run")


def test_equal_documents_with_other_labels(arguments: dict[str, Any], tmp_path: Path) -> None:
    labels = [["a"], ["b"]] * 12
    check(LongTailClassifier(**arguments).fit(["same text"] * 24, labels), tmp_path / "run")


def test_ten_thousand_labels_with_one_document_each(tmp_path: Path) -> None:
    """In seconds, and in less memory than two matrices of documents and labels take."""
    n_labels = 10_000
    texts = [f"word{k} other{k % 100} common text" for k in range(n_labels)]
    Y = sp.identity(n_labels, dtype=np.float32, format="csr")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    classifier = LongTailClassifier(
        model_settings={"hidden": 8, "min_df": 1}, epochs=1, batch_size=512, device="cpu", folds=1
    ).fit(texts, Y)
    assert classifier.predict(texts[:100]).shape == (100, n_labels)
    # A tenth of the labels went with their only document to the validation part.
    assert classifier.ensemble_.known.sum() == 9000
    assert not classifier.predict(texts)[:, ~classifier.ensemble_.known[0]].nnz
    assert len(classifier.top_k(texts[:3], 10_000)[0]) == 9000
    classifier.save_pretrained(tmp_path / "run")
    loaded = LongTailClassifier.from_pretrained(tmp_path / "run")
    assert (loaded.predict(texts[:100]) != classifier.predict(texts[:100])).nnz == 0
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
    assert more < 2 * n_labels**2 * 4 / 2**30


def test_a_thousand_labels_by_the_default_model(tmp_path: Path) -> None:
    texts = [f"word{k} other{k % 100} common text" for k in range(1000)]
    classifier = LongTailClassifier(device="cpu", folds=2)
    classifier.fit(texts, sp.identity(1000, format="csr"))
    assert np.isfinite(classifier.decision_function(texts[:10])).all()
