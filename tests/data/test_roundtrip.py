"""Every format that is written is read back exactly, whatever the characters."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from longtail.data import FORMATS, TextData, read_data, write_data
from longtail.progress import Progress

from .cases import assert_same

# All of Unicode except surrogates; characters that often break formats are more frequent.
ODD = "\t\n\r\x00\x0b\x0c\x1c\x1f\x7f\x85\xa0\ufeff\u2028\u2029\ufdd0\ufffe\U0010ffff'\",;|[]\\#&<>"
CHARACTERS = st.characters(exclude_categories=["Cs"]) | st.sampled_from(ODD)
ANY = st.text(CHARACTERS, max_size=12)
# White space alone counts as empty, for texts and labels; ids are unique and not empty.
TEXTS = ANY.filter(str.strip)
LABELS = st.lists(TEXTS, min_size=0, max_size=4)
DOCUMENTS = st.lists(
    st.tuples(TEXTS, LABELS, ANY.filter(bool), ANY),
    min_size=1,
    max_size=6,
    unique_by=lambda document: document[2],
)
EXACT = [f"a{entry.suffixes[0]}" for entry in FORMATS.values() if entry.write] + ["a.csv.gz"]
Documents = list[tuple[str, list[str], str, str]]


def text_data(documents: Documents, ids: bool = True, dates: bool = True) -> TextData:
    return TextData.from_lists(
        [text for text, *_ in documents],
        [labels for _, labels, *_ in documents],
        ids=[identity for *_, identity, _ in documents] if ids else None,
        dates=[date for *_, date in documents] if dates and any(d[3] for d in documents) else None,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("written")
    return path


@pytest.mark.parametrize("name", EXACT)
@given(documents=DOCUMENTS, ids=st.booleans(), dates=st.booleans())
@example([("text", ["[a]", '["b"]', "['c' 'd']"], "#0", "")], True, True)
@example([('"', ['"', '""', "a;b", "a,b"], '"', "\r")], True, True)
@example([("\ufefftext", ["\ufeff"], "\ufeff", "\ufeff")], True, True)
@settings(max_examples=min(60, settings.default.max_examples))
def test_exactly(folder: Path, name: str, documents: Documents, ids: bool, dates: bool) -> None:
    data = text_data(documents, ids, dates)
    write_data(data, folder / name)
    assert_same(read_data(folder / name, keep_unlabelled=True), data)


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl.gz", "a.csv", "a.tsv"])
def test_many_documents_and_the_progress_of_writing(tmp_path: Path, name: str) -> None:
    rows = range(10_100)  # more than two batches of Parquet
    labels = [[f"a{k % 7}", f"a{k % 11}"] if k % 5 else [] for k in rows]
    data = TextData.from_lists([f"text {k}" for k in rows], labels, ids=[str(k) for k in rows])
    seen: list[Progress] = []
    write_data(data, tmp_path / name, progress=seen.append)
    done = [now.done for now in seen]
    assert seen[-1] == Progress(f"writing {name}", 10_100, 10_100) and done == sorted(done)
    assert len(seen) > 2
    assert_same(read_data(tmp_path / name, keep_unlabelled=True), data)
