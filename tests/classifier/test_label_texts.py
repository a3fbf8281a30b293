"""Label descriptions: rare labels get them, and all folds train on them but none on their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from longtail.classifier import folds as folds_module
from longtail.classifier.blend import fit_plans
from longtail.classifier.crossfit import Fitted, Run
from longtail.classifier.label_texts import COPIES, LIMIT, add_cooccurring, label_documents
from longtail.classifier.plan import Plan
from longtail.data import TextData
from longtail.errors import InputError
from longtail.models import Bag
from longtail.models.encoder import HEAD_NORM

from .cases import CPU, LABELS, TEXTS, fit_one
from .conftest import Make

NAMES = ("castor-oil", "earn", "lin_oil", "never")


def plan(folds: int, label_texts: str | Mapping[str, str] | None) -> Plan:
    return Plan(Bag(C=100.0), folds=folds, label_texts=label_texts, training=CPU)


def fit(folds: int, label_texts: str | None, data: TextData) -> Fitted:
    return fit_one(plan(folds, label_texts), data, data if folds == 1 else None)


def documents(n_rare: int = 4) -> TextData:
    lists = [["earn"]] * LIMIT + [["castor-oil"]] * n_rare + [["lin_oil", "earn"]] * n_rare
    return TextData.from_lists([f"document {k}" for k in range(len(lists))], lists, NAMES)


def test_rare_labels_get_their_names() -> None:
    names = label_documents(documents(), "names")
    # LIMIT documents of `earn` are not few.
    assert names.texts == ["castor oil", "lin oil", "never"] * COPIES
    for n, texts in ((LIMIT, []), (LIMIT - 1, ["earnings"] * COPIES)):
        assert label_documents(documents()[:n], {"earn": "earnings"}).texts == texts
    assert [names.labels_of(k) for k in range(3)] == [["castor-oil"], ["lin_oil"], ["never"]]
    assert names.label_names == NAMES and names.ids is not None
    assert names.ids[:2] == ("label castor-oil", "label lin_oil")


def test_labels_may_have_several_texts() -> None:
    texts = {"castor-oil": ["castor oil", "ricinus", "  ", "palma christi"], "never": ["nothing"]}
    names = label_documents(documents(), texts)
    assert names.texts == ["castor oil", "nothing", "ricinus", "nothing", "palma christi"]
    assert [names.labels_of(k) for k in (2, 3, 4)] == [["castor-oil"], ["never"], ["castor-oil"]]


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ([["earn", "lin_oil"]] * 4, ["earn", "lin_oil"]),
        # One document without it is added: two shared documents are too few.
        ([["earn", "lin_oil"]] * 2, ["lin_oil"]),
        ([["earn", "lin_oil"]] * 6 + [["lin_oil"]] * 3, ["lin_oil"]),
        ([["earn"]] * 4, ["lin_oil"]),
    ],
)
def test_cooccurring_labels_are_added(lists: list[list[str]], expected: list[str]) -> None:
    data = TextData.from_lists([f"d{k}" for k in range(len(lists))], lists, NAMES)
    texts = label_documents(data, {"lin_oil": "linseed"})
    assert texts.labels_of(0) == ["lin_oil"]
    joined = add_cooccurring(TextData.concat([data, texts]), len(data))
    assert [joined.labels_of(k) for k in range(len(data))] == lists
    assert joined.labels_of(len(data)) == joined.labels_of(len(data) + 1) == expected
    assert joined.Y.nnz == joined.Y.sum(), "no stored zeros"


def test_cooccurrence_is_counted_in_each_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Mock(wraps=add_cooccurring)
    monkeypatch.setattr(folds_module, "add_cooccurring", watch)
    data = documents(3)
    fit(2, "names", data)
    (first, n_first), (second, n_second) = (call.args for call in watch.call_args_list)
    assert n_first + n_second == len(data)
    assert len(first) - n_first == len(second) - n_second == 3 * COPIES


def test_unknown_labels_are_reported() -> None:
    notes: list[str] = []
    texts = {"castor-oil": "an oil of beans", "x": "one", "y": "two"}
    fit_plans([plan(2, texts)], documents(), None, Run(note=notes.append))
    first = "label_texts: 2 of 3 texts are not used, as the data has no such label: 'x', 'y'."
    assert notes == [f"{first} It has, for example, 'castor-oil'."]


def test_unused_texts_are_reported_and_change_nothing() -> None:
    notes: list[str] = []
    run = Run(note=notes.append)
    each: list[Any] = [None, {"x": "y"}]
    plain, other = (fit_plans([plan(2, texts)], documents(), None, run) for texts in each)
    assert len(notes) == 1 and "1 of 1 texts are not used" in notes[0]
    assert plain is not None and other is not None
    np.testing.assert_array_equal(plain.scores, other.scores)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("E11.9", "B-12", "Z79", "vitamin B12"), ["vitamin B12"]),
        (("体育", "12", "C0012", "né e"), ["体育", "né e"]),
    ],
)
def test_names_that_are_codes_are_left_out(names: tuple[str, ...], expected: list[str]) -> None:
    data = TextData.from_lists(["a", "b"], [[names[0]], [names[1]]], names)
    assert label_documents(data, "names").texts == expected * COPIES


def test_names_without_any_words_are_reported() -> None:
    codes = [f"E{k}" for k in range(4)]
    data = TextData.from_lists([f"d{k}" for k in range(8)], [[codes[k % 4]] for k in range(8)])
    notes: list[str] = []
    fit_plans([plan(2, "names")], data, None, Run(note=notes.append))
    assert notes == ["label_texts: no label name is words, see 'E0': nothing is learned from them."]


def test_descriptions_of_some_labels() -> None:
    texts = {"castor-oil": "an oil of beans", "earn": "earnings", "lin_oil": "  ", "other": "x"}
    assert label_documents(documents(), texts).texts == ["an oil of beans"] * COPIES
    assert len(label_documents(documents(), {"Castor oil": "an oil of beans"})) == 0
    # All described labels are frequent: nothing to add.
    assert len(label_documents(documents(), {"earn": "earnings"})) == 0


def test_invalid_label_texts() -> None:
    for wrong in ("Names", 3, ["a"], {"a": 1}):
        with pytest.raises(InputError, match="label_texts must be 'names', or a mapping"):
            plan(1, wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("folds", [1, 3])
def test_every_model_knows_every_label_and_only_documents_are_scored(folds: int) -> None:
    data = documents(1)
    fitted = fit(folds, "names", data)
    assert fitted.ensemble.known.all()
    assert fitted.held_out.texts == data.texts and fitted.scores.shape == data.Y.shape
    assert not np.ma.getmaskarray(fitted.scores).any()
    assert not fit(folds, None, data).ensemble.known.all()


def test_a_label_without_documents_is_predicted_by_its_name() -> None:
    words = ("copper", "nickel", "wheat", "zinc")
    lists = [[words[k % 3]] for k in range(90)]
    texts = [f"prices of {names[0]} rose {k}" for k, names in enumerate(lists)]
    data = TextData.from_lists(texts, lists, words)
    scores = fit(2, "names", data).ensemble.scores(["zinc exports", "wheat exports"])
    assert scores[0, 3] > scores[1, 3] and scores[0].argmax() == 3


def test_the_head_of_an_encoder_starts_from_the_names(make: Make) -> None:
    """In every fold; a model that is not trained any further has it still."""
    still = {"epochs": 1, "learning_rate": 1e-12, "head_learning_rate": 1e-12, "folds": 2}
    classifier = make(label_texts="names", **still).fit(TEXTS, LABELS)
    for fold in classifier.ensemble_.models:
        norms = fold.network.labels.weight.norm(dim=1)
        assert torch.allclose(norms, torch.tensor(HEAD_NORM))
