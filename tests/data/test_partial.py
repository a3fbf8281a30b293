"""Unknown labels and document weights: read, kept by every operation, written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.data import ReadReport, TextData, load_data, read_data, write_data
from longtail.data.documents import ReadOptions
from longtail.errors import DataError, InputError

from .cases import assert_same, labels_of, read, reported

HIDDEN = [[0, 1, 0], [0, 0, 0], [1, 1, 1], [0, 0, 1]]
DATA = TextData(
    ["one", "two", "three", "four"],
    sp.csr_matrix([[1.0, 0, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0]]),
    ("a", "b", "c"),
    unknown=sp.csr_matrix(HIDDEN),
    weights=np.array([1, 0.5, 0, 3]),
)


def hidden(data: TextData) -> list[list[int]]:
    matrix = np.zeros(data.Y.shape) if data.unknown is None else data.unknown.toarray()
    return matrix.astype(int).tolist()


def weights(data: TextData) -> list[float] | None:
    return None if data.weights is None else data.weights.tolist()


def assert_equal(data: TextData, expected: TextData) -> None:
    assert_same(data, expected)
    assert (hidden(data), weights(data)) == (hidden(expected), weights(expected))


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "tsv", "parquet"])
def test_what_is_written_is_read(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}"
    write_data(DATA, path)
    options = {"known_field": "known", "weight_field": "weight", "keep_unlabelled": True}
    data = read_data(path, **options)
    # Only Parquet keeps a label without documents.
    assert_equal(data, DATA if suffix == "parquet" else DATA.onto(["a", "b"])[0])
    plain = read_data(path, keep_unlabelled=True)
    assert plain.unknown is None and plain.weights is None
    DATA.save(tmp_path / "saved.parquet")
    assert_equal(TextData.load(tmp_path / "saved.parquet"), DATA)


def test_operations_keep_both() -> None:
    assert hidden(DATA[1:]) == HIDDEN[1:] and weights(DATA[[3, 0]]) == [3, 1]
    assert hidden(DATA[DATA.weights > 0.7]) == [HIDDEN[0], HIDDEN[3]]
    onto, lacking = DATA.onto(["c", "new", "a"])
    assert hidden(onto) == [[0, 0, 0], [0, 0, 0], [1, 0, 1], [1, 0, 0]] and lacking == {"b": 2}
    plain = TextData.from_lists(["five"], [["d"]])
    both = TextData.concat([DATA, plain])
    assert hidden(both) == [[*row, 0] for row in HIDDEN] + [[0, 0, 0, 0]]
    assert weights(both) == [1, 0.5, 0, 3, 1]
    assert TextData.concat([plain, plain]).weights is None
    assert DATA.trainable().texts == ["one", "two", "four"]
    assert plain.trainable() is plain
    np.testing.assert_array_equal(DATA.truth.toarray(), np.where(HIDDEN, np.nan, DATA.Y.toarray()))
    assert plain.truth is plain.Y
    assert DATA.stats().label_counts.tolist() == [2, 2, 0] and DATA.stats().n_samples == 4


def test_documents_name_the_labels_that_are_known() -> None:
    assert [document.known for document in DATA] == [["a", "c"], None, [], ["a", "b"]]
    assert [document.weight for document in DATA] == [1, 0.5, 0, 3]


def test_fingerprints_differ_by_what_is_unknown() -> None:
    plain = TextData(DATA.texts, DATA.Y, DATA.label_names)
    other = TextData(DATA.texts, DATA.Y, DATA.label_names, weights=np.ones(4))
    half = TextData(DATA.texts, DATA.Y, DATA.label_names, unknown=DATA.unknown)
    assert len({data.fingerprint() for data in (DATA, plain, other, half)}) == 4


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"unknown": sp.csr_matrix((4, 2))}, r"the shape \(4, 3\) of the labels, got \(4, 2\)"),
        ({"unknown": [1]}, "of the labels, got list"),
        ({"weights": [1, 2, 3]}, r"expected 4 weights, one per document, .* got 3: \[1, 2, 3\]"),
        ({"weights": [1, 2, 3, -1]}, "finite and not negative"),
        ({"weights": [1, 2, 3, np.nan]}, "finite and not negative"),
        ({"weights": [[1], [2], [3], [4]]}, "one per document"),
        ({"weights": ["a", 1, 1, 1]}, "expected 4 weights"),
    ],
)
def test_what_does_not_fit_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TextData(DATA.texts, DATA.Y, DATA.label_names, **fields)


def test_a_label_that_applies_is_known() -> None:
    data = TextData(["x"], sp.csr_matrix([[1.0, 0]]), ("a", "b"), unknown=sp.csr_matrix([[1, 1]]))
    assert hidden(data) == [[0, 1]]
    nothing = TextData(["x"], data.Y, ("a", "b"), unknown=sp.csr_matrix([[1, 0]]))
    assert nothing.unknown is None


def test_lists_of_labels_with_none() -> None:
    data = TextData.from_lists(["x", "y", "z"], [["b"], None, ["a"]])
    assert hidden(data) == [[0, 0], [1, 1], [0, 0]] and labels_of(data) == [["b"], [], ["a"]]
    generated = TextData.from_lists(["x", "y", "z"], (names for names in [["b"], None, ["a"]]))
    assert_equal(generated, data)


COLUMNS = "text,a,b,weight\nx,1,?,2\ny,-1,1,\nz,NA,nan,0\nw,1,,1.5\n"


def test_label_columns(tmp_path: Path) -> None:
    options: dict[str, Any] = {"label_columns": "*", "keep_unlabelled": True}
    data, report = reported(tmp_path / "a.csv", COLUMNS, **options, weight_field="weight")
    assert data.label_names == ("a", "b") and labels_of(data) == [["a"], ["b"], [], ["a"]]
    # An empty cell is 0, as in tables that people fill in.
    assert hidden(data) == [[0, 1], [1, 0], [1, 1], [0, 0]] and weights(data) == [2, 1, 0, 1.5]
    (line,) = report.lines()
    assert line.startswith("50.0% of all pairs of document and label are unknown: they are neither")
    table = pa.table({"text": ["x", "y"], "a": [1.0, None], "b": [float("nan"), 1.0]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert hidden(read(tmp_path / "a.parquet", **options)) == [[0, 1], [1, 0]]
    line = '{"text": "x", "a": 1, "b": null, "c": -1}'
    assert hidden(read(tmp_path / "a.jsonl", line, label_columns="a,b,c")) == [[0, 1, 1]]


def test_the_labels_that_were_checked(tmp_path: Path) -> None:
    records = [
        {"text": "x", "labels": ["a"], "checked": ["b", "elsewhere"]},
        {"text": "y", "labels": ["b", "c"]},
        {"text": "z", "labels": ["c"], "checked": []},
        {"text": "w", "labels": ["c"], "checked": None},
    ]
    content = "\n".join(map(json.dumps, records))
    data, report = reported(tmp_path / "a.jsonl", content, known_field="checked")
    assert data.label_names == ("a", "b", "c")
    assert hidden(data) == [[0, 0, 1], [0, 0, 0], [1, 1, 0], [0, 0, 0]]
    assert report.lines()[0].startswith("25.0% of all pairs")
    table = "text,labels,checked\nx,a,b;c\ny,b,\nz,c,c\n"
    data = read(tmp_path / "a.csv", table, known_field="checked", label_separator=";")
    assert hidden(data) == [[0, 0, 0], [0, 0, 0], [1, 1, 0]]


@pytest.mark.parametrize("option", ["id_field", "date_field", "known_field", "weight_field"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_a_named_field_that_no_document_has_is_an_error(
    tmp_path: Path, name: str, option: str
) -> None:
    path, flag = tmp_path / name, f"--{option.replace('_', '-')}"
    write_data(TextData.from_lists(["x", "y", "z"], [["a"]] * 3), path)
    for load in (read_data, load_data):
        with pytest.raises(DataError, match=rf"no document has the field 'txt' \({flag}\). Did"):
            load(path, **{option: "txt"})
        report = ReadReport(remembered=[option])
        load(path, report=report, **{option: "txt"})
        (note,) = report.notes
        assert f"'txt' ({flag}, as in the training data)" in note
        assert ("numbered" in note) == (option == "id_field")


def test_a_named_field_of_one_part_is_enough(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(
        '{"text": "x", "labels": ["a"]}\n{"text": "y", "labels": ["a"], "w": 2}\n'
    )
    (tmp_path / "test.csv").write_text("text,labels\nz,a\n")
    assert load_data(tmp_path, weight_field="w")["test"].weights is None


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"weight": "many"}, "expected a weight of at least 0 in field 'weight', got 'many'"),
        ({"weight": -1}, "expected a weight of at least 0"),
        ({"weight": float("inf")}, "expected a weight of at least 0"),
        ({"weight": [1]}, "expected a weight of at least 0"),
        ({"known": 3}, "expected a list of strings in field 'known', got 3"),
        ({"known": "a,b"}, "may be one label or several"),
    ],
)
def test_bad_fields(record: dict[str, Any], message: str, tmp_path: Path) -> None:
    line = json.dumps({"text": "x", "labels": ["a"], **record})
    with pytest.raises(DataError, match=message):
        read(tmp_path / "a.jsonl", line, known_field="known", weight_field="weight")


def test_one_way_to_say_it() -> None:
    with pytest.raises(InputError, match=r"cannot be combined: write \? where it is unknown"):
        ReadOptions(known_field="known", label_columns="*")


@given(st.lists(st.lists(st.sampled_from([0, 1, None]), min_size=3, max_size=3), min_size=1))
def test_any_pattern_survives_a_file(pattern: list[list[int | None]]) -> None:
    values = np.array(pattern, dtype=float)
    data = TextData(
        ["x"] * len(values),
        sp.csr_matrix(np.nan_to_num(values)),
        ("a", "b", "c"),
        unknown=sp.csr_matrix(np.isnan(values)),
    )
    np.testing.assert_array_equal(data.truth.toarray(), values)
    documents = [data.texts, [d.labels for d in data], [d.known for d in data]]
    for _, labels, known, row in zip(*documents, values, strict=True):
        expected = (
            None if not np.isnan(row).any() else {*"abc"} - {*np.array([*"abc"])[np.isnan(row)]}
        )
        assert (None if known is None else {*known}) == expected
        assert {*labels} == {*np.array([*"abc"])[row == 1]}


def test_a_short_repr() -> None:
    assert repr(DATA) == "TextData(4 documents, 3 labels, 1.0 labels per document)"
    assert repr(DATA[:0]) == "TextData(0 documents, 3 labels, 0.0 labels per document)"
