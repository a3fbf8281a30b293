"""Unusual texts and labels: every model fits, predicts, saves and loads them."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail import Bag, LongTailClassifier, Svm, Training
from longtail.data import TextData
from longtail.errors import InputError

from .cases import CPU, DATA, LABELS, NAMES, TEXTS, reload
from .conftest import Make

MODELS: dict[str, Any] = {
    "bag": Bag(C=100.0),
    "hinge": Bag(C=1.0, loss="squared-hinge"),
    "characters": Bag(C=100.0, char_ngrams=3),
    "hidden": Bag(hidden=8, training=Training(epochs=2)),
    "svm": Svm(),
}
KINDS = [*MODELS, "encoder"]
ODD = {
    "empty": "",
    "space": " \t\r\n\u00a0\u3000",
    "one character": "a",
    "one emoji": "\U0001f600",
    "emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467 copper \U0001f1e9\U0001f1ea rose" * 3,
    "right to left": "\u0627\u0644\u0646\u062d \u05e0\u05d7\u05d5\u05e9\u05ea \u202ecopper",
    "NUL": "copper\x00rose\x00",
    "only NUL": "\x00\x00",
    "control": "\x01\x1b[31mcopper\x7f\x85",
    "stop words": "the and of a in to is it",
    "unknown words": "zyxwv qponm lkjih",
    "half a character": "copper \ud83d rose \udc00",
    "a megabyte": "copper rose " * 90_000,
    "one long word": "c" * 1_000_000,
    "combining": "a" + "\u0301" * 500,
    "han": "\u94dc\u4ef7\u4e0a\u6da8" * 20,
    "numbers": "1 2 3 4.5 1e9",
    "markup": "<b>copper</b> & ]]> {{x}} %s %d \\",
}
ANY = st.text(alphabet=st.characters(), max_size=40) | st.sampled_from(sorted(ODD.values()))


def new(name: str, make: Make, folds: int) -> LongTailClassifier:
    classifier = make(epochs=2, folds=folds)
    if name == "encoder":
        return classifier
    return classifier.set_params(model=MODELS[name], training=CPU)


@pytest.fixture(scope="module")
def bag(make: Make) -> LongTailClassifier:
    return new("bag", make, folds=1).fit(TEXTS, LABELS)


@given(texts=st.lists(ANY, max_size=5))
def test_scores_do_not_depend_on_the_other_texts(bag: LongTailClassifier, texts: list[str]) -> None:
    scores = bag.decision_function(texts)
    assert scores.shape == (len(texts), 3) and np.isfinite(scores).all()
    assert np.array_equal(bag.decision_function(texts), scores)
    for row, text in enumerate(texts):
        assert np.allclose(bag.decision_function([text])[0], scores[row], atol=1e-5)
    assert len(bag.predict_labels(texts)) == len(bag.top_k(texts)) == len(texts)


@pytest.mark.filterwarnings("ignore:the model was trained on")
@pytest.mark.parametrize("name", KINDS)
def test_training_on_unusual_texts(name: str, make: Make, tmp_path: Path) -> None:
    # Character n-grams of a megabyte take seconds.
    odd = [text for text in ODD.values() if name != "characters" or len(text) < 10_000]
    texts = [*TEXTS, *odd]
    labels = [*LABELS, *([["copper"], []] * len(odd))[: len(odd)]]
    first, again = (new(name, make, folds=2).fit(texts, labels) for _ in range(2))
    scores = first.decision_function(texts)
    assert scores.shape == (len(texts), 3) and np.isfinite(scores).all()
    assert np.array_equal(again.decision_function(texts), scores)
    loaded = reload(first, tmp_path / "run")
    assert np.array_equal(loaded.decision_function(texts), scores)
    assert first.evaluate(TextData.from_lists(texts, labels)).overall.n_documents == len(texts)


@pytest.mark.parametrize("name", ["bag", "svm", "encoder"])
@pytest.mark.parametrize("kind", ["empty", "NUL", "stop words", "one emoji"])
def test_training_on_uninformative_texts(kind: str, name: str, make: Make) -> None:
    """Nothing can be learned from them, but nothing fails."""
    classifier = new(name, make, folds=2)
    texts, labels = [ODD[kind]] * 12, [["a"], ["b"], ["a", "b"]] * 4
    if kind == "empty" and name != "encoder":
        with pytest.raises(InputError, match=r"nothing but white space.*Check the text field"):
            classifier.fit(texts, labels)
        return
    classifier.fit(texts, labels)
    assert np.isfinite(classifier.decision_function([ODD[kind], "copper"])).all()


ONE = [["copper"] if "copper" in text else [] for text in TEXTS]


CASES: dict[str, tuple[list[str], Any]] = {
    "one label": (TEXTS, ONE),
    "one label as a matrix": (TEXTS, np.array([["copper" in text] for text in TEXTS])),
    "a label on one document": (TEXTS, [[*LABELS[0], "once"], *LABELS[1:]]),
    "two documents": (["copper rose", "wheat fell"], [["copper"], ["wheat"]]),
    "documents without labels": (TEXTS, [x if k % 3 else [] for k, x in enumerate(LABELS)]),
    "equal documents with other labels": (["same text"] * 24, [["a"], ["b"]] * 12),
    "a label on every document": (TEXTS, [["every", *names] for names in LABELS]),
    "only a label on every document": (TEXTS, [["every"]] * 24),
    "all labels on all documents": (TEXTS, np.ones((24, 4))),
}


@pytest.mark.filterwarnings("ignore:the model was trained on")
@pytest.mark.parametrize("case", CASES)
def test_fit_and_load(case: str, make_any: Make, tmp_path: Path) -> None:
    texts, labels = CASES[case]
    classifier = make_any().fit(texts, labels)
    assert np.isfinite(classifier.decision_function(TEXTS)).all()
    assert not np.isnan(classifier.thresholds_.values).any()
    decisions = reload(classifier, tmp_path / "run").predict(TEXTS).toarray()
    if "every" in classifier.classes_ and classifier.plans_[0].folds > 1:
        assert decisions[:, classifier.classes_.tolist().index("every")].all()
    if case.startswith("all"):
        assert decisions.all()
    assert 0 <= classifier.score(texts, labels) <= 1
    assert 0 <= classifier.score(texts[:1], labels[:1]) <= 1
    if case == "one label":
        assert classifier.facts_.without_labels > 0
        evaluation = classifier.evaluate(TextData.from_lists(texts, labels))
        assert evaluation.overall.n_labels == 1


def test_a_validation_part_with_other_labels(make_any: Make) -> None:
    part = TextData.from_lists(TEXTS[:4], [["tin"], ["copper"], ["zinc", "wheat"], []])
    with pytest.warns(UserWarning, match=r"2 labels of the validation part .* 'tin', 'zinc'"):
        classifier = make_any().fit(DATA, validation=part)
    assert classifier.classes_.tolist() == NAMES
    notes: list[str] = []
    only_unknown = TextData.from_lists(TEXTS[:2], [["tin"], ["tin"]])
    classifier = make_any(folds=1).fit(DATA, validation=only_unknown, note=notes.append)
    assert len(notes) == 1
    assert np.isfinite(classifier.decision_function(TEXTS)).all()


def test_as_many_folds_as_documents(make_any: Make, tmp_path: Path) -> None:
    classifier = make_any(folds=4).fit(TEXTS[:4], LABELS[:4])
    # The folds of a linear head are one model.
    n_models = 1 if classifier.plans_[0].kind == "bag" else 4
    assert len(reload(classifier, tmp_path / "run").ensemble_.models) == n_models


def test_ten_thousand_labels_with_one_document_each(tmp_path: Path) -> None:
    """It takes seconds, and less memory than two dense documents x labels matrices."""
    n_labels = 10_000
    texts = [f"word{k} other{k % 100} common text" for k in range(n_labels)]
    Y = sp.identity(n_labels, dtype=np.float32, format="csr")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    training = Training(epochs=1, batch_size=512, device="cpu")
    classifier = LongTailClassifier(Bag(hidden=8, min_df=1), training=training, folds=1)
    assert classifier.fit(texts, Y).predict(texts[:100]).shape == (100, n_labels)
    # A tenth of the labels is in the validation part, with their only document.
    assert classifier.ensemble_.known.sum() == 9000
    assert not classifier.predict(texts)[:, ~classifier.ensemble_.known[0]].nnz
    assert len(classifier.top_k(texts[:3], 10_000)[0]) == 9000
    reload(classifier, tmp_path / "run")
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
    assert more < 2 * n_labels**2 * 4 / 2**30
