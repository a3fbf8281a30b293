"""Texts of labels: who gets one, that all folds train on them and none is judged by them."""

from __future__ import annotations

import numpy as np
import pytest

from longtail.data import TextData
from longtail.errors import InputError
from longtail.fitting import Plan, fit
from longtail.fitting import label_texts as room
from longtail.fitting.label_texts import COPIES, LIMIT, label_documents
from longtail.settings import TrainingConfig

NAMES = ("castor-oil", "earn", "lin_oil", "never")


def documents(n_rare: int = 4) -> TextData:
    lists = [["earn"]] * LIMIT + [["castor-oil"]] * n_rare + [["lin_oil", "earn"]] * n_rare
    return TextData.from_lists([f"document {k}" for k in range(len(lists))], lists, NAMES)


def test_rare_labels_get_their_names() -> None:
    found = label_documents(documents(), "names")
    assert found.texts == ["castor oil", "lin oil", "never"] * COPIES
    # Four of five documents, one counted in advance, are with earn: more than the share asked for.
    assert [found.labels_of(k) for k in range(3)] == [
        ["castor-oil"],
        ["earn", "lin_oil"],
        ["never"],
    ]
    assert found.label_names == NAMES and found.ids is not None
    assert found.ids[:2] == ("label castor-oil", "label lin_oil")


def test_two_shared_documents_make_no_companion() -> None:
    found = label_documents(documents(2), "names")
    assert found.labels_of(1) == ["lin_oil"]
    lists = [["lin_oil", "earn"]] * 6 + [["lin_oil"]] * 3
    mixed = TextData.from_lists([f"d{k}" for k in range(9)], lists, NAMES)
    assert label_documents(mixed, {"lin_oil": "linseed"}).labels_of(0) == ["lin_oil"]


def test_descriptions_of_some_labels() -> None:
    given = {"castor-oil": "an oil of beans", "earn": "earnings", "lin_oil": "  ", "other": "x"}
    assert label_documents(documents(), given).texts == ["an oil of beans"] * COPIES
    with pytest.raises(InputError, match=r"describes none of the 4 labels.*such as 'castor-oil'"):
        label_documents(documents(), {"Castor oil": "an oil of beans"})
    # Described labels that are all frequent: nothing to add, and nothing wrong.
    assert len(label_documents(documents(), {"earn": "earnings"})) == 0


@pytest.mark.parametrize("wrong", ["Names", 3, ["a"], {"a": 1}])
def test_what_texts_of_labels_are_not(wrong: object) -> None:
    with pytest.raises(InputError, match="label_texts must be 'names', or a mapping"):
        Plan(label_texts=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("folds", [1, 3])
def test_every_model_knows_every_label_and_only_documents_are_judged(folds: int) -> None:
    data = documents(1)
    held = None if folds > 1 else documents(1)
    plan = Plan(folds=folds, label_texts="names", training=TrainingConfig(device="cpu"))
    found = fit(plan, data, held)
    assert found is not None and found.ensemble.known.all()
    assert found.tuning.texts == data.texts and found.scores.shape == data.Y.shape
    assert not np.ma.getmaskarray(found.scores).any()
    without = fit(Plan(folds=folds, training=TrainingConfig(device="cpu")), data, held)
    assert without is not None and not without.ensemble.known.all()


def test_a_label_without_documents_is_found_by_its_name() -> None:
    words = ("copper", "nickel", "wheat", "zinc")
    lists = [[words[k % 3]] for k in range(90)]
    texts = [f"prices of {one[0]} rose {k}" for k, one in enumerate(lists)]
    data = TextData.from_lists(texts, lists, words)
    plan = Plan(folds=2, label_texts="names", training=TrainingConfig(device="cpu"))
    found = fit(plan, data)
    assert found is not None
    scores = found.ensemble.scores(["zinc exports", "wheat exports"])
    assert scores[0, 3] > scores[1, 3] and scores[0].argmax() == 3


def test_the_limit_counts_training_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "LIMIT", 3)
    data = TextData.from_lists(["a", "b", "c", "d", "e"], [["x"], ["x"], ["y"], ["y"], ["y"]])
    assert set(label_documents(data, "names").texts) == {"x"}
