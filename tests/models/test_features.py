"""TF-IDF features: odd texts, the same as scikit-learn's, and the same again after loading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from longtail.errors import InputError
from longtail.models.features import TextFeatures

TEXTS = ["copper and gold rose", "gold fell 3 pct", "wheat, wheat and wheat", "the cat"]
ODD = [
    "",
    "x",
    "gold " * 200_000,
    "🙂🙂 gold 🙂",
    "ذهب ونحاس في السوق",
    "gold\x00copper\x00",
    "the and of to",
    "zzzz qqqq unseen",
    "\n\t  \r",
    "\ud7ff\uffff",
]
KINDS: list[dict[str, Any]] = [
    {},
    {"ngrams": 2},
    {"char_ngrams": 3},
    {"hashing": 64},
    {"ngrams": 2, "char_ngrams": 4, "hashing": 128},
]


def test_equal_to_scikit_learn() -> None:
    expected = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2)).fit_transform(TEXTS)
    found = TextFeatures(ngrams=2, min_df=1).fit_transform(TEXTS)
    np.testing.assert_allclose(found.toarray(), expected.toarray(), atol=1e-6)
    expected = TfidfVectorizer().fit_transform(TEXTS * 2)
    found = TextFeatures(min_df=1, sublinear=False).fit_transform(TEXTS * 2)
    np.testing.assert_allclose(found.toarray(), expected.toarray(), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_odd_texts_become_rows_of_length_one_or_zero(kind: dict[str, Any]) -> None:
    features = TextFeatures(min_df=1, **kind)
    features.fit_transform(TEXTS)
    found = features.transform(ODD)
    assert found.shape == (len(ODD), len(features)) and found.dtype == np.float32
    lengths = np.sqrt(found.multiply(found).sum(axis=1)).A1
    assert np.all((np.abs(lengths - 1) < 1e-5) | (lengths == 0))
    assert lengths[0] == 0


def test_texts_of_unknown_words_are_rows_of_zeros() -> None:
    features = TextFeatures(min_df=1)
    features.fit_transform(TEXTS)
    assert features.transform(["zzzz qqqq", "gold"]).sum(axis=1).A1.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("kind", KINDS)
def test_loaded_gives_identical_features(kind: dict[str, Any], tmp_path: Path) -> None:
    features = TextFeatures(min_df=1, **kind)
    features.fit_transform(TEXTS + ODD)
    features.save(tmp_path)
    again = TextFeatures(min_df=1, **kind)
    again.load(tmp_path)
    one, other = features.transform(TEXTS + ODD), again.transform(TEXTS + ODD)
    assert (one != other).nnz == 0 and len(features) == len(again)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}


def test_training_texts_have_the_same_features_when_asked_again() -> None:
    for kind in KINDS:
        features = TextFeatures(min_df=1, **kind)
        first = features.fit_transform(TEXTS)
        np.testing.assert_array_equal(first.toarray(), features.transform(TEXTS).toarray())


@pytest.mark.parametrize("texts", [["a", "b b"], ["!", "? !"], ["🙂", "🙃"]])
def test_texts_without_words_fall_back_to_single_characters(texts: list[str]) -> None:
    found = TextFeatures(min_df=1).fit_transform(texts)
    assert found.nnz > 0
    assert np.any(found[0].toarray() != found[1].toarray())


def test_nothing_but_white_space_says_so() -> None:
    with pytest.raises(InputError, match="text field"):
        TextFeatures().fit_transform(["", " \n"])


def test_min_df_and_max_features_bound_the_vocabulary() -> None:
    few = TextFeatures(min_df=2)
    few.fit_transform(TEXTS)
    assert len(few) == 2  # gold, and
    capped = TextFeatures(min_df=1, max_features=3)
    capped.fit_transform(TEXTS)
    assert len(capped) == 3


@given(st.lists(st.text(max_size=30), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_any_text_can_be_asked(texts: list[str]) -> None:
    features = TextFeatures(min_df=1)
    features.fit_transform(TEXTS)
    found = features.transform(texts)
    assert found.shape[0] == len(texts) and np.isfinite(found.data).all()


def test_words_that_are_too_rare() -> None:
    texts = ["copper rose", "nickel fell", "tin rose"]
    with pytest.raises(InputError, match=r"no word is in 3 of the 3 training documents.*min-df"):
        TextFeatures(min_df=3).fit_transform(texts)
    # Few texts may share no word; more than there are documents is all of them.
    assert TextFeatures(min_df=2).fit_transform(["copper", "nickel"]).shape == (2, 2)
    assert TextFeatures(min_df=9).fit_transform(["copper", "copper"]).shape == (2, 1)
