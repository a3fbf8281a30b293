"""Small files that would take all memory or time end in our errors, and limits can be raised.

Where a fault was quadratic, sizes are such that it took minutes; nothing is timed.
"""

from __future__ import annotations

import gzip
import json
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from longtail.data import ReadOptions, ReadReport, read_data
from longtail.data.fields import PYTHON_LIST, cell_labels
from longtail.data.limits import shown, shown_names
from longtail.errors import DataError, InputError, LongtailError

GOOD = '{"text": "good", "labels": ["x"]}\n'


def skip(path: Path, **options: Any) -> tuple[Any, ReadReport]:
    report = ReadReport()
    return read_data(path, on_error="skip", report=report, **options), report


def peak_of(action: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


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
        path.write_bytes(gzip.compress(content.encode()))
        expected = r"line \d: the line is larger than 1 MB.*max_record_mb=4 \(--max-record-mb\)"
        with pytest.raises(DataError, match=expected):
            read_data(path, max_record_mb=1)
        data, report = skip(path, max_record_mb=1)
        assert data.texts == ["one", "two"] and report.skipped == 2
        assert len(read_data(path, max_record_mb=4)) == len(read_data(path)) == 4


def test_a_long_line_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(GOOD.encode())
        for _ in range(64):
            file.write(b"x" * (1 << 20))
        file.write(b"\n" + GOOD.encode())
    assert path.stat().st_size < 1 << 20
    assert peak_of(lambda: skip(path, max_record_mb=1)) < 20 << 20


def test_a_row_that_never_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('text,labels\n"' + "many words and more\n" * 100_000 + "b,y\nc,z\n")
    with pytest.raises(DataError, match=r"line 2: the row is larger than 1 MB.*--quote none"):
        read_data(path, max_record_mb=1)
    data, _ = skip(path, max_record_mb=1)
    assert data.texts == ["b", "c"]


def test_quotes_that_each_swallow_the_rest_of_a_table(tmp_path: Path) -> None:
    # Each of these lines opens a quote, whether or not one is open: once quadratic.
    path = tmp_path / "a.csv"
    path.write_text("text,labels\ngood,x\n" + 'q","\n' * 50_000)
    data, report = skip(path)
    assert data.texts == ["good"]
    assert report.skipped < 1000 and len(report.examples) == 5
    # A few stray quotes cost no record but their own.
    lines = [f'a {k},x\n"b {k},y\n' for k in range(5)]
    path.write_text("text,labels\n" + "".join(lines))
    data, report = skip(path)
    assert data.texts == [f"a {k}" for k in range(5)] and report.skipped == 5


BRACKETS = "[" * 1_000_000


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_megabyte_of_brackets(tmp_path: Path, on_error: str) -> None:
    for name, content in (
        ("a.jsonl", BRACKETS),
        ("b.jsonl", '{"text": ' + BRACKETS),
        ("a.json", '{"articles": [{"pmid": ' + BRACKETS),
        ("b.json", '{"other": ' + BRACKETS),
        ("a.csv", f"text,labels\na,{BRACKETS}]"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(DataError, match=r"nested too deeply|are not a list of strings"):
            read_data(tmp_path / name, on_error=on_error)


def test_numbers_of_a_million_digits(tmp_path: Path) -> None:
    for name, content in (
        ("a.jsonl", '{"text": "a", "labels": ["x"], "id": ' + "9" * 1_000_000 + "}"),
        ("a.json", '{"articles": [{"pmid": ' + "9" * 1_000_000 + "}]}"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(DataError, match="4300 digits") as caught:
            read_data(tmp_path / name)
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("item", ["{}", "[]", "1.5"])
def test_many_small_values(tmp_path: Path, item: str) -> None:
    items = f"[{','.join([item] * 200_000)}]"
    (tmp_path / "a.json").write_text(f'{{"articles": [{{"x": {items}}}]}}')
    (tmp_path / "a.jsonl").write_text(f'{{"x": {items}}}\n{GOOD}')
    with pytest.raises(DataError, match="one value of the JSON text is larger than 1 MB"):
        read_data(tmp_path / "a.json", max_record_mb=1)
    data, report = skip(tmp_path / "a.jsonl", max_record_mb=1)
    assert data.texts == ["good"] and "the parsed line" in report.examples[0]


def test_python_lists_in_linear_time() -> None:
    options = ReadOptions()
    for cell in (
        "['a'" + " " * 1_000_000 + "x]",
        "['" + "a" * 1_000_000 + "]",
        "[" + "'a'," * 300_000,
    ):
        assert not PYTHON_LIST.fullmatch(cell)
    many = "[" + ", ".join(["'it\\'s'", '"b"', "'\\x41'"] * 20_000) + "]"
    assert cell_labels(many, options)[0][:3] == ["it's", "b", "A"]
    assert peak_of(lambda: cell_labels(many, options)) < 20 * len(many)


def story(body: str, head: str = 'TOPICS="YES" LEWISSPLIT="TRAIN" NEWID="1"') -> str:
    return f"<REUTERS {head}><TOPICS><D>a</D></TOPICS>{body}</REUTERS>\n"


@pytest.mark.parametrize(
    "content",
    [
        story("<TEXT><BODY>text" + " " * 1_000_000 + "x</BODY></TEXT>"),
        story("<TEXT>" + "&#1" * 300_000 + "</TEXT>"),
        story("<TEXT" * 300_000),
        story("<TEXT>x</TEXT>", "a" * 1_000_000),
        story("<TEXT>x</TEXT>", "a=" * 300_000),
        story("<TEXT>x</TEXT>").replace("<D>a</D>", "<D>" * 300_000),
        story("<TEXT>x</TEXT>").replace("</D>", " " * 1_000_000),
        "<REUTERS " * 300_000,
        "<!--" * 300_000 + story("<TEXT>x</TEXT>"),
        story("<DATE>" + "1" * 1_000_000 + "</DATE><TEXT>x</TEXT>"),
        story("<TEXT>&#" + "9" * 5000 + "</TEXT>"),
    ],
    ids=range(11),
)
def test_sgml_in_linear_time(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.sgm"
    path.write_text(content)
    for on_error in ("raise", "skip"):
        try:
            data = read_data(path, on_error=on_error, report=ReadReport())
        except LongtailError:
            continue
        assert len(data) == 1


def test_one_sgml_file_that_is_too_large(tmp_path: Path, samples: Any) -> None:
    large = samples.sgml(*(samples.story(k) for k in range(1, 200)))
    files = {"reut2-000.sgm": large, "reut2-001.sgm": samples.sgml(samples.story(500))}
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)
            archive.add(tmp_path / name, name)
    for path in (tmp_path, tmp_path / "a.tar"):
        data, report = skip(path, format="reuters", max_record_mb=0.01)
        ids = list(data.ids or ())
        # The whole stories before the limit, and the next file.
        assert 5 < len(ids) < 199 and ids[-1] == "training/500" and report.skipped == 1
        assert "reut2-000.sgm: the file is larger than 0.01 MB" in report.examples[0]


def citation(inside: str) -> str:
    return f"<PubmedArticleSet><PubmedArticle>{inside}"


@pytest.mark.parametrize(
    "content",
    [
        citation("<PMID>" + "x" * 3_000_000),
        citation('<PMID Version="' + "x" * 3_000_000),
        citation("<PMID" + "".join(f' a{k}=""' for k in range(200_000))),
        citation("<!--" + "x" * 3_000_000),
        "<!--" + "x" * 3_000_000,
        "<a>" * 100_000,
        "<a>" + ("<b>" * 9_000 + "<DeleteCitation/>") * 10,
        "<" + "a" * 3_000_000,
    ],
    ids=["text", "attribute", "attributes", "comment", "prolog", "depth", "steps", "name"],
)
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_xml_that_grows_without_end(tmp_path: Path, content: str, on_error: str) -> None:
    for name, stored in (("a.xml", content.encode()), ("b.xml", gzip.compress(content.encode()))):
        (tmp_path / name).write_bytes(stored)
        with pytest.raises(DataError, match="is larger than 1 MB"):
            read_data(tmp_path / name, on_error=on_error, max_record_mb=1)


def test_citations_before_one_that_is_too_large(tmp_path: Path, samples: Any) -> None:
    path = tmp_path / "a.xml"
    large = samples.citation(3, abstract=f"<Abstract><AbstractText>{'x' * 2_000_000}")
    path.write_bytes(samples.xml(samples.citation(1), samples.citation(2), large))
    data, report = skip(path, max_record_mb=1)
    assert data.ids == ("1", "2") and report.skipped == 1
    assert "after 2 records: one citation of the XML is larger" in report.examples[0]


@pytest.mark.parametrize("between", ["", "<a/>", "text"])
def test_citations_at_any_depth_are_let_go(tmp_path: Path, samples: Any, between: str) -> None:
    path = tmp_path / "a.xml.gz"
    citations = (samples.citation(1, version=2) + between) * 4000
    wrapped = samples.xml("<a><b/>" * 3, citations, samples.citation(1), "</a>" * 3)
    path.write_bytes(gzip.compress(wrapped))
    tree = peak_of(lambda: ElementTree.fromstring(wrapped))
    assert peak_of(lambda: read_data(path, report=ReadReport())) < tree / 4


@pytest.mark.parametrize(
    "subset", ['<!ATTLIST x y CDATA "z">', "<!ELEMENT x ANY>", "<!-- nothing -->", ""]
)
def test_internal_subsets_are_refused(tmp_path: Path, samples: Any, subset: str) -> None:
    path = tmp_path / "a.xml"
    path.write_bytes(samples.xml(samples.citation(1), head=f"<!DOCTYPE x [{subset}]>"))
    with pytest.raises(DataError, match=r"was refused: its <!DOCTYPE 'x'>"):
        read_data(path, on_error="skip")


@pytest.mark.parametrize("encoding", ["utf-7", "utf-32", "no-such", "hex", "idna", "x" * 5000])
def test_xml_in_odd_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.xml"
    path.write_text(f'<?xml version="1.0" encoding="{encoding}"?><a/>')
    with pytest.raises(DataError, match=r"encoding|not valid XML|expected PubmedArticle"):
        read_data(path)


@pytest.mark.parametrize(
    "error", [MemoryError, RecursionError, OverflowError, LookupError, KeyError]
)
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_errors_of_python_end_as_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception], on_error: str
) -> None:
    from longtail.data import jsonl

    def fail(line: str) -> Any:
        raise error()

    monkeypatch.setattr(jsonl, "to_document", lambda record, *rest: fail(""))
    path = tmp_path / "a.jsonl"
    path.write_text(GOOD)
    with pytest.raises(DataError, match=r"memory|cannot be read any further|nested"):
        read_data(path, on_error=on_error)


@pytest.mark.parametrize("source", [5, None, b"a.jsonl", [5]])
def test_sources_that_are_none(source: Any) -> None:
    with pytest.raises(InputError, match="expected a path or several"):
        read_data(source)


@pytest.mark.parametrize(
    "encoding", ["hex", "rot13", "zip", "idna", "punycode", "undefined", "unicode_escape", 5, "\0"]
)
def test_encodings_that_are_none(encoding: Any) -> None:
    with pytest.raises(InputError, match=r"encoding|must be a string"):
        ReadOptions(encoding=encoding)


@pytest.mark.parametrize("value", [0, -1, "many", None, True, float("nan"), float("inf"), [1]])
def test_limits_that_are_none(value: Any) -> None:
    with pytest.raises(InputError, match="max_record_mb must be a number of megabytes"):
        ReadOptions(max_record_mb=value)
    assert ReadOptions(max_record_mb="64") == ReadOptions()


def test_messages_are_bounded(tmp_path: Path) -> None:
    columns = [f"column {k}" for k in range(100_000)]
    record = json.dumps(dict.fromkeys(columns, "x"))
    files = {
        "a.csv": ",".join(columns) + "\n",
        "a.jsonl": record,
        "b.jsonl": json.dumps({"text": "a", "labels": dict.fromkeys(columns)}),
        "c.jsonl": json.dumps({"text": "a", "labels": "\x1b[31m" * 10_000}),
        "a.json": '{"articles": [' + record + "]}",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        with pytest.raises(DataError) as caught:
            read_data(tmp_path / name)
        assert len(str(caught.value)) < 700 and "\x1b" not in str(caught.value)
    assert shown_names(columns) == "'column 0', 'column 1', 'column 2', 'column 3', 'column 4', ..."
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert len(shown(deep)) < 80 and len(shown("x" * 10**7)) < 80 and len(shown(10**5000)) < 80
