"""Ranking metrics against the definitions written out in Python, and against scikit-learn."""

from __future__ import annotations

import doctest
import importlib
import tracemalloc
from math import exp, log, log2
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from longtail.errors import InputError, UnknownNameError
from longtail.metrics import (
    average_precision,
    coverage_at_k,
    decision_scores,
    ndcg_at_k,
    precision_at_k,
    propensities,
    psndcg_at_k,
    psp_at_k,
    rank,
    ranking_scores,
    recall_at_k,
    top_k,
)

from .cases import (
    BLOCK_SIZES,
    Case,
    backwards,
    block_size,
    distinct,
    forms,
    property_test,
    scored,
    stored,
)

KS = st.integers(1, 9)
NUMBERS = [np.float16, np.float32, np.float64, np.int8, np.int64, np.uint8, np.bool_]


def ranked(row: np.ndarray, where: np.ndarray, k: int) -> list[int]:
    """Best first, of equal scores the lower column."""
    columns = [column for column in range(len(row)) if where[column]]
    return sorted(columns, key=lambda column: (-row[column], column))[:k]


def by_hand(case: Case, k: int, chance: np.ndarray, skip: bool) -> dict[str, float]:
    """Every metric as its definition reads."""
    labels, scores, where = case
    precision, recall, ndcg, ps_found, ps_best, psn_found, psn_best = ([] for _ in range(7))
    covered = set()
    for truth, row, there in zip(labels, scores, where, strict=True):
        best = ranked(row, there, k)
        actual = [column for column in range(len(truth)) if truth[column]]
        hits = [column in actual for column in best]
        covered |= {column for column in best if column in actual}
        if not actual:
            if not skip:
                precision.append(0.0), recall.append(0.0), ndcg.append(0.0)
            continue
        ideal = sum(1 / log2(place + 2) for place in range(min(k, len(actual))))
        dcg = sum(hit / log2(place + 2) for place, hit in enumerate(hits))
        precision.append(sum(hits) / k)
        recall.append(sum(hits) / len(actual))
        ndcg.append(dcg / ideal)
        found = [hit / chance[column] for column, hit in zip(best, hits, strict=True)]
        most = sorted((1 / chance[column] for column in actual), reverse=True)[:k]
        ps_found.append(sum(found)), ps_best.append(sum(most))
        for gain, into in ((found, psn_found), (most, psn_best)):
            into.append(sum(g / log2(place + 2) for place, g in enumerate(gain)) / ideal)
    present = int(labels.any(axis=0).sum())
    return {
        f"precision@{k}": sum(precision) / len(precision) if precision else 0.0,
        f"recall@{k}": sum(recall) / len(recall) if recall else 0.0,
        f"ndcg@{k}": sum(ndcg) / len(ndcg) if ndcg else 0.0,
        f"psp@{k}": sum(ps_found) / sum(ps_best) if ps_best else 0.0,
        f"psndcg@{k}": sum(psn_found) / sum(psn_best) if psn_best else 0.0,
        f"coverage@{k}": len(covered) / present if present else 0.0,
    }


def chances(n_labels: int) -> np.ndarray:
    """Two labels alike, so that the best ranking has ties."""
    return np.array([0.9, 0.1, 0.5, 0.1, 1.0, 0.3, 0.02])[:n_labels]


@given(scored(), KS, st.booleans(), BLOCK_SIZES)
@property_test
def test_sparse_scores_by_hand(case: Case, k: int, skip: bool, size: int) -> None:
    labels, scores, where = case
    chance = chances(labels.shape[1])
    with block_size(size):
        found = ranking_scores(
            labels, stored(scores, where), [k], chance, "skip" if skip else "zero"
        )
    assert found == pytest.approx(by_hand(case, k, chance, skip), abs=1e-12)


@given(scored(), KS, BLOCK_SIZES)
@property_test
def test_dense_scores_by_hand_and_as_sparse_ones(case: Case, k: int, size: int) -> None:
    labels, scores, _ = case
    everywhere = np.ones(scores.shape, bool)
    chance = chances(labels.shape[1])
    with block_size(size):
        found = ranking_scores(labels, scores, [k], chance)
        assert found == ranking_scores(sp.csr_matrix(labels), stored(scores), [k], chance)
    assert found == pytest.approx(
        by_hand((labels, scores, everywhere), k, chance, False), abs=1e-12
    )


