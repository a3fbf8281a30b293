"""Metrics, the global threshold, evaluation and tables."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import f1_score

from longtail.errors import InputError
from longtail.evaluation import evaluate
from longtail.labels import LabelStats
from longtail.metrics import count, label_f1, macro_f1, micro_f1
from longtail.report import table_rows, to_markdown
from longtail.thresholds import Thresholds, fit_thresholds

SHAPES = st.tuples(st.integers(1, 8), st.integers(1, 6))


def fit(scores: np.ndarray, truth: sp.csr_matrix) -> Thresholds:
    counts = np.ones(truth.shape[1])
    return fit_thresholds(scores, truth, counts, "global", objective="micro")


def all_at(value: float, scores: np.ndarray) -> Thresholds:
    return Thresholds(np.full(scores.shape[1], value))


@st.composite
def labels_and_scores(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    shape = draw(SHAPES)
    labels = draw(hnp.arrays(np.int64, shape, elements=st.integers(0, 1)))
    # Few distinct values, so that ties are common.
    scores = draw(hnp.arrays(np.float64, shape, elements=st.integers(-3, 3).map(float)))
    return labels, scores


@given(labels_and_scores())
def test_f1_equals_scikit_learn(case: tuple[np.ndarray, np.ndarray]) -> None:
    labels, scores = case
    given_labels = (scores > 0).astype(int)
    counts = count(sp.csr_matrix(labels), sp.csr_matrix(given_labels))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for average, value in (("micro", micro_f1(counts)), ("macro", macro_f1(counts))):
            expected = f1_score(labels, given_labels, average=average, zero_division=0)
            # One label makes scikit-learn see a binary problem; the numbers are the same.
            if labels.shape[1] > 1:
                assert value == pytest.approx(expected, abs=1e-12)
        each = f1_score(labels, given_labels, average=None, zero_division=0)
    if labels.shape[1] > 1:
        assert label_f1(counts) == pytest.approx(each, abs=1e-12)


@given(labels_and_scores())
@settings(max_examples=200)
def test_no_cut_beats_the_fitted_threshold(case: tuple[np.ndarray, np.ndarray]) -> None:
    labels, scores = case
    truth = sp.csr_matrix(labels)
    threshold = fit(scores, truth)
    reached = micro_f1(count(truth, threshold.apply(scores)))
    cuts = np.unique(scores)
    best = max(micro_f1(count(truth, all_at(cut, scores).apply(scores))) for cut in [*cuts, 99.0])
    assert reached == pytest.approx(best)


def test_without_positives_nothing_is_predicted() -> None:
    scores = np.array([[3.0, 1.0]])
    threshold = fit(scores, sp.csr_matrix((1, 2)))
    assert threshold.apply(scores).nnz == 0


def test_neighbouring_float32_scores_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        low = np.float32(rng.normal())
        scores = np.array([[low, np.nextafter(low, np.float32(np.inf))]], dtype=np.float32)
        threshold = fit(scores, sp.csr_matrix([[0.0, 1.0]]))
        assert threshold.apply(scores).toarray().tolist() == [[0, 1]]


def test_unusable_scores_are_refused() -> None:
    with pytest.raises(InputError, match="NaN"):
        fit(np.array([[np.nan]]), sp.csr_matrix([[1.0]]))
    with pytest.raises(InputError, match=r"\(1, 1\).*\(1, 2\)"):
        fit(np.zeros((1, 2)), sp.csr_matrix([[1.0]]))
    with pytest.raises(InputError, match="documents x labels"):
        count(sp.csr_matrix((1, 2)), sp.csr_matrix((2, 2)))


def example() -> tuple[sp.csr_matrix, np.ndarray, LabelStats]:
    truth = sp.csr_matrix(np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [1, 0, 0]]))
    scores = np.array([[2.0, -1, -1], [1, -1, -1], [1, -2, 3], [2, -3, -3]])
    return truth, scores, LabelStats.from_counts([90, 20, 2], 100)


def test_evaluation_by_hand() -> None:
    truth, scores, stats = example()
    result = evaluate(truth, scores, all_at(0.0, scores), stats)
    assert result.overall.micro_f1 == pytest.approx(2 * 4 / (5 + 5))
    assert result.head.macro_f1 == pytest.approx(6 / 7)
    assert (result.medium.micro_f1, result.tail.micro_f1) == (0.0, 1.0)
    assert (result.single_label.n_documents, result.multi_label.n_documents) == (3, 1)
    assert result.multi_label.micro_f1 == pytest.approx(2 / 3)
    assert json.loads(json.dumps(result.to_dict()))["tail"]["macro_f1"] == 1.0


def test_tables() -> None:
    truth, scores, stats = example()
    found = {"a|b": evaluate(truth, scores, all_at(0.0, scores), stats)}
    assert table_rows(found)[0] == ["", "all (3)", "head (1)", "medium (1)", "tail (1)"]
    lines = to_markdown(found).splitlines()
    assert lines[2].startswith("| a\\|b | 80.00 / 61.90 | 85.71 / 85.71 |")
    assert len({line.count(" | ") for line in (lines[0], lines[2])}) == 1
