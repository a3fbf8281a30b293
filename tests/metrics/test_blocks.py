"""Where stored elements stand, and that blocks cover all rows once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.metrics.blocks import applies_to, positions_of, row_blocks, rows_of

from .cases import property_test, scored, stored


@given(scored())
@property_test
def test_stored_scores_know_their_rows_and_whether_they_apply(case: Any) -> None:
    labels, scores, where = case
    matrix, truth = stored(scores, where), sp.csr_matrix(labels.astype(np.int8))
    rows, columns = where.nonzero()
    np.testing.assert_array_equal(rows_of(matrix), rows)
    for kind in ("tocsr", "tocsc"):
        own, ours = getattr(matrix, kind)(), getattr(truth, kind)()
        expected = labels[rows, columns] > 0
        if kind == "tocsc":
            expected = expected[np.lexsort((rows, columns))]
        np.testing.assert_array_equal(applies_to(ours, own), expected)
        np.testing.assert_array_equal(positions_of(ours, own), np.flatnonzero(expected))


@given(st.integers(0, 30), st.integers(0, 9), st.sampled_from([1, 4, 1000]))
@property_test
def test_blocks_cover_all_rows_once(n_rows: int, row_size: int, size: int) -> None:
    found = list(row_blocks(n_rows, row_size, size))
    assert [k for rows in found for k in range(n_rows)[rows]] == list(range(n_rows))
    assert all(rows.stop - rows.start <= max(1, size // max(1, row_size)) for rows in found)


def test_the_usual_size_is_asked_for_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(list(row_blocks(10, 2))) == 1
    monkeypatch.setattr("longtail.metrics.blocks.BLOCK", 4)
    assert len(list(row_blocks(10, 2))) == 5
