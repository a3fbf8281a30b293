"""The settings that are compared, in stages; characters where words say little."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.data import TextData
from longtail.models import Bag, Encoder, ModelSettings, Svm
from longtail.models.settings import Auto
from longtail.models.stages import (
    ALL_PAIRS,
    CHAR_NGRAMS,
    HINGE,
    HINGE_PATH,
    PATH,
    SHORT_TEXT,
    asks_for_characters,
)

WORDS = "word and another " * SHORT_TEXT
HAN = "\u94dc\u4ef7\u4e0a\u6da8" * SHORT_TEXT


def data(text: str = WORDS, n_documents: int = 4, n_labels: int = 2) -> TextData:
    Y = sp.csr_matrix(np.eye(n_documents, n_labels, dtype=np.float32))
    return TextData([text] * n_documents, Y, tuple(map(str, range(n_labels))))


def compared(model: ModelSettings, loss: str | None = None, **kwargs: Any) -> list[Any]:
    """All settings that are compared if the first ones stay the best."""
    stages = model.stages(data(**kwargs), loss)
    best = stages[0](None)[0] if stages else None
    return [settings for stage in stages for settings in stage(best)]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["a few words"] * 5, True),
        ([WORDS] * 5, False),
        ([HAN] * 5, True),
        (["", "", WORDS], True),
        (["", WORDS, WORDS], False),
        # A sample of many documents, spread over all of them.
        (["short"] * 1500 + [WORDS[:900]] * 2500, False),
    ],
)
def test_short_texts_and_scripts_without_spaces(texts: list[str], expected: bool) -> None:
    assert asks_for_characters(texts) is expected


@pytest.mark.parametrize(("loss", "path"), [("squared-hinge", HINGE_PATH), ("db", PATH)])
def test_a_bag_leaves_its_c_open(loss: str, path: tuple[float, ...]) -> None:
    tried = compared(Bag(ngrams=2, min_df=3), loss)
    assert [settings.C for settings in tried] == [1.0, *path, 0.32, 3.2]
    first = Bag(C=1.0, ngrams=2, min_df=3, loss=loss)
    assert all(dataclasses.replace(settings, C=1.0) == first for settings in tried)
    # The last steps are around the best of the first ones.
    fine = Bag().stages(data(), loss)[-1]
    assert [each.C for each in fine(Bag(C=10.0, loss=loss))] == [3.2, 32.0]


def test_nothing_is_open() -> None:
    for model in (Bag(C=3.0), Bag(hidden=4), Svm(), Encoder("a/b")):
        assert model.stages(data(), "db") == []


def test_auto_compares_features_and_losses() -> None:
    tried = compared(Auto())
    assert {each.loss for each in tried} == {HINGE, "db"} and tried[0] == Bag(C=1.0, loss=HINGE)
    assert {each.char_ngrams for each in tried} == {0}
    assert {each.informed for each in tried} == {True, False}
    assert CHAR_NGRAMS in {each.char_ngrams for each in compared(Auto(), text=HAN)}
    # A given loss is kept; of very many pairs only the loss that skips most of them is tried.
    assert {each.loss for each in compared(Auto(), "cb")} == {"cb"}
    many = {"n_documents": 2000, "n_labels": ALL_PAIRS // 2000 + 1}
    assert {each.loss for each in compared(Auto(), **many)} == {HINGE}