@given(distinct(), KS)
@property_test
def test_ndcg_equals_scikit_learn_without_ties(case: tuple[np.ndarray, np.ndarray], k: int) -> None:
    labels, scores = case
    expected = ndcg_score(labels, scores, k=k)
    assert ndcg_at_k(rank(labels, scores, k), k) == pytest.approx(expected, abs=1e-12)


@given(distinct(), st.integers(1, 6))
@property_test
def test_only_the_order_counts(case: tuple[np.ndarray, np.ndarray], k: int) -> None:
    labels, logits = case
    chance = chances(labels.shape[1])
    probabilities = 1 / (1 + np.exp(-logits))
    assert ranking_scores(labels, logits, [k], chance) == ranking_scores(
        labels, probabilities, [k], chance
    )


@given(scored(), KS, BLOCK_SIZES)
@property_test
def test_top_k_is_ordered_and_padded(case: Case, k: int, size: int) -> None:
    _, scores, where = case
    everywhere = np.ones(scores.shape, bool)
    with block_size(size):
        for given_scores, there in (
            (scores, everywhere),
            (np.asfortranarray(scores), everywhere),
            (stored(scores, where), where),
            (backwards(stored(scores, where)), where),
        ):
            best = top_k(given_scores, k)
            assert best.shape == (len(scores), k) and best.dtype.kind == "i"
            for row, scores_of, there_of in zip(best.tolist(), scores, there, strict=True):
                expected = ranked(scores_of, there_of, k)
                assert row == expected + [-1] * (k - len(expected))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_every_type_of_number(dtype: Any) -> None:
    scores = np.array([[0, 1, 1, 0, 1], [1, 0, 0, 0, 0]]).astype(dtype)
    if dtype not in (np.bool_, np.uint8):
        scores[0, 0] = -1
    elif dtype is np.uint8:
        scores[0, 0] = 255
    best_first = [1, 2, 4] if dtype is not np.uint8 else [0, 1, 2]
    assert top_k(scores, 3).tolist() == [best_first, [0, 1, 2]]
    assert top_k(stored(scores), 3).tolist() == [best_first, [0, 1, 2]]
    assert top_k(scores, 5)[1].tolist() == [0, 1, 2, 3, 4]


def test_half_precision_and_unsigned_scores_lose_nothing() -> None:
    half = np.linspace(-1, 1, 50, dtype=np.float16)[np.newaxis]
    for given_scores in (half, stored(half), backwards(stored(half))):
        assert top_k(given_scores, 50).tolist() == [list(range(50))[::-1]]
    big = np.array([[2**63, 2**63 + 1, 0]], dtype=np.uint64)
    assert top_k(big, 3).tolist() == top_k(stored(big), 3).tolist() == [[1, 0, 2]]
    close = np.array([[2**53, 2**53 + 1]], dtype=np.int64)
    assert top_k(close, 1).tolist() == top_k(stored(close), 1).tolist() == [[1]]


def test_a_stored_zero_is_a_score_and_an_absent_pair_is_none() -> None:
    scores = sp.csr_matrix(([0.0, -5.0], [2, 1], [0, 2]), shape=(1, 4))
    assert top_k(scores, 4).tolist() == [[2, 1, -1, -1]]
    labels = np.array([[0, 1, 0, 1]])
    found = ranking_scores(labels, scores, [1, 2, 4])
    assert [found[f"recall@{k}"] for k in (1, 2, 4)] == [0.0, 0.5, 0.5]
    assert scores.nnz == 2


def test_an_unscored_document_does_not_hit_its_neighbours_label() -> None:
    # The padding -1 must not be taken for the last label of the document before.
    labels = np.array([[0, 0, 1], [1, 0, 0]])
    scores = sp.csr_matrix(([1.0], [0], [0, 1, 1]), shape=(2, 3))
    assert ranking_scores(labels, scores, [3])["recall@3"] == 0.0
    assert not rank(labels, scores, 3).hits.any()


@given(scored(), KS)
@property_test
def test_every_form_of_labels(case: Case, k: int) -> None:
    labels, scores, where = case
    expected = ranking_scores(labels, stored(scores, where), [k])
    for truth in forms(labels):
        assert ranking_scores(truth, backwards(stored(scores, where)), [k]) == expected


