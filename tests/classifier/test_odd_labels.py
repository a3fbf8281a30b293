"""Unusual labels and documents: every model fits, predicts, saves and loads them."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import Bag, LongTailClassifier, Training
from longtail.data import TextData

from .cases import CPU, DATA, LABELS, NAMES, TEXTS
from .conftest import Make

ONE = [["copper"] if "copper" in text else [] for text in TEXTS]


def check(classifier: LongTailClassifier, folder: Path) -> Any:
    """The decisions on TEXTS; scores are finite, and the same after loading."""
    scores = classifier.decision_function(TEXTS)
    assert scores.shape == (len(TEXTS), len(classifier.classes_))
    assert np.isfinite(scores).all()
    assert not np.isnan(classifier.thresholds_.values).any()
    classifier.save_pretrained(folder)
    loaded = LongTailClassifier.from_pretrained(folder)
    assert np.array_equal(loaded.decision_function(TEXTS), scores)
    assert (loaded.predict(TEXTS) != classifier.predict(TEXTS)).nnz == 0
    return classifier.predict(TEXTS).toarray()


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


@pytest.mark.parametrize("case", CASES)
def test_fit_and_load(case: str, make_any: Make, tmp_path: Path) -> None:
    texts, labels = CASES[case]
    classifier = make_any().fit(texts, labels)
    decisions = check(classifier, tmp_path / "run")
    if "every" in classifier.classes_:
        assert decisions[:, classifier.classes_.tolist().index("every")].all()
    if case.startswith("all"):
        assert decisions.all()
    assert 0 <= classifier.score(texts, labels) <= 1
    assert 0 <= classifier.score(texts[:1], labels[:1]) <= 1
    if case == "one label":
        assert classifier.facts_.without_labels > 0
        evaluation = classifier.evaluate(TextData.from_lists(texts, labels))
        assert evaluation.overall.n_labels == 1


def test_a_label_on_no_document(make_any: Make, tmp_path: Path) -> None:
    data = TextData.from_lists(TEXTS, LABELS, ["copper", "nickel", "tin", "wheat"])
    classifier = make_any().fit(data)
    assert classifier.label_stats_.label_counts[2] == 0
    assert not check(classifier, tmp_path / "run")[:, 2].any()


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
    assert len(classifier.ensemble_.models) == 4
    check(classifier, tmp_path / "run")


def test_ten_thousand_labels_with_one_document_each(tmp_path: Path) -> None:
    """In seconds, and in less memory than two matrices of documents and labels take."""
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
    classifier.save_pretrained(tmp_path / "run")
    loaded = LongTailClassifier.from_pretrained(tmp_path / "run")
    assert (loaded.predict(texts[:100]) != classifier.predict(texts[:100])).nnz == 0
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
    assert more < 2 * n_labels**2 * 4 / 2**30


def test_a_thousand_labels_with_the_default_model() -> None:
    texts = [f"word{k} other{k % 100} common text" for k in range(1000)]
    classifier = LongTailClassifier(training=CPU, folds=2)
    classifier.fit(texts, sp.identity(1000, format="csr"))
    assert np.isfinite(classifier.decision_function(texts[:10])).all()
