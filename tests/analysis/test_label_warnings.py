"""Labels read with the wrong settings give warnings; labels of real corpora do not."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from longtail.analysis import label_warnings
from longtail.corpora.newswire import load
from longtail.data import TextData, load_data


def with_labels(labels: list[list[str]]) -> TextData:
    """Documents with these labels, and one without any."""
    return TextData.from_lists(["text"] * (len(labels) + 1), [*labels, []])


def joined(data: TextData, separator: str) -> TextData:
    """The labels of each document joined to one, as if read with the wrong separator."""
    return with_labels([[separator.join(document.labels)] for document in data])


def test_the_synthetic_newswire_has_none() -> None:
    assert label_warnings(load(n_documents=2000)["train"]) == []


@pytest.mark.parametrize("separator", [";", "|", ",", "\t", "; ", " | "])
def test_a_wrong_separator(separator: str) -> None:
    data = joined(load(n_documents=600, n_labels=30)["train"], separator)
    (warning,) = label_warnings(data)
    shown = repr(separator.strip(" "))
    assert warning.startswith(f"{sum(separator in name for name in data.label_names)} of ")
    assert f"look like several labels joined by {shown}, such as" in warning
    assert f"--label-separator {'$' * (separator == chr(9))}{shown})" in warning
    examples = re.findall(r"'(\w[^']*)'", warning)
    assert len(examples) == 3 and all(repr(separator)[1:-1] in name for name in examples)


def test_names_with_separators_of_their_own() -> None:
    names = ["Mice, Inbred C57BL", "Mice, Knockout", "Mice", "Education, Nursing", "Nursing"]
    names += ["Education", "Europe|Politics", "Asia|Politics", "Europe|Economy", ";", ",", "a;"]
    assert label_warnings(with_labels([names, names])) == []
    # Label names rarely contain a semicolon, so one joined name is enough.
    (warning,) = label_warnings(with_labels([["drama;comedy"], ["comedy"], ["drama"]]))
    assert (
        "1 of 3 label names look like several labels joined by ';'" in warning
        and "'drama;comedy'" in warning
    )


def test_a_column_of_ids_or_of_free_text() -> None:
    (warning,) = label_warnings(with_labels([[f"doc-{k}"] for k in range(50)]))
    assert warning.startswith("50 of 50 labels have one document each ('doc-0', 'doc-1', 'doc-10')")
    assert "--labels-field" in warning and "--label-separator" in warning
    assert label_warnings(with_labels([[f"doc-{k % 25}"] for k in range(50)])) == []
    assert label_warnings(with_labels([["a"], ["b"], ["c"]])) == []


def test_labels_on_every_document() -> None:
    labels = [["billing"], ["billing", "refund"], ["billing"]]
    (warning,) = label_warnings(TextData.from_lists(["text"] * 3, labels))
    assert warning == (
        "every document has the label 'billing': nothing can be learned about it, and every text "
        "will get it. Add documents without it."
    )
    (warning,) = label_warnings(TextData.from_lists(["a", "b"], [["x", "y"]] * 2))
    assert warning.startswith("every document has 2 labels, 'x', 'y': nothing can be learned about")
    assert label_warnings(with_labels(labels)) == []
    assert label_warnings(TextData.from_lists([], [], ["x"])) == []


def test_names_that_are_nearly_equal() -> None:
    names = ["Sci-Fi", "sci fi", "sci_fi", "caf\u00e9", "cafe\u0301", "Drama", " drama", "News"]
    (warning,) = label_warnings(with_labels([names]))
    assert warning.startswith(
        "7 label names differ from another only in case, white space or punct"
    )
    (warning_too,) = label_warnings(
        with_labels([["log-in", "Login", "log in", "hard ware", "a b"]])
    )
    assert "3 label names" in warning_too and "'Login' and 'log in' and 'log-in'" in warning_too
    assert "'Sci-Fi' and 'sci fi' and 'sci_fi'" in warning and "' drama' and 'Drama'" in warning
    codes = ["1.11", "11.1", "1 11", "-1", "1", "E1.11", "E11.1", "C", "C++", "C#", "A-", "A+"]
    assert label_warnings(with_labels([codes, codes])) == []


def test_many_labels_take_linear_time() -> None:
    names = [f"Label {k}; x{k}" if k % 2 else f"label-{k}, y{k}" for k in range(30_000)]
    start = time.process_time()
    assert label_warnings(with_labels([names, names])) == []
    assert time.process_time() - start < 10  # 0.3 s; comparing all pairs takes minutes


def test_long_names_are_shortened() -> None:
    warnings = label_warnings(with_labels([[f"{k} {'x' * 10_000}"] for k in range(50)]))
    assert len(warnings) == 1 and len(warnings[0]) < 1000


@pytest.mark.parametrize("corpus", ["reuters", "pubmed_mesh", "eurlex57k"])
def test_real_corpora(shared: Path, corpus: str) -> None:
    """MeSH headings contain commas ("Mice, Inbred C57BL"); both have labels with one document."""
    train = load_data(shared / corpus)["train"][:5000]
    assert label_warnings(train) == []
    assert label_warnings(train[:100]) == []
    codes = {name: str(k) for k, name in enumerate(train.label_names)}
    assert label_warnings(with_labels([[codes[name] for name in d.labels] for d in train])) == []
    for separator in ";,":
        assert label_warnings(joined(train[:600], separator))
