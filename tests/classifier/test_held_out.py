"""Facts from held-out documents: labels that are never predicted, the learning curve, counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import Bag, LabelStats, LongTailClassifier, Svm, Thresholds
from longtail.classifier import blend
from longtail.classifier import held_out as held_out_module
from longtail.classifier.crossfit import Fitted
from longtail.classifier.folds import FoldedData
from longtail.classifier.saving import model_card
from longtail.corpora.newswire import load
from longtail.data import TextData, split

from .cases import CPU, remembering
from .conftest import Make, Patch

NEWS = load(n_documents=800, n_labels=20)["train"]


def fit(model: Any, **settings: Any) -> LongTailClassifier:
    return LongTailClassifier(model, training=CPU, folds=2, **settings).fit(NEWS)


def expected(classifier: LongTailClassifier) -> list[Any]:
    scores = classifier.facts_.cross_validated
    assert scores is not None
    return [scores["all"], scores["head"]]


@pytest.fixture(scope="module")
def svm() -> LongTailClassifier:
    return fit("svm")


def test_every_label_keeps_its_held_out_counts(svm: LongTailClassifier, tmp_path: Path) -> None:
    facts = svm.facts_
    assert facts.label_counts is not None and facts.cross_validated is not None
    hits, predicted, actual = map(np.array, facts.label_counts)
    assert actual.tolist() == np.asarray(NEWS.Y.sum(axis=0)).ravel().tolist()
    assert (hits <= predicted).all() and (hits <= actual).all()
    expected = facts.cross_validated["all"]
    assert 2 * hits.sum() / (predicted + actual).sum() == pytest.approx(expected.micro_f1)
    assert "label_counts" not in facts.to_dict(), "in a file of its own"
    svm.save_pretrained(tmp_path / "run")
    loaded = LongTailClassifier.from_pretrained(tmp_path / "run")
    assert loaded.facts_.label_counts == facts.label_counts
    one = LongTailClassifier("svm", training=CPU, folds=1)
    one.fit(NEWS[:50], validation=NEWS[50:51])
    assert one.facts_.label_counts is None
    one.save_pretrained(tmp_path / "one")
    assert LongTailClassifier.from_pretrained(tmp_path / "one").facts_ == one.facts_


def test_half_of_the_training_documents_of_a_fold() -> None:
    plan = remembering(3, label_texts={NEWS.label_names[0]: "a text"})
    folded = FoldedData.split(plan, NEWS, None, None)
    halved = folded.halved(7)
    np.testing.assert_array_equal(halved.held_out_rows(0), folded.held_out_rows(0))
    some, whole = (set(each.training_rows(0).tolist()) for each in (halved, folded))
    n_texts = len(folded.data) - len(NEWS)
    assert some < whole and len(some) - n_texts == (len(whole) - n_texts + 1) // 2
    assert len(halved.training_part(0)) == len(some)
    again = folded.halved(7).training_rows(0)
    assert set(again.tolist()) == some != set(folded.halved(8).training_rows(0).tolist())


@pytest.mark.parametrize("model", [Svm(), Bag(C=1.0, loss="squared-hinge"), ["svm", Bag(C=10.0)]])
def test_half_of_the_documents_scores_lower_and_changes_nothing(
    model: Any, tmp_path: Path, monkeypatch: Patch
) -> None:
    classifier = fit(model)
    half = classifier.facts_.half
    assert half is not None and half.n_all == len(NEWS) // 2
    assert half.n_half == (half.n_all + 1) // 2
    assert 0 < half.half.micro_f1 < half.all.micro_f1 < 1
    assert fit(model).facts_ == classifier.facts_, "the same each time"
    classifier.save_pretrained(tmp_path / "run")
    assert LongTailClassifier.from_pretrained(tmp_path / "run").facts_ == classifier.facts_
    monkeypatch.setattr(blend, "MIN_DOCUMENTS", len(NEWS))
    without = fit(model)
    assert without.facts_.half is None
    np.testing.assert_array_equal(without.thresholds_.values, classifier.thresholds_.values)
    assert (without.predict(NEWS.texts) != classifier.predict(NEWS.texts)).nnz == 0


def test_half_is_not_fitted_for_networks_or_one_fold(make: Make) -> None:
    assert make(epochs=1, folds=2).fit(NEWS[:250]).facts_.half is None
    one = LongTailClassifier("svm", training=CPU, folds=1).fit(NEWS)
    assert one.facts_.half is None


def test_an_automatic_validation_part_is_stratified() -> None:
    classifier = LongTailClassifier("svm", training=CPU, folds=1, random_state=3).fit(NEWS)
    train, validation = split(NEWS, (0.9, 0.1), "stratified", random_state=3)
    assert classifier.facts_.n_held_out == len(validation)
    np.testing.assert_array_equal(classifier.label_stats_.label_counts, train.stats().label_counts)


def test_cross_validated_scores_respect_the_limits(svm: LongTailClassifier) -> None:
    limited = fit("svm", max_labels=1)
    for one, without in zip(expected(limited), expected(svm), strict=True):
        assert one.micro_recall < without.micro_recall - 0.05
    facts = limited.facts_
    assert facts.half is not None and svm.facts_.half is not None
    assert facts.half.all.micro_f1 < svm.facts_.half.all.micro_f1


def test_the_sentence_has_both_figures(svm: LongTailClassifier) -> None:
    half = svm.facts_.half
    assert half is not None
    sentence = svm.facts_.sentences()[-1]
    pairs = (f"{100 * f1.micro_f1:.2f} / {100 * f1.macro_f1:.2f}" for f1 in (half.half, half.all))
    figures = (
        f"{half.n_half} training documents give {next(pairs)}, {half.n_all} give {next(pairs)}."
    )
    assert sentence.endswith(figures) and figures in model_card(svm)


def test_labels_that_are_never_predicted() -> None:
    names = ("seen", "unknown", "useless", "rare", "frequent")
    counts = np.array([50.0, 0.0, 5.0, 3.0, 40.0])
    scores = np.full((6, 5), 1.0, dtype=np.float32)
    held_out = TextData([str(k) for k in range(6)], sp.csr_matrix(scores > 0), names)
    thresholds = Thresholds(np.array([0.0, np.inf, np.inf, 2.0, 2.0]), "per-label", "mean")
    unused: Any = None
    fitted = Fitted(unused, scores, held_out, None, ())
    known = np.array([True, False, True, True, True])
    stats = LabelStats.from_counts(counts, n_samples=100)
    unknown, useless, unreached = held_out_module._never_predicted(fitted, thresholds, known, stats)
    assert (unknown.n_labels, unknown.examples) == (1, ("unknown",))
    assert (useless.n_labels, useless.examples) == (1, ("useless",))
    assert (unreached.n_labels, unreached.examples) == (2, ("frequent", "rare"))
    assert unreached.why.endswith("; 1 of them has fewer than 10 training documents")


def test_reprs_are_short(svm: LongTailClassifier) -> None:
    held_out = svm.held_out_
    assert held_out is not None
    for value in (svm.facts_, svm.thresholds_, svm.label_stats_, held_out.labels):
        text = repr(value)
        assert text.startswith(type(value).__name__) and len(text) < 400 and "array" not in text


def test_a_label_without_documents_is_named(svm: LongTailClassifier) -> None:
    data = TextData.concat([NEWS, TextData.from_lists(["x"], [[]], ["tin"])])
    facts = LongTailClassifier("svm", training=CPU, folds=2).fit(data).facts_
    first = facts.sentences()[0]
    assert first == "1 label (tin) was never predicted for lack of training documents."
