"""Every format with every defect: raised with its place, or skipped, counted and shown.

The table's files hold a good document, one with a defect, and another good one.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from longtail.data import ReadReport, TextData, read_data
from longtail.errors import DataError

JSONL = [
    (b"{broken", "not valid JSON"),
    (b'{"text": "cut', "not valid JSON"),
    (b'["a"]', "expected a JSON object, got"),
    (b'{"txt": "a", "labels": ["x"]}', r"field 'text', got None\. The fields are: 'txt', 'labels'"),
    (b'{"text": null, "labels": ["x"]}', "expected a string in field 'text', got None"),
    (b'{"text": 5, "labels": ["x"]}', "expected a string in field 'text', got 5"),
    (b'{"text": "a"}', r"list of strings in field 'labels', got None\. The fields are: 'text'"),
    (b'{"text": "a", "labels": "x"}', "got 'x'.*--label-separator"),
    (b'{"text": "a", "labels": {"x": 1}}', "expected a list of strings"),
    (b'{"text": "a", "labels": [1]}', r"expected a list of strings in field 'labels', got \[1\]"),
    (b'{"text": "a", "labels": ["x", null]}', "expected a list of strings"),
    (b'{"text": "a", "labels": [["x"]]}', "expected a list of strings"),
    (b'{"text": "a", "labels": []}', "the document has no labels.*--keep-unlabelled"),
    (b'{"text": "a", "labels": ["x", " "]}', "a label is empty"),
    (b'{"text": "", "labels": ["x"]}', "the text is empty"),
    (b'{"text": " \\n\\u2003", "labels": ["x"]}', "the text is empty"),
    (b'{"text": "a", "labels": ["x"], "id": "1"}', "the id '1' is already taken"),
    (b'{"text": "a", "labels": ["x"], "id": 1}', "the id '1' is already taken"),
    (b'{"text": "a", "labels": ["x"], "id": 1.5}', "string or a whole number in field 'id'"),
    (b'{"text": "a", "labels": ["x"], "id": true}', "string or a whole number in field 'id'"),
    (b'{"text": "a", "labels": ["x"], "date": [1]}', "string or a whole number in field 'date'"),
    (b'{"text": "\xff\xfe", "labels": ["x"]}', r"not valid UTF-8.*encoding='latin-1'"),
    (b'{"text": "\\ud800", "labels": ["x"]}', "field 'text' holds half of a surrogate pair"),
    (b'{"text": "a", "labels": ["\\udc00"]}', "a label in 'labels' holds half of a surrogate"),
    (b'{"text": "a", "labels": ["x"], "id": "\\ud800"}', "field 'id' holds half of a surrogate"),
    (b'{"text": "a", "labels": ["x"], "n": 1%s}' % (b"0" * 5000), "not valid JSON"),
    (b'{"text": "a", "labels": %s}' % (b"[" * 9999 + b"]" * 9999), "not valid JSON"),
    (b'{"text": "a", "labels": %s}' % (b"[" * 300 + b"]" * 300), "expected a list of strings"),
]
CSV = [
    (b"2,b", "expected 3 cells as in the header, got 2"),
    (b"2,b,x,more", "expected 3 cells as in the header, got 4"),
    (b" ", "expected 3 cells as in the header, got 1"),
    (b"2,,x", "the text is empty"),
    (b"2,b,", "the document has no labels"),
    (b"2,b,x;y", "'x;y' may be one label or several.*--label-separator"),
    (b"2,b,['x' 'y']", "are not a list of strings"),
    (b'2,b,"[""\\ud800""]"', "holds half of a surrogate pair"),
    (b"1,b,x", "the id '1' is already taken"),
    (b"2,Gr\xf6\xdfe,x", "not valid UTF-8"),
    (b'2,"b" c,x', "not valid CSV"),
    # An open quote takes the next row for its own, up to the quote there or to the end.
    (b'2,"b,x', "not valid CSV"),
    (b'2,b,"x', "not valid CSV"),
]
LIBMULTILABEL = [
    (b"alone", r"expected two cells .* or three .*, got 1"),
    (b"2\tx\tb\tmore", "expected two cells.*got 4"),
    # With a tab in the text the labels would be taken for the id.
    (b"x\tb", "expected 3 cells as before, got 2"),
    (b"2\tx\t ", "the text is empty"),
    (b"2\t\tb", "the document has no labels"),
    (b"1\tx\tb", "the id '1' is already taken"),
    (b"2\tx\tGr\xf6\xdfe", "not valid UTF-8"),
]
BIOASQ: list[tuple[Any, str]] = [
    (17, "expected a JSON object, got 17"),
    ({"abstractText": ...}, "no field 'abstractText', the fields are: 'journal', 'meshMajor'"),
    ({"meshMajor": ...}, "no field 'meshMajor'"),
    ({"pmid": ...}, "no field 'pmid'"),
    ({"pmid": None}, "the field 'pmid' is empty"),
    ({"pmid": [2]}, "expected a string or a whole number in field 'pmid'"),
    ({"title": 3}, "expected strings in 'title' and 'abstractText'"),
    ({"abstractText": ["a"]}, "expected strings in 'title' and 'abstractText'"),
    ({"meshMajor": "Humans"}, "expected a list of strings in 'meshMajor', got 'Humans'"),
    ({"meshMajor": ["Humans", 3]}, "expected a list of strings in 'meshMajor'"),
    ({"meshMajor": ["Humans", ""]}, "a label is empty"),
    ({"pmid": "1"}, "the id '1' is already taken"),
    ({"title": "Gr\udcf6"}, "not valid UTF-8"),
    ({"meshMajor": ["Gr\udcf6"]}, "not valid UTF-8"),
    ({"year": [2020]}, "expected a string or a whole number in field 'year'"),
]
MEDLINE = [
    ("<PubmedArticle></PubmedArticle>", "expected a MedlineCitation with a PMID"),
    ("<PubmedArticle><MedlineCitation/></PubmedArticle>", "expected a MedlineCitation with a PMID"),
    ("<PMID>2<", "expected a MedlineCitation with a PMID"),
    ("<DescriptorName> <", "a label is empty"),
    ("1", "the id '1' is already taken"),
]
REUTERS = [
    ('NEWID=""', "expected a story with a NEWID"),
    ("<D></D>", "a label is empty"),
    ("<TEXT></TEXT>", "the text is empty"),
    ("no end", r"the story has no end \(</REUTERS>\)"),
    ("1", "the id 'training/1' is already taken"),
]
NLTK = [
    (b"training/9 x", "expected a file 'training/9' beside cats.txt, got none"),
    (b"training x", "(the file 'training' cannot be read|expected a file)"),
    (b"training/2", "the document has no labels"),
    (b"training/empty x", "the text is empty"),
    (b"training/1 x", "the id 'training/1' is already taken"),
    (b"training/\x00 x", "(cannot be read|expected a file)"),
]
PARQUET: list[tuple[dict[str, Any], str]] = [
    ({"text": None}, "expected a string in field 'text', got None"),
    ({"text": " "}, "the text is empty"),
    ({"labels": None}, "expected a list of strings in field 'labels', got None"),
    ({"labels": ["x", None]}, "expected a list of strings"),
    ({"labels": []}, "the document has no labels"),
    ({"id": "1"}, "the id '1' is already taken"),
    ({"text": b"Gr\xf6\xdfe"}, "cannot be read .*utf-8.* can't decode"),
    ({"labels": [b"\xff"]}, "cannot be read .*utf-8.* can't decode"),
]


def write_jsonl_with(folder: Path, bad: bytes) -> Path:
    good = [b'{"text": "t", "labels": ["x"], "id": %d}' % k for k in (1, 3)]
    (folder / "a.jsonl").write_bytes(b"\n".join([good[0], bad, good[1]]))
    return folder / "a.jsonl"


def write_csv_with(folder: Path, bad: bytes) -> Path:
    (folder / "a.csv").write_bytes(b'id,text,labels\n1,"t",x\n' + bad + b'\n3,"t",x\n')
    return folder / "a.csv"


def write_libmultilabel_with(folder: Path, bad: bytes) -> Path:
    (folder / "a.txt").write_bytes(b"1\tx\tt\n" + bad + b"\n3\tx\tt\n")
    return folder / "a.txt"


def write_bioasq_with(folder: Path, bad: Any, samples: Any) -> Path:
    if isinstance(bad, dict):
        article = samples.article(2, **bad)
        bad = {name: value for name, value in article.items() if value is not ...}
    articles = (samples.article(1), bad, samples.article(3))
    lines = ", ".join(json.dumps(article, ensure_ascii=False) for article in articles)
    content = f'{{"articles": [{lines}]}}'
    (folder / "a.json").write_bytes(content.encode("utf-8", errors="surrogateescape"))
    return folder / "a.json"


def write_medline_with(folder: Path, bad: str, samples: Any) -> Path:
    if not bad.startswith("<PubmedArticle>"):
        tag = bad.partition(">")[0]
        whole = samples.citation(1 if bad == "1" else 2)
        bad = whole if bad == "1" else re.sub(f"{tag}[^<]*<", f"{tag}><", whole)
    content = samples.xml(samples.citation(1), bad, samples.citation(3))
    (folder / "a.xml").write_bytes(content)
    return folder / "a.xml"


def write_reuters_with(folder: Path, bad: str, samples: Any) -> Path:
    story = samples.story(1 if bad == "1" else 2)
    if bad == "no end":
        story = story.replace("</REUTERS>", "")
    elif bad != "1":
        tag = re.match(r"<?\w+", bad)[0]  # type: ignore[index]
        story = re.sub(f'{tag}(="2"|>.*?</{tag[1:]}>)', bad, story, count=1, flags=re.DOTALL)
        assert bad in story
    content = samples.sgml(samples.story(1), story, samples.story(3))
    (folder / "a.sgm").write_bytes(content)
    return folder / "a.sgm"


def write_nltk_with(folder: Path, bad: bytes) -> Path:
    (folder / "training").mkdir()
    for name in ("1", "2", "3", "empty"):
        (folder / "training" / name).write_text("" if name == "empty" else "text")
    (folder / "cats.txt").write_bytes(b"training/1 x\n" + bad + b"\ntraining/3 x\n")
    return folder


def write_parquet_with(folder: Path, bad: dict[str, Any]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"id": k, "text": "t", "labels": ["x"]} for k in "123"]
    rows[1] |= bad
    kinds = {"id": pa.binary(), "text": pa.binary(), "labels": pa.list_(pa.binary())}
    text = {"id": pa.string(), "text": pa.string(), "labels": pa.list_(pa.string())}
    columns = {}
    for name, kind in kinds.items():
        # By way of binary, because pyarrow itself puts no wrong bytes into strings.
        binary = pa.array([row[name] for row in rows], kind)
        if name == "labels":
            values = pa.Array.from_buffers(pa.string(), len(binary.values), binary.values.buffers())
            columns[name] = pa.ListArray.from_arrays(binary.offsets, values, mask=binary.is_null())
        else:
            columns[name] = pa.Array.from_buffers(text[name], len(binary), binary.buffers())
    pq.write_table(pa.table(columns), folder / "a.parquet")
    return folder / "a.parquet"


WRITERS: list[tuple[str, Any, list[Any], str]] = [
    ("jsonl", write_jsonl_with, JSONL, "line 2: "),
    ("csv", write_csv_with, CSV, "line 3: "),
    ("libmultilabel", write_libmultilabel_with, LIBMULTILABEL, "line 2: "),
    ("bioasq", write_bioasq_with, BIOASQ, "article 2: "),
    ("medline", write_medline_with, MEDLINE, "citation 2: "),
    ("reuters", write_reuters_with, REUTERS, r"a\.sgm, story 2: "),
    ("nltk", write_nltk_with, NLTK, r"cats\.txt, line 2: "),
    ("parquet", write_parquet_with, PARQUET, "row 2: "),
]
CASES = [
    pytest.param(name, write, bad, f"{place}.*{message}", id=f"{name}-{number}")
    for name, write, table, place in WRITERS
    for number, (bad, message) in enumerate(table)
]


@pytest.mark.parametrize(("name", "write", "bad", "message"), CASES)
def test_one_bad_record_between_two_good_ones(
    tmp_path: Path, samples: Any, name: str, write: Any, bad: Any, message: str
) -> None:
    more = (samples,) if name in ("bioasq", "medline", "reuters") else ()
    path = write(tmp_path, bad, *more)
    expected = f"^{re.escape(str(path))}, {message}"
    with pytest.raises(DataError, match=expected):
        read_data(path)
    report = ReadReport()
    data = read_data(path, on_error="skip", report=report)
    assert [identity.rpartition("/")[2] for identity in data.ids or ()] == ["1", "3"]
    assert [document.labels for document in data] == [list(data.label_names)] * 2
    assert (report.documents, report.skipped, len(report.examples)) == (2, 1, 1)
    assert re.search(expected, report.examples[0])
    assert "1 bad record was skipped" in report.lines()[0]


def test_examples_are_the_first_few(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("broken\n" * 8 + '{"text": "a", "labels": ["x"]}\n')
    report = ReadReport()
    assert len(read_data(path, on_error="skip", report=report)) == 1
    assert report.skipped == 8
    assert [e.split(": ")[0] for e in report.examples] == [f"{path}, line {k}" for k in range(1, 6)]


def test_skipping_is_told_even_if_nobody_asks(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('broken\n{"text": "a", "labels": ["x"]}\n')
    with pytest.warns(UserWarning, match=r"(?s)1 bad record was skipped.*line 1: not valid JSON"):
        data: TextData = read_data(path, on_error="skip")
    assert len(data) == 1


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("content", ["", "\n \n", "\ufeff"])
def test_nothing_to_read(tmp_path: Path, content: str, on_error: str) -> None:
    for suffix in ("jsonl", "csv", "tsv", "txt"):
        path = tmp_path / f"a.{suffix}"
        path.write_text(content)
        with pytest.raises(DataError, match=f"a.{suffix}: (holds no documents|expected a column)"):
            read_data(path, on_error=on_error)
    for suffix, expected in (
        ("json", "got no articles"),
        ("xml", "not valid XML|expected PubmedArticle"),
        ("sgm", "holds no documents"),
        ("tar", "broken tar archive"),
        ("zip", "broken zip archive"),
        ("parquet", "not a valid Parquet file"),
    ):
        path = tmp_path / f"a.{suffix}"
        path.write_text(content)
        with pytest.raises(DataError, match=expected):
            read_data(path, on_error=on_error)


def test_nothing_but_bad_records(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("broken\n")
    with pytest.raises(DataError, match=r"holds no documents\. 1 bad record .*line 1: not valid"):
        read_data(path, on_error="skip")


def test_utf_16_needs_its_mark(tmp_path: Path) -> None:
    content = 'id,text,labels\n1,"t",x\n'
    for suffix in ("csv", "jsonl", "txt", "json"):
        path = tmp_path / f"a.{suffix}"
        path.write_bytes(content.encode("utf-16-le"))
        with pytest.raises(DataError, match=r"cannot be read any further.*does not start with BOM"):
            read_data(path, encoding="utf-16")
    assert read_data(tmp_path / "a.csv", encoding="utf-16-le").texts == ["t"]
    for encoding in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
        marked = ("\ufeff" + content).encode(encoding)
        for name, stored in (("b.csv", marked), ("b.csv.gz", gzip.compress(marked))):
            (tmp_path / name).write_bytes(stored)
            assert read_data(tmp_path / name, encoding=encoding).ids == ("1",)
    # Half a character at the end spoils its own line only.
    path = tmp_path / "a.csv"
    path.write_bytes((content + "2,u,").encode("utf-16") + b"\x00\xd8")
    report = ReadReport()
    assert read_data(path, encoding="utf-16", on_error="skip", report=report).ids == ("1",)
    assert "line 3: not valid utf-16" in report.examples[0] and report.skipped == 1


def test_a_header_cannot_be_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    # The first row of data must not become the header.
    for header, message in (
        (b"text,labels,gr\xf6\xdfe", "line 2: not valid UTF-8"),
        (b'text,labels,"a"b', "line 2: not valid CSV"),
        (b"text,labels,text", "the column 'text' occurs twice"),
        (b"body,labels,id", "expected a column 'text', the columns are: 'body', 'labels', 'id'"),
    ):
        path.write_bytes(b"\n" + header + b"\ntext,labels,id\na,b,c\n")
        with pytest.raises(DataError, match=message):
            read_data(path, on_error="skip")


def test_a_row_of_many_lines_is_named_by_its_first(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('text,labels\n"one\ntwo\nthree",x\n"four\nfive",\n"six",y\n')
    with pytest.raises(DataError, match="line 5: the document has no labels"):
        read_data(path)
    report = ReadReport()
    data = read_data(path, on_error="skip", report=report)
    assert data.texts == ["one\ntwo\nthree", "six"] and report.skipped == 1
