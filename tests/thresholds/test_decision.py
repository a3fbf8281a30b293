"""Decisions and margins, the scales of scores, and thresholds as JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.errors import DataError, InputError
from longtail.metrics.blocks import rows_of
from longtail.thresholds import Thresholds, fit_thresholds, list_methods
from longtail.thresholds.scales import logit, to_logits

from ..metrics.cases import block_size
from .cases import Case, cases, long_tail, predicted_at

FORMS = (np.array, sp.csr_matrix, np.ma.MaskedArray)


def dense(margins: Any) -> np.ndarray:
    """Dense margins, minus infinity for pairs that are not scored."""
    if not sp.issparse(margins):
        return np.asarray(margins)
    result = np.full(margins.shape, -np.inf)
    result[rows_of(margins), margins.indices] = margins.data
    return result


@given(
    cases(),
    st.sampled_from([(0, None), (1, None), (2, None), (9, None), (0, 1), (1, 1), (0, 2), (2, 9)]),
    st.lists(st.sampled_from([-3.0, 0.0, 0.5, 3.0, np.inf]), min_size=5, max_size=5),
    st.sampled_from([np.float16, np.float32, np.float64]),
    st.sampled_from([1, 7, 1 << 24]),
)
def test_decisions_and_margins_by_hand(
    case: Case, limits: tuple[int, int | None], values: list[float], dtype: Any, block: int
) -> None:
    case = case._replace(scores=case.scores.astype(dtype))
    min_labels, max_labels = limits
    thresholds = Thresholds(
        np.array(values[: case.labels.shape[1]]), min_labels=min_labels, max_labels=max_labels
    )
    with block_size(block):
        decided = thresholds.apply(case.form)
    assert decided.has_sorted_indices and decided.data.tolist() == [1] * decided.nnz
    np.testing.assert_array_equal(decided.toarray(), predicted_at(case, thresholds, 0.0))
    margins = dense(thresholds.margins(to_logits(case.form, "logit")))
    for shift in (-1e300, -3.0, -0.5, 0.0, 1.0, 1e300):
        np.testing.assert_array_equal(margins >= shift, predicted_at(case, thresholds, shift))


def test_column_order_in_memory_does_not_matter() -> None:
    backwards = sp.csr_matrix(([1.0, 1.0, 2.0], [2, 0, 1], [0, 3]), shape=(1, 3))
    assert not backwards.has_sorted_indices
    rows = np.array([[1.0, 2.0, 1.0], [0.5, -1.0, 3.0]])
    for max_labels, expected in ((1, [0, 1, 0]), (2, [1, 1, 0])):
        thresholds = Thresholds(np.zeros(3), max_labels=max_labels)
        for scores in (backwards, backwards.toarray()):
            assert thresholds.apply(scores).toarray().tolist() == [expected]
        of_columns = thresholds.apply(np.asfortranarray(rows))
        assert (of_columns != thresholds.apply(rows)).nnz == 0


@pytest.mark.parametrize("method", list_methods())
def test_fitted_thresholds_survive_json(method: str) -> None:
    scores, labels, counts = long_tail(120, 9, 2)
    thresholds = fit_thresholds(scores, labels, counts, method, min_labels=1, max_labels=3)
    again = Thresholds.from_dict(json.loads(json.dumps(thresholds.to_dict(), allow_nan=False)))
    assert (again.values == thresholds.values).all() and again.to_dict() == thresholds.to_dict()
    assert (again.method, again.objective) == (thresholds.method, "mean")
    assert (again.min_labels, again.max_labels, again.scale) == (1, 3, "logit")


@pytest.mark.parametrize(
    ("values", "saved"),
    [
        ([np.inf, 0.1, -2.0], [None, 0.1, -2.0]),
        ([np.inf] * 3, [None]),
        ([0.5, 0.5], [0.5]),
        ([], []),
    ],
)
def test_infinity_and_shared_values_in_json(values: list[float], saved: list[float | None]) -> None:
    thresholds = Thresholds(np.array(values))
    plain = thresholds.to_dict()
    assert (plain["values"], plain["n_labels"]) == (saved, len(values))
    assert Thresholds.from_dict(plain).values.tolist() == values


def test_values_are_copied_and_frozen() -> None:
    values = np.zeros(2)
    thresholds = Thresholds(values)
    values[:] = 9
    assert thresholds.values.tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="read-only"):
        thresholds.values[0] = 1


def test_damaged_json_is_refused() -> None:
    saved = Thresholds(np.array([1.0, 2.0])).to_dict()
    changes = ({"n_labels": 3}, {"values": ["a", 1]}, {"max_labels": "3"}, {"values": [np.nan, 1]})
    missing = [{key: saved[key] for key in saved if key != name} for name in saved]
    for damaged in (*missing, *(saved | change for change in changes)):
        with pytest.raises(DataError, match="not saved thresholds"):
            Thresholds.from_dict(damaged)


def test_unusable_thresholds_are_refused() -> None:
    for values in ([[0.0]], [np.nan], [-np.inf]):
        with pytest.raises(InputError, match="one number per label"):
            Thresholds(np.array(values))
    for limit in (0, -1, 1.5, True):
        with pytest.raises(InputError, match="max_labels"):
            Thresholds(np.zeros(2), max_labels=limit)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="min_labels is 3, more than max_labels, which is 2"):
        Thresholds(np.zeros(2), min_labels=3, max_labels=2)
    with pytest.raises(InputError, match="for 2 labels, got scores of 3"):
        Thresholds(np.zeros(2)).apply(np.zeros((1, 3)))


def test_overridden_decisions() -> None:
    fitted = Thresholds(np.array([0.0, 2.0, np.inf]), "per-label", max_labels=2, details={"a": 1})
    scores = np.array([[-0.5, 1.0, 9.0], [-3.0, -2.0, 9.0], [1.0, 3.0, 9.0]])
    assert fitted.override() is fitted
    assert fitted.apply(scores).toarray().tolist() == [[0, 0, 0], [0, 0, 0], [1, 1, 0]]
    # A label that is never predicted stays so, with any threshold and number of labels.
    changed = fitted.override(threshold=0.5, min_labels=1)
    assert changed.apply(scores).toarray().tolist() == [[0, 1, 0], [0, 1, 0], [1, 1, 0]]
    assert changed.values.tolist() == [0.0, 0.0, np.inf] and changed.max_labels == 2
    again = changed.override(max_labels=1)
    assert again.apply(scores).toarray().tolist() == [[0, 1, 0], [0, 1, 0], [0, 1, 0]]
    assert again.details == {"a": 1, "overridden": ["max_labels", "min_labels", "threshold"]}
    assert fitted.details == {"a": 1} and fitted.values.tolist() == [0.0, 2.0, np.inf]
    low = fitted.override(threshold=0.05)
    assert low.apply(scores).toarray().tolist() == [[1, 1, 0], [0, 1, 0], [1, 1, 0]]


def test_overrides_that_make_no_sense_are_refused() -> None:
    fitted = Thresholds(np.zeros(2), max_labels=2)
    for threshold in (0, -0.1, 1.1, np.nan, True, "0.5"):
        with pytest.raises(InputError, match="threshold must be a number above 0 and at most 1"):
            fitted.override(threshold=threshold)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="min_labels is 3, more than max_labels, which is 2"):
        fitted.override(min_labels=3)
    with pytest.raises(InputError, match="a threshold is a probability, and margins have none"):
        Thresholds(np.zeros(2), scale="margin").override(threshold=0.5)


def test_no_documents_or_labels_no_decisions() -> None:
    for empty in (np.zeros((0, 2)), sp.csr_matrix((0, 2)), np.zeros((2, 0)), sp.csr_matrix((2, 0))):
        decided = Thresholds(np.zeros(empty.shape[1]), min_labels=1, max_labels=1).apply(empty)
        assert decided.shape == empty.shape and decided.nnz == 0


def test_unusable_scores_are_refused() -> None:
    for form in FORMS:
        for bad in (np.nan, np.inf, -np.inf):
            with pytest.raises(InputError, match="finite"):
                to_logits(form([[0.5, bad]]), "logit")
        for bad in (-0.1, 1.1):
            with pytest.raises(InputError, match="probabilities must lie in"):
                to_logits(form([[0.5, bad]]), "probability")
    with pytest.raises(InputError, match="scale must be one of"):
        to_logits(np.zeros((1, 1)), "odds")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"real numbers, got the type bool"):
        to_logits(sp.csr_matrix(np.array([[True]])), "logit")


@pytest.mark.parametrize("form", FORMS)
def test_unsigned_scores_keep_their_order(form: Any) -> None:
    scores = form(np.array([[0, 1, 200], [3, 2, 250]], dtype=np.uint8))
    thresholds = fit_thresholds(scores, [[0, 0, 1], [0, 0, 1]], [1, 1, 2], "global")
    assert 3 < thresholds.values[0] < 200


def test_arguments_are_not_changed() -> None:
    scores, labels, counts = long_tail(40, 5, 0)
    truth = sp.csr_matrix(labels.astype(np.float32))
    truth.data[::3] = 0  # explicit zeros
    sparse = sp.csr_matrix(np.where(scores < -1, 0, scores))
    parts = [scores, counts]
    parts += [part for m in (truth, sparse) for part in (m.data, m.indices, m.indptr)]
    before = [part.copy() for part in parts]
    for method in list_methods():
        for form in (scores, np.ma.MaskedArray(scores, scores < -1), sparse):
            fit_thresholds(form, truth, counts, method, min_labels=1, max_labels=1).apply(form)
    for part, old in zip(parts, before, strict=True):
        np.testing.assert_array_equal(part, old)


def test_logits_of_0_and_1_and_of_half_precision() -> None:
    for dtype in (np.float16, np.float32, np.float64):
        logits = logit(np.array([0, 0.25, 0.5, 1], dtype=dtype))
        assert np.isfinite(logits).all() and (np.diff(logits) > 0).all()
        assert logits[1] == pytest.approx(-np.log(3), rel=1e-6)
        assert logits[2] == 0
    near = np.nextafter(np.float16(0.001), np.float16(1))
    assert len(set(logit(np.array([0.001, near], dtype=np.float16)))) == 2
