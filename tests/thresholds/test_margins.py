"""Margins by hand, with `top_k` and `at_least_one`: what is predicted as all thresholds move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.evaluation import evaluate
from longtail.labels import LabelStats
from longtail.metrics.blocks import rows_of
from longtail.thresholds import Thresholds
from longtail.thresholds.margins import margins_of
from longtail.thresholds.scales import logit, sigmoid

from .cases import Case, cases, predicted_at, property_test

VALUES = st.lists(st.sampled_from([-3.0, 0.0, 0.5, 3.0, np.inf]), min_size=5, max_size=5)
FORMS = ("dense", "masked", "csr")


@given(cases(), st.sampled_from([None, 1, 2, 9]), st.booleans(), VALUES)
@property_test
def test_margins_say_what_moved_thresholds_predict(
    case: Case, top_k: int | None, at_least_one: bool, values: list[float]
) -> None:
    rule = Thresholds(
        np.array(values[: case.labels.shape[1]]), top_k=top_k, at_least_one=at_least_one
    )
    margins = laid_out(rule.margins(case.given()))
    for shift in (-1e300, -3.0, -0.5, 0.0, 1.0, 1e300):
        np.testing.assert_array_equal(margins >= shift, predicted_at(case, rule, shift))


def laid_out(margins: Any) -> np.ndarray:
    """Dense, with minus infinity for what is not scored."""
    dense = np.full(margins.shape, -np.inf) if sp.issparse(margins) else np.asarray(margins)
    if sp.issparse(margins):
        dense[rows_of(margins), margins.indices] = margins.data
    return dense


@given(cases(), st.sampled_from([None, 1, 2]), st.booleans(), VALUES)
@property_test
def test_fewer_documents_are_looked_at_for_decisions_alone(
    case: Case, top_k: int | None, at_least_one: bool, values: list[float]
) -> None:
    rule = np.array(values[: case.labels.shape[1]]), top_k, at_least_one
    whole, quick = (margins_of(case.given(), *rule, only_decide=only) for only in (False, True))
    np.testing.assert_array_equal(laid_out(whole) >= 0, laid_out(quick) >= 0)


def in_form(scores: np.ndarray, form: str) -> Any:
    case = Case(np.zeros(scores.shape, int), scores, np.ones(scores.shape, bool), form)
    return case.given()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("top_k", [None, 1])
def test_at_least_one_of_labels_that_are_never_predicted_is_none(
    form: str, top_k: int | None
) -> None:
    """An infinite threshold says never, and the fallback does not break that."""
    scores = in_form(np.array([[5.0, 9.0, 1.0], [-5.0, 9.0, -1.0]]), form)
    never = Thresholds(np.full(3, np.inf), top_k=top_k, at_least_one=True)
    assert never.apply(scores).nnz == 0
    assert np.isneginf(laid_out(never.margins(scores))).all()
    # One label with a threshold, however far: it is the one, though others score higher.
    one = Thresholds(np.array([100.0, np.inf, np.inf]), top_k=top_k, at_least_one=True)
    assert one.apply(scores).toarray().tolist() == [[1, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize("form", FORMS)
def test_an_evaluation_of_labels_that_are_never_predicted(form: str) -> None:
    truth = np.array([[1, 0, 0], [0, 1, 1]])
    scores = in_form(truth * 2.0 - 1, form)
    stats = LabelStats.from_counts([2, 1, 1], 2)
    never = Thresholds(np.full(3, np.inf), at_least_one=True)
    found = evaluate(truth, scores, never, stats, n_resamples=0)
    assert found.overall.micro_f1 == 0 and found.labels.predicted.sum() == 0
    assert found.metrics["precision@1"] == 1.0  # a ranking knows no thresholds


def test_what_is_under_a_mask_does_not_matter() -> None:
    scores = np.ma.masked_array([[np.inf, np.nan, 1.0]], [[True, True, False]])
    rule = Thresholds(np.array([np.inf, 0.0, 0.0]), at_least_one=True)
    assert rule.margins(scores).tolist() == [[-np.inf, -np.inf, np.inf]]


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=20))
@property_test
def test_sigmoid_is_the_way_back(values: list[float]) -> None:
    logits = np.array(values)
    np.testing.assert_allclose(sigmoid(logits), 1 / (1 + np.exp(-logits)), rtol=1e-9, atol=1e-15)
    inside = logits[np.abs(logits) < 15]
    np.testing.assert_allclose(logit(sigmoid(inside)), inside, atol=1e-6)
    assert sigmoid(np.array([-1e4, 0.0, 1e4])).tolist() == [0.0, 0.5, 1.0]
