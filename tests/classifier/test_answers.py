"""The forms of an answer agree: scores, probabilities, decisions, names, the best k, judgement."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail import LongTailClassifier
from longtail.corpora import load_corpus
from longtail.data import TextData
from longtail.errors import InputError

from .cases import LABELS, NAMES, TEXTS

DATA = TextData.from_lists(TEXTS, LABELS)


def test_it_learns(encoder: LongTailClassifier, cross_fitted: LongTailClassifier) -> None:
    for classifier in (encoder, cross_fitted):
        asked = ["copper and nickel rose", "wheat fell", "copper rose"]
        assert classifier.predict_labels(asked) == [["copper", "nickel"], ["wheat"], ["copper"]]
        assert classifier.score(TEXTS, LABELS) == 1.0
        assert classifier.classes_.tolist() == NAMES


@settings(max_examples=50)
@given(
    texts=st.lists(
        st.lists(st.sampled_from([*"ab", *" ".join(TEXTS[:4]).split()]), max_size=6).map(" ".join),
        max_size=6,
    ),
    k=st.integers(1, 5),
)
def test_all_forms_agree(cross_fitted: LongTailClassifier, texts: list[str], k: int) -> None:
    logits = cross_fitted.decision_function(texts)
    assert logits.shape == (len(texts), 3) and logits.dtype == np.float32
    assert np.isfinite(logits).all()
    expected = 1 / (1 + np.exp(-logits.astype(np.float64)))
    assert np.allclose(cross_fitted.predict_proba(texts), expected, atol=1e-6)
    decided = cross_fitted.predict(texts)
    assert isinstance(decided, sp.csr_matrix) and decided.shape == logits.shape
    assert np.array_equal(decided.toarray(), logits >= cross_fitted.thresholds_.values)
    names = [[NAMES[n] for n in np.flatnonzero(row)] for row in decided.toarray()]
    assert cross_fitted.predict_labels(texts) == names
    for row, best in enumerate(cross_fitted.top_k(texts, k)):
        order = np.argsort(-logits[row], kind="stable")[:k]
        assert [name for name, _ in best] == [NAMES[n] for n in order]
        assert [value for _, value in best] == logits[row, order].tolist()


def test_the_mean_is_over_the_models(cross_fitted: LongTailClassifier) -> None:
    from longtail.fitting.ensemble import model_scores

    each = [model_scores(model, TEXTS) for model in cross_fitted.ensemble_.models]
    assert len(each) == 2 and not np.array_equal(each[0], each[1])
    assert np.allclose(cross_fitted.decision_function(TEXTS), np.mean(each, axis=0), atol=1e-6)


def test_the_order_and_the_company_of_texts_make_no_difference(
    encoder: LongTailClassifier,
) -> None:
    scores = encoder.decision_function(TEXTS)
    turned = encoder.decision_function(TEXTS[::-1])
    assert np.allclose(turned[::-1], scores, atol=1e-6)
    alone = np.concatenate([encoder.decision_function([text]) for text in TEXTS[:4]])
    assert np.allclose(alone, scores[:4], atol=1e-6)


def test_nothing_asked_nothing_answered(encoder: LongTailClassifier) -> None:
    assert encoder.predict_labels([]) == [] and encoder.top_k([]) == []
    for answer in (encoder.predict, encoder.predict_proba, encoder.decision_function):
        assert answer([]).shape == (0, 3)


@pytest.mark.parametrize("k", [0, -1, True, 1.5, "2", None])
def test_a_k_that_is_none(k: Any, encoder: LongTailClassifier) -> None:
    with pytest.raises(InputError, match="k must be a whole number of at least 1"):
        encoder.top_k(TEXTS, k)


def test_of_equal_scores_the_first_label_comes_first(encoder: LongTailClassifier) -> None:
    import copy

    level = copy.copy(encoder)
    level.ensemble_ = copy.copy(encoder.ensemble_)

    def blocks(texts: list[str]) -> Any:
        yield slice(0, 1), np.zeros((1, 3), dtype=np.float32)

    object.__setattr__(level.ensemble_, "blocks", blocks)
    assert [name for name, _ in level.top_k(["a"], 2)[0]] == ["copper", "nickel"]


def test_judging_agrees_with_predicting(encoder: LongTailClassifier) -> None:
    found, scores = encoder.judge(DATA)
    assert np.array_equal(scores, encoder.decision_function(TEXTS))
    assert found.y_pred is not None
    assert np.array_equal(found.y_pred.toarray(), encoder.predict(TEXTS).toarray())
    assert found.overall.micro_f1 == pytest.approx(encoder.score(TEXTS, LABELS))
    assert found.overall.micro_f1 == pytest.approx(encoder.score(DATA))
    again = encoder.evaluate(DATA)
    assert again.to_dict() == found.to_dict()
    # Head, medium and tail are by the training documents, whatever is judged.
    assert found.labels.train_count.tolist() == encoder.label_stats_.label_counts.tolist()


def test_unknown_labels_are_told_and_not_judged(encoder: LongTailClassifier) -> None:
    data = TextData.from_lists(["wheat fell", "copper rose"], [["wheat", "tin"], ["tin", "zinc"]])
    found = encoder.evaluate(data)
    assert found.unknown_labels == {"tin": 2, "zinc": 1}
    assert found.overall.n_labels == 3 and found.overall.n_positive == 1


def test_a_limit_on_the_labels(encoder_arguments: dict[str, Any]) -> None:
    arguments = encoder_arguments | {"epochs": 1}
    one = LongTailClassifier(**arguments, max_labels=1, at_least_one=True).fit(TEXTS, LABELS)
    assert {len(own) for own in one.predict_labels(TEXTS)} == {1}
    best = [labels[0][0] for labels in one.top_k(TEXTS, 1)]
    shared = one.thresholds_.value is not None
    assert not shared or [own[0] for own in one.predict_labels(TEXTS)] == best


def test_the_svm_has_no_probabilities() -> None:
    svm = LongTailClassifier(model="svm", folds=2).fit(TEXTS, LABELS)
    with pytest.raises(
        InputError, match=r"model 'svm' has no probabilities. Use decision_function"
    ):
        svm.predict_proba(TEXTS)
    assert svm.thresholds_.scale == "margin"
    assert svm.score(TEXTS, LABELS) > 0.9


def test_labels_without_a_training_document_are_never_ranked(
    encoder_arguments: dict[str, Any],
) -> None:
    data = TextData.from_lists(TEXTS, LABELS, ["copper", "nickel", "tin", "wheat"])
    classifier = LongTailClassifier(**encoder_arguments | {"epochs": 1}).fit(data)
    assert classifier.decision_function(TEXTS).shape == (24, 4)
    assert {name for best in classifier.top_k(TEXTS, 4) for name, _ in best} == set(NAMES)
    assert classifier.thresholds_.values[2] == np.inf
    found, scores = classifier.judge(TextData.from_lists(TEXTS, [["tin"]] * 24, data.label_names))
    assert np.ma.getmaskarray(scores)[:, 2].all() and not np.ma.getmaskarray(scores)[:, 0].any()
    # Not even where it is the only label that applies.
    assert found.metrics["recall@3"] == 0


def test_db_keeps_the_tail_that_bce_loses() -> None:
    parts = load_corpus("newswire")
    tail = {}
    for loss in ("bce", "db"):
        classifier = LongTailClassifier(loss=loss, thresholds="global", folds=1, device="cpu")
        classifier.fit(parts["train"], validation=parts["validation"])
        tail[loss] = classifier.evaluate(parts["test"]).tail.macro_f1
    assert tail["db"] > tail["bce"]


def test_the_example_of_the_documentation() -> None:
    import doctest

    import longtail.classifier.estimator as module

    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    (example,) = finder.find(module.LongTailClassifier, "LongTailClassifier")
    assert example.examples and not runner.run(example).failed
