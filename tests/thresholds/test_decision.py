"""How thresholds decide, and that they come back from JSON as they were."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.errors import DataError, InputError
from longtail.metrics import blocks
from longtail.thresholds import METHODS, Thresholds, fit_thresholds, scales
from longtail.thresholds.scales import logit, to_logits

from .cases import Case, cases, long_tail, predicted_at, property_test


@given(
    cases(),
    st.sampled_from([None, 1, 2, 9]),
    st.booleans(),
    st.lists(st.sampled_from([-3.0, 0.0, 0.5, 3.0, np.inf]), min_size=5, max_size=5),
    st.sampled_from([np.float16, np.float32, np.float64]),
    st.sampled_from([1, 7, 1 << 24]),
)
@property_test
def test_decisions_by_hand(
    case: Case, top_k: int | None, at_least_one: bool, values: list[float], dtype: Any, block: int
) -> None:
    case = case._replace(scores=case.scores.astype(dtype))
    found = Thresholds(
        np.array(values[: case.labels.shape[1]]), top_k=top_k, at_least_one=at_least_one
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", block)
        patch.setattr(scales, "CACHED", block)
        scores = case.given() if case.kind != "csr" or dtype != np.float16 else half_csr(case)
        decided = found.apply(scores)
    assert decided.has_sorted_indices and decided.data.tolist() == [1] * decided.nnz
    np.testing.assert_array_equal(decided.toarray(), predicted_at(case, found, 0.0))
    again = Thresholds.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False)))
    np.testing.assert_array_equal(again.apply(scores).toarray(), predicted_at(case, found, 0.0))


def half_csr(case: Case) -> sp.csr_matrix:
    """scipy makes no half-precision matrix from coordinates."""
    single = case._replace(scores=case.scores.astype(np.float32)).given()
    half = single.data.astype(np.float16)
    return sp.csr_matrix((half, single.indices, single.indptr), single.shape)


@pytest.mark.parametrize("method", [*METHODS, "auto"])
@pytest.mark.parametrize("kind", ["dense", "masked", "csr"])
def test_fitted_thresholds_come_back_from_json(method: str, kind: str) -> None:
    scores, labels, counts = long_tail(120, 9, 2)
    case = Case(labels, scores, scores > -2, kind)
    found = fit_thresholds(case.given(), labels, counts, method, top_k=3, at_least_one=True)
    saved = json.dumps(found.to_dict(), allow_nan=False)
    again = Thresholds.from_dict(json.loads(saved))
    assert (again.values == found.values).all() and again.to_dict() == found.to_dict()
    assert again.top_k == 3 and again.at_least_one
    assert (again.apply(case.given()) != found.apply(case.given())).nnz == 0
    options = np.diff(found.apply(case.given()).indptr)
    assert options.max() <= 3 and (options.min() >= 1 or kind != "dense")


def test_infinity_and_shared_values_in_json() -> None:
    values = np.array([np.inf, 0.1, -2.0])
    saved = Thresholds(values).to_dict()
    assert saved["values"] == [None, 0.1, -2.0]
    assert (Thresholds.from_dict(saved).values == values).all()
    shared = Thresholds(np.full(1000, np.inf)).to_dict()
    assert shared["values"] == [None] and shared["n_labels"] == 1000
    assert Thresholds.from_dict(shared).value == np.inf
    assert Thresholds(np.array([1.0, 2.0])).value is None
    assert Thresholds(np.zeros(0)).value is None
    assert Thresholds.from_dict(Thresholds(np.zeros(0)).to_dict()).n_labels == 0


def test_values_are_copied_and_frozen() -> None:
    values = np.zeros(2)
    found = Thresholds(values)
    values[:] = 9
    assert found.value == 0.0
    with pytest.raises(ValueError, match="read-only"):
        found.values[0] = 1


@pytest.mark.parametrize("change", ["values", "n_labels", "top_k", "details", "method"])
def test_damaged_json_is_refused(change: str) -> None:
    saved = Thresholds(np.array([1.0, 2.0])).to_dict()
    with pytest.raises(DataError, match="no saved thresholds"):
        Thresholds.from_dict({key: value for key, value in saved.items() if key != change})


@pytest.mark.parametrize(
    "changed", [{"n_labels": 3}, {"values": ["a", 1]}, {"top_k": "3"}, {"values": [np.nan, 1]}]
)
def test_json_that_makes_no_sense_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="no saved thresholds"):
        Thresholds.from_dict({**Thresholds(np.array([1.0, 2.0])).to_dict(), **changed})


@pytest.mark.parametrize("values", [[[0.0]], [np.nan], [-np.inf]])
def test_unusable_values_are_refused(values: Any) -> None:
    with pytest.raises(InputError, match="one number per label"):
        Thresholds(np.array(values))


@pytest.mark.parametrize("top_k", [0, -1, 1.5, True])
def test_unusable_top_k_is_refused(top_k: Any) -> None:
    with pytest.raises(InputError, match="top_k"):
        Thresholds(np.zeros(2), top_k=top_k)


def test_scores_of_other_labels_are_refused() -> None:
    with pytest.raises(InputError, match="for 2 labels, got scores of 3"):
        Thresholds(np.zeros(2)).apply(np.zeros((1, 3)))


@pytest.mark.parametrize("empty", [np.zeros((0, 2)), sp.csr_matrix((0, 2))])
def test_no_documents_no_decisions(empty: Any) -> None:
    found = Thresholds(np.zeros(2), top_k=1, at_least_one=True).apply(empty)
    assert found.shape == (0, 2)


# Scores


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "form", [np.array, sp.csr_matrix, lambda values: np.ma.MaskedArray(values)]
)
def test_scores_must_be_finite(bad: float, form: Any) -> None:
    with pytest.raises(InputError, match="finite"):
        Thresholds(np.zeros(2)).apply(form([[0.5, bad]]))


@pytest.mark.parametrize("bad", [-0.1, 1.1])
@pytest.mark.parametrize(
    "form", [np.array, sp.csr_matrix, lambda values: np.ma.MaskedArray(values)]
)
def test_probabilities_must_be_such(bad: float, form: Any) -> None:
    with pytest.raises(InputError, match="probabilities must lie in"):
        to_logits(form([[0.5, bad]]), "probability")
    to_logits(form([[0.5, bad]]), "logit")


def test_what_is_no_score() -> None:
    with pytest.raises(InputError, match="scale must be"):
        to_logits(np.zeros((1, 1)), "odds")  # type: ignore[arg-type]
    for values in (np.zeros(3), np.zeros((1, 1), dtype=complex), np.array([["a"]]), [[True]]):
        with pytest.raises(InputError, match="documents x labels matrix of numbers"):
            to_logits(values, "logit")
    with pytest.raises(InputError, match="documents x labels matrix of numbers"):
        to_logits(sp.csr_matrix(np.array([[True]])), "logit")
    with pytest.raises(InputError, match="one score per document and label"):
        to_logits(sp.csr_matrix(([1.0, 2.0], [0, 0], [0, 2]), shape=(1, 1)), "logit")


def test_unsigned_scores_keep_their_order() -> None:
    scores = np.array([[0, 1, 200], [3, 2, 250]], dtype=np.uint8)
    labels = [[0, 0, 1], [0, 0, 1]]
    for given_scores in (scores, sp.csr_matrix(scores), np.ma.MaskedArray(scores)):
        found = fit_thresholds(given_scores, labels, [1, 1, 2], "global", objective="micro")
        assert found.value is not None and 3 < found.value < 200
        assert found.details["earned_in_tuning"] == pytest.approx(1)


def test_the_callers_matrices_are_left_alone() -> None:
    scores, labels, counts = long_tail(40, 5, 0)
    truth = sp.csr_matrix(labels.astype(np.float32))
    truth.data[::3] = 0  # stored zeros are no labels
    before = [part.copy() for part in (scores, truth.data, truth.indices, truth.indptr, counts)]
    masked = np.ma.MaskedArray(scores, scores < -1)
    for method in (*METHODS, "auto"):
        fit_thresholds(masked, truth, counts, method).apply(masked)
        fit_thresholds(scores, truth, counts, method).apply(scores)
    for part, old in zip(
        (scores, truth.data, truth.indices, truth.indptr, counts), before, strict=True
    ):
        np.testing.assert_array_equal(part, old)


def test_the_ends_of_probability_and_half_precision() -> None:
    for dtype in (np.float16, np.float32, np.float64):
        found = logit(np.array([0, 0.25, 0.5, 1], dtype=dtype))
        assert np.isfinite(found).all() and (np.diff(found) > 0).all()
        assert found[1] == pytest.approx(-np.log(3), rel=1e-6)
        assert found[2] == 0
    near = np.nextafter(np.float16(0.001), np.float16(1))
    assert len(set(logit(np.array([0.001, near], dtype=np.float16)))) == 2


def test_columns_out_of_order_decide_alike() -> None:
    backwards = sp.csr_matrix(([1.0, 1.0, 2.0], [2, 0, 1], [0, 3]), shape=(1, 3))
    assert not backwards.has_sorted_indices
    for top_k, expected in ((1, [0, 1, 0]), (2, [1, 1, 0])):
        found = Thresholds(np.zeros(3), top_k=top_k)
        assert found.apply(backwards).toarray().tolist() == [expected]
        assert found.apply(backwards.toarray()).toarray().tolist() == [expected]


def test_a_document_without_any_score_stays_without_labels() -> None:
    found = Thresholds(np.zeros(2), at_least_one=True)
    assert found.apply(sp.csr_matrix((2, 2))).nnz == 0
    assert found.apply(np.ma.MaskedArray(np.ones((2, 2)), True)).nnz == 0
    assert Thresholds(np.full(2, np.inf), at_least_one=True).apply(np.ones((2, 2))).nnz == 0
