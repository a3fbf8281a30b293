"""Every format with every defect: raised with its line or item, or skipped, counted and shown.

The files of the table hold a good document, one with a defect, and another good one. Defects that
no reader sees itself, such as an empty text or an id that is taken, are in JSON Lines only.
"""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from longtail.data import read_data
from longtail.errors import DataError

from .cases import article, citation, read, sgml, skip, story, write_files, xml

JSONL = [
    (b"{broken", "not valid JSON"),
    (b'["a"]', "expected a JSON object, got"),
    (b'{"txt": "a", "labels": ["x"]}', r"field 'text', got None\. The fields are: 'txt', 'labels'"),
    (b'{"text": "a"}', r"list of strings in field 'labels', got None\. The fields are: 'text'"),
    (b'{"text": "a", "labels": "x,y"}', "'x,y' may be one label or several.*--label-separator"),
    (b'{"text": "a", "labels": {"x": 1}}', "expected a list of strings"),
    (b'{"text": "a", "labels": [1]}', r"expected a list of strings in field 'labels', got \[1\]"),
    (b'{"text": "a", "labels": []}', "the document has no labels.*--keep-unlabelled"),
    (b'{"text": "a", "labels": ["x", " "]}', "a label is empty"),
    (b'{"text": " \\n\\u2003", "labels": ["x"]}', "the text is empty"),
    (b'{"text": "a", "labels": ["x"], "id": 1}', "the id '1' is already taken"),
    (b'{"text": "a", "labels": ["x"], "id": 1.5}', "string or a whole number in field 'id'"),
    (b'{"text": "a", "labels": ["x"], "date": [1]}', "string or a whole number in field 'date'"),
    (b'{"text": "\xff\xfe", "labels": ["x"]}', r"not valid UTF-8.*encoding='latin-1'"),
    (b'{"text": "\\ud800", "labels": ["x"]}', "field 'text' holds half of a surrogate pair"),
    (b'{"text": "a", "labels": ["\\udc00"]}', "field 'labels' holds half of a surrogate"),
    (b'{"text": "a", "labels": ["x"], "id": "\\ud800"}', "field 'id' holds half of a surrogate"),
    (b'{"text": "a", "labels": ["x"], "n": 1%s}' % (b"0" * 5000), "not valid JSON"),
    (b'{"text": "a", "labels": %s}' % (b"[" * 9999 + b"]" * 9999), "not valid JSON"),
]
CSV = [
    (b"2,b", "expected 3 cells as in the header, got 2"),
    (b"2,b,x,more", "expected 3 cells as in the header, got 4"),
    (b"2,b,x;y", "'x;y' may be one label or several.*--label-separator"),
    (b"2,b,['x' 'y']", "are not a list of strings"),
    (b'2,b,"[""\\ud800""]"', "holds half of a surrogate pair"),
    (b"2,Gr\xf6\xdfe,x", "not valid UTF-8"),
    (b'2,"b" c,x', "not valid CSV"),
]
LIBMULTILABEL = [
    (b"alone", r"expected two cells .* or three .*, got 1"),
    (b"2\tx\tb\tmore", "expected two cells.*got 4"),
    # With a tab in the text the labels would become the id.
    (b"x\tb", "expected 3 cells as before, got 2"),
    (b"2\tx\tGr\xf6\xdfe", "not valid UTF-8"),
]
BIOASQ: list[tuple[Any, str]] = [
    (17, "expected a JSON object, got 17"),
    ({"abstractText": ...}, "no field 'abstractText', the fields are: 'journal', 'meshMajor'"),
    ({"pmid": ...}, "no field 'pmid'"),
    ({"pmid": [2]}, "expected a string or a whole number in field 'pmid'"),
    ({"abstractText": ["a"]}, "expected strings in 'title' and 'abstractText'"),
    ({"meshMajor": {"Humans": 1}}, "expected a list of strings in field 'meshMajor', got "),
    ({"title": "Gr\udcf6"}, "holds half of a surrogate"),
    ({"meshMajor": ["Gr\udcf6"]}, "holds half of a surrogate"),
    ({"year": [2020]}, "expected a string or a whole number in field 'year'"),
]
MEDLINE = [
    ("<PubmedArticle></PubmedArticle>", "expected a MedlineCitation with a PMID"),
    ("<PMID>2<", "expected a MedlineCitation with a PMID"),
    ("<DescriptorName> <", "a label is empty"),
]
REUTERS = [
    ('NEWID=""', "expected a story with a NEWID"),
    ("<D></D>", "a label is empty"),
    ("<TEXT></TEXT>", "the text is empty"),
    ("no end", r"the story has no end \(</REUTERS>\)"),
]
NLTK = [
    (b"training/9 x", "expected a file 'training/9' beside cats.txt, got none"),
    (b"training/1 x", "the id 'training/1' is already taken"),
    (b"training/\x00 x", "(cannot be read|expected a file)"),
]
PARQUET: list[tuple[dict[str, Any], str]] = [
    ({"text": None}, "expected a string in field 'text', got None"),
    ({"labels": None}, "expected a list of strings in field 'labels', got None"),
]