@given(scored(), st.lists(KS, min_size=1, max_size=4))
@property_test
def test_one_ranking_serves_every_k(case: Case, ks: list[int]) -> None:
    labels, scores, _ = case
    chance = chances(labels.shape[1])
    together = ranking_scores(labels, scores, ks, chance)
    deep = rank(labels, scores, max(ks))
    for k in ks:
        alone = ranking_scores(labels, scores, [k], chance)
        assert alone == {name: together[name] for name in alone}
        assert together[f"precision@{k}"] == precision_at_k(deep, k)
        assert together[f"recall@{k}"] == recall_at_k(deep, k)
        assert together[f"ndcg@{k}"] == ndcg_at_k(deep, k)
        assert together[f"psp@{k}"] == psp_at_k(deep, chance, k)
        assert together[f"psndcg@{k}"] == psndcg_at_k(deep, chance, k)
        assert together[f"coverage@{k}"] == coverage_at_k(deep, k)


def test_propensity_scores_are_left_out_without_propensities() -> None:
    found = ranking_scores([[1, 0]], [[2.0, 1.0]], ks=[1])
    assert found == {"precision@1": 1.0, "recall@1": 1.0, "ndcg@1": 1.0, "coverage@1": 1.0}
    assert set(ranking_scores(np.ones((1, 9)), np.ones((1, 9)))) == {
        f"{name}@{k}" for name in ("precision", "recall", "ndcg", "coverage") for k in (1, 3, 5)
    }


def test_one_document_no_positives_all_positives() -> None:
    # The rarest label first: the best there is for psndcg, too.
    scores, chance = np.array([[1.0, 3.0, 2.0]]), chances(3)
    for unlabelled in ("zero", "skip"):
        nothing = ranking_scores(np.zeros((1, 3)), scores, [1, 9], chance, unlabelled)
        assert set(nothing.values()) == {0.0}
        everything = ranking_scores(np.ones((1, 3)), scores, [3], chance, unlabelled)
        assert everything == pytest.approx(dict.fromkeys(everything, 1.0))
    assert ranking_scores(np.ones((1, 3)), scores, [6])["precision@6"] == 0.5
    unscored = ranking_scores(np.ones((1, 3)), sp.csr_matrix((1, 3)), [2], chance)
    assert set(unscored.values()) == {0.0}


def test_a_huge_k_costs_nothing() -> None:
    found = ranking_scores(np.ones((2, 3)), np.ones((2, 3)), [10**9])
    assert found["precision@1000000000"] == 3e-9
    assert found["ndcg@1000000000"] == pytest.approx(1.0)


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
    with pytest.raises(InputError, match="more than the 10 training"):
        propensities([11], 10)
    for a, b in ((-1, 1.5), (0.5, 0), (np.nan, 1.5), (0.5, np.inf)):
        with pytest.raises(InputError, match=f"a = {a}, b = {b}"):
            propensities([1], 10, a, b)
    ranking = rank([[1, 0]], [[1.0, 2.0]], 1)
    for metric in (psp_at_k, psndcg_at_k):
        with pytest.raises(InputError, match=r"expected 2 propensities.*\(3,\)"):
            metric(ranking, [0.5, 0.5, 0.5], 1)
        for bad in (0.0, 1.5, np.nan, -1.0):
            with pytest.raises(InputError, match=f"got {bad} for label 1"):
                metric(ranking, [0.5, bad], 1)


def test_unusable_scores_are_refused() -> None:
    labels = np.array([[1, 0], [0, 1]])
    broken = np.array([[1.0, 2.0], [np.nan, 0.0]])
    for scores in (broken, stored(broken), broken.astype(np.float16)):
        for use in (lambda s: rank(labels, s, 1), lambda s: top_k(s, 1)):
            with pytest.raises(InputError, match="NaN in document 1"):
                use(scores)
    with pytest.raises(InputError, match=r"\(2, 2\) and scores of shape \(2, 3\)"):
        rank(labels, np.zeros((2, 3)), 1)
    with pytest.raises(InputError, match=r"CSR format, got COO.*tocsr"):
        rank(labels, sp.coo_matrix(labels), 1)
    with pytest.raises(InputError, match="one score per document and label"):
        rank(labels, sp.csr_matrix(([1.0, 2.0], [0, 0], [0, 2, 2]), shape=(2, 2)), 1)
    with pytest.raises(InputError, match=r"scores must be a documents x labels.*\(2,\)"):
        top_k(np.zeros(2), 1)
    with pytest.raises(InputError, match=r"scores must be real numbers.*complex"):
        top_k(np.zeros((1, 2), complex), 1)
    with pytest.raises(InputError, match=r"scores must be real numbers.*complex"):
        top_k(sp.csr_matrix(np.ones((1, 2), complex)), 1)


