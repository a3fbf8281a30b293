"""Reading and writing documents: round trips, splits, and every kind of bad input."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data import TextData, load_folder, random_split, read_jsonl, write_jsonl
from longtail.errors import DataError, InputError

SMALL = TextData.from_lists(["one", "two", "three"], [["a"], ["b", "a"], []], ids=["x", "y", "z"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.lists(st.tuples(TEXTS, st.lists(TEXTS, max_size=3)), min_size=1, max_size=8))
@settings(max_examples=40, deadline=None)
def test_jsonl_round_trip(tmp_path_factory, documents: list[tuple[str, list[str]]]) -> None:
    folder: Path = tmp_path_factory.mktemp("data")
    data = TextData.from_lists([t for t, _ in documents], [names for _, names in documents])
    for name in ("plain.jsonl", "packed.jsonl.gz"):
        write_jsonl(data, folder / name)
        again = read_jsonl(folder / name)
        assert again.texts == data.texts
        assert again.label_names == data.label_names
        assert (again.Y != data.Y).nnz == 0


def test_select_labels_and_mapping_onto_other_labels() -> None:
    assert SMALL.select([2, 1]).texts == ["three", "two"]
    assert SMALL.select([1]).labels_of(0) == ["a", "b"]
    mapped, unknown = SMALL.onto(["b", "c"])
    assert mapped.Y.toarray().tolist() == [[0, 0], [1, 0], [0, 0]]
    assert unknown == {"a": 2}
    assert mapped.ids == SMALL.ids


def test_stored_zeros_are_no_labels_and_the_callers_matrix_stays() -> None:
    given_matrix = sp.csr_matrix(
        (np.array([0.0, 1.0, 1.0], np.float32), np.array([0, 1, 0]), np.array([0, 2, 3])),
        shape=(2, 2),
    )
    data = TextData(["one", "two"], given_matrix, ("a", "b"))
    assert data.labels_of(0) == ["b"] and data.Y.nnz == 2
    assert given_matrix.nnz == 3 and given_matrix.toarray().tolist() == [[0, 1], [1, 0]]
    with pytest.raises(InputError, match=r"must hold 0 and 1, got values from 0\.5"):
        TextData(["one"], sp.csr_matrix([[0.5, 1.0]]), ("a", "b"))


def test_shapes_must_fit() -> None:
    with pytest.raises(InputError, match=r"shape \(3, 1\)"):
        TextData(["a", "b", "c"], SMALL.Y, ("only one",))
    with pytest.raises(InputError, match="expected 3 ids, got 1"):
        TextData(SMALL.texts, SMALL.Y, SMALL.label_names, ("x",))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"text": "a", "labels": ["x"]}\n{broken\n', "line 2: not valid JSON"),
        (b'["a"]\n', "line 1: expected a JSON object"),
        (b'{"txt": "a", "labels": []}\n', "field 'text', got None.*txt, labels"),
        (b'{"text": "a", "labels": "x"}\n', "list of strings in field 'labels', got 'x'"),
        (b'{"text": "a", "labels": [1]}\n', "list of strings"),
        (b"\n\n", "no documents"),
        (b'{"text": "a", "labels": ["\\ud800"]}\n', "list of strings"),
        (b'{"text": "\xff\xfe", "labels": []}\n', "not valid UTF-8"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_jsonl(path)


def test_truncated_gzip_is_named(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl.gz"
    line = json.dumps({"text": "word " * 500, "labels": ["a"]}) + "\n"
    path.write_bytes(gzip.compress((line * 500).encode())[:-200])
    with pytest.raises(DataError, match="cannot be read"):
        read_jsonl(path)
    corrupt = bytearray(gzip.compress((line * 500).encode()))
    corrupt[40:60] = bytes(20)
    path.write_bytes(corrupt)
    with pytest.raises(DataError, match="cannot be read"):
        read_jsonl(path)


def test_a_folder_of_parts(tmp_path: Path) -> None:
    write_jsonl(SMALL, tmp_path / "train.jsonl")
    write_jsonl(TextData.from_lists(["four"], [["c"]]), tmp_path / "test.jsonl.gz")
    write_jsonl(SMALL.select([0]), tmp_path / "dev.jsonl")
    parts = load_folder(tmp_path)
    assert {part: len(data) for part, data in parts.items()} == {
        "train": 3,
        "validation": 1,
        "test": 1,
    }
    assert {data.label_names for data in parts.values()} == {("a", "b", "c")}


def test_missing_parts(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither a known corpus, a file nor a folder"):
        load_folder(tmp_path / "nothing")
    with pytest.raises(DataError, match="an empty folder"):
        load_folder(tmp_path)
    write_jsonl(SMALL, tmp_path / "train.jsonl")
    assert len(load_folder(tmp_path)["validation"]) == 1


def test_one_file_is_split(tmp_path: Path) -> None:
    many = TextData.from_lists([str(k) for k in range(50)], [["a"]] * 50)
    write_jsonl(many, tmp_path / "all.jsonl")
    parts = load_folder(tmp_path / "all.jsonl")
    assert sorted(int(t) for part in parts.values() for t in part.texts) == list(range(50))
    assert load_folder(tmp_path / "all.jsonl")["test"].texts == parts["test"].texts


def test_a_split_needs_two_documents() -> None:
    first, second = random_split(SMALL, 0.01)
    assert (len(first), len(second)) == (2, 1)
    with pytest.raises(DataError, match="at least two"):
        random_split(SMALL.select([0]), 0.5)
