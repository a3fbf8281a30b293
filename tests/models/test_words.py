"""The words of explanations, and how features are spread over them."""

from __future__ import annotations

import sys
from itertools import product

import numpy as np
import pytest

from longtail.models.features import TextFeatures
from longtail.models.words import Pieces, spread, word_spans

TEXTS = [
    "Copper rose, copper FELL! don't 你好 世界 nickel-zinc 3.5%",
    "wheat ﬁsh İstanbul ẞ straße \U0001f44d\U0001f3fd x",
    "a b c copper rose",
    "e\u0301te\u0301 नमस्ते naïve",
    "__x__ \x1c y\x85z",
]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ""),
        (" \n\t\x1c", ""),
        ("Wheat rose 3.5%, don't", "Wheat rose 3 . 5 %, don ' t"),
        ("你好,世界 abc你好def", "你 好 , 世 界 abc 你 好 def"),
        ("नमस्ते e\u0301te\u0301", "नमस्ते e\u0301te\u0301"),
        ("\U0001f44d\U0001f3fd!! \u0301x_1", "\U0001f44d\U0001f3fd!! \u0301 x_1"),
    ],
)
def test_words(text: str, words: str) -> None:
    assert [text[start:stop] for start, stop in word_spans(text)] == words.split()


def test_every_character_but_white_space_is_in_a_word() -> None:
    codes = [code for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF]
    text = "".join(map(chr, codes))
    inside = np.zeros(len(text), dtype=bool)
    for start, stop in word_spans(text).tolist():
        inside[start:stop] = True
    assert inside.tolist() == [not each.isspace() for each in text]


def test_a_piece_is_shared_by_the_words_that_it_touches() -> None:
    words = word_spans("ab cd ef")
    starts, ends = np.array([1, 2, 7]), np.array([4, 3, 8])
    pieces = Pieces(np.array([0, 1, 1]), starts, ends, np.array([1.0, 0.5, 0.5]))
    assert spread(pieces, words, 3).toarray().tolist() == [[0.5, 0.5, 0], [0, 0, 0.5], [0, 0, 0]]


@pytest.mark.parametrize(("ngrams", "characters"), [*product((1, 3), (0, 1, 5))])
def test_each_feature_of_a_text_is_somewhere_in_it(ngrams: int, characters: int) -> None:
    features = TextFeatures(ngrams=ngrams, char_ngrams=characters)
    features.fit_transform(TEXTS)
    for text in [*TEXTS, "", "copper copper rose", "你好 unknown"]:
        places = spread(features.pieces(text), word_spans(text), len(features))
        expected = np.zeros(len(features))
        expected[features.transform([text]).indices] = 1
        np.testing.assert_allclose(places.sum(axis=1).A1, expected)


def test_n_grams_are_spread_over_their_words_alone() -> None:
    features = TextFeatures(ngrams=2)
    features.fit_transform(["copper, rose"])
    places = spread(features.pieces("Copper , ROSE"), word_spans("Copper , ROSE"), len(features))
    # Sorted: copper; rose, and then the pair.
    assert sorted(places.toarray().tolist()) == [[0, 0, 1], [0.5, 0, 0.5], [1, 0, 0]]


def test_characters_of_words_that_no_word_feature_has() -> None:
    features = TextFeatures()
    features.fit_transform(["\U0001f44d \U0001f44e", "\U0001f44d"])
    text = "\U0001f44e \U0001f44d"
    assert spread(features.pieces(text), word_spans(text), 2).sum() == 2
