"""Every defect in every format: raised with its place, or skipped, counted and shown.

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

from longtail.data import ReadReport, read_data
from longtail.errors import DataError

from .cases import article, citation, heading, read, sgml, skip, story, write_files, xml

JSONL = [
    (b"{broken", "not valid JSON"),
    (b'["a"]', "expected a JSON object, got"),
    (b'{"txt": "a", "labels": ["x"]}', r"field 'text', got none\. Did you mean 'txt'"),
    (b'{"text": "a"}', r"list of strings in field 'labels', got none\. The fields are: 'text'"),
    (b'{"text": "a", "labels": "x,y"}', "'x,y' may be one label or several.*--label-separator"),
    (b'{"text": "a", "labels": {"x": 1}}', "expected a list of strings"),
    (b'{"text": "a", "labels": [1]}', r"strings in field 'labels', got \[1\]. The fields are"),
    (b'{"text": "a", "labels": []}', "the document has no labels.*--keep-unlabelled"),
    (b'{"text": "a", "labels": ["x", " "]}', "a label is empty"),
    (b'{"text": " \\n\\u2003", "labels": ["x"]}', "the text is empty"),
    (b'{"text": "a", "labels": ["x"], "id": 1}', "the id '1' is already taken"),
    (b'{"text": "a", "labels": ["x"], "id": 1.5}', "string or a whole number in field 'id'"),
    (b'{"text": "a", "labels": ["x"], "date": [1]}', "string or a whole number in field 'date'"),
    (b'{"text": "\xff\xfe", "labels": ["x"]}', r"not valid UTF-8.*encoding='latin-1'"),
    (b'{"text": "\\ud800", "labels": ["x"]}', "field 'text' holds a lone surrogate"),
    (b'{"text": "a", "labels": ["\\udc00"]}', "field 'labels' holds a lone surrogate"),
    (b'{"text": "a", "labels": ["x"], "id": "\\ud800"}', "field 'id' holds a lone surrogate"),
    (b'{"text": "a", "labels": ["x"], "n": 1%s}' % (b"0" * 5000), "not valid JSON"),
    (b'{"text": "a", "labels": %s}' % (b"[" * 9999 + b"]" * 9999), "not valid JSON"),
]
CSV = [
    (b"2,b", "expected 3 cells as in the header, got 2"),
    (b"2,b,x,more", "expected 3 cells as in the header, got 4"),
    (b"2,b,x;y", "'x;y' may be one label or several.*--label-separator"),
    (b"2,b,['x' 'y']", "are not a list of strings"),
    (b'2,b,"[""\\ud800""]"', "holds a lone surrogate"),
    (b"2,Gr\xf6\xdfe,x", "not valid UTF-8"),
    (b'2,"b" c,x', "not valid CSV"),
]
LIBMULTILABEL = [
    (b"alone", r"expected two cells .* or three .*, got 1"),
    (b"2\tx\tb\tmore", "expected two cells.*got 4"),
    # A tab in the text would turn the labels into an id.
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
    ({"title": "Gr\udcf6"}, "holds a lone surrogate"),
    ({"meshMajor": ["Gr\udcf6"]}, "holds a lone surrogate"),
    ({"year": [2020]}, "expected a string or a whole number in field 'year'"),
]
MEDLINE = [
    ("<PubmedArticle></PubmedArticle>", "expected a MedlineCitation with a PMID"),
    (citation(2).replace(">2<", "><"), "expected a MedlineCitation with a PMID"),
    (citation(2, headings=heading(" ")), "a label is empty"),
]
REUTERS = [
    (story(2, ("",)), "a label is empty"),
    (story(2, text=""), "the text is empty"),
    *(
        (story(2).replace(old, new, 1), message)
        for old, new, message in (
            ('NEWID="2"', 'NEWID=""', "expected a story with a NEWID"),
            ("</REUTERS>", "", "the story does not end with </REUTERS>"),
            ("<D>cocoa</D>", "<D>cocoa</X>", "expected topics as in <D>cocoa</D>, got '<D>cocoa"),
            ("<D>cocoa</D>", "cocoa", "expected topics as in <D>cocoa</D>, got 'cocoa'"),
            ("<BODY>", "<BODX>", "expected one <BODY> and </BODY>, got 0 and 1"),
            ("</TITLE>", "", "expected one <TITLE> and </TITLE>, got 1 and 0"),
            ("</TEXT>", "", "expected one <TEXT> and"),
            ("</TOPICS>", "", "expected one <TOPICS> and"),
            ("</TOPICS>", "</TOPICS><TOPICS><D>tin</D></TOPICS>", "got 2 and 2"),
            ("</BODY>", "</BODY><BODY>more</BODY>", "got 2 and 2"),
            ("</TEXT>", "</TEXT><TEXT><BODY>more</BODY></TEXT>", "got 2 and 2"),
        )
    ),
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


def bioasq_with(bad: Any) -> bytes:
    if isinstance(bad, dict):
        bad = {name: value for name, value in article(2, **bad).items() if value is not ...}
    articles = (article(1), bad, article(3))
    lines = ", ".join(json.dumps(item, ensure_ascii=False) for item in articles)
    return f'{{"articles": [{lines}]}}'.encode("utf-8", errors="surrogateescape")


def parquet_with(bad: dict[str, Any]) -> bytes:
    rows = [{"id": k, "text": "t", "labels": ["x"]} for k in "123"]
    rows[1] |= bad
    pq.write_table(pa.Table.from_pylist(rows), buffer := io.BytesIO())
    return buffer.getvalue()


GOOD = b'{"text": "t", "labels": ["x"], "id": %d}'
# File name, content with a gap for the bad record, bad records, and their place in the message.
FILES: list[tuple[str, Any, list[Any], str]] = [
    ("a.jsonl", b"\n".join([GOOD % 1, b"%b", GOOD % 3]), JSONL, "line 2: "),
    ("a.csv", b'id,text,labels\n1,"t",x\n%b\n3,"t",x\n', CSV, "line 3: "),
    ("a.txt", b"1\tx\tt\n%b\n3\tx\tt\n", LIBMULTILABEL, "line 2: "),
    ("a.json", bioasq_with, BIOASQ, "article 2: "),
    ("a.xml", xml(citation(1), "%b", citation(3)), MEDLINE, "citation 2: "),
    ("a.sgm", sgml(story(1), "%b", story(3)), REUTERS, r"a\.sgm, story 2: "),
    ("cats.txt", b"training/1 x\n%b\ntraining/3 x\n", NLTK, r"cats\.txt, line 2: "),
    ("a.parquet", parquet_with, PARQUET, "row 2: "),
]
CASES = [
    pytest.param(name, content, bad, f"{at}.*{message}", id=f"{name}-{number}")
    for name, content, table, at in FILES
    for number, (bad, message) in enumerate(table)
]


@pytest.mark.parametrize(("name", "content", "bad", "message"), CASES)
def test_one_bad_record_between_two_good_ones(
    tmp_path: Path, name: str, content: Any, bad: Any, message: str
) -> None:
    if isinstance(content, bytes):
        content = content % (bad if isinstance(bad, bytes) else bad.encode())
    else:
        content = content(bad)
    texts = {f"training/{number}": "text" for number in "123"}
    folder = write_files(tmp_path, {name: content, **texts})
    path = folder if name == "cats.txt" else folder / name
    expected = f"^{re.escape(str(path))}, {message}"
    with pytest.raises(DataError, match=expected):
        read_data(path)
    data, report = skip(path)
    assert [identity.rpartition("/")[2] for identity in data.ids or ()] == ["1", "3"]
    assert [document.labels for document in data] == [list(data.label_names)] * 2
    assert (report.documents, report.skipped, len(report.examples)) == (2, 1, 1)
    assert re.search(expected, report.examples[0])
    assert "1 bad record was skipped" in report.lines()[0]


def test_the_first_of_each_kind_and_a_warning_without_a_report(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    good, bad = '{"text": "a", "labels": ["x"]}\n', '{"text": "", "labels": ["x"]}\n'
    none = '{"text": "a", "labels": []}\n'
    data, report = skip(path, "broken\n" * 6 + good + bad + none * 2)
    assert len(data) == 1 and report.skipped == 9
    first, *lines = report.lines()
    assert first == "9 bad records were skipped of 10; the first of each kind:"
    starts = (f"  6: {path}, line 1: not", f"  1: {path}, line 8: the", f"  2: {path}, line 9: the")
    assert all(line.startswith(start) for line, start in zip(lines, starts, strict=True))
    assert "--keep-unlabelled" in lines[2] and "--on-error" not in lines[2]
    kinds = ["[]", bad.strip(), none.strip(), '{"text": 1}', '{"text": "a", "labels": 1}', "?"]
    _, report = skip(path, good + "\n".join(kinds))
    assert len(report.examples) == 5 and report.lines()[-1] == "  1: other kinds"
    path.write_text("broken\n" * 8 + good)
    with pytest.warns(UserWarning, match=r"(?s)8 bad records were skipped.*line 1: not valid JSON"):
        read_data(path, on_error="skip")
    with pytest.raises(DataError, match=r"(?s)no documents\.\n1 bad record .*line 1: not valid"):
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
        (b"body,labels,id", "expected a column 'text'. The columns are: 'body', 'labels', 'id'"),
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


def test_reports_of_files_add_up(tmp_path: Path) -> None:
    """One by one, as the workers of a cluster read them, or together."""
    paths = [tmp_path / f"{k}.jsonl" for k in range(3)]
    good, empty = '{"text": "a", "labels": ["x"]}\n', '{"text": "", "labels": ["x"]}\n'
    for path, bad in zip(paths, ("{broken\n", "", "{broken\n" + empty), strict=True):
        path.write_text(good + bad)
    together, one_by_one = ReadReport(), ReadReport()
    read_data(paths, report=together, on_error="skip")
    for path in paths:
        report = ReadReport()
        read_data(path, report=report, on_error="skip")
        one_by_one.add(report)
    assert one_by_one == together
    assert one_by_one.skipped == 3 and len(one_by_one.examples) == 2
