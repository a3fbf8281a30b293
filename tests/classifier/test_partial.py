"""Unknown labels and weights of documents, from `fit` to figures, for every kind of model."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import cross_val_score

from longtail import Bag, LongTailClassifier, Svm, Training
from longtail.analysis import Run
from longtail.classifier.weights import blend_weights
from longtail.data import TextData
from longtail.errors import InputError
from longtail.evaluation import evaluate
from longtail.labels import LabelStats
from longtail.report import render
from longtail.thresholds import fit_thresholds, list_methods

from .cases import DATA, LABELS, NAMES, TEXTS

MATRIX = DATA.Y.toarray().astype(float)
CPU_NETWORK = Training(device="cpu", epochs=15, batch_size=4)
KINDS: dict[str, Any] = {
    "auto": {},
    "hinge": {"model": Bag(min_df=1), "loss": "squared-hinge"},
    "db": {"model": Bag(min_df=1, C=10.0), "loss": "db"},
    "zlpr": {"model": Bag(min_df=1, C=10.0), "loss": "zlpr"},
    "hidden": {"model": Bag(min_df=1, hidden=8), "loss": "db", "training": CPU_NETWORK},
    "svm": {"model": Svm()},
    "blend": {"model": [Bag(min_df=1), Svm()]},
}


def scores_of(kind: str, *arguments: Any, **named: Any) -> np.ndarray:
    return LongTailClassifier(**KINDS[kind]).fit(*arguments, **named).decision_function(TEXTS)


def hidden(seed: int, truth: np.ndarray = MATRIX, share: float = 0.3) -> np.ndarray:
    """The labels with NaN at random places."""
    random = np.random.default_rng(seed).random(truth.shape)
    return np.where(random < share, np.nan, truth)


@pytest.mark.parametrize("kind", KINDS)
def test_documents_without_known_labels_or_weight_are_left_out(kind: str) -> None:
    expected = scores_of(kind, TEXTS, MATRIX)
    extra = [*TEXTS, "tin rose", "zinc fell"]
    more = np.vstack([MATRIX, np.full((2, 3), np.nan)])
    with pytest.warns(UserWarning, match="2 of 26 documents were left out: none of their labels"):
        np.testing.assert_array_equal(scores_of(kind, extra, more), expected)
    weights = np.ones(26)
    weights[24:] = 0
    plain = np.vstack([MATRIX, MATRIX[:2]])
    np.testing.assert_array_equal(scores_of(kind, extra, plain, weights), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_learns_from_partial_labels(kind: str) -> None:
    """Labels that are unknown are not taken as absent."""
    truth = MATRIX.copy()
    rows = np.flatnonzero(truth[:, 1])[:4]
    truth[rows, 1] = np.nan
    classifier = LongTailClassifier(**KINDS[kind]).fit(TEXTS, truth, label_names=NAMES)
    as_absent = LongTailClassifier(**KINDS[kind]).fit(TEXTS, np.nan_to_num(truth))
    nickel = [text for text in TEXTS if "nickel" in text][:1]
    gain = classifier.decision_function(nickel) - as_absent.decision_function(nickel)
    assert gain[0, 1] > 0.05
    # A label that was unknown of some documents and one that is known of all are evaluated alike.
    assert classifier.held_out_ is not None
    assert classifier.held_out_.labels.actual.tolist() == np.nansum(truth, axis=0).tolist()


def test_weights_have_an_effect() -> None:
    """Of two contradictory documents the heavier one decides."""
    texts, labels = [*TEXTS, "tin", "tin"], [*LABELS, ["wheat"], ["copper"]]
    for kind in KINDS:
        signs = []
        for pair in ([20.0, 0.5], [0.5, 20.0]):
            weights = np.append(np.ones(24), pair)
            classifier = LongTailClassifier(**KINDS[kind]).fit(texts, labels, weights)
            copper, _, wheat = classifier.decision_function(["tin"])[0]
            signs.append(wheat - copper)
        assert signs[0] > signs[1], kind


@pytest.mark.parametrize("folds", [1, 2])
def test_networks_and_their_early_stopping(folds: int, make: Any) -> None:
    truth = hidden(1)
    truth[truth.any(axis=1) & np.isnan(truth).all(axis=1)] = 0
    patience = 2 if folds == 1 else 0
    classifier = make(epochs=3, folds=folds, early_stopping_patience=patience)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of documents of which nothing is known
        classifier.fit(TEXTS, truth, sample_weight=np.linspace(0.5, 2, 24))
    assert np.isfinite(classifier.decision_function(TEXTS)).all()


def test_all_representations_of_unknown_labels_are_equivalent() -> None:
    truth = np.vstack([hidden(0)[:-1], [[0, 0, 1]]])
    signed = np.where(np.isnan(truth), -1, truth)
    frame = pd.DataFrame(truth, columns=NAMES)
    forms = [signed, sp.csr_matrix(truth), sp.coo_array(signed), frame, frame.astype("Int64")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = scores_of("db", TEXTS, truth)
        for labels in forms:
            np.testing.assert_array_equal(scores_of("db", TEXTS, labels), expected)
    rows = [0, 5, 9]
    lists = [None if k in rows else names for k, names in enumerate(LABELS)]
    series = pd.Series([float("nan") if names is None else names for names in lists])
    matrix = MATRIX.copy()
    matrix[rows] = np.nan
    kept = [k for k in range(24) if k not in rows]
    expected = scores_of("db", [TEXTS[k] for k in kept], MATRIX[kept])
    for labels in (matrix, lists, series):
        with pytest.warns(UserWarning, match="3 of 24 documents were left out"):
            scores = scores_of("db", TEXTS, labels)
        np.testing.assert_array_equal(scores, expected)


@pytest.mark.filterwarnings("ignore:the model was trained on")
def test_only_known_pairs_are_evaluated() -> None:
    classifier = LongTailClassifier(**KINDS["db"]).fit(TEXTS, LABELS)
    truth = hidden(4, 1 - MATRIX)
    evaluation = classifier.evaluate(TEXTS, truth)
    decided, known = classifier.predict(TEXTS).toarray(), ~np.isnan(truth)
    hits = (decided[known] * truth[known]).sum()
    micro = 2 * hits / (decided[known].sum() + truth[known].sum())
    assert evaluation.overall.micro_f1 == pytest.approx(micro)
    assert classifier.score(TEXTS, truth) == pytest.approx(micro)
    assert evaluation.calibration is not None
    assert sum(evaluation.calibration.n_pairs) == known.sum()
    assert not evaluation.y_pred.toarray()[~known].any()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert classifier.evaluate(classifier_data(truth)).metrics == evaluation.metrics


def classifier_data(truth: np.ndarray) -> TextData:
    known = sp.csr_matrix(np.nan_to_num(truth))
    return TextData(TEXTS, known, tuple(NAMES), unknown=sp.csr_matrix(np.isnan(truth)))


@pytest.mark.parametrize("limits", [{}, {"min_labels": 1, "max_labels": 1}])
def test_reports_of_partial_labels(limits: dict[str, Any]) -> None:
    """Limits on the number of labels hold for all labels of a document, known or not."""
    classifier = LongTailClassifier(**KINDS["db"], **limits).fit(TEXTS, LABELS)
    data = classifier_data(hidden(2, share=0.5))
    evaluation, scores = classifier.evaluate_scores(data)
    decided = classifier.predict(TEXTS).toarray() * ~np.isnan(data.truth.toarray())
    np.testing.assert_array_equal(evaluation.y_pred.toarray(), decided)
    assert render({"run": Run(evaluation, data, scores)}, "html")


def test_names_of_columns() -> None:
    classifier = LongTailClassifier(**KINDS["db"]).fit(TEXTS, MATRIX, label_names=NAMES[::-1])
    assert classifier.classes_.tolist() == NAMES[::-1]
    # A matrix has the columns of the fit; lists and frames name theirs.
    frame = pd.DataFrame(MATRIX, columns=NAMES[::-1])
    assert classifier.score(TEXTS, MATRIX) == classifier.score(TEXTS, frame)
    named = LongTailClassifier(**KINDS["db"]).fit(TEXTS, LABELS, label_names=[*NAMES, "tin"])
    assert named.classes_.tolist() == [*NAMES, "tin"]
    for labels, names, message in (
        (MATRIX, ["a"], r"expected a label matrix of shape \(24, 1\)"),
        (LABELS, ["copper", "wheat"], "label 'nickel' is not one of the 2 known labels"),
        (frame, NAMES, "Leave label_names out"),
        (MATRIX, ["a", "a", "b"], "'a' is given twice"),
    ):
        with pytest.raises(InputError, match=message):
            LongTailClassifier(**KINDS["db"]).fit(TEXTS, labels, label_names=names)
    with pytest.raises(InputError, match="Leave label_names out"):
        LongTailClassifier().fit(DATA, label_names=NAMES)


def test_weights_that_are_refused() -> None:
    for weights, message in (
        (np.ones(23), "expected 24 weights, one per document"),
        (-np.ones(24), "finite and not negative"),
        (np.zeros(24), "expected at least two documents"),
    ):
        with pytest.raises(InputError, match=message):
            LongTailClassifier().fit(TEXTS, LABELS, weights)
    weighted = TextData(TEXTS, DATA.Y, DATA.label_names, weights=np.ones(24))
    with pytest.raises(InputError, match="sample_weight and a TextData with weights"):
        LongTailClassifier().fit(weighted, sample_weight=np.ones(24))


def test_scikit_learn_routes_weights() -> None:
    weights = np.where(np.arange(24) % 2, 2.0, 1.0)
    estimator = LongTailClassifier(**KINDS["db"], folds=2)
    plain = cross_val_score(estimator, TEXTS, MATRIX, cv=2, params={"sample_weight": weights})
    with sklearn.config_context(enable_metadata_routing=True):
        estimator.set_fit_request(sample_weight=True)
        routed = cross_val_score(estimator, TEXTS, MATRIX, cv=2, params={"sample_weight": weights})
    np.testing.assert_array_equal(plain, routed)


@given(st.integers(0, 1000), st.sampled_from(list_methods()))
def test_thresholds_ignore_unknown_pairs_as_masked_ones(seed: int, method: str) -> None:
    rng = np.random.default_rng(seed)
    truth = (rng.random((40, 5)) < 0.3).astype(float)
    unknown = rng.random(truth.shape) < 0.3
    scores = truth + rng.standard_normal(truth.shape)
    counts = truth.sum(axis=0)
    marked = fit_thresholds(scores, np.where(unknown, np.nan, truth), counts, method)
    masked = fit_thresholds(np.ma.array(scores, mask=unknown), truth, counts, method)
    np.testing.assert_array_equal(marked.values, masked.values)
    sparse = sp.csr_matrix(scores)
    again = fit_thresholds(sparse, sp.csr_matrix(np.where(unknown, np.nan, truth)), counts, method)
    np.testing.assert_array_equal(marked.values, again.values)


def test_weights_of_a_blend_ignore_unknown_pairs() -> None:
    rng = np.random.default_rng(0)
    truth = (rng.random((60, 4)) < 0.3).astype(float)
    unknown = rng.random(truth.shape) < 0.4
    good, bad = truth + rng.standard_normal((2, *truth.shape)) * [[[0.5]], [[2.0]]]
    marked = blend_weights([good, bad], sp.csr_matrix(np.where(unknown, np.nan, truth)))
    masks = [np.ma.array(scores, mask=unknown) for scores in (good, bad)]
    masked = blend_weights(masks, sp.csr_matrix(truth * ~unknown))
    assert marked[0] == pytest.approx(masked[0]) and marked[1] == pytest.approx(masked[1])


def test_a_short_repr_of_an_evaluation() -> None:
    truth = np.array([[1, 0, np.nan], [0, 1, 1], [1, 0, 0.0]])
    stats = LabelStats.from_counts([9, 5, 1], 10)
    thresholds = fit_thresholds(np.nan_to_num(truth) - 0.5, truth, [9, 5, 1], "global")
    evaluation = evaluate(truth, np.nan_to_num(truth) - 0.5, thresholds, stats)
    assert repr(evaluation) == (
        "Evaluation(3 documents, 3 labels; micro / macro F1: all 100.00 / 100.00, "
        "head 100.00 / 100.00, medium 100.00 / 100.00, tail 100.00 / 100.00)"
    )


def test_progress_of_a_fit(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    moments: list[Any] = []
    LongTailClassifier("svm", training=None).fit(TEXTS, LABELS, progress=None)
    LongTailClassifier("bag").fit(TEXTS, LABELS, progress=moments.append)
    LongTailClassifier("bag").fit(TEXTS, LABELS)
    assert moments and capsys.readouterr().err == ""
    # Rich takes this for a terminal.
    monkeypatch.setenv("FORCE_COLOR", "1")
    LongTailClassifier("bag").fit(TEXTS, LABELS)
    assert "labels" in capsys.readouterr().err
    with pytest.raises(InputError, match="progress must be a function, 'auto' or None, got 'bar'"):
        LongTailClassifier("bag").fit(TEXTS, LABELS, progress="bar")  # type: ignore[arg-type]
