"""Label statistics: counts, the paper's mu, groups, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.errors import InputError
from longtail.labels import LabelEncoder, LabelStats, encode_labels, label_groups

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
    # r is a share: where most documents have no label, 10 / 1 would be no mean of it.
    assert LabelStats.from_counts([1], 10).mu == 1.0


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
    [
        (["copper"], r"Write \['copper'\]"),
        ([None], r"document 0: expected a list of labels, got None"),
        ([["a"], 3], r"document 1: expected a list of labels, got 3"),
        ([[1]], "must be a string"),
        ([[["a"]]], r"must be a string, got \['a'\] \(list\)"),
        ([["x"]], "not one of"),
    ],
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
        ([], 5, "at least one label"),
        ([[1]], 5, r"shape \(1, 1\)"),
        ([1], 0, "at least 1"),
        ([1], 2.5, "whole number"),
        (["many"], 5, "must be numbers"),
    ],
)
def test_wrong_counts_are_refused(counts: list, n_samples: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        LabelStats.from_counts(counts, n_samples)  # type: ignore[arg-type]


HUGE = 10**400


@pytest.mark.parametrize(
    "counts",
    [
        None, "3", ["3"], [float("inf")], [HUGE], [10**5000], [1e308] * 3, [3 + 1j], [None], {3},
        {1: 3}, {"a": None}, {"a": "1"}, object(), [object()], [[1], [1, 2]], {},
        np.ones(2, dtype=complex), np.array(["2020-01-01"], dtype="datetime64[D]"),
    ],
    ids=lambda counts: type(counts).__name__,
)  # fmt: skip
def test_absurd_counts_are_refused(counts: Any) -> None:
    # np.asarray reads "3" as 3, None as NaN, and overflows at a whole number of 400 digits.
    with pytest.raises(InputError):
        LabelStats.from_counts(counts, 40)


@pytest.mark.parametrize(
    "n_samples", [None, True, 40.0, 0, -1, HUGE, 10**5000, 2**53 + 1, float("nan"), "40", [40]],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_absurd_numbers_of_documents_are_refused(n_samples: Any) -> None:
    message = r"n_samples must be a whole number of at least 1 \(and at most 2\*\*53\), got"
    with pytest.raises(InputError, match=message):
        LabelStats.from_counts([1, 0], n_samples)


def test_the_largest_number_of_documents() -> None:
    stats = LabelStats.from_counts([2**53, 1], 2**53)
    assert stats.n_samples == 2**53 and 0 < stats.mu <= 1
    assert LabelStats.from_counts([1, 0], np.int32(3)).n_samples == 3


@pytest.mark.parametrize(
    "labels", [None, 3, "abc", object(), 10**5000], ids=["None", "3", "text", "object", "huge"]
)
def test_what_is_no_list_of_documents_is_refused(labels: Any) -> None:
    for make in (LabelStats.from_lists, encode_labels):
        with pytest.raises(InputError, match="expected one list of label names per document, got"):
            make(labels)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("ab", r"must be a list of strings, got 'ab'\. Write \["),
        (3, "must be a list of strings, got 3"),
        (["a", 1], r"a label name must be a string, got 1 \(int\)"),
        ([["a"], ["b"]], r"must be a string, got \['a'\] \(list\)"),
        (b"ab", "must be a string, got 97"),
        ([None, "b"], "must be a string, got None"),
        (["a", "a"], "'a' is given twice"),
        (["a"], "expected 2 label names"),
    ],
)
def test_wrong_label_names_are_refused(names: Any, message: str) -> None:
    for make in (
        lambda: LabelStats.from_counts([1, 1], 4, names),
        lambda: LabelStats.from_matrix(np.eye(2), names),
        lambda: LabelStats(np.ones(2), 4, names),
    ):
        with pytest.raises(InputError, match=message):
            make()
    if names != ["a"]:
        with pytest.raises(InputError, match=message):
            LabelEncoder(names)


def test_wrong_arguments_of_an_encoder_are_refused() -> None:
    encoder = LabelEncoder()
    for names in ("ab", 3, None, [1]):
        with pytest.raises(InputError, match="string"):
            encoder.declare(names)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected a LabelEncoder, got list"):
        encoder.extend([])  # type: ignore[arg-type]
    assert encoder.finish()[0].shape == (0, 0)


@pytest.mark.parametrize("mu", [float("nan"), None, "1", True])
def test_a_wrong_mu_is_refused(mu: Any) -> None:
    with pytest.raises(InputError, match="mu must be a finite number"):
        LabelStats(np.ones(2), 4, None, mu)


def test_label_groups_of_no_counts_are_refused() -> None:
    for counts in (None, [], [float("nan")], [[1]], ["1"], 3):
        with pytest.raises(InputError):
            label_groups(counts)  # type: ignore[arg-type]
    for cuts in ((2, 1), (1,), (float("nan"), 1), "ab", 3):
        with pytest.raises(InputError, match="cut"):
            label_groups([1, 2], cuts)  # type: ignore[arg-type]


def test_long_values_are_cut_in_messages() -> None:
    with pytest.raises(InputError) as caught:
        LabelStats.from_counts(["many"] * 10_000, 40)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("names", [["a", "b", "a"], ("b", "b")])
def test_repeated_label_names_are_refused(names: Sequence[str]) -> None:
    # The second would shift all columns after it.
    with pytest.raises(InputError, match=f"{names[-1]!r} is given twice"):
        encode_labels([["b"]], names)
    with pytest.raises(InputError, match="given twice"):
        LabelStats.from_lists([["b"]], names)


@pytest.mark.parametrize("make", [sp.csr_matrix, sp.csr_array])
@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int8, bool])
def test_the_callers_matrix_is_left_alone(dtype: type, read_only: bool, make: type) -> None:
    # The columns of the first document are not in order; two zeros are stored.
    values, columns = np.array([1, 0, 1, 1, 0, 1], dtype=dtype), np.array([2, 0, 1, 1, 2, 0])
    matrix = make((values, columns, np.array([0, 3, 4, 6, 6])), shape=(4, 3))
    parts = (matrix.data, matrix.indices, matrix.indptr)
    before = [part.copy() for part in parts]
    for part in parts:
        part.setflags(write=not read_only)
    stats = LabelStats.from_matrix(matrix)
    assert stats.label_counts.tolist() == [1, 2, 1] and stats.n_samples == 4
    shared = stats.cooccurrence().toarray().tolist()
    assert shared == [[1, 0, 0], [0, 2, 1], [0, 1, 1]]
    # Neither zeros nor the order of the columns were tidied up in place.
    assert all(
        now is part
        for now, part in zip((matrix.data, matrix.indices, matrix.indptr), parts, strict=True)
    )
    assert all(np.array_equal(part, old) for part, old in zip(parts, before, strict=True))
    assert matrix.dtype == dtype and matrix.nnz == 6
    # And what the caller does later is not the statistics' business.
    if not read_only:
        matrix.data[:], matrix.indices[:] = 1, 0
    assert stats.label_counts.tolist() == [1, 2, 1]
    assert stats.cooccurrence().toarray().tolist() == shared


@pytest.mark.parametrize("dtype", [np.float64, np.int64, bool])
def test_a_dense_matrix_may_change_afterwards(dtype: type) -> None:
    dense = np.array([[1, 0], [1, 1]], dtype=dtype)
    stats = LabelStats.from_matrix(dense)
    dense[:] = 0
    assert stats.label_counts.tolist() == [2, 1]
    assert stats.cooccurrence().toarray().tolist() == [[2, 1], [1, 1]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_elements_stored_in_parts_are_summed(dtype: type) -> None:
    # Two documents; the first says 0.25 + 0.5 of label 1, and 0 of label 0.
    data, columns = np.array([0.25, 0, 0.5, 1, 1], dtype=dtype), np.array([1, 0, 1, 0, 1])
    matrix = sp.csr_matrix((data, columns, np.array([0, 3, 5])), shape=(2, 2))
    stats = LabelStats.from_matrix(matrix)
    whole = LabelStats.from_matrix([[0, 0.75], [1, 1]])
    assert stats.label_counts.tolist() == whole.label_counts.tolist() == [1, 1.75]
    assert stats.mu == whole.mu
    assert stats.cooccurrence().toarray().tolist() == whole.cooccurrence().toarray().tolist()
    assert matrix.data.tolist() == [0.25, 0, 0.5, 1, 1]


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.float64])
def test_a_label_stored_twice_is_refused(dtype: type) -> None:
    twice = (np.array([1, 1], dtype=dtype), np.array([0, 0]), np.array([0, 2]))
    with pytest.raises(InputError, match=r"lie in \[0, 1\], got values from 2 to 2"):
        LabelStats.from_matrix(sp.csr_matrix(twice, shape=(1, 1)))


@pytest.mark.parametrize(
    "matrix",
    [[1, 0], (3, 4), None, np.ones(3), np.ones((2, 2, 2)), 1, "ab", sp.coo_array(np.ones(3))],
    ids=repr,
)
def test_what_is_no_matrix_is_refused(matrix: Any) -> None:
    # scipy would read (3, 4) as a shape, and one row of numbers as one document.
    with pytest.raises(InputError, match="expected a documents x labels matrix"):
        LabelStats.from_matrix(matrix)


@pytest.mark.parametrize(
    "matrix",
    [[["1", "0"]], [[1], [1, 2]], [[1j]], [[HUGE]], sp.csr_matrix([[1j]]), [[float("nan")]],
     np.array([["1"]], dtype=object)],
    ids=repr,
)  # fmt: skip
def test_matrices_of_other_things_are_refused(matrix: Any) -> None:
    # numpy reads "1" as 1: lists of label names would pass for a matrix.
    with pytest.raises(InputError):
        LabelStats.from_matrix(matrix)


@pytest.mark.parametrize("damage", ["indices", "negative", "starts", "end", "first"])
@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_a_sparse_matrix_that_points_outside_itself_is_refused(kind: str, damage: str) -> None:
    # scipy checks when it makes a matrix, not when it converts one: it would write there.
    matrix = sp.csr_matrix(np.eye(3)).asformat(kind)
    index = matrix.row if kind == "coo" else matrix.indices
    starts = matrix.col if kind == "coo" else matrix.indptr
    {
        "indices": lambda: index.__setitem__(1, 10**6),
        "negative": lambda: index.__setitem__(1, -1),
        "starts": lambda: starts.__setitem__(1, 10**6),
        "end": lambda: starts.__setitem__(-1, 17),
        "first": lambda: starts.__setitem__(0, -7),
    }[damage]()
    with pytest.raises(InputError, match=f"damaged {kind} matrix"):
        LabelStats.from_matrix(matrix)


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


NAMES = st.text(max_size=3)
DOCUMENTS = st.lists(st.lists(NAMES, max_size=5), max_size=12)


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
        found = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]
        assert [names[k] for k in found] == sorted(set(labels))


@given(DOCUMENTS, DOCUMENTS, st.lists(NAMES, max_size=3), st.lists(NAMES, max_size=3))
def test_encoders_of_two_files_join_as_if_they_were_one(
    first: list[list[str]],
    second: list[list[str]],
    declared_first: list[str],
    declared_second: list[str],
) -> None:
    joined = encoded(first, declared_first)
    joined.extend(encoded(second, declared_second))
    one = encoded(first, declared_first)
    one.declare(declared_second)
    for labels in second:
        one.add(labels)
    (matrix, names), (expected, expected_names) = joined.finish(), one.finish()
    assert names == expected_names and matrix.shape == expected.shape
    assert (matrix != expected).nnz == 0


def test_declared_labels_have_a_column_and_their_order() -> None:
    encoder = encoded([["b"]], ["z", "b", "a", "z"])
    matrix, names = encoder.finish()
    assert names == ("z", "b", "a") and matrix.toarray().tolist() == [[0, 1, 0]]
    # One label more, and there is no order but the alphabet's.
    encoder.add(["new"])
    matrix, names = encoder.finish()
    assert names == ("a", "b", "new", "z")
    assert matrix.toarray().tolist() == [[0, 1, 0, 0], [0, 0, 1, 0]]


def test_known_labels_only() -> None:
    encoder = LabelEncoder(["b", "a"])
    encoder.add(["a", "b"])
    with pytest.raises(InputError, match="document 1: label 'x' is not one of the 2 known labels"):
        encoder.add(["a", "x"])
    # What was refused has left no trace.
    matrix, names = encoder.finish()
    assert names == ("b", "a") and matrix.toarray().tolist() == [[1, 1]]
    with pytest.raises(InputError, match="'x' is not one of"):
        encoder.declare(["x"])
    with pytest.raises(InputError, match="'x' is not one of"):
        encoder.extend(encoded([["x"]]))
    encoder.extend(encoded([["a"], []]))
    assert encoder.finish()[0].toarray().tolist() == [[1, 1], [0, 1], [0, 0]]


def test_no_documents_and_no_labels() -> None:
    assert LabelEncoder().finish()[0].shape == (0, 0)
    assert encoded([[], []]).finish()[0].shape == (2, 0)
    assert encoded([], ["a"]).finish()[0].shape == (0, 1)


def test_many_labels_need_no_dense_row() -> None:
    import time
    import tracemalloc

    # 20,000 documents of 12 of 18,211 labels: a dense row each would be 1.4 GB and 100 s.
    names = [f"label {k}" for k in range(18_211)]
    rows = np.random.RandomState(0).randint(len(names), size=(20_000, 12)).tolist()
    documents = [[names[k] for k in row] for row in rows]
    tracemalloc.start()
    try:
        encoder, start = encoded([]), time.perf_counter()
        for labels in documents[:2000]:
            encoder.add(labels)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
    for labels in documents[2000:]:
        encoder.add(labels)
    matrix, _ = encoder.finish()
    assert matrix.shape[0] == 20_000 and matrix.nnz == sum(len(set(row)) for row in rows)
    assert time.perf_counter() - start < 20
