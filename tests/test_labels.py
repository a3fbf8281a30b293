"""Label statistics: counts, the paper's mu, groups, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.errors import InputError
from longtail.labels import LabelStats, encode_labels, label_groups

LISTS = [["a"], ["a", "b"], ["c"], [], ["a", "b", "c"]]


def test_all_three_ways_agree_on_counts() -> None:
    from_lists = LabelStats.from_lists(LISTS)
    dense = [[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 0], [1, 1, 1]]
    from_matrix = LabelStats.from_matrix(dense)
    from_counts = LabelStats.from_counts({"a": 3, "b": 2, "c": 2}, 5)
    for stats in (from_lists, from_matrix, from_counts):
        assert stats.label_counts.tolist() == [3, 2, 2]
        assert stats.n_samples == 5
    assert from_lists.label_names == from_counts.label_names == ("a", "b", "c")
    assert from_lists.mu == from_matrix.mu


def test_mu_by_hand() -> None:
    # Pairs: a alone 1; in {a, b} with n = 3, 1: a (1/3)/(4/3) = 1/4, b 3/4; a alone 1.
    stats = LabelStats.from_lists([["a"], ["a", "b"], ["a"]])
    assert stats.mu_source == "pairs"
    assert stats.mu == pytest.approx((np.mean([1, 0.25, 0.75, 1]) + 0.875) / 2)


def test_mu_from_counts_is_the_mean_of_r() -> None:
    stats = LabelStats.from_counts([3, 1], 3)
    assert stats.mu_source == "counts"
    assert stats.mu == pytest.approx(3 / 4)
    assert LabelStats.from_counts([0, 0], 3).mu == 1.0


@given(st.lists(st.lists(st.sampled_from("abcdef"), min_size=1), min_size=1, max_size=30))
def test_the_fallback_is_exactly_the_mean_where_every_document_has_a_label(
    lists: list[list[str]],
) -> None:
    stats = LabelStats.from_lists(lists)
    matrix = stats.matrix
    assert matrix is not None
    inverse = 1 / stats.label_counts
    ratios = [
        inverse[label] / inverse[row.indices].sum() for row in matrix for label in row.indices
    ]
    assert 0 < stats.mu <= 1
    counts_only = LabelStats.from_counts(stats.label_counts, stats.n_samples)
    assert counts_only.mu == pytest.approx(np.mean(ratios))


def test_cooccurrence() -> None:
    shared = LabelStats.from_lists(LISTS).cooccurrence().toarray()
    assert shared.tolist() == [[3, 2, 1], [2, 2, 1], [1, 1, 2]]
    with pytest.raises(InputError, match=r"from_matrix or LabelStats\.from_lists"):
        LabelStats.from_counts([1], 1).cooccurrence()


def test_a_repeated_label_counts_once() -> None:
    matrix, names = encode_labels([["b", "a", "b"]])
    assert names == ("a", "b")
    assert matrix.toarray().tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("labels", "message"),
    [(["copper"], r"Write \['copper'\]"), ([[1]], "must be a string"), ([["x"]], "not one of")],
)
def test_wrong_labels_are_refused(labels: list, message: str) -> None:
    with pytest.raises(InputError, match=message):
        encode_labels(labels, ["a"] if labels == [["x"]] else None)


@pytest.mark.parametrize(
    ("counts", "n_samples", "message"),
    [
        ([-1, 2], 5, "not negative, got -1.0 for label 0"),
        ([float("nan")], 5, "finite"),
        ([6], 5, "count of 6, more than the 5"),
        ([], 5, "non-empty"),
        ([1], 0, "at least 1"),
        ([1], 2.5, "whole number"),
        (["many"], 5, "must be numbers"),
    ],
)
def test_wrong_counts_are_refused(counts: list, n_samples: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        LabelStats.from_counts(counts, n_samples)  # type: ignore[arg-type]


def test_a_matrix_of_counts_is_refused() -> None:
    with pytest.raises(InputError, match=r"lie in \[0, 1\], got values from 1 to 3"):
        LabelStats.from_matrix(sp.csr_matrix([[3, 1]]))
    with pytest.raises(InputError, match="from_lists"):
        LabelStats.from_matrix([["a"]])


def test_groups_are_terciles_of_the_counts() -> None:
    groups = label_groups(np.arange(1, 10))
    assert [int(mask.sum()) for mask in groups.values()] == [3, 3, 3]
    assert groups["tail"][:3].all() and groups["head"][-3:].all()
    same = label_groups(np.ones(5))
    assert same["medium"].all()
    by_cut = label_groups([1, 8, 9, 34, 35], cuts=(9, 34.5))
    assert by_cut["tail"].tolist() == [True, True, False, False, False]
    assert by_cut["head"].tolist() == [False] * 4 + [True]