def jsonl_with(bad: bytes) -> dict[str, bytes]:
    good = [b'{"text": "t", "labels": ["x"], "id": %d}' % k for k in (1, 3)]
    return {"a.jsonl": b"\n".join([good[0], bad, good[1]])}


def csv_with(bad: bytes) -> dict[str, bytes]:
    return {"a.csv": b'id,text,labels\n1,"t",x\n' + bad + b'\n3,"t",x\n'}


def libmultilabel_with(bad: bytes) -> dict[str, bytes]:
    return {"a.txt": b"1\tx\tt\n" + bad + b"\n3\tx\tt\n"}


def bioasq_with(bad: Any) -> dict[str, bytes]:
    if isinstance(bad, dict):
        bad = {name: value for name, value in article(2, **bad).items() if value is not ...}
    articles = (article(1), bad, article(3))
    lines = ", ".join(json.dumps(item, ensure_ascii=False) for item in articles)
    return {"a.json": f'{{"articles": [{lines}]}}'.encode("utf-8", errors="surrogateescape")}


def medline_with(bad: str) -> dict[str, bytes]:
    if not bad.startswith("<PubmedArticle>"):
        tag = bad.partition(">")[0]
        bad = re.sub(f"{tag}[^<]*<", f"{tag}><", citation(2))
    return {"a.xml": xml(citation(1), bad, citation(3))}


def reuters_with(bad: str) -> dict[str, bytes]:
    damaged = story(2)
    if bad == "no end":
        damaged = damaged.replace("</REUTERS>", "")
    else:
        tag = re.match(r"<?\w+", bad)[0]  # type: ignore[index]
        damaged = re.sub(f'{tag}(="2"|>.*?</{tag[1:]}>)', bad, damaged, count=1, flags=re.DOTALL)
        assert bad in damaged
    return {"a.sgm": sgml(story(1), damaged, story(3))}


def nltk_with(bad: bytes) -> dict[str, bytes]:
    files = {f"training/{name}": b"text" for name in "123"}
    return files | {"cats.txt": b"training/1 x\n" + bad + b"\ntraining/3 x\n"}


def parquet_with(bad: dict[str, Any]) -> dict[str, bytes]:
    rows = [{"id": k, "text": "t", "labels": ["x"]} for k in "123"]
    rows[1] |= bad
    pq.write_table(pa.Table.from_pylist(rows), buffer := io.BytesIO())
    return {"a.parquet": buffer.getvalue()}


