"""BioASQ, MEDLINE, Reuters SGML and NLTK: small files as the publishers write them."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longtail.data import Document, ReadOptions, read_data
from longtail.data.json_files import read_bioasq, read_jsonl
from longtail.data.medline import read_medline
from longtail.errors import DataError, InputError

from .cases import (
    article,
    bioasq,
    citation,
    heading,
    labels_of,
    read,
    reported,
    sgml,
    skip,
    story,
    tar_of,
    write_files,
    xml,
    zip_of,
)


@pytest.mark.parametrize("style", [{}, {"indent": 2}, {"indent": 1, "ensure_ascii": False}])
def test_bioasq(tmp_path: Path, style: dict[str, Any]) -> None:
    articles = [
        article(1, meshMajor=["Mice", "Humans"]),
        article(2, title=None, abstractText="Größe 😀", year=None),
        article(3, abstractText=""),
        article(4, meshMajor=[]),
        article(5, pmid=5, year=2021),
    ]
    content = bioasq(*articles, **style)
    for stored in (content, gzip.compress(content)):
        data, report = reported(tmp_path / "a.json", stored)
        assert data.texts == ["Title 1. Abstract 1.", "Größe 😀", "Title 5. Abstract 5."]
        assert labels_of(data) == [["Humans", "Mice"], ["Humans"], ["Humans"]]
        assert data.ids == ("1", "2", "5") and data.dates == ("2020", "", "2021")
        assert report.passed_over == {"no abstract": 1, "no MeSH headings": 1}
        assert report.documents == 3 and report.skipped == 0
    with pytest.raises(InputError, match="do not say which headings are major topics"):
        read(tmp_path / "a.json", major_topics=True)


def test_bioasq_lines(tmp_path: Path) -> None:
    articles = [article(1), article(2, title="Grö\u00dfe"), article(3)]
    path, content = tmp_path / "a.json", bioasq(*articles).decode().encode("latin-1")
    with pytest.raises(DataError, match=r"a\.json, line 3: not valid UTF-8.*--encoding latin-1"):
        read(path, content)
    data, report = skip(path)
    assert data.ids == ("1", "3") and report.skipped == 1
    assert read(path, encoding="latin-1").texts[1] == "Größe Abstract 2."
    assert read(path, b"\xef\xbb\xbf" + bioasq(articles[1])).ids == ("2",)
    lines = bioasq(*articles).decode().split("\n")
    # The first and last article on the lines of the brackets, and blank lines.
    for text in (
        "".join(lines[:2]) + "\n\n" + "\n".join(lines[2:]),
        "\n".join(lines[:-1]) + "]}\n\n",
    ):
        assert read(path, text.encode("utf-16"), encoding="utf-16").ids == ("1", "2", "3")
    # One article per line is streamed; another layout must be within the limit.
    many = bioasq(*map(article, range(100)))
    assert len(read(path, many, max_record_mb=0.001)) == 100
    with pytest.raises(DataError, match="which does not have one article per line, is larger than"):
        read(path, bioasq(*map(article, range(100)), indent=1), max_record_mb=0.001)


def test_medline(tmp_path: Path) -> None:
    structured = (
        '<Abstract><AbstractText Label="AIMS" NlmCategory="OBJECTIVE">To see.</AbstractText>'
        "<AbstractText Label='RESULTS'>H<sub>2</sub>O\n  and <i>E. coli</i>.</AbstractText>"
        "<CopyrightInformation>None of it.</CopyrightInformation></Abstract>"
    )
    qualifiers = (
        '<QualifierName UI="Q1" MajorTopicYN="N">blood</QualifierName>'
        '<QualifierName UI="Q2" MajorTopicYN="Y">chemistry</QualifierName>'
    )
    headings = heading("Mice", "N", qualifiers) + heading("Humans")
    headings += heading("Models, Biological", "Y")
    content = xml(
        citation(1, "On <i>E. coli</i> &amp; <b>more</b>.", structured, headings),
        citation(2, date="<MedlineDate>1998 Dec-1999 Jan</MedlineDate>"),
        citation(3, abstract=""),
        citation(4, headings=""),
        citation(5, version="2"),
        citation(6, date="<Season>Spring</Season>"),
    )
    for stored in (content, gzip.compress(content)):
        data, report = reported(tmp_path / "a.xml", stored)
        assert data.texts == [
            "On E. coli & more. To see. H2O and E. coli.",
            "Title 2. Abstract 2.",
            "Title 6. Abstract 6.",
        ]
        assert labels_of(data)[0] == ["Humans", "Mice", "Models, Biological"]
        assert data.ids == ("1", "2", "6") and data.dates == ("2020", "1998", "")
        later = {"a later version of a citation": 1}
        assert report.passed_over == {"no abstract": 1, "no MeSH headings": 1} | later
    data, report = reported(tmp_path / "a.xml", major_topics=True)
    assert labels_of(data) == [["Mice", "Models, Biological"]]
    assert report.passed_over["no major topics"] == 4


def test_elements_beside_citations(tmp_path: Path) -> None:
    book = "<PubmedBookArticle><BookDocument><PMID>8</PMID></BookDocument></PubmedBookArticle>"
    deleted = "<DeleteCitation><PMID>5</PMID></DeleteCitation>"
    # Articles in an envelope are read at any depth.
    inner = f"<record><early/><metadata>{citation(1)}</metadata>{book}</record>"
    data, report = reported(tmp_path / "a.xml", xml(citation(7), inner, deleted, citation(9)))
    assert data.ids == ("7", "1", "9")
    assert report.left_out == {"book (PubmedBookArticle), not an article": 1}
    with pytest.warns(UserWarning, match="left out: book"):
        read_data(tmp_path / "a.xml")


def test_reuters_stories(tmp_path: Path) -> None:
    texts = {
        1: None,
        2: "<TITLE>A BRIEF &lt;ABC> TITLE</TITLE>",
        3: "\nALL IN ONE &amp; NEVER MARKED UP\n    line\n Reuter\n&#3;",
        4: "<TITLE>CAF\u00c9</TITLE>\n<DATELINE>    PARIS, </DATELINE>"
        "<BODY>Reuters said.&#127;</BODY>",
    }
    stories = [story(number, text=text) for number, text in texts.items()]
    stories[1] = story(2, ("wheat", "grain", "wheat"), "TEST", texts[2], " 5-MAR-1987 1:2")
    stories += [
        story(5, (), "TRAIN"),
        story(6, split="NOT-USED"),
        story(7, has_topics="BYPASS"),
        story(8, date="31-FEB-1987"),
        story(9, date="1-XYZ-1987"),
    ]
    path = tmp_path / "reut2-000.sgm"
    data, report = reported(path, sgml(*stories))
    assert data.texts[:4] == [
        "TITLE 1\nBody 1.",
        "A BRIEF <ABC> TITLE",
        "ALL IN ONE & NEVER MARKED UP\n    line",
        "CAFÉ\nReuters said.",
    ]
    assert labels_of(data)[:2] == [["cocoa"], ["grain", "wheat"]]
    assert data.ids == tuple(f"{'test' if k == 2 else 'training'}/{k}" for k in (1, 2, 3, 4, 8, 9))
    assert data.dates == ("1987-02-26", "1987-03-05", "1987-02-26", "1987-02-26", "", "")
    assert report.passed_over == {"no topic": 1, "not in the ModApte split": 2}
    with pytest.raises(DataError, match=r"reut2-000\.sgm, story 4: not valid utf-8"):
        read(path, encoding="utf-8")


def test_reuters_folder_and_archives(tmp_path: Path) -> None:
    files = {f"reut2-00{k}.sgm": sgml(*(story(10 * k + n) for n in (1, 2, 3))) for k in (0, 1)}
    beside = dict.fromkeys(("README.txt", "lewis.dtd", "._reut2-000.sgm"), sgml(story(1)))
    folder = write_files(tmp_path / "reuters", files | beside)
    expected = read_data(folder)
    assert expected.ids == tuple(f"training/{k}" for k in (1, 2, 3, 11, 12, 13))
    members = {f"./{name}": content for name, content in (beside | files).items()}
    for name, mode in (("a.tar.gz", "w:gz"), ("a.tgz", "w:gz"), ("a.tar", "w")):
        data = read(tmp_path / name, tar_of(members, mode))
        assert (data.texts, data.ids) == (expected.texts, expected.ids)
    # With the format given, a folder with other names.
    (folder / "reut2-000.sgm").rename(folder / "SOME.SGM")
    (folder / "reut2-001.sgm").unlink()
    assert read_data(folder, "reuters").ids == ("training/1", "training/2", "training/3")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"expected the files reut2-000\.sgm"):
        read_data(tmp_path / "empty", "reuters")


def test_sgml_labels_and_stories_that_were_once_dropped(tmp_path: Path) -> None:
    content = sgml(story(1).replace("<D>cocoa", "<D>co\ncoa"), story(2))
    assert read(tmp_path / "a.sgm", content).label_names == ("co coa", "cocoa")
    for k, at in (
        (1, r"story 1: expected the start of a story \(<REUTERS ...>\) after it"),
        (0, "expected a story"),
    ):
        stories = [story(number) for number in (1, 2, 3)]
        stories[k] = stories[k].replace("<REUTERS", "<REUTXXS")
        with pytest.raises(DataError, match=at):
            read(tmp_path / "a.sgm", sgml(*stories))
        data, report = skip(tmp_path / "a.sgm")
        assert len(data) == 2 and report.skipped == 1


NLTK = {
    "cats.txt": "training/1 cocoa coffee\ntest/2 coffee\n\ntraining/3 caf\u00e9\r\n".encode(),
    "training/1": b"TITLE\n  Body &lt;one>.",
    "test/2": b"Two \xe9",
    "training/3": b"Three",
    # Files that are not documents.
    **dict.fromkeys(("README", "stopwords", ".x", "__MACOSX/a"), b"about"),
}


@pytest.fixture(params=["folder", "folder above", "zip", "zip without folder"])
def nltk(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param.startswith("folder"):
        write_files(tmp_path / "reuters", NLTK)
        return tmp_path / "reuters" if request.param == "folder" else tmp_path
    prefix = "reuters/" if request.param == "zip" else ""
    members = {f"{prefix}{name}": content for name, content in NLTK.items()}
    return zip_of(tmp_path / "reuters.zip", members)


def test_nltk(nltk: Path) -> None:
    data = read_data(nltk, "nltk")
    assert data.texts == ["TITLE\n  Body &lt;one>.", "Two é", "Three"]
    # UTF-8 bytes are not split, though half of à is white space in Latin-1.
    assert labels_of(data) == [["cocoa", "coffee"], ["coffee"], ["cafÃ©"]]
    assert data.ids == ("training/1", "test/2", "training/3")
    with pytest.raises(DataError, match=r"cats\.txt, line 2: not valid utf-8"):
        read(nltk, format="nltk", encoding="utf-8")
    data, report = skip(nltk, format="nltk", encoding="utf-8")
    assert data.ids == ("training/1", "training/3") and report.skipped == 1
    assert data.label_names == ("café", "cocoa", "coffee")


def test_nltk_without_cats(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected one cats\.txt of NLTK, got none"):
        read_data(tmp_path, "nltk")
    for names in ([], ["brown/cats.txt", "reuters/cats.txt"]):
        path = zip_of(tmp_path / "a.zip", dict.fromkeys(["other", *names], "training/1 a"))
        with pytest.raises(DataError, match=r"expected one cats\.txt .*got (none|'brown)"):
            read_data(path)


@pytest.mark.parametrize("kind", ["bioasq", "medline", "jsonl", "jsonl.gz"])
def test_a_reader_holds_one_record_at_a_time(tmp_path: Path, kind: str) -> None:
    numbers = range(30_000)
    path = tmp_path / "large"
    lines = (b'{"text": "%0150d", "labels": ["a"]}\n' % n for n in numbers)
    content, read_records = {
        "medline": (lambda: xml(*map(citation, numbers)), read_medline),
        "bioasq": (lambda: bioasq(*map(article, numbers)), read_bioasq),
    }.get(kind, (lambda: b"".join(lines), read_jsonl))
    plain = content()
    path.write_bytes(gzip.compress(plain, 0) if kind.endswith("gz") else plain)
    ticks: list[int] = []
    records: Iterator[Any] = read_records(path, ReadOptions(), ticks.append)
    assert isinstance(next(records), Document)
    first = sum(ticks)
    # At most one buffer of 1 MiB of at least 4 MB.
    assert 0 < first <= 1 << 20 < len(plain) / 3
    for _ in range(25_000):
        next(records)
    assert first < sum(ticks)
    records.close()  # type: ignore[attr-defined]
    assert sum(ticks) <= path.stat().st_size
