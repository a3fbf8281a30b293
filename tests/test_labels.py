"""Label statistics: counts, the paper's mu, groups, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.errors import InputError
from longtail.labels import LabelEncoder, LabelStats, encode_labels, group_cuts, label_groups

from .data.cases import peak_of
from .losses.bad_inputs import STATS

LISTS = [["a"], ["a", "b"], ["c"], [], ["a", "b", "c"]]


def test_all_three_constructors_agree_on_counts() -> None:
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
    # From counts it is the mean of r, at most 1, where 10 / 1 would exceed it.
    for counts, n_samples, mu in (([3, 1], 3, 3 / 4), ([0, 0], 3, 1.0), ([1], 10, 1.0)):
        stats = LabelStats.from_counts(counts, n_samples)
        assert stats.mu_source == "counts" and stats.mu == pytest.approx(mu)


@pytest.mark.parametrize("kind", STATS)
def test_what_no_documents_can_have_is_refused(kind: str) -> None:
    for call, message in STATS[kind]:
        with pytest.raises(InputError, match=message):
            call()


@pytest.mark.parametrize("make", [sp.csr_matrix, sp.csr_array])
@pytest.mark.parametrize("dtype", [np.float64, np.int8, bool])
def test_the_callers_matrix_is_left_alone(dtype: type, make: type) -> None:
    # The first document's columns are unsorted; two zeros are stored.
    values, columns = np.array([1, 0, 1, 1, 0, 1], dtype=dtype), np.array([2, 0, 1, 1, 2, 0])
    matrix = make((values, columns, np.array([0, 3, 4, 6, 6])), shape=(4, 3))
    parts = (matrix.data, matrix.indices, matrix.indptr)
    before = [part.copy() for part in parts]
    for part in parts:
        part.setflags(write=False)
    stats = LabelStats.from_matrix(matrix)
    # Neither zeros nor column order were changed in place.
    after = (matrix.data, matrix.indices, matrix.indptr)
    assert all(now is part for now, part in zip(after, parts, strict=True))
    assert all(map(np.array_equal, parts, before))
    assert stats.label_counts.tolist() == [1, 2, 1] and stats.n_samples == 4


@pytest.mark.parametrize(
    ("counts", "tail", "head"),
    [([1, 1, 1, 2, 5], 3, 2), ([1, 1, 2, 3, 4], 2, 2), ([0, 0, 7], 2, 1), ([1, 2, 2, 2, 3], 1, 1)],
)
def test_labels_that_share_the_lowest_count_are_the_tail(
    counts: list[float], tail: int, head: int
) -> None:
    groups = label_groups(counts)
    assert [int(groups[name].sum()) for name in ("tail", "head")] == [tail, head]
    assert set(np.array(counts)[groups["tail"]]) == {min(counts)}
    low, high = group_cuts(np.array(counts, dtype=float))
    assert min(counts) < low <= high


def test_elements_stored_in_parts_are_summed() -> None:
    # Two documents; the first has 0.25 + 0.5 of label 1, and 0 of label 0.
    data, columns = np.array([0.25, 0, 0.5, 1, 1]), np.array([1, 0, 1, 0, 1])
    matrix = sp.csr_matrix((data, columns, np.array([0, 3, 5])), shape=(2, 2))
    stats, whole = LabelStats.from_matrix(matrix), LabelStats.from_matrix([[0, 0.75], [1, 1]])
    assert stats.label_counts.tolist() == [1, 1.75] and stats.mu == whole.mu
    twice = sp.csr_matrix((np.ones(2, bool), np.array([0, 0]), np.array([0, 2])), shape=(1, 1))
    with pytest.raises(InputError, match=r"lie in \[0, 1\], got values from 2 to 2"):
        LabelStats.from_matrix(twice)


def test_groups_are_terciles_of_the_counts() -> None:
    groups = label_groups(np.arange(1, 10))
    assert [int(mask.sum()) for mask in groups.values()] == [3, 3, 3]
    assert groups["tail"][:3].all() and groups["head"][-3:].all()
    same = label_groups(np.ones(5))
    assert same["medium"].all()
    by_cut = label_groups([1, 8, 9, 34, 35], cuts=(9, 34.5))
    assert by_cut["tail"].tolist() == [True, True, False, False, False]
    assert by_cut["head"].tolist() == [False] * 4 + [True]


NAMES = st.text(max_size=3)
DOCUMENTS = st.lists(st.lists(NAMES, max_size=5), max_size=12)
Source = tuple[list[list[str]], list[str]]


def encoded(documents: list[list[str]], declared: Sequence[str] = ()) -> LabelEncoder:
    encoder = LabelEncoder()
    encoder.declare(declared)
    for labels in documents:
        encoder.add(labels)
    return encoder


@given(DOCUMENTS)
def test_encoding_is_exact_and_sparse(documents: list[list[str]]) -> None:
    encoder = encoded(documents)
    matrix, names = encoder.finish()
    assert names == tuple(sorted({name for labels in documents for name in labels}))
    assert matrix.shape == (len(documents), len(names)) and len(encoder) == len(documents)
    assert matrix.has_sorted_indices and matrix.dtype == np.float32
    assert matrix.nnz == sum(len(set(labels)) for labels in documents)
    for row, labels in enumerate(documents):
        columns = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]
        assert [names[k] for k in columns] == sorted(set(labels))


def test_declared_labels_have_a_column_and_their_order() -> None:
    encoder = encoded([["b"]], ["z", "b", "a", "z"])
    matrix, names = encoder.finish()
    assert names == ("z", "b", "a") and matrix.toarray().tolist() == [[0, 1, 0]]
    # With an undeclared label the order is alphabetical.
    encoder.add(["new"])
    matrix, names = encoder.finish()
    assert names == ("a", "b", "new", "z")
    assert matrix.toarray().tolist() == [[0, 1, 0, 0], [0, 0, 1, 0]]


def test_known_labels_only() -> None:
    matrix, names = encode_labels([["a"], []], ["b", "a"])
    assert names == ("b", "a") and matrix.toarray().tolist() == [[0, 1], [0, 0]]
    with pytest.raises(InputError, match="document 1: label 'x' is not one of the 2 known labels"):
        encode_labels([["a"], ["b", "x", "y"]], ["b", "a"])
    with pytest.raises(InputError, match="'x' is not one of the 0 known"):
        encode_labels([["x"]], [])


def test_no_documents_and_no_labels() -> None:
    assert LabelEncoder().finish()[0].shape == (0, 0)
    assert encoded([[], []]).finish()[0].shape == (2, 0)
    assert encoded([], ["a"]).finish()[0].shape == (0, 1)


def test_many_labels_need_no_dense_row() -> None:
    # Documents of 12 of 18,211 labels: a dense row of float32 each would be 146 MB.
    rows = np.random.RandomState(0).randint(18_211, size=(2000, 12))
    documents = [[f"label {k}" for k in row] for row in rows]
    assert peak_of(lambda: encoded(documents).finish()) < 6 << 20
