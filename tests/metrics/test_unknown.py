"""Unknown labels: every metric equals that on the known pairs."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, f1_score, hamming_loss

from longtail.errors import InputError
from longtail.metrics import (
    average_precision,
    count,
    decision_scores,
    label_precision_recall_f1,
    ranking_scores,
)

SEEDS = st.integers(0, 10_000)


def draw(seed: int, n: int = 30, n_labels: int = 6) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels with NaN, decisions and scores; the first document has all labels."""
    rng = np.random.default_rng(seed)
    truth = (rng.random((n, n_labels)) < 0.4).astype(float)
    truth[rng.random(truth.shape) < rng.choice([0.0, 0.3, 0.9], n_labels)] = np.nan
    truth[0] = 1
    return truth, (rng.random(truth.shape) < 0.5).astype(float), rng.standard_normal(truth.shape)


def forms(truth: np.ndarray) -> list[object]:
    signed = np.where(np.isnan(truth), -1, truth)
    return [truth, sp.csr_matrix(truth), signed, sp.csc_matrix(signed), signed.astype(np.int8)]


@given(SEEDS)
def test_decisions_are_those_of_known_documents_label_by_label(seed: int) -> None:
    truth, decided, _ = draw(seed)
    truth[1, 0] = 0  # else labels of 1 and -1 alone, which are refused
    for form in forms(truth):
        *_, f1 = label_precision_recall_f1(count(form, decided))
        for label, value in enumerate(f1):
            known = ~np.isnan(truth[:, label])
            alone = f1_score(truth[known, label], decided[known, label], zero_division=0)
            assert value == pytest.approx(alone, abs=1e-12)
    known = ~np.isnan(truth)
    scores = decision_scores(truth, decided)
    assert scores["micro_f1"] == pytest.approx(f1_score(truth[known], decided[known]), abs=1e-12)
    assert scores["hamming_loss"] == pytest.approx(hamming_loss(truth[known], decided[known]))
    rows = known.any(axis=1)
    right = ((truth == decided) | ~known).all(axis=1)
    assert scores["subset_accuracy"] == pytest.approx(right[rows].mean())


@given(SEEDS)
def test_average_precision_is_that_of_known_documents_label_by_label(seed: int) -> None:
    truth, _, scores = draw(seed)
    known = ~np.isnan(truth)
    each = [
        average_precision_score(truth[known[:, k], k], scores[known[:, k], k])
        for k in range(truth.shape[1])
    ]
    for form in (scores, sp.csr_matrix(scores)):
        assert average_precision(truth, form, "macro") == pytest.approx(np.mean(each), abs=1e-12)
        pooled = average_precision_score(truth[known], scores[known])
        assert average_precision(truth, form) == pytest.approx(pooled, abs=1e-12)


@given(SEEDS)
def test_rankings_are_of_the_known_labels_of_each_document(seed: int) -> None:
    truth, _, scores = draw(seed)
    best = []
    for row, values in zip(truth, scores, strict=True):
        known = np.flatnonzero(~np.isnan(row))
        if len(known):
            best.append(row[known[np.argmax(values[known])]])
    assert ranking_scores(truth, scores, [1])["precision@1"] == pytest.approx(np.mean(best))


def test_a_document_of_which_nothing_is_known_is_not_there() -> None:
    truth, decided, scores = draw(3)
    more = np.vstack([truth, np.full((4, 6), np.nan)])
    other = np.random.default_rng(0).standard_normal((4, 6))
    both = decision_scores(more, np.vstack([decided, other > 0]))
    assert both == pytest.approx(decision_scores(truth, decided), abs=1e-12)
    ranked = ranking_scores(more, np.vstack([scores, other]))
    assert ranked == pytest.approx(ranking_scores(truth, scores), abs=1e-12)
    with pytest.raises(InputError, match="expected at least one document and one label, got 0"):
        decision_scores(np.full((2, 2), np.nan), np.zeros((2, 2)))


def test_signs_are_not_taken_for_unknown_labels() -> None:
    signs = np.array([[1, -1], [-1, 1]])
    with pytest.raises(InputError, match=r"1 and -1 without any 0, and -1 means .* Write 0"):
        count(signs, signs > 0)
    assert count(np.where(signs > 0, 1, np.nan), signs > 0).predicted.tolist() == [1, 1]
