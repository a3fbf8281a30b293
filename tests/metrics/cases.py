"""Hypothesis strategies for labels, decisions and scores, and all forms in which they may come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from longtail.metrics import blocks

Case = tuple[np.ndarray, np.ndarray, np.ndarray]
BLOCK_SIZES = st.sampled_from([1, 4, 11, 2**22])
# Few distinct values, so that ties are common; including zero, negative and infinite ones.
TIED = st.sampled_from([-np.inf, -2.0, -1.0, 0.0, 0.5, 1.0, 3.0, np.inf])


def shapes(min_labels: int = 1) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(1, 8), st.integers(min_labels, 7))


def indicators(shape: tuple[int, int]) -> st.SearchStrategy[np.ndarray]:
    """0/1 matrices, including all zeros and all ones."""
    some = hnp.arrays(np.int64, shape, elements=st.integers(0, 1))
    return st.one_of(some, some, st.sampled_from([np.zeros(shape, int), np.ones(shape, int)]))


@st.composite
def decisions(draw: st.DrawFn, min_labels: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Labels and decisions."""
    shape = draw(shapes(min_labels))
    return draw(indicators(shape)), draw(indicators(shape))


@st.composite
def scored(draw: st.DrawFn) -> Case:
    """Labels, scores, and the mask of scored pairs."""
    shape = draw(shapes())
    scores = draw(hnp.arrays(np.float64, shape, elements=TIED))
    return draw(indicators(shape)), scores, draw(indicators(shape)).astype(bool)


@st.composite
def distinct(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and scores without ties within a document."""
    shape = draw(shapes(min_labels=2))
    rows = [draw(st.permutations(range(shape[1]))) for _ in range(shape[0])]
    return draw(indicators(shape)), np.array(rows, dtype=np.float64) / 4 - 0.5


def stored(scores: np.ndarray, where: np.ndarray | None = None) -> sp.csr_matrix:
    """CSR with the chosen entries stored, including zeros; by default all."""
    where = np.ones(scores.shape, bool) if where is None else where
    row_starts = np.concatenate(([0], np.cumsum(where.sum(axis=1))))
    return sp.csr_matrix((scores[where], np.nonzero(where)[1], row_starts), shape=scores.shape)


def backwards(matrix: sp.csr_matrix) -> sp.csr_matrix:
    """The same entries with every row stored from right to left."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    order = np.lexsort((-matrix.indices, rows))
    parts = matrix.data[order], matrix.indices[order], matrix.indptr.copy()
    return sp.csr_matrix(parts, shape=matrix.shape)


def score_forms(scores: np.ndarray, where: np.ndarray) -> list[tuple[Any, np.ndarray]]:
    """The scores in every accepted form, each with the mask of its scored pairs."""
    everywhere = np.ones(scores.shape, bool)
    return [
        (scores, everywhere),
        (np.asfortranarray(scores), everywhere),
        (stored(scores), everywhere),
        (stored(scores, where), where),
        (backwards(stored(scores, where)), where),
        (np.ma.MaskedArray(np.where(where, scores, np.nan), ~where), where),
    ]


def label_forms(labels: np.ndarray) -> list[Any]:
    """The labels in every accepted form."""
    return [
        labels,
        labels.tolist(),
        labels.astype(bool),
        labels.astype(np.float16),
        sp.csr_matrix(labels),
        sp.csr_array(labels.astype(bool)),
        sp.csc_matrix(labels.astype(np.float32)),
        sp.coo_matrix(labels),
        stored(labels),  # with explicit zeros
        backwards(stored(labels.astype(np.int8))),
    ]


@contextmanager
def block_size(size: int) -> Iterator[None]:
    """Use blocks so small that even these cases need several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", size)
        yield
