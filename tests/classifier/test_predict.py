"""Scores, probabilities, decisions, label names, the top k and evaluations agree."""

from __future__ import annotations

import doctest
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import expit

import longtail.classifier.estimator as module
from longtail import LongTailClassifier
from longtail.classifier.ensemble import Ensemble
from longtail.classifier.saving import model_card
from longtail.data import TextData
from longtail.errors import InputError, MissingExtraError, NotFittedError

from .cases import DATA, LABELS, NAMES, TEXTS, reload
from .conftest import Make


def test_it_learns(encoder: LongTailClassifier, cross_fitted: LongTailClassifier) -> None:
    for classifier in (encoder, cross_fitted):
        texts = ["copper and nickel rose", "wheat fell", "copper rose"]
        assert classifier.predict_labels(texts) == [["copper", "nickel"], ["wheat"], ["copper"]]
        assert classifier.score(TEXTS, LABELS) == 1.0
        assert classifier.classes_.tolist() == NAMES


@settings(max_examples=50)
@example(texts=[], k=1)
@given(
    texts=st.lists(
        st.lists(st.sampled_from([*"ab", *" ".join(TEXTS[:4]).split()]), max_size=6).map(" ".join),
        max_size=6,
    ),
    k=st.integers(1, 5),
)
def test_all_methods_agree(cross_fitted: LongTailClassifier, texts: list[str], k: int) -> None:
    logits = cross_fitted.decision_function(texts)
    assert logits.shape == (len(texts), 3) and logits.dtype == np.float32
    assert np.isfinite(logits).all()
    expected = 1 / (1 + np.exp(-logits.astype(np.float64)))
    assert np.allclose(cross_fitted.predict_proba(texts), expected, atol=1e-6)
    decisions = cross_fitted.predict(texts)
    assert isinstance(decisions, sp.csr_matrix) and decisions.shape == logits.shape
    assert np.array_equal(decisions.toarray(), logits >= cross_fitted.thresholds_.values)
    names = [[NAMES[n] for n in np.flatnonzero(row)] for row in decisions.toarray()]
    assert cross_fitted.predict_labels(texts) == names
    frame = cross_fitted.predict_frame(texts)
    for row, labels in enumerate(names):
        assert sorted(frame.label[frame.document == row]) == labels
    assert len(frame) == decisions.nnz and frame.predicted.all()
    assert (frame.probability >= frame.threshold).all()
    for row, best in enumerate(cross_fitted.top_k(texts, k)):
        shown = cross_fitted.predict_frame(texts, top_k=k)
        assert shown.label[shown.document == row].tolist()[:k] == [name for name, _ in best]
        order = np.argsort(-logits[row], kind="stable")[:k]
        assert [name for name, _ in best] == [NAMES[n] for n in order]
        assert [value for _, value in best] == logits[row, order].tolist()


@pytest.mark.parametrize("k", [0, -1, True, 1.5, "2", None])
def test_invalid_k(k: Any, encoder: LongTailClassifier) -> None:
    with pytest.raises(InputError, match="k must be a whole number of at least 1"):
        encoder.top_k(TEXTS, k)


@pytest.mark.filterwarnings("ignore:the model was trained on")
def test_evaluation_agrees_with_predictions(encoder: LongTailClassifier) -> None:
    evaluation, scores = encoder.evaluate_scores(DATA)
    assert np.array_equal(scores, encoder.decision_function(TEXTS))
    assert evaluation.y_pred is not None
    assert np.array_equal(evaluation.y_pred.toarray(), encoder.predict(TEXTS).toarray())
    assert evaluation.overall.micro_f1 == pytest.approx(encoder.score(TEXTS, LABELS))
    assert evaluation.overall.micro_f1 == pytest.approx(encoder.score(DATA))
    for arguments in ((DATA,), (TEXTS, LABELS), (TEXTS, DATA.Y)):
        assert encoder.evaluate(*arguments).to_dict() == evaluation.to_dict()
    with pytest.raises(InputError, match="labels are missing"):
        encoder.evaluate(TEXTS)
    # Head, medium and tail are those of the training documents.
    assert evaluation.labels.train_count.tolist() == encoder.label_stats_.label_counts.tolist()


@pytest.mark.filterwarnings("ignore:the model was trained on")
def test_unknown_labels_are_counted_and_not_evaluated(encoder: LongTailClassifier) -> None:
    data = TextData.from_lists(["wheat fell", "copper rose"], [["wheat", "tin"], ["tin", "zinc"]])
    with pytest.warns(UserWarning, match="3 assignments of 2 labels .*: 'tin', 'zinc'"):
        evaluation = encoder.evaluate(data)
    assert ", 3 labels (and 2 unknown); " in repr(evaluation)
    assert evaluation.unknown_labels == {"tin": 2, "zinc": 1}
    assert evaluation.overall.n_labels == 3 and evaluation.overall.n_positive == 1


def test_limits_on_the_number_of_labels(make: Make) -> None:
    classifier = make(epochs=1, thresholds="global", min_labels=1, max_labels=1)
    names = classifier.fit(TEXTS, LABELS).predict_labels(TEXTS)
    assert names == [[best[0][0]] for best in classifier.top_k(TEXTS, 1)]


