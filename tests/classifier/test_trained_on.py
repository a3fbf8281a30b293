"""A fitted classifier recognises the documents that it was trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from longtail import Bag, LongTailClassifier
from longtail.classifier.saving import HASHES_FILE
from longtail.data import TextData
from longtail.errors import DataError, InputError, NotFittedError
from longtail.runs.model import manifest

from .cases import CPU, DATA, LABELS, NAMES, TEXTS, change, reload
from .conftest import Classifier, Make

NEW = ["zinc and tin fell", "a text that nobody trained on"]
VALIDATION = TextData.from_lists(["held out copper", "held out wheat"], [["copper"], ["wheat"]])


def bag(**settings: object) -> LongTailClassifier:
    return LongTailClassifier(Bag(C=100.0, min_df=1), training=CPU, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("folds", [1, 2])
def test_the_training_part_and_the_validation_part(folds: int) -> None:
    classifier = bag(folds=folds, label_texts={"copper": NEW[0]}).fit(DATA, validation=VALIDATION)
    assert classifier.trained_on(TEXTS).all() and classifier.trained_on(VALIDATION).all()
    # The description of a label is no document.
    assert not classifier.trained_on(NEW).any()


def test_a_part_that_is_held_out_for_the_thresholds() -> None:
    """With folds=1 and no validation part, some documents only choose the thresholds."""
    texts = [f"{text} number{k}" for k, text in enumerate(TEXTS)]
    classifier = bag(folds=1).fit(texts, LABELS)
    assert classifier.label_stats_.n_samples < len(texts)
    assert classifier.trained_on(texts).all()


def test_copies_with_other_white_space_and_case(encoder: Classifier) -> None:
    copies = [f"  {text.upper()}\r\n".replace(" ", "\t ") for text in TEXTS]
    assert encoder.trained_on([*copies, *NEW]).tolist() == [True] * len(TEXTS) + [False] * 2
    assert encoder.trained_on([]).shape == (0,)


def test_half_a_character_is_replaced_as_in_training() -> None:
    texts = ["copper \ud83d rose", "wheat \udc00 fell", "copper rose", "wheat fell"]
    classifier = bag(folds=2).fit(texts, [["copper"], ["wheat"]] * 2)
    assert classifier.trained_on(texts).all()


def test_hashes_are_sorted_unique_and_saved(blended: Classifier, tmp_path: Path) -> None:
    hashes = blended.document_hashes_
    assert hashes is not None and hashes.dtype == np.uint64
    assert np.array_equal(hashes, np.unique(hashes)) and len(hashes) == len(set(TEXTS))
    loaded = reload(blended, tmp_path / "run")
    assert np.array_equal(load_file(tmp_path / "run" / HASHES_FILE)["hashes"], hashes)
    assert loaded.trained_on([*TEXTS, *NEW]).tolist() == [True] * len(TEXTS) + [False] * 2
    card = (tmp_path / "run" / "README.md").read_text("utf-8")
    assert f"`{HASHES_FILE}` holds an 8-byte hash of each" in card


@pytest.mark.parametrize("hashes", [np.zeros(3), np.zeros((2, 2), np.uint64)])
def test_invalid_hashes(copied: Path, hashes: np.ndarray) -> None:
    save_file({"hashes": hashes}, copied / HASHES_FILE)
    change(copied, lambda config: config.update(files=manifest(copied)))
    with pytest.raises(DataError, match="is damaged: ValueError: hashes of type"):
        LongTailClassifier.from_pretrained(copied)


def test_trained_on_needs_hashes(copied: Path, tmp_path: Path) -> None:
    classifier = LongTailClassifier.from_pretrained(copied)
    classifier.document_hashes_ = None
    classifier.save_pretrained(copied)
    assert not (copied / HASHES_FILE).exists()
    loaded = LongTailClassifier.from_pretrained(copied)
    with pytest.raises(InputError, match="came without the hashes of its training documents"):
        loaded.trained_on(TEXTS)
    assert "hashes of these documents" in (copied / "README.md").read_text("utf-8")
    with pytest.raises(NotFittedError):
        LongTailClassifier().trained_on(TEXTS)


def test_evaluate_warns_of_documents_that_it_was_trained_on(copied: Path) -> None:
    classifier = LongTailClassifier.from_pretrained(copied)
    both = TextData.concat([DATA, TextData.from_lists(NEW, [["copper"], ["wheat"]], NAMES)])
    with pytest.warns(UserWarning, match="trained on 24 of these 26 documents.*trained_on") as got:
        result = classifier.evaluate(iter(both.texts), [both.labels_of(k) for k in range(26)])
    assert got[0].filename == __file__ and result.overall.n_documents == 26
    # Warnings are errors here.
    new = both[~classifier.trained_on(both.texts)]
    assert classifier.evaluate(new).overall.n_documents == 2
    classifier.document_hashes_ = None
    classifier.evaluate(both)


def test_documents_without_a_known_label_are_not_evaluated(make: Make) -> None:
    classifier = make(epochs=1).fit(TEXTS, LABELS)
    joined = TextData.from_lists(["a", "b"], [["copper;nickel"], ["wheat;tin"]])
    with pytest.raises(InputError) as raised:
        classifier.evaluate(joined)
    message = str(raised.value)
    assert "the model knows none of the labels of these 2 documents" in message
    assert "'copper;nickel', 'wheat;tin'" in message and "'copper', 'nickel', 'wheat'" in message
    assert "--label-separator" in message and "--labels-field" in message
    for data in (DATA[:0], TextData.from_lists(["a"], [[]], NAMES)):
        with pytest.raises(InputError, match=f"none of {len(data)} documents has a label"):
            classifier.evaluate(data)
    # One known label is enough.
    one = TextData.from_lists(["a", "b"], [["copper"], ["tin"]])
    with pytest.warns(UserWarning, match="not evaluated: 1 assignment of 1 label .*: 'tin'"):
        assert classifier.evaluate(one).unknown_labels == {"tin": 1}