MAKERS: list[tuple[Any, list[Any], str, str]] = [
    (jsonl_with, JSONL, "a.jsonl", "line 2: "),
    (csv_with, CSV, "a.csv", "line 3: "),
    (libmultilabel_with, LIBMULTILABEL, "a.txt", "line 2: "),
    (bioasq_with, BIOASQ, "a.json", "article 2: "),
    (medline_with, MEDLINE, "a.xml", "citation 2: "),
    (reuters_with, REUTERS, "a.sgm", r"a\.sgm, story 2: "),
    (nltk_with, NLTK, "", r"cats\.txt, line 2: "),
    (parquet_with, PARQUET, "a.parquet", "row 2: "),
]
CASES = [
    pytest.param(make, bad, name, f"{at}.*{message}", id=f"{make.__name__}-{number}")
    for make, table, name, at in MAKERS
    for number, (bad, message) in enumerate(table)
]


@pytest.mark.parametrize(("make", "bad", "name", "message"), CASES)
def test_one_bad_record_between_two_good_ones(
    tmp_path: Path, make: Any, bad: Any, name: str, message: str
) -> None:
    path = write_files(tmp_path, make(bad)) / name
    expected = f"^{re.escape(str(path))}, {message}"
    with pytest.raises(DataError, match=expected):
        read_data(path)
    data, report = skip(path)
    assert [identity.rpartition("/")[2] for identity in data.ids or ()] == ["1", "3"]
    assert [document.labels for document in data] == [list(data.label_names)] * 2
    assert (report.documents, report.skipped, len(report.examples)) == (2, 1, 1)
    assert re.search(expected, report.examples[0])
    assert "1 bad record was skipped" in report.lines()[0]


def test_the_first_five_examples_and_a_warning_without_a_report(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    data, report = skip(path, "broken\n" * 8 + '{"text": "a", "labels": ["x"]}\n')
    assert len(data) == 1 and report.skipped == 8
    assert [e.split(": ")[0] for e in report.examples] == [f"{path}, line {k}" for k in range(1, 6)]
    with pytest.warns(UserWarning, match=r"(?s)8 bad records were skipped.*line 1: not valid JSON"):
        read_data(path, on_error="skip")
    with pytest.raises(DataError, match=r"holds no documents\. 1 bad record .*line 1: not valid"):
        skip(path, "broken\n")


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("content", ["", "\n \n", "\ufeff"])
def test_nothing_to_read(tmp_path: Path, content: str, on_error: str) -> None:
    for suffix, expected in (
        ("jsonl", r"a\.jsonl: holds no documents"),
        ("csv", "holds no documents|expected a column"),
        ("txt", r"a\.txt: holds no documents"),
        ("json", "got no articles"),
        ("xml", "not valid XML|expected PubmedArticle"),
        ("sgm", "holds no documents|expected a story"),
        ("tar", "broken tar archive"),
        ("zip", "not a zip file"),
        ("parquet", "not a valid Parquet file"),
    ):
        with pytest.raises(DataError, match=expected):
            read(tmp_path / f"a.{suffix}", content, on_error=on_error)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"text,labels,gr\xf6\xdfe", "line 2: not valid UTF-8"),
        (b'text,labels,"a"b', "line 2: not valid CSV"),
        (b"text,labels,text", "the column 'text' occurs twice"),
        (b"body,labels,id", "expected a column 'text', the columns are: 'body', 'labels', 'id'"),
    ],
)
def test_a_header_cannot_be_skipped(tmp_path: Path, header: bytes, message: str) -> None:
    # The first row of data must not become the header.
    with pytest.raises(DataError, match=message):
        skip(tmp_path / "a.csv", b"\n" + header + b"\ntext,labels,id\na,b,c\n")


def test_a_row_of_many_lines_is_named_by_its_first(tmp_path: Path) -> None:
    content = 'text,labels\n"one\ntwo\nthree",x\n"four\nfive",\n"six",y\n'
    with pytest.raises(DataError, match="line 5: the document has no labels"):
        read(tmp_path / "a.csv", content)
    data, report = skip(tmp_path / "a.csv")
    assert data.texts == ["one\ntwo\nthree", "six"] and report.skipped == 1
