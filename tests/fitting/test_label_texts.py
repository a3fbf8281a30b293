"""Texts of labels: who gets one, that all folds train on them and none is judged by them."""

from __future__ import annotations

import numpy as np
import pytest

from longtail.data import TextData
from longtail.errors import InputError
from longtail.fitting import Plan, crossfit, fit
from longtail.fitting import label_texts as room
from longtail.fitting.label_texts import COPIES, LIMIT, label_documents, with_companions
from longtail.settings import TrainingConfig

NAMES = ("castor-oil", "earn", "lin_oil", "never")


def documents(n_rare: int = 4) -> TextData:
    lists = [["earn"]] * LIMIT + [["castor-oil"]] * n_rare + [["lin_oil", "earn"]] * n_rare
    return TextData.from_lists([f"document {k}" for k in range(len(lists))], lists, NAMES)


def test_rare_labels_get_their_names() -> None:
    found = label_documents(documents(), "names")
    assert found.texts == ["castor oil", "lin oil", "never"] * COPIES
    assert [found.labels_of(k) for k in range(3)] == [["castor-oil"], ["lin_oil"], ["never"]]
    assert found.label_names == NAMES and found.ids is not None
    assert found.ids[:2] == ("label castor-oil", "label lin_oil")


@pytest.mark.parametrize(
    ("lists", "found"),
    [
        ([["earn", "lin_oil"]] * 4, ["earn", "lin_oil"]),
        # One more document without it is counted: two shared documents are too few.
        ([["earn", "lin_oil"]] * 2, ["lin_oil"]),
        ([["earn", "lin_oil"]] * 6 + [["lin_oil"]] * 3, ["lin_oil"]),
        ([["earn"]] * 4, ["lin_oil"]),
    ],
)
def test_labels_that_go_with_a_label_go_with_its_text(
    lists: list[list[str]], found: list[str]
) -> None:
    data = TextData.from_lists([f"d{k}" for k in range(len(lists))], lists, NAMES)
    texts = label_documents(data, {"lin_oil": "linseed"})
    assert texts.labels_of(0) == ["lin_oil"]
    whole = with_companions(TextData.concat([data, texts]), len(data))
    assert [whole.labels_of(k) for k in range(len(data))] == lists
    assert whole.labels_of(len(data)) == whole.labels_of(len(data) + 1) == found
    assert whole.Y.nnz == whole.Y.sum(), "no stored zeros"


def test_companions_are_those_of_the_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []

    def watch(part: TextData, n_documents: int) -> TextData:
        seen.append((len(part), n_documents))
        return with_companions(part, n_documents)

    monkeypatch.setattr(crossfit, "with_companions", watch)
    data = documents(3)
    fit(Plan(folds=2, label_texts="names", training=TrainingConfig(device="cpu")), data)
    assert len(seen) == 2 and sum(n for _, n in seen) == len(data)
    assert {length - n for length, n in seen} == {3 * COPIES}


def test_texts_of_labels_that_are_not_there_are_told() -> None:
    notes: list[str] = []
    given = {"castor-oil": "an oil of beans", "x": "one", "y": "two"}
    plan = Plan(folds=2, label_texts=given, training=TrainingConfig(device="cpu"))
    fit(plan, documents(), note=notes.append)
    told = "label_texts: 2 of 3 texts are not used, as the data has no such label: 'x', 'y'."
    assert notes == [told]


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
