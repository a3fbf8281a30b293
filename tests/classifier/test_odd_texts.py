"""Unusual texts: every model trains on them and scores them, the same every time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail import Bag, LongTailClassifier, Svm, Training
from longtail.data import TextData
from longtail.errors import InputError

from .cases import CPU, LABELS, TEXTS, reload
from .conftest import Make

MODELS: dict[str, Any] = {
    "bag": Bag(),
    "hashing": Bag(hashing=512),
    "characters": Bag(char_ngrams=3),
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
def test_training_on_nothing_else(kind: str, name: str, make: Make) -> None:
    """Nothing can be learned from them, but nothing fails."""
    classifier = new(name, make, folds=2)
    texts, labels = [ODD[kind]] * 12, [["a"], ["b"], ["a", "b"]] * 4
    if kind == "empty" and name != "encoder":
        with pytest.raises(InputError, match=r"nothing but white space.*Check the text field"):
            classifier.fit(texts, labels)
        return
    classifier.fit(texts, labels)
    assert np.isfinite(classifier.decision_function([ODD[kind], "copper"])).all()