def test_empty_groups_and_bad_k_are_refused() -> None:
    for shape in ((0, 3), (3, 0)):
        for scores in (np.zeros(shape), sp.csr_matrix(shape)):
            with pytest.raises(InputError, match=f"got {shape[0]} documents and {shape[1]} labels"):
                ranking_scores(np.zeros(shape), scores)
            assert (top_k(scores, 2) == np.full((shape[0], 2), -1)).all()
    for k in (0, -1, 1.5, True, "1", None):
        with pytest.raises(InputError, match="k must be a whole number"):
            rank([[1]], [[1.0]], k)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="k must be a whole number"):
            ranking_scores([[1]], [[1.0]], [1, k])  # type: ignore[list-item]
    with pytest.raises(InputError, match="at least one k"):
        ranking_scores([[1]], [[1.0]], [])
    ranking = rank([[1]], [[1.0]], np.int64(1))
    for metric in (precision_at_k, recall_at_k, ndcg_at_k, coverage_at_k):
        with pytest.raises(InputError, match=r"made with k = 1. Call rank\(y_true, scores, 2\)"):
            metric(ranking, 2)
    for scored_metric in (psp_at_k, psndcg_at_k):
        with pytest.raises(InputError, match="made with k = 1"):
            scored_metric(ranking, [0.5], 2)
    with pytest.raises(UnknownNameError, match="unlabelled documents 'drop'"):
        recall_at_k(ranking, 1, "drop")  # type: ignore[arg-type]


def test_the_callers_matrices_stay_as_they_are() -> None:
    labels = np.array([[1, 0, 1], [0, 1, 1]])
    scores = backwards(stored(np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 1.0]])))
    before = scores.data.copy(), scores.indices.copy(), scores.indptr.copy()
    ranking_scores(labels, scores)
    average_precision(labels, scores, "macro")
    after = scores.data, scores.indices, scores.indptr
    assert all((old == new).all() for old, new in zip(before, after, strict=True))


def sparse_corpus(n_documents: int, n_labels: int) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """50 scored labels per document, 3 of them right."""
    rng = np.random.default_rng(0)
    steps = rng.integers(1, n_labels // 50, (n_documents, 50))
    columns = np.cumsum(steps, axis=1) - 1
    scores = rng.normal(size=columns.shape).astype(np.float32)
    starts = np.arange(0, columns.size + 1, 50)
    shape = (n_documents, n_labels)
    truth = sp.csr_matrix(
        (np.ones(3 * n_documents), columns[:, 5:8].ravel(), starts // 50 * 3), shape=shape
    )
    return truth, sp.csr_matrix((scores.ravel(), columns.ravel(), starts), shape=shape)


def test_a_million_labels_are_never_laid_out() -> None:
    truth, scores = sparse_corpus(2000, 1_000_000)
    decided = (scores > 1.0).astype(np.float32)
    chance = propensities(np.bincount(truth.indices, minlength=truth.shape[1]), 2000)
    tracemalloc.start()
    try:
        decision_scores(truth, decided)
        ranking_scores(truth, scores, propensities=chance)
        for average in ("micro", "macro"):
            average_precision(truth, scores, average)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # One byte per pair would be 2 GB; some arrays of a million labels are 8 MB each.
    assert peak < 120e6


def test_dense_scores_are_not_copied_whole() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(3000, 1000)).astype(np.float32)
    labels = sp.random(3000, 1000, density=0.003, format="csr", random_state=0)
    labels.data[:] = 1
    with block_size(100_000):
        tracemalloc.start()
        try:
            ranking_scores(labels, scores)
            for average in ("micro", "macro"):
                average_precision(labels, scores, average)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < scores.nbytes / 3


@pytest.mark.parametrize("name", ["decisions", "ranking", "average_precision"])
def test_examples_say_what_comes_out(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"longtail.metrics.{name}"))
    assert result.attempted > 0 and result.failed == 0
