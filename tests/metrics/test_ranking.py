"""Ranking metrics against their definitions written out in Python, and against scikit-learn."""

from __future__ import annotations

from math import exp, log, log2
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from longtail.errors import InputError
from longtail.metrics import propensities, ranking_scores, top_k

from .cases import BLOCK_SIZES, Case, backwards, block_size, distinct, score_forms, scored, stored

KS = st.integers(1, 9)
# Two equal ones, so that the best ranking has ties.
CHANCES = np.array([0.9, 0.1, 0.5, 0.1, 1.0, 0.3, 0.02])


def ranked(row: np.ndarray, where: np.ndarray, k: int) -> list[int]:
    """Best first; ties go to the lower column."""
    columns = np.flatnonzero(where).tolist()
    return sorted(columns, key=lambda column: (-row[column], column))[:k]


def dcg(gains: Any) -> float:
    return sum(gain / log2(rank + 2) for rank, gain in enumerate(gains))


def by_hand(case: Case, k: int) -> dict[str, float]:
    """Each metric by its definition."""
    labels, scores, where = case
    means: list[tuple[float, float, float]] = []
    sums = np.zeros(4)
    covered: set[int] = set()
    for truth, row, there in zip(labels, scores, where, strict=True):
        best, actual = ranked(row, there, k), set(np.flatnonzero(truth).tolist())
        hits = [column in actual for column in best]
        covered |= actual & set(best)
        if not actual:
            means.append((0.0, 0.0, 0.0))
            continue
        ideal = dcg([1] * min(k, len(actual)))
        means.append((sum(hits) / k, sum(hits) / len(actual), dcg(hits) / ideal))
        gains = [hit / CHANCES[column] for column, hit in zip(best, hits, strict=True)]
        most = sorted((1 / CHANCES[column] for column in actual), reverse=True)[:k]
        sums += [sum(gains), sum(most), dcg(gains) / ideal, dcg(most) / ideal]
    precision, recall, ndcg = np.mean(means, axis=0) if means else (0.0, 0.0, 0.0)
    n_present = int(labels.any(axis=0).sum())
    return {
        f"precision@{k}": precision,
        f"recall@{k}": recall,
        f"ndcg@{k}": ndcg,
        f"psp@{k}": sums[0] / sums[1] if sums[1] else 0.0,
        f"psndcg@{k}": sums[2] / sums[3] if sums[3] else 0.0,
        f"coverage@{k}": len(covered) / n_present if n_present else 0.0,
    }


@given(scored(), KS, BLOCK_SIZES)
def test_every_form_of_scores_by_hand(case: Case, k: int, size: int) -> None:
    labels, scores, where = case
    chances = CHANCES[: labels.shape[1]]
    for form, there in score_forms(scores, where):
        with block_size(size):
            values = ranking_scores(labels, form, [k], chances)
        expected = by_hand((labels, scores, there), k)
        assert list(values) == list(expected)
        assert values == pytest.approx(expected, abs=1e-12)


@given(distinct(), KS)
def test_without_ties_ndcg_is_scikit_learns_and_only_the_order_matters(
    case: tuple[np.ndarray, np.ndarray], k: int
) -> None:
    labels, logits = case
    values = ranking_scores(labels, logits, [k])
    assert values[f"ndcg@{k}"] == pytest.approx(ndcg_score(labels, logits, k=k), abs=1e-12)
    assert values == ranking_scores(labels, 1 / (1 + np.exp(-logits)), [k])


@given(scored(), KS, BLOCK_SIZES)
def test_top_k_is_ordered_and_padded(case: Case, k: int, size: int) -> None:
    _, scores, where = case
    for form, there in score_forms(scores, where):
        with block_size(size):
            best = top_k(form, k)
        assert best.shape == (len(scores), k) and best.dtype.kind == "i"
        for columns, row, scored_here in zip(best.tolist(), scores, there, strict=True):
            expected = ranked(row, scored_here, k)
            assert columns == expected + [-1] * (k - len(expected))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64, np.uint8, np.bool_])
def test_every_dtype(dtype: Any) -> None:
    scores = np.array([[0, 1, 1, 0, 1], [1, 0, 0, 0, 0]]).astype(dtype)
    if dtype is not np.bool_:
        scores[0, 0] = 255 if dtype is np.uint8 else -1
    best_first = [1, 2, 4] if dtype is not np.uint8 else [0, 1, 2]
    for form in (scores, stored(scores)):
        assert top_k(form, 3).tolist() == [best_first, [0, 1, 2]]
    assert top_k(scores, 5)[1].tolist() == [0, 1, 2, 3, 4]


def test_half_precision_and_large_integers_are_exact() -> None:
    half = np.linspace(-1, 1, 50, dtype=np.float16)[np.newaxis]
    for form in (half, stored(half), backwards(stored(half))):
        assert top_k(form, 50).tolist() == [list(range(50))[::-1]]
    big = np.array([[2**63, 2**63 + 1, 0]], dtype=np.uint64)
    assert top_k(big, 3).tolist() == top_k(stored(big), 3).tolist() == [[1, 0, 2]]
    close = np.array([[2**53, 2**53 + 1]], dtype=np.int64)
    assert top_k(close, 1).tolist() == top_k(stored(close), 1).tolist() == [[1]]


def test_default_ks_and_a_huge_k_which_needs_no_memory() -> None:
    names = ("precision", "recall", "ndcg", "coverage")
    values = ranking_scores(np.ones((1, 9)), np.ones((1, 9)))
    assert set(values) == {f"{name}@{k}" for name in names for k in (1, 3, 5)}
    values = ranking_scores(np.ones((2, 3)), np.ones((2, 3)), [10**9])
    assert values["precision@1000000000"] == 3e-9
    assert values["ndcg@1000000000"] == pytest.approx(1.0)


def test_propensities_are_jains() -> None:
    counts, n_samples = [0, 1, 10, 1000], 1000
    for a, b in ((0.55, 1.5), (0.5, 0.4), (0.6, 2.6)):
        scale = (log(n_samples) - 1) * (b + 1) ** a
        expected = [1 / (1 + scale * exp(-a * log(n + b))) for n in counts]
        assert propensities(counts, n_samples, a, b) == pytest.approx(expected, abs=1e-12)
    default = propensities({"wheat": 10, "rye": 1}, n_samples)
    assert default.tolist() == propensities([10, 1], n_samples, 0.55, 1.5).tolist()
    lowest = propensities([0, 3], 3)
    assert (lowest > 0).all() and (lowest <= 1).all()


def test_unusable_propensities_are_refused() -> None:
    for n_samples in (1, 2):
        with pytest.raises(InputError, match=f"3 training documents or more.*{n_samples}"):
            propensities([1], n_samples)
    with pytest.raises(InputError, match=r"between 0 and n_samples \(10\)"):
        propensities([11], 10)
    for bad in ([0.5, 0.5, 0.5], [0.5, 0.0], [0.5, 1.5], [0.5, np.nan]):
        with pytest.raises(InputError, match="expected 2 propensities above 0 and at most 1"):
            ranking_scores([[1, 0]], [[1.0, 2.0]], [1], bad)


def test_unusable_k_and_choices_are_refused() -> None:
    for shape in ((0, 3), (3, 0)):
        for scores in (np.zeros(shape), sp.csr_matrix(shape)):
            assert (top_k(scores, 2) == np.full((shape[0], 2), -1)).all()
    for k in (0, -1, 1.5, True, "1", None):
        with pytest.raises(InputError, match="k must be a whole number"):
            ranking_scores([[1]], [[1.0]], [1, k])  # type: ignore[list-item]
