"""The map of co-occurring labels against plain loops: p(i|j) of cells and bins."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.analysis.measures import conditional_means, rank_bins
from longtail.labels import encode_labels

NAMES = tuple("abcdefg")
Lists = list[list[str]]
label_lists = st.lists(st.lists(st.sampled_from(NAMES), unique=True), min_size=1, max_size=20)


def p_given(lists: Lists, i: str, j: str) -> float:
    """p(i|j) by counting documents; NaN for a label with itself or without documents."""
    with_j = [labels for labels in lists if j in labels]
    return sum(i in labels for labels in with_j) / len(with_j) if with_j and i != j else np.nan


@given(label_lists, st.sets(st.integers(1, len(NAMES) - 1)))
def test_bins_hold_the_mean_of_their_cells(lists: Lists, inner: set[int]) -> None:
    edges = np.array([0, *sorted(inner), len(NAMES)])
    bins = [NAMES[start:stop] for start, stop in itertools.pairwise(edges)]
    expected = np.full((len(bins), len(bins)), np.nan)
    for row, column in itertools.product(range(len(bins)), repeat=2):
        cells = [p_given(lists, i, j) for j in bins[row] for i in bins[column]]
        cells = [cell for cell in cells if not np.isnan(cell)]
        if cells:
            expected[row, column] = np.mean(cells)
    means = conditional_means(encode_labels(lists, NAMES)[0], edges)
    np.testing.assert_allclose(means, expected, atol=1e-12)


@pytest.mark.parametrize("n", [3, 6, 10, 49, 98])
def test_what_rounding_leaves_of_zero_is_zero(n: int) -> None:
    # n times 1 / n is not 1 in binary; under a fourth root even 1e-16 would show.
    Y = encode_labels([["a"], ["b"], ["c"]] * n, ("a", "b", "c"))[0]
    assert conditional_means(Y, np.array([0, 2, 3])).tolist()[0] == [0, 0]


@given(st.integers(1, 2_000_000), st.integers(1, 100))
def test_bins_of_ranks_widen_and_leave_no_label_out(n_labels: int, n_bins: int) -> None:
    edges = rank_bins(n_labels, n_bins)
    assert (edges[0], edges[-1]) == (0, n_labels)
    assert len(edges) <= n_bins + 1
    widths = np.diff(edges)
    assert widths.min() >= 1
    # Rounding to whole ranks may narrow a bin by one.
    assert (np.diff(widths) >= -1).all()
