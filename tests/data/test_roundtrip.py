"""What is written is what is read again, whatever the characters, in every format that writes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from longtail.data import FORMATS, TextData, read_data, write_data
from longtail.data.fields import split_labels
from longtail.progress import Progress

# All of Unicode but halves of surrogate pairs, and more often what files stumble over.
ODD = "\t\n\r\x00\x0b\x0c\x1c\x1f\x7f\x85\xa0\ufeff\u2028\u2029\ufdd0\ufffe\U0010ffff'\",;|[]\\#&<>"
CHARACTERS = st.characters(exclude_categories=["Cs"]) | st.sampled_from(ODD)
ANY = st.text(CHARACTERS, max_size=12)
# A text of white space, and a label of it, are called empty; ids are unique and not empty.
TEXTS = ANY.filter(str.strip)
LABELS = st.lists(TEXTS, min_size=0, max_size=4)
DOCUMENTS = st.lists(
    st.tuples(TEXTS, LABELS, ANY.filter(bool), ANY),
    min_size=1,
    max_size=6,
    unique_by=lambda document: document[2],
)
EXACT = ["a.jsonl", "a.jsonl.gz", "a.ndjson", "a.csv", "a.csv.gz", "a.tsv", "a.tsv.gz", "a.parquet"]
Documents = list[tuple[str, list[str], str, str]]


def text_data(documents: Documents, ids: bool = True, dates: bool = True) -> TextData:
    return TextData.from_lists(
        [text for text, *_ in documents],
        [labels for _, labels, *_ in documents],
        ids=[identity for *_, identity, _ in documents] if ids else None,
        dates=[date for *_, date in documents] if dates and any(d[3] for d in documents) else None,
    )


def assert_same(data: TextData, expected: TextData) -> None:
    assert data.texts == expected.texts and data.label_names == expected.label_names
    assert (data.ids, data.dates) == (expected.ids, expected.dates)
    assert data.Y.shape == expected.Y.shape and (data.Y != expected.Y).nnz == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("written")
    return path


@pytest.mark.parametrize("name", EXACT)
@given(documents=DOCUMENTS, ids=st.booleans(), dates=st.booleans())
@example([("text", ["[a]", '["b"]', "['c' 'd']"], "#0", "")], True, True)
@example([('"', ['"', '""', "a;b", "a,b"], '"', "\r")], True, True)
@example([("\ufefftext", ["\ufeff"], "\ufeff", "\ufeff")], True, True)
@settings(max_examples=60, deadline=None)
def test_exactly(folder: Path, name: str, documents: Documents, ids: bool, dates: bool) -> None:
    data = text_data(documents, ids, dates)
    write_data(data, folder / name)
    assert_same(read_data(folder / name, keep_unlabelled=True), data)


def test_every_format_that_writes_is_tested() -> None:
    tested = {"jsonl", "csv", "tsv", "parquet", "libmultilabel"}
    assert {entry.name for entry in FORMATS.values() if entry.write} == tested


WORDS = st.text(CHARACTERS.filter(lambda c: not c.isspace()), min_size=1, max_size=8)
LINES = st.lists(WORDS, min_size=1, max_size=4).map(" ".join)


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
@given(
    st.lists(
        # A byte order mark at the very beginning would be the file's, not the id's.
        st.tuples(LINES, st.lists(WORDS, max_size=3), LINES.map("n{}".format), st.just("")),
        min_size=1,
        max_size=6,
        unique_by=lambda document: document[2],
    )
)
@settings(max_examples=60, deadline=None)
def test_libmultilabel_exactly(folder: Path, name: str, documents: Documents) -> None:
    # Labels without white space, and texts and ids with single spaces only: a line has no others.
    data = text_data(documents)
    write_data(data, folder / name)
    assert_same(read_data(folder / name, keep_unlabelled=True), data)


@given(DOCUMENTS)
@settings(max_examples=40, deadline=None)
def test_libmultilabel_changes_white_space_only(folder: Path, documents: Documents) -> None:
    documents = [(text, ["x"], str(k), "") for k, (text, *_) in enumerate(documents)]
    write_data(text_data(documents), folder / "b.txt")
    texts = read_data(folder / "b.txt").texts
    assert [text.split() for text in texts] == [text.split() for text, *_ in documents]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
@given(documents=DOCUMENTS)
@settings(max_examples=15, deadline=None)
def test_in_other_encodings(folder: Path, kind: str, encoding: str, documents: Documents) -> None:
    data = text_data(documents)
    write_data(data, folder / f"plain.{kind}")
    path = folder / f"coded.{kind}"
    path.write_bytes((folder / f"plain.{kind}").read_bytes().decode().encode(encoding))
    assert_same(read_data(path, keep_unlabelled=True, encoding=encoding), data)


@given(
    st.lists(st.text(CHARACTERS, min_size=1, max_size=8).map(str.strip).filter(bool), max_size=4),
    st.sampled_from([";", ",", "|", "\t"]),
)
@example(["a;b", 'say "x"', '"y"'], ";")
def test_labels_that_hold_the_separator(names: list[str], separator: str) -> None:
    # In quotes, as CSV has it; a newline in a label needs a list in JSON.
    names = [name for name in names if not {"\n", "\r", "\0"} & set(name)]
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    assert split_labels(separator.join(quoted), separator) == (names, 0)


@given(
    st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=5),
    st.lists(
        TEXTS.filter(lambda name: name not in ("text", "id", "date") and "\0" not in name),
        min_size=3,
        max_size=3,
        unique=True,
    ),
)
@settings(max_examples=40, deadline=None)
def test_one_column_per_label(folder: Path, rows: list[list[bool]], names: list[str]) -> None:
    import csv

    with (folder / "c.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["text", *names])
        table.writerows([["t", *map(int, row)] for row in rows])
    data = read_data(folder / "c.csv", label_columns="*", keep_unlabelled=True)
    assert data.label_names == tuple(names)
    assert np.array_equal(data.Y.toarray(), np.array(rows, dtype=float))


@given(DOCUMENTS)
@settings(max_examples=30, deadline=None)
def test_bioasq_as_json_writes_it(folder: Path, documents: Documents) -> None:
    # U+FDD0, a code point that is no character, marks bytes that cannot be decoded.
    articles = [
        {"pmid": identity, "title": "T", "abstractText": text, "meshMajor": labels, "year": "1999"}
        for text, labels, identity, _ in documents
        if labels and "\ufdd0" not in "".join([text, *labels])
    ]
    if not articles:
        return
    for ascii_only in (True, False):
        content = json.dumps({"articles": articles}, ensure_ascii=ascii_only).encode()
        (folder / "a.json.gz").write_bytes(gzip.compress(content))
        data = read_data(folder / "a.json.gz")
        assert data.texts == [f"T {article['abstractText']}".strip() for article in articles]
        assert data.ids == tuple(str(article["pmid"]) for article in articles)
        assert [set(d.labels) for d in data] == [set(a["meshMajor"]) for a in articles]


def test_many_documents_in_batches(folder: Path) -> None:
    n_documents = 10_000  # more than two batches of Parquet
    labels = [[f"label {k % 7}", f"label {k % 11}"] if k % 5 else [] for k in range(n_documents)]
    texts, ids = [f"text {k}" for k in range(n_documents)], [str(k) for k in range(n_documents)]
    data = TextData.from_lists(texts, labels, ids=ids)
    for name in ("many.parquet", "many.jsonl.gz"):
        write_data(data, folder / name)
        assert_same(read_data(folder / name, keep_unlabelled=True), data)
    assert_same(TextData.load(folder / "many.parquet"), data)


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv", "a.parquet", "a.txt"])
def test_writing_reports_its_progress(tmp_path: Path, name: str) -> None:
    data = TextData.from_lists([f"text {k}" for k in range(1300)], [["a"]] * 1300)
    seen: list[Progress] = []
    write_data(data, tmp_path / name, progress=seen.append)
    done = [now.done for now in seen]
    assert seen[-1] == Progress(f"writing {name}", 1300, 1300) and done == sorted(done)
    write_data(data, tmp_path / name)
