"""Unusable labels and scores, peak memory, and arguments left unchanged."""

from __future__ import annotations

import doctest
import importlib
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.errors import InputError
from longtail.metrics import (
    average_precision,
    count,
    decision_scores,
    propensities,
    ranking_scores,
    top_k,
)

from ..data.cases import peak_of
from .cases import backwards, block_size, stored

macro_average_precision = partial(average_precision, average="macro")
LABELS = np.array([[1, 0], [0, 1]])


def test_scores_are_not_accepted_as_decisions() -> None:
    for scores in (np.array([[0.9, 0.1]]), sp.csr_matrix([[0.9, 0.0]]), np.array([[3, -1]])):
        with pytest.raises(InputError, match=r"predictions must be 0 or 1, got .*threshold"):
            count(LABELS[:1], scores)
    with pytest.raises(InputError, match="predictions must be 0 or 1, got nan"):
        count(LABELS[:1], np.array([[np.nan, 0]]))
    twice = sp.csr_matrix(([1, 1], [0, 0], [0, 2]), shape=(1, 2))
    with pytest.raises(InputError, match="labels must be 0 or 1, got 2"):
        count(twice, LABELS[:1])


def test_unusable_labels_are_refused() -> None:
    for labels, message in (
        (np.zeros((3, 2)), r"\(3, 2\) and predictions of shape \(2, 2\)"),
        (sp.coo_array(np.array([1, 0])), r"labels must be .*documents x labels.*\(2,\)"),
        ([[1, 0], [1]], r"type object and the shape \(2,\)"),
        ([["copper", "wheat"]], r"real numbers.*encode_labels"),
    ):
        with pytest.raises(InputError, match=message):
            decision_scores(labels, LABELS)


@pytest.mark.parametrize(
    "metric", [ranking_scores, average_precision, lambda y_true, scores: top_k(scores, 1)]
)
def test_unusable_scores_are_refused(metric: Any) -> None:
    broken = np.array([[1.0, 2.0], [np.nan, 0.0]])
    for scores in (broken, stored(broken), broken.astype(np.float16)):
        with pytest.raises(InputError, match="scores must not be NaN"):
            metric(LABELS, scores)
    for scores, message in (
        (sp.csr_matrix(([1.0, 2.0], [0, 0], [0, 2, 2]), (2, 2)), "one score per document"),
        (np.zeros(2), r"scores must be .*documents x labels.*\(2,\)"),
        (np.zeros((2, 2), complex), r"scores must be .* real numbers.*complex"),
    ):
        with pytest.raises(InputError, match=message):
            metric(LABELS, scores)
    if "lambda" in repr(metric):  # top_k has no labels
        return
    for labels, scores, message in (
        (LABELS, np.zeros((2, 3)), r"\(2, 2\) and scores of shape \(2, 3\)"),
        (LABELS * 2, np.zeros((2, 2)), "labels must be 0 or 1"),
        (np.zeros((0, 3)), np.zeros((0, 3)), "got 0 documents and 3 labels"),
        (np.zeros((3, 0)), sp.csr_matrix((3, 0)), "got 3 documents and 0 labels"),
    ):
        with pytest.raises(InputError, match=message):
            metric(labels, scores)


def test_arguments_are_not_changed() -> None:
    labels = backwards(stored(np.array([[1, 0, 1], [0, 1, 1]])))
    scores = backwards(stored(np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 1.0]])))
    parts = [getattr(m, name) for m in (labels, scores) for name in ("data", "indices", "indptr")]
    before = [part.copy() for part in parts]
    decision_scores(labels, labels)
    ranking_scores(labels, scores)
    average_precision(labels, scores, "macro")
    assert all((old == new).all() for old, new in zip(before, parts, strict=True))


def test_a_million_labels_are_never_made_dense() -> None:
    """2000 documents with 50 scored labels each, 3 of them right."""
    rng = np.random.default_rng(0)
    shape = (2000, 1_000_000)
    columns = np.cumsum(rng.integers(1, shape[1] // 50, (2000, 50)), axis=1) - 1
    starts = np.arange(0, columns.size + 1, 50)
    data = rng.normal(size=columns.size).astype(np.float32)
    scores = sp.csr_matrix((data, columns.ravel(), starts), shape=shape)
    positive = columns[:, 5:8].ravel()
    truth = sp.csr_matrix((np.ones(6000), positive, starts // 50 * 3), shape=shape)
    decided = (scores > 1.0).astype(np.float32)
    chance = propensities(np.bincount(truth.indices, minlength=shape[1]), 2000)
    # One byte per pair would be 2 GB; some arrays of a million labels are 8 MB each.
    assert peak_of(lambda: decision_scores(truth, decided)) < 120e6
    assert peak_of(lambda: ranking_scores(truth, scores, propensities=chance)) < 120e6
    for metric in (average_precision, macro_average_precision):
        assert peak_of(partial(metric, truth, scores)) < 120e6


def test_dense_scores_are_not_copied_as_a_whole() -> None:
    scores = np.random.default_rng(0).normal(size=(3000, 1000)).astype(np.float32)
    labels = sp.random(3000, 1000, density=0.003, format="csr", random_state=0)
    labels.data[:] = 1
    with block_size(100_000):
        for metric in (ranking_scores, average_precision, macro_average_precision):
            assert peak_of(partial(metric, labels, scores)) < scores.nbytes / 3


@pytest.mark.parametrize("name", ["decisions", "ranking", "average_precision"])
def test_docstring_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"longtail.metrics.{name}"))
    assert result.attempted > 0 and result.failed == 0
