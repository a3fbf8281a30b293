"""Average precision: scikit-learn's on dense scores, the definition in Python on sparse ones."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from longtail.errors import InputError, UnknownNameError
from longtail.metrics import average_precision, label_average_precision

from .cases import (
    BLOCK_SIZES,
    Case,
    backwards,
    block_size,
    forms,
    property_test,
    scored,
    stored,
)

# scikit-learn refuses infinite scores.
FINITE = st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0])


def scikit_learn(labels: np.ndarray, scores: np.ndarray, average: str | None) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no positives
        return average_precision_score(labels, scores, average=average)


def by_hand(labels: np.ndarray, scores: np.ndarray, where: np.ndarray) -> float:
    """Sum over thresholds of (gain in recall) x precision; what is not scored is never reached."""
    total, reached, found = int(labels.sum()), 0.0, 0.0
    for threshold in sorted(set(scores[where].tolist()), reverse=True):
        retrieved = where & (scores >= threshold)
        hits = int(labels[retrieved].sum())
        if total:
            found += (hits / total - reached) * hits / int(retrieved.sum())
            reached = hits / total
    return found


@given(scored(min_labels=2, values=FINITE), BLOCK_SIZES)
@property_test
def test_dense_equals_scikit_learn(case: Case, size: int) -> None:
    labels, scores, _ = case
    with block_size(size):
        for given_scores in (scores, np.asfortranarray(scores), stored(scores)):
            for average in ("micro", "macro"):
                ours = average_precision(labels, given_scores, average)
                expected = scikit_learn(labels, scores, average)
                assert ours == pytest.approx(expected, abs=1e-12), average
            each = label_average_precision(labels, given_scores)
            assert each == pytest.approx(scikit_learn(labels, scores, None), abs=1e-12)


@given(scored(min_labels=2, values=st.floats(-5, 5, width=32)))
@property_test
def test_untied_scores_equal_scikit_learn(case: Case) -> None:
    labels, scores, _ = case
    for average in ("micro", "macro"):
        expected = scikit_learn(labels, scores, average)
        assert average_precision(labels, scores, average) == pytest.approx(expected, abs=1e-12)


@given(scored(), BLOCK_SIZES)
@property_test
def test_sparse_by_hand(case: Case, size: int) -> None:
    labels, scores, where = case
    each = np.array([by_hand(*column) for column in zip(labels.T, scores.T, where.T, strict=True)])
    present = labels.any(axis=0)
    with block_size(size):
        for given_scores in (stored(scores, where), backwards(stored(scores, where))):
            assert label_average_precision(labels, given_scores) == pytest.approx(each, abs=1e-12)
            micro = average_precision(labels, given_scores)
            assert micro == pytest.approx(by_hand(labels, scores, where), abs=1e-12)
            macro = average_precision(labels, given_scores, "macro")
            assert macro == pytest.approx(each.mean(), abs=1e-12)
            over_present = average_precision(labels, given_scores, "macro", absent="skip")
            expected = each[present].mean() if present.any() else 0.0
            assert over_present == pytest.approx(expected, abs=1e-12)


@given(scored())
@property_test
def test_dense_and_sparse_agree_on_infinite_scores_too(case: Case) -> None:
    labels, scores, _ = case
    for average in ("micro", "macro"):
        for absent in ("zero", "skip"):
            dense = average_precision(labels, scores, average, absent)
            sparse = average_precision(sp.csr_matrix(labels), stored(scores), average, absent)
            assert dense == pytest.approx(sparse, abs=1e-12)


@given(scored())
@property_test
def test_every_form_of_labels(case: Case) -> None:
    labels, scores, where = case
    for given_scores in (scores, stored(scores, where)):
        expected = [average_precision(labels, given_scores, name) for name in ("micro", "macro")]
        for truth in forms(labels):
            found = [average_precision(truth, given_scores, name) for name in ("micro", "macro")]
            assert found == expected


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, np.float64, np.int8, np.int64, np.uint8, np.bool_]
)
def test_every_type_of_number(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, (30, 4))
    scores = rng.integers(0, 2 if dtype is np.bool_ else 5, (30, 4)).astype(dtype)
    for average in ("micro", "macro"):
        expected = scikit_learn(labels, scores.astype(float), average)
        for given_scores in (scores, stored(scores)):
            found = average_precision(labels, given_scores, average)
            assert found == pytest.approx(expected, abs=1e-12)


def test_many_labels_of_very_different_sizes() -> None:
    rng = np.random.default_rng(1)
    labels = (rng.random((300, 40)) < np.geomspace(0.5, 0.002, 40)).astype(int)
    scores = np.round(rng.normal(size=labels.shape) + labels, 1)
    where = rng.random(labels.shape) < np.geomspace(1, 0.01, 40)
    each = [by_hand(*column) for column in zip(labels.T, scores.T, where.T, strict=True)]
    found = label_average_precision(labels, stored(scores, where))
    assert found == pytest.approx(each, abs=1e-12)


def test_a_positive_that_is_not_scored_still_divides() -> None:
    labels = np.array([[1, 0], [1, 0]])
    scores = sp.csr_matrix(([0.0], [0], [0, 1, 1]), shape=(2, 2))
    assert average_precision(labels, scores) == 0.5
    assert average_precision(labels, scores, "macro") == 0.25
    assert average_precision(labels, scores, "macro", absent="skip") == 0.5
    assert average_precision(labels, sp.csr_matrix((2, 2))) == 0.0
    assert average_precision(labels, sp.csr_matrix((2, 2)), "macro") == 0.0


@pytest.mark.parametrize("average", ["micro", "macro"])
@pytest.mark.parametrize("absent", ["zero", "skip"])
def test_one_document_no_positives_all_positives(average: Any, absent: Any) -> None:
    scores = np.array([[3.0, 1.0, 2.0]])
    for given_scores in (scores, stored(scores)):
        assert average_precision(np.zeros((1, 3)), given_scores, average, absent) == 0.0
        assert average_precision(np.ones((1, 3)), given_scores, average, absent) == 1.0


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_unusable_input_is_refused(average: Any) -> None:
    labels = np.array([[1, 0], [0, 1]])
    broken = np.array([[1.0, 2.0], [0.0, np.nan]])
    for scores in (broken, stored(broken)):
        with pytest.raises(InputError, match="NaN in document 1"):
            average_precision(labels, scores, average)
    with pytest.raises(InputError, match=r"\(2, 2\) and scores of shape \(2, 3\)"):
        average_precision(labels, np.zeros((2, 3)), average)
    with pytest.raises(InputError, match="labels must be 0 or 1"):
        average_precision(labels * 2, np.zeros((2, 2)), average)
    for shape in ((0, 3), (3, 0)):
        with pytest.raises(InputError, match="at least one document and one label"):
            average_precision(np.zeros(shape), np.zeros(shape), average)
    with pytest.raises(UnknownNameError, match="absent labels 'drop'"):
        average_precision(labels, np.zeros((2, 2)), average, "drop")  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="unknown average 'weighted'"):
        average_precision(labels, np.zeros((2, 2)), "weighted")  # type: ignore[arg-type]
