"""Small text files that would need too much memory or time raise our errors.

Where a fault was quadratic, sizes are such that it took minutes; nothing is timed.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from longtail.data import ReadOptions, ReadReport, read_data
from longtail.data.fields import PYTHON_LIST, cell_labels
from longtail.data.files import shown_names
from longtail.errors import DataError, InputError

from .cases import citation, peak_of, read, sgml, skip, story, tar_of, write_files, xml

GOOD = '{"text": "good", "labels": ["x"]}\n'
ON_ERROR = pytest.mark.parametrize("on_error", ["raise", "skip"])


@pytest.mark.parametrize(
    ("suffix", "head", "record"),
    [
        ("jsonl", "", '{{"text": "{}", "labels": ["x"]}}\n'),
        ("csv", "text,labels\n", "{},x\n"),
        ("txt", "", "x\t{}\n"),
    ],
)
def test_a_line_that_is_too_long(tmp_path: Path, suffix: str, head: str, record: str) -> None:
    path = tmp_path / f"a.{suffix}"
    lines = [record.format(word) for word in ("one", "x" * 3_000_000, "two", "y" * 1_100_000)]
    for content in (head + "".join(lines), (head + "".join(lines)).rstrip("\n")):
        expected = r"line \d: the line is larger than 1 MB.*max_record_mb=4 \(--max-record-mb\)"
        with pytest.raises(DataError, match=expected):
            read(path, gzip.compress(content.encode()), max_record_mb=1)
        data, report = skip(path, max_record_mb=1)
        assert data.texts == ["one", "two"] and report.skipped == 2
        assert len(read_data(path, max_record_mb=4)) == len(read_data(path)) == 4
    # Whether the line ending counts depends on the format.
    for size, n_documents in ((1_000_000, 2), (1_000_002, 1)):
        line = record.format("x" * (size - len(record.format(""))))
        assert len(skip(path, head + record.format("a") + line, max_record_mb=1)[0]) == n_documents


def test_a_long_line_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for piece in (GOOD.encode(), *[b"x" * (1 << 20)] * 64, b"\n" + GOOD.encode()):
            file.write(piece)
    assert path.stat().st_size < 1 << 20
    assert peak_of(lambda: skip(path, max_record_mb=1)) < 20 << 20


def test_quotes_that_do_not_close(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    content = 'text,labels\ngood,x\n"' + "many words and more\n" * 100_000 + "b,y\nc,z\n"
    with pytest.raises(DataError, match=r"line 3: not valid CSV, up to line .*--quote none"):
        read(path, content, max_record_mb=1)
    assert "good" in skip(path, max_record_mb=1)[0].texts
    # A stray quote swallows the rows up to the next quote, and is reported.
    data, report = skip(path, 'text,labels\na,x\n"b,x\nc,x\n"d,x\ne,x\n')
    assert data.texts == ["a", "e"]
    assert "line 3: not valid CSV, up to line 5, (" in report.examples[0]


BRACKETS = "[" * 1_000_000
DIGITS = "9" * 1_000_000


@ON_ERROR
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", BRACKETS),
        ("a.jsonl", '{"text": ' + BRACKETS),
        ("a.json", '{"articles": [{"pmid": ' + BRACKETS),
        ("a.csv", f"text,labels\na,{BRACKETS}]"),
        ("a.jsonl", '{"text": "a", "labels": ["x"], "id": ' + DIGITS + "}"),
        ("a.json", '{"articles": [{"pmid": ' + DIGITS + "}]}"),
    ],
    ids=range(6),
)
def test_brackets_and_digits(tmp_path: Path, name: str, content: str, on_error: str) -> None:
    expected = "maximum recursion|are not a list of strings|4300 digits"
    with pytest.raises(DataError, match=expected) as caught:
        read(tmp_path / name, content, on_error=on_error)
    assert len(str(caught.value)) < 1000


def test_hostile_text_in_linear_time(tmp_path: Path) -> None:
    for cell in ("['a'" + " " * 1_000_000 + "x]", "['" + "a" * 1_000_000 + "]", "['a'," * 300_000):
        assert not PYTHON_LIST.fullmatch(cell)
    assert cell_labels("['it\\'s', \"b\", '\\x41']") == ["it's", "b", "A"]
    for piece in ("<TEXT" * 300_000, " " * 10**6, "&#1" * 300_000, "<D>" * 300_000):
        for tag in ("TOPICS", "TITLE", "DATE", "REUTERS"):
            content = story(1).replace(f"<{tag}", f"<{tag} {piece}").replace(f"</{tag}", piece)
            skip(tmp_path / "a.sgm", sgml(content, story(2)))


def test_one_sgml_file_that_is_too_large(tmp_path: Path) -> None:
    large = sgml(*(story(k) for k in range(1, 200)))
    files = {"reut2-000.sgm": large, "reut2-001.sgm": sgml(story(500))}
    write_files(tmp_path, files | {"a.tar": tar_of(files)})
    for path in (tmp_path, tmp_path / "a.tar"):
        data, report = skip(path, format="reuters", max_record_mb=0.01)
        # Complete stories before the limit, and the next file.
        assert 5 < len(data) < 199 and data.ids[-1] == "training/500" and report.skipped == 1
        assert "reut2-000.sgm: the file is larger than 0.01 MB" in report.examples[0]


CITATION = "<PubmedArticleSet><PubmedArticle>"


@ON_ERROR
@pytest.mark.parametrize(
    "content",
    [
        CITATION + "<PMID>" + "x" * 3_000_000,
        CITATION + '<PMID Version="' + "x" * 3_000_000,
        CITATION + "<!--" + "x" * 3_000_000,
        "<!--" + "x" * 3_000_000,
        "<" + "a" * 3_000_000,
    ],
    ids=["text", "attribute", "comment", "prolog", "name"],
)
def test_xml_that_grows_without_end(tmp_path: Path, content: str, on_error: str) -> None:
    for stored in (content.encode(), gzip.compress(content.encode())):
        with pytest.raises(DataError, match="is larger than 1 MB"):
            read(tmp_path / "a.xml", stored, on_error=on_error, max_record_mb=1)


def test_citations_before_one_that_is_too_large(tmp_path: Path) -> None:
    large = citation(3, abstract=f"<Abstract><AbstractText>{'x' * 2_000_000}")
    content = xml(citation(1), citation(2), large)
    data, report = skip(tmp_path / "a.xml", content, max_record_mb=1)
    assert data.ids == ("1", "2") and report.skipped == 1
    assert "after 2 records: one citation of the XML is larger" in report.examples[0]


@pytest.mark.parametrize("between", ["", "<a/>", "text"])
def test_citations_at_any_depth_are_freed(tmp_path: Path, between: str) -> None:
    path = tmp_path / "a.xml.gz"
    citations = (citation(1, version="2") + between) * 4000
    wrapped = xml("<a><b/>" * 3, citations, citation(1), "</a>" * 3)
    path.write_bytes(gzip.compress(wrapped))
    tree = peak_of(lambda: ElementTree.fromstring(wrapped))
    assert peak_of(lambda: read_data(path, report=ReadReport())) < tree / 4


@pytest.mark.parametrize("source", [5, None, b"a.jsonl", [5]])
def test_sources_that_are_none(source: Any) -> None:
    with pytest.raises(InputError, match="expected a path or several"):
        read_data(source)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_error": "ignore"}, "on_error must be one of raise, skip, got 'ignore'"),
        ({"quote": "single"}, "quote must be one of double, none"),
        ({"label_separator": ""}, "label_separator must not be empty"),
        ({"delimiter": "::"}, "delimiter must be one character"),
        ({"delimiter": '"'}, "neither a quote nor a newline"),
        ({"label_separator": ";", "label_columns": "*"}, "cannot be combined"),
        ({"text_field": 5}, "text_field must be a string"),
        ({"text_field": ["title", "body"]}, r"string, got \['title', 'body'\]. Write 'title,body'"),
        ({"years": "2020-"}, "years must look like 2020 or, ascending, 2020-2021, got '2020-'"),
        ({"years": "2021-2020"}, "years must look like"),
        ({"years": "\u00b2"}, "years must look like"),
        *(({"encoding": e}, "not a text encoding") for e in ("utf-99", "utf\0", "hex", "rot13")),
        *(
            ({"max_record_mb": value}, "max_record_mb must be a number of at least 0.001")
            for value in (0, -1, "many", None, float("nan"), float("inf"), [1])
        ),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ReadOptions(**options)


def test_messages_are_bounded(tmp_path: Path) -> None:
    columns = [f"column {k}" for k in range(100_000)]
    record = json.dumps(dict.fromkeys(columns, "x"))
    for name, content in (
        ("a.csv", ",".join(columns) + "\n"),
        ("a.jsonl", record),
        ("a.jsonl", json.dumps({"text": "a", "labels": dict.fromkeys(columns)})),
        ("a.jsonl", json.dumps({"text": "a", "labels": "\x1b[31m;" * 10_000})),
        ("a.json", '{"articles": [' + record + "]}"),
    ):
        with pytest.raises(DataError) as caught:
            read(tmp_path / name, content)
        assert len(str(caught.value)) < 1000 and "\x1b" not in str(caught.value)
    assert shown_names(columns) == "'column 0', 'column 1', 'column 2', 'column 3', 'column 4', ..."
