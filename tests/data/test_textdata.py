"""TextData: validation, slices, concatenation, other label sets, saving and loading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from longtail.data import TextData, read_data, write_data
from longtail.errors import DataError, InputError

from .cases import assert_same

SMALL = TextData.from_lists(
    ["one", "two", "three"],
    [["a"], ["b", "a"], []],
    ids=["x", "y", "z"],
    dates=["1987", "1987-02", ""],
)


def test_one_document() -> None:
    document = SMALL[1]
    assert document[:4] == ("two", ["a", "b"], "y", "1987-02")
    assert SMALL[-1].text == "three" and SMALL[-2].labels == ["a", "b"]
    assert SMALL[np.int64(0)].text == "one"
    assert [document.text for document in SMALL] == SMALL.texts
    assert SMALL.labels_of(-2) == ["a", "b"]
    for row in (3, -4):
        with pytest.raises(IndexError):
            SMALL[row]
        with pytest.raises(IndexError):
            SMALL.labels_of(row)


@pytest.mark.parametrize(
    ("rows", "texts"),
    [
        (slice(1, None), ["two", "three"]),
        (slice(None, None, -2), ["three", "one"]),
        (slice(5, 9), []),
        ([2, 0], ["three", "one"]),
        ([-1, 0, 0], ["three", "one", "one"]),
        (np.array([True, False, True]), ["one", "three"]),
        ([True, False, False], ["one"]),
        ([], []),
        (np.array([1], dtype=np.uint8), ["two"]),
    ],
)
def test_slices_keep_everything_together(rows: Any, texts: list[str]) -> None:
    chosen = SMALL[rows]
    assert chosen.texts == texts and chosen.label_names == SMALL.label_names
    assert_same(chosen, SMALL.select(rows if not isinstance(rows, slice) else range(3)[rows]))
    for document in chosen:
        assert document == SMALL[SMALL.texts.index(document.text)]


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([True, False], InputError, "a mask of 3 values"),
        # Truncated, these would be the documents 0 and 1.
        ([0.7, 1.2], InputError, "expected positions or a mask, got float64"),
        ([3], IndexError, "out of bounds|out of range"),
    ],
)
def test_wrong_positions_are_refused(rows: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        SMALL.select(rows)


def test_concatenation() -> None:
    other = TextData.from_lists(["four"], [["c", "a"]], ids=["w"])
    both = TextData.concat([SMALL, other])
    assert both.texts == ["one", "two", "three", "four"]
    assert both.label_names == ("a", "b", "c")
    assert [document.labels for document in both] == [["a"], ["a", "b"], [], ["a", "c"]]
    # Both have ids; only one has dates.
    assert both.ids == ("x", "y", "z", "w") and both.dates is None
    again = TextData.concat(SMALL[k : k + 1] for k in range(3))
    assert_same(again, SMALL)
    with pytest.raises(InputError, match="nothing to concatenate"):
        TextData.concat([])
    ordered = TextData.from_lists(["one"], [["z"]], label_names=["z", "a"])
    assert TextData.concat([ordered, ordered]).label_names == ("z", "a")


def test_mapping_onto_other_labels_counts_the_unknown() -> None:
    mapped, unknown = SMALL.onto(["b", "c"])
    assert mapped.Y.toarray().tolist() == [[0, 0], [1, 0], [0, 0]]
    assert unknown == {"a": 2}
    assert (mapped.texts, mapped.ids, mapped.dates) == (SMALL.texts, SMALL.ids, SMALL.dates)
    turned, unknown = SMALL.onto(["b", "a"])
    assert not unknown and [d.labels for d in turned] == [["a"], ["b", "a"], []]
    none, unknown = SMALL.onto([])
    assert none.Y.shape == (3, 0) and unknown == {"a": 2, "b": 1}
    with pytest.raises(InputError, match="'b' is given twice"):
        SMALL.onto(["b", "b"])
    assert SMALL.onto(SMALL.label_names)[0] is SMALL


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["a", "b", "c"], SMALL.Y, ("only one",)), r"shape \(3, 1\).*got \(3, 2\)"),
        ((["a"], [[1]], ("x",)), r"shape \(1, 1\).*got list"),
        ((SMALL.texts, SMALL.Y, SMALL.label_names, ("x",)), "expected 3 ids, got 1"),
        ((SMALL.texts, SMALL.Y, SMALL.label_names, None, ("x",)), "expected 3 dates, got 1"),
        ((["a", "b", 3], SMALL.Y, ("a", "b")), "texts must be strings.*got int"),
        ((["a", "b", None], SMALL.Y, ("a", "b")), "texts must be strings.*got NoneType"),
        (("abc", SMALL.Y, ("a", "b")), "texts must be strings.*got one string"),
        ((SMALL.texts, SMALL.Y, ("a", 1)), "a label must be a string, got 1"),
        ((SMALL.texts, SMALL.Y, ("a", "a")), "'a' is given twice"),
        ((SMALL.texts, SMALL.Y, ("a", "b"), (1, 2, 3)), "ids must be strings.*got int"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TextData(*arguments)


@pytest.mark.parametrize("extra", [{}, {"ids": ["x", "x"]}, {"dates": ["1987", ""]}])
def test_saving_and_loading_restores_everything(tmp_path: Path, extra: dict[str, Any]) -> None:
    # Even empty texts, repeated ids, and labels without documents in their order.
    names = ["z", "none", " a", ""]
    data = TextData.from_lists(["", "\x00 \ufeff"], [["z", ""], []], names, **extra)
    data.save(tmp_path / "data.parquet")
    assert_same(TextData.load(tmp_path / "data.parquet"), data)
    assert [file.name for file in tmp_path.iterdir()] == ["data.parquet"]


def test_loading_what_others_wrote(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"text": ["one", "two"], "labels": [["b"], ["a"]]}), path)
    loaded = TextData.load(path)
    assert loaded.texts == ["one", "two"] and loaded.label_names == ("a", "b")
    path.write_bytes(b"PAR1 but not Parquet")
    with pytest.raises(DataError, match="not a valid Parquet file"):
        TextData.load(path)
    with pytest.raises(DataError, match="no such file"):
        TextData.load(tmp_path / "nothing.parquet")


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv.gz", ".parquet"])
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"data{suffix}"
    write_data(SMALL, path)
    before = path.read_bytes()
    broken = TextData.from_lists(["one", "two \ud800"], [["a"], ["b"]])
    with pytest.raises(InputError, match=r"was not written: '\\ud800'"):
        write_data(broken, path)
    with pytest.raises(InputError, match="lone surrogate"):
        write_data(TextData.from_lists(["one"], [["\udfff"]]), path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "folder.jsonl", tmp_path / "file" / "data.parquet"):
        with pytest.raises(DataError, match="cannot be written"):
            write_data(SMALL, path)
    assert len(list(tmp_path.iterdir())) == 2
    write_data(SMALL, tmp_path / "new" / "folders" / "data.jsonl")
    assert len(read_data(tmp_path / "new" / "folders" / "data.jsonl", keep_unlabelled=True)) == 3


def test_the_fingerprint_is_of_texts_and_labels_in_their_order() -> None:
    data = TextData.from_lists(["a", "b\ud800"], [["x"], ["x", "y"]])
    same = TextData(["a", "b\ud800"], data.Y.tocoo(), ("x", "y"), ids=("1", "2"))
    assert data.fingerprint() == same.fingerprint()
    others = [
        data.select([1, 0]),
        TextData(["a", "c"], data.Y, ("x", "y")),
        TextData(["ab\ud800", ""], data.Y, ("x", "y")),
        TextData(["a", "b\ud800"], data.Y, ("x", "z")),
        TextData.from_lists(["a", "b\ud800"], [["y"], ["x", "y"]]),
    ]
    assert len({data.fingerprint(), *(other.fingerprint() for other in others)}) == 6
