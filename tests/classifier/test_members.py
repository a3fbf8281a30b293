"""Members and texts of labels through the estimator: arguments, saving, cards, mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from longtail import LongTailClassifier
from longtail.classifier.card import model_card
from longtail.errors import InputError, LongtailError, UnknownNameError

WORDS = ("copper", "nickel", "tin", "wheat")
LABELS = [[WORDS[k % 4]] if k % 3 else [WORDS[k % 4], WORDS[(k + 1) % 4]] for k in range(48)]
TEXTS = [f"{' and '.join(own)} rose in {k}" for k, own in enumerate(LABELS)]


@pytest.fixture(scope="module")
def members(tiny_bert: Path) -> list[dict[str, Any]]:
    encoder = {"model": "encoder", "encoder": str(tiny_bert), "epochs": 1, "loss": "bce"}
    return [encoder, {"model": "bag", "min_df": 1}]


@pytest.fixture(scope="module")
def fitted(members: list[dict[str, Any]]) -> LongTailClassifier:
    made = LongTailClassifier(members=members, folds=2, device="cpu", label_texts="names")
    return made.fit(TEXTS, LABELS)


def test_members_take_what_is_common_and_say_their_own(
    fitted: LongTailClassifier, tiny_bert: Path
) -> None:
    encoder, bag = fitted.plans_
    assert (encoder.model, encoder.loss, bag.model, bag.loss) == ("encoder", "bce", "bag", "db")
    assert encoder.model_settings["encoder"] == str(tiny_bert) and encoder.training.epochs == 1
    assert bag.model_settings["min_df"] == 1 and encoder.label_texts == bag.label_texts == "names"
    assert encoder.folds == bag.folds == 2
    assert len(fitted.ensemble_.models) == 4 and fitted.ensemble_.n_members == 2


def test_saved_loaded_cloned(fitted: LongTailClassifier, tmp_path: Path) -> None:
    fitted.save_pretrained(tmp_path / "run")
    after = LongTailClassifier.from_pretrained(tmp_path / "run")
    assert np.array_equal(after.decision_function(TEXTS), fitted.decision_function(TEXTS))
    assert after.predict_labels(TEXTS) == fitted.predict_labels(TEXTS)
    assert after.plans_ == fitted.plans_ and after.get_params() == fitted.get_params()
    probabilities = after.predict_proba(TEXTS)
    assert ((probabilities > 0) & (probabilities < 1)).all()
    again = clone(after).fit(TEXTS, LABELS)
    assert np.array_equal(again.decision_function(TEXTS), fitted.decision_function(TEXTS))


def test_the_card_names_every_member(fitted: LongTailClassifier) -> None:
    card = model_card(fitted)
    for said in ("Member 1: Model", "Member 2: weight", "Member 2: Label descriptions"):
        assert said in card
    assert "2 models of each member, each trained without a fold" in card


def test_svm_and_bag_as_members_have_probabilities() -> None:
    made = LongTailClassifier(members=[{"model": "svm"}, {}], folds=2, device="cpu")
    assert made.fit(TEXTS, LABELS).predict_proba(TEXTS[:2]).shape == (2, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"members": []}, "members must be a list of one dict for each model"),
        ({"members": {"model": "bag"}}, "members must be a list of one dict for each model"),
        ({"members": ["bag"]}, r"members\[0\] must be a dict of arguments"),
        ({"members": [{}, {"model": "tree"}]}, "unknown model 'tree'"),
        ({"members": [{}, {"epoch": 3}]}, r"unknown setting in members\[1\] 'epoch'"),
        ({"members": [{"folds": 3}]}, r"unknown setting in members\[0\] 'folds'"),
        ({"members": [{"seed": 3}]}, r"members\[0\]: seed is the same for all. Say it outside"),
        ({"members": [{}], "epochs": 3}, "epochs: with members this belongs into each member"),
        ({"members": [{}], "model": "svm"}, "model: with members this belongs into each member"),
        ({"members": [{"epochs": 3}]}, "epochs .* would do nothing"),
        ({"members": [{"model": "encoder", "C": 1}]}, r"unknown setting in members\[0\] 'C'"),
        ({"members": [{"model": ["bag"]}]}, r"members\[0\]: model must be a name"),
        ({"members": [{"model_settings": "x", "C": 1}]}, "model_settings must be a dict"),
        (
            {
                "members": [
                    {"hidden": 4, "patience": 1},
                    {"hidden": 4, "patience": 1, "stop_on": "macro_f1"},
                ]
            },
            "members with patience must look at the same score",
        ),
        ({"label_texts": "Names"}, "label_texts must be 'names', or a mapping"),
    ],
)
def test_what_members_cannot_be(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=message):
        LongTailClassifier(**arguments).fit(TEXTS, LABELS)


def test_a_folder_of_an_older_format_says_so(fitted: LongTailClassifier, tmp_path: Path) -> None:
    fitted.save_pretrained(tmp_path / "run")
    place = tmp_path / "run" / "longtail.json"
    place.write_text(place.read_text("utf-8").replace('"format": 3', '"format": 1'), "utf-8")
    with pytest.raises(LongtailError, match=r"format 1, which this longtail .* no longer reads"):
        LongTailClassifier.from_pretrained(tmp_path / "run")