def test_a_frame_of_predictions(encoder: LongTailClassifier) -> None:
    texts = ["wheat fell", "copper and nickel rose"]
    frame = encoder.predict_frame(texts)
    assert list(frame) == ["document", "label", "probability", "threshold", "predicted"]
    proba, columns = encoder.predict_proba(texts), {name: k for k, name in enumerate(NAMES)}
    for row in frame.itertuples():
        column = columns[row.label]
        assert row.probability == pytest.approx(proba[row.document, column], abs=1e-6)
        assert row.threshold == pytest.approx(expit(encoder.thresholds_.values[column]))
    every = encoder.predict_frame(texts, top_k=9, threshold=1.0, min_labels=1)
    assert every.document.tolist() == [0, 0, 0, 1, 1, 1] and (every.threshold > 0.99).all()
    assert every.predicted.tolist() == [True, False, False] * 2
    assert every.probability[:3].is_monotonic_decreasing
    limited = encoder.predict_frame(texts, threshold=1e-6, max_labels=2)
    assert limited.document.tolist() == [0, 0, 1, 1]
    nothing = encoder.predict_frame([])
    assert len(nothing) == 0 and list(nothing) == list(frame)
    assert nothing.dtypes.tolist() == frame.dtypes.tolist()


def test_frames_that_cannot_be_computed(
    encoder: LongTailClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    for k in (0, 1.5, "2"):
        with pytest.raises(InputError, match="top_k must be a whole number"):
            encoder.predict_frame(TEXTS, top_k=k)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="threshold must be a number above 0"):
        encoder.predict_frame(TEXTS, threshold=2.0)
    with pytest.raises(NotFittedError):
        LongTailClassifier().predict_frame(TEXTS)
    monkeypatch.setitem(sys.modules, "pandas", None)
    # Before anything is computed, which may take hours.
    monkeypatch.setattr(Ensemble, "blocks", lambda *args: 1 / 0)
    with pytest.raises(MissingExtraError, match=r"pip install 'longtail\[pandas\]'"):
        encoder.predict_frame(TEXTS)


def test_limits_change_after_the_fit(make: Make, tmp_path: Path) -> None:
    classifier = make(epochs=1, thresholds="global").fit(TEXTS, LABELS)
    held_out = classifier.held_out_
    classifier.set_params(min_labels=2, max_labels=2)
    assert {len(labels) for labels in classifier.predict_labels(TEXTS)} == {2}
    assert classifier.held_out_ is not held_out and (
        "before max_labels and min_labels were changed" in model_card(classifier)
    )
    loaded = reload(classifier, tmp_path / "run")
    assert loaded.set_params(max_labels=None).thresholds_.max_labels is None
    with pytest.raises(InputError, match="min_labels is 2, more than max_labels, which is 1"):
        classifier.set_params(max_labels=1)
    assert classifier.max_labels == classifier.thresholds_.max_labels == 2
    assert "were changed" not in model_card(classifier.fit(TEXTS, LABELS))


def test_margins_become_logits_unless_the_method_is_grid() -> None:
    svm = LongTailClassifier("svm", folds=2).fit(TEXTS, LABELS)
    assert np.isin(svm.predict_proba(TEXTS) > 0.5, [True, False]).all()
    svm = LongTailClassifier("svm", folds=2, thresholds="grid").fit(TEXTS, LABELS)
    with pytest.raises(InputError, match=r"'svm' are margins, not probabilities. Use"):
        svm.predict_proba(TEXTS)
    assert svm.thresholds_.scale == "margin"
    frame = svm.predict_frame(TEXTS)
    assert "score" in frame and (frame.score >= frame.threshold).all()
    assert svm.score(TEXTS, LABELS) > 0.9


def test_labels_without_a_training_document_are_never_ranked(make: Make) -> None:
    data = TextData.from_lists(TEXTS, LABELS, ["copper", "nickel", "tin", "wheat"])
    classifier = make(epochs=1).fit(data)
    assert classifier.decision_function(TEXTS).shape == (24, 4)
    assert {name for best in classifier.top_k(TEXTS, 4) for name, _ in best} == set(NAMES)
    assert classifier.thresholds_.values[2] == np.inf
    only_tin = TextData.from_lists(TEXTS, [["tin"]] * 24, data.label_names)
    evaluation, scores = classifier.evaluate_scores(only_tin)
    assert np.ma.getmaskarray(scores)[:, 2].all() and not np.ma.getmaskarray(scores)[:, 0].any()
    assert evaluation.metrics["recall@3"] == 0


def test_labels_that_some_folds_have_not_seen_are_ranked() -> None:
    labels = [[*LABELS[0], "once"], *LABELS[1:]]
    classifier = LongTailClassifier("svm", folds=2).fit(TEXTS, labels)
    assert classifier.ensemble_.known.all(axis=0).tolist() == [True, True, False, True]
    assert "once" in dict(classifier.top_k(TEXTS[:1], 4)[0])
    scores = classifier.evaluate_scores(TextData.from_lists(TEXTS, labels))[1]
    assert not np.ma.getmaskarray(scores).any()


def test_the_example_of_the_documentation() -> None:
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    (example,) = finder.find(module.LongTailClassifier, "LongTailClassifier")
    assert example.examples and not runner.run(example).failed
