"""Texts and labels of all supported types, and those that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import MultiLabelBinarizer

import longtail
from longtail import LongTailClassifier
from longtail.classifier.inputs import as_text_data, check_texts, on_classes, validation_part
from longtail.data import TextData
from longtail.errors import InputError

from .cases import DATA, LABELS, NAMES, TEXTS

MATRIX = MultiLabelBinarizer().fit_transform(LABELS)
FRAME = pd.DataFrame(MATRIX, columns=NAMES)

STORED_ZEROS = sp.csr_matrix(np.ones(MATRIX.shape))
STORED_ZEROS.data = MATRIX.ravel().astype(float)


@pytest.mark.parametrize(
    "texts",
    [
        TEXTS,
        tuple(TEXTS),
        (text for text in TEXTS),
        np.array(TEXTS),
        np.array(TEXTS, dtype=object),
        pd.Series(TEXTS, index=range(100, 100 + len(TEXTS))),
        *(pd.Series(TEXTS, dtype=kind) for kind in (object, "string", "category")),
    ],
)
def test_types_of_texts(texts: Any) -> None:
    checked = check_texts(texts)
    assert checked == TEXTS
    assert {type(text) for text in checked} == {str}


@pytest.mark.parametrize(
    "labels",
    [
        LABELS,
        tuple(tuple(names) for names in LABELS),
        [set(names) for names in LABELS],
        [np.array(names) for names in LABELS],
        (iter(names) for names in LABELS),
        [names * 2 for names in LABELS],
        pd.Series(LABELS),
        pd.Series(LABELS).to_numpy(),
        *(FRAME.astype(kind) for kind in (int, bool, float, "Int64", "boolean")),
        pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(MATRIX), columns=NAMES),
        FRAME.astype({"copper": bool, "wheat": float}),
    ],
)
def test_types_of_labels_with_names(labels: Any) -> None:
    data = as_text_data(TEXTS, labels)
    assert list(data.label_names) == NAMES
    assert {type(name) for name in data.label_names} == {str}
    assert np.array_equal(data.Y.toarray(), MATRIX)


@pytest.mark.parametrize(
    "matrix",
    [
        *(MATRIX.astype(kind) for kind in (int, bool, float, np.uint8)),
        np.asfortranarray(MATRIX),
        *(sp.coo_matrix(MATRIX).asformat(form) for form in ("csr", "csc", "coo", "lil")),
        sp.csr_array(MATRIX),
        sp.csc_array(MATRIX.astype(bool)),
        STORED_ZEROS,
    ],
)
def test_types_of_labels_without_names(matrix: Any) -> None:
    before = matrix.copy()
    data = as_text_data(TEXTS, matrix)
    assert data.label_names == ("0", "1", "2")
    assert np.array_equal(data.Y.toarray(), MATRIX)
    assert type(matrix) is type(before) and (matrix != before).sum() == 0
    named, unknown = on_classes(TEXTS, matrix, NAMES)
    assert list(named.label_names) == NAMES and unknown == {}


def test_a_text_data_is_not_copied() -> None:
    assert as_text_data(DATA) is DATA
    with pytest.raises(InputError, match="which includes labels, and labels"):
        as_text_data(DATA, LABELS)


def test_rows_of_names_in_one_array() -> None:
    labels = np.array([["copper"], ["wheat"]])
    assert as_text_data(["a", "b"], labels).label_names == ("copper", "wheat")
    assert as_text_data(["a", "b"], labels.astype(object)).labels_of(1) == ["wheat"]


def test_columns_of_a_frame_may_be_numbers() -> None:
    assert as_text_data(TEXTS, pd.DataFrame(MATRIX)).label_names == ("0", "1", "2")
    with pytest.raises(InputError, match="'1' is given twice"):
        as_text_data(TEXTS, pd.DataFrame(MATRIX, columns=[1, "1", 2]))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "labels are missing"),
        ("copper", "expected one list of labels per text, got str"),
        ({"copper": 1}, "expected one list of labels per text, got dict"),
        (["copper"] * 24, r"document 0: expected a list of labels, got 'copper'. Write \['copper'"),
        (np.array(["copper"] * 24), "document 0: expected a list of labels"),
        (pd.Series(["copper"] * 24), "document 0: expected a list of labels"),
        ([*LABELS[:-1], 7], r"document 23: .* got 7. Write \[7\]"),
        ([*LABELS[:-1], [None]], "document 23: a label must be a string, got None"),
        ([*LABELS[:-1], ["a", 1]], r"document 23: a label must be a string, got 1 \(int\)"),
        ([*LABELS[:-1], [b"a"]], "document 23: a label must be a string"),
        ([*LABELS[:-1], {"a": 0.0}], "document 23: expected a list of labels, got a dict. List"),
        (MATRIX.tolist(), r"document 0: a label must be a string, got 1 .*numpy array"),
        (LABELS[:-1], "24 texts and 23 lists of labels"),
        (MATRIX[:-1], "24 texts and 23 rows of labels"),
        (MATRIX[:, 0], "got one number per text"),
        (MATRIX[:, :, None], "must be a documents x labels matrix"),
        (MATRIX * 2, "labels must be 0 or 1, got 2.$"),
        (np.where(MATRIX, np.nan, 0), "expected documents with labels, got 24 without any"),
        (sp.csc_array(-MATRIX), "expected documents with labels, got 24 without any"),
        (2 * MATRIX - 1, "labels are 1 and -1 without any 0, and -1 means .* unknown. Write 0"),
        (FRAME.astype(object), "got columns of other types"),
        (pd.DataFrame({"labels": LABELS}), r"pass that column, frame\['labels'\]"),
        (MATRIX.astype(object), "labels must be .* real numbers, got the type object"),
        (MATRIX[:, :0], "expected at least one label, got none"),
        ([[]] * 24, "expected at least one label, got none"),
        ([["a\ud800"]] * 24, "holds half of a surrogate pair"),
        (DATA, "got a TextData: pass it alone"),
    ],
)
def test_labels_that_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_text_data(TEXTS, labels)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("one text", r"got one string. Write \[text\]"),
        (None, "expected a list of texts, got NoneType"),
        ({"a": 1}, "expected a list of texts, got dict"),
        ({"a", "b"}, "expected a list of texts, got set"),
        ([1, 2], r"text 0 must be a string, got 1 \(int\)"),
        (["a", None], r"text 1 must be a string, got None .*Write '' for"),
        ([["a"], ["b"]], "text 0 must be a string"),
        (pd.Series(["a", None]), "text 1 must be a string, got nan"),
        (pd.DataFrame({"text": ["a"]}), r"DataFrame of shape \(1, 1\). Pass one column"),
        (np.array([["a"], ["b"]]), r"ndarray of shape \(2, 1\). Pass one column"),
        (np.array("a"), r"of shape \(\)"),
        (sp.csr_matrix(MATRIX), "csr_matrix"),
    ],
)
def test_texts_that_are_refused(texts: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_texts(texts)


@given(st.lists(st.text(max_size=20), max_size=4))
def test_only_surrogates_are_replaced(texts: list[str]) -> None:
    halves = [text + "\ud800" + text for text in texts]
    assert check_texts(texts) == texts
    assert check_texts(halves) == [text + "\N{REPLACEMENT CHARACTER}" + text for text in texts]
    data = TextData.from_lists(["", "", *halves], [["x"]] * (2 + len(halves)))
    assert as_text_data(data).texts == check_texts(data.texts)
    # A pair of surrogates is one character.
    assert check_texts(["\ud83d\ude00"]) == ["\U0001f600"]


def test_the_labels_of_a_fitted_classifier() -> None:
    data, unknown = on_classes(["a", "b"], [["wheat", "tin"], ["tin"]], NAMES)
    assert [data.labels_of(row) for row in range(2)] == [["wheat"], []]
    assert unknown == {"tin": 2}
    # The columns of a frame are matched by their names.
    data, unknown = on_classes(TEXTS, FRAME[["wheat", "copper"]].assign(tin=1), NAMES)
    assert np.array_equal(data.Y.toarray()[:, [0, 2]], MATRIX[:, [0, 2]])
    assert data.Y.toarray()[:, 1].sum() == 0 and unknown == {"tin": 24}
    with pytest.raises(InputError, match="each of the 3 labels of the classifier, got 2"):
        on_classes(TEXTS, MATRIX[:, :2], NAMES)


def test_a_validation_part() -> None:
    notes: list[str] = []
    other = TextData.from_lists(["x", "y"], [["wheat", "tin"], ["zinc", "tin"]])
    part = validation_part(other, DATA, notes.append)
    assert part.label_names == DATA.label_names
    assert [part.labels_of(row) for row in range(2)] == [["wheat"], []]
    (note,) = notes
    assert note.startswith("2 labels of the validation part are not in the training part")
    assert note.endswith("left out: 'tin', 'zinc'.")
    validation_part(DATA, DATA, notes.append)
    assert len(notes) == 1
    with pytest.raises(InputError, match="validation must be a TextData, got tuple"):
        validation_part((TEXTS, LABELS), DATA, notes.append)
    with pytest.raises(InputError, match="has no documents"):
        validation_part(DATA[:0], DATA, notes.append)


@pytest.mark.parametrize(
    ("arguments", "label_texts", "message"),
    [
        (
            {"texts": [*TEXTS, "zinc"], "labels": [*LABELS, None]},
            None,
            "1 of 25 documents was left",
        ),
        (
            {"texts": DATA, "validation": TextData.from_lists(["x"], [["zinc"]])},
            None,
            "1 labels of the validation part",
        ),
        ({"texts": DATA}, {"tin": "a metal"}, "label_texts: 1 of 1 texts are not used"),
    ],
)
def test_warnings_name_the_line_of_the_caller(
    arguments: dict[str, Any], label_texts: Any, message: str
) -> None:
    """Those of `evaluate`, `read_data`, `load_data` and `load_corpus` are tested there."""
    with pytest.warns(UserWarning, match=message) as caught:
        LongTailClassifier("svm", folds=1, label_texts=label_texts).fit(**arguments)
    assert [warning.filename for warning in caught] == [__file__]


def test_only_one_function_warns() -> None:
    root = Path(longtail.__file__).parent
    warning = [
        path.name for path in root.rglob("*.py") if "warnings.warn" in path.read_text("utf-8")
    ]
    assert warning == ["errors.py"]


def test_too_few_documents() -> None:
    for texts, labels, message in (
        ([], [], "at least two documents, .* got none"),
        (["a", "b"], [[], []], "no document has a label"),
        ([], np.zeros((0, 3)), "expected at least two documents"),
        (["a"], [["x"]], "at least two documents, .* got 1"),
        (["a", "b"], np.zeros((2, 3)), "expected documents with labels, got 2 without any"),
    ):
        with pytest.raises(InputError, match=message):
            as_text_data(texts, labels)
