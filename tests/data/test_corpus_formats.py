"""BioASQ, MEDLINE, Reuters SGML and NLTK: small files as the publishers write them."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longtail.data import Document, ReadOptions, ReadReport, TextData, read_data
from longtail.data.json_files import PIECE, read_bioasq, read_jsonl
from longtail.data.medline import read_medline
from longtail.errors import DataError, InputError


def read(path: Path, content: bytes, **options: Any) -> tuple[TextData, ReadReport]:
    path.write_bytes(content)
    report = ReadReport()
    return read_data(path, report=report, **options), report


def labels_of(data: TextData) -> list[list[str]]:
    return [list(document.labels) for document in data]


@pytest.mark.parametrize("style", [{}, {"indent": 2}, {"indent": 1, "ensure_ascii": False}])
def test_bioasq(tmp_path: Path, samples: Any, style: dict[str, Any]) -> None:
    articles = [
        samples.article(1, meshMajor=["Mice", "Humans"]),
        samples.article(2, title=None, abstractText="Größe 😀", year=None),
        samples.article(3, abstractText=""),
        samples.article(4, meshMajor=[]),
        samples.article(5, pmid=5, year=2021),
    ]
    content = samples.bioasq(*articles, **style)
    for name, stored in (("a.json", content), ("a.json.gz", gzip.compress(content))):
        data, report = read(tmp_path / name, stored)
        assert data.texts == ["Title 1. Abstract 1.", "Größe 😀", "Title 5. Abstract 5."]
        assert labels_of(data) == [["Humans", "Mice"], ["Humans"], ["Humans"]]
        assert data.ids == ("1", "2", "5") and data.dates == ("2020", "", "2021")
        assert report.passed_over == {"no abstract": 1, "no MeSH headings": 1}
        assert report.documents == 3 and report.skipped == 0


def test_bioasq_characters_across_chunks(tmp_path: Path, samples: Any) -> None:
    # Characters of 2, 3 and 4 bytes at every offset from the borders of 64 KiB.
    texts = ["é" * 40_000, "x" + "é" * 40_000, "€" * 30_000, "xx" + "😀" * 40_000]
    articles = [samples.article(k, abstractText=text) for k, text in enumerate(texts)]
    data, _ = read(tmp_path / "a.json", samples.bioasq(*articles))
    assert data.texts == [f"Title {k}. {text}" for k, text in enumerate(texts)]


def test_bioasq_numbers_across_chunks(tmp_path: Path, samples: Any) -> None:
    articles = samples.bioasq(samples.article(1)).decode()[1:]
    for number in ("12.5", "1.5e+10", "-7"):
        for cut in range(1, len(number)):
            head = '{"x": '.ljust(PIECE - cut)
            data, _ = read(tmp_path / "a.json", f"{head}{number}, {articles}".encode())
            assert data.ids == ("1",)


def test_bioasq_that_is_not_utf8(tmp_path: Path, samples: Any) -> None:
    articles = [samples.article(1), samples.article(2, title="Grö\u00dfe"), samples.article(3)]
    content = samples.bioasq(*articles).decode().encode("latin-1")
    with pytest.raises(DataError, match=r"a\.json, article 2: not valid UTF-8.*--encoding latin-1"):
        read(tmp_path / "a.json", content)
    data, report = read(tmp_path / "a.json", content, on_error="skip")
    assert data.ids == ("1", "3") and report.skipped == 1
    data, _ = read(tmp_path / "a.json", content, encoding="latin-1")
    assert data.texts[1] == "Größe Abstract 2."
    data, _ = read(tmp_path / "a.json", b"\xef\xbb\xbf" + samples.bioasq(articles[1]))
    assert data.ids == ("2",)
    wide = samples.bioasq(*articles).decode().encode("utf-16")
    data, _ = read(tmp_path / "a.json", wide, encoding="utf-16")
    assert data.ids == ("1", "2", "3")


def test_bioasq_knows_no_major_topics(tmp_path: Path, samples: Any) -> None:
    with pytest.raises(InputError, match="do not say which headings are major topics"):
        read(tmp_path / "a.json", samples.bioasq(samples.article(1)), major_topics=True)


def test_medline(tmp_path: Path, samples: Any) -> None:
    structured = (
        '<Abstract><AbstractText Label="AIMS" NlmCategory="OBJECTIVE">To see.</AbstractText>'
        "<AbstractText Label='RESULTS'>H<sub>2</sub>O\n  and <i>E. coli</i>.</AbstractText>"
        "<CopyrightInformation>None of it.</CopyrightInformation></Abstract>"
    )
    qualifiers = (
        '<QualifierName UI="Q1" MajorTopicYN="N">blood</QualifierName>'
        '<QualifierName UI="Q2" MajorTopicYN="Y">chemistry</QualifierName>'
    )
    headings = (
        samples.heading("Mice", "N", qualifiers)
        + samples.heading("Humans")
        + samples.heading("Models, Biological", "Y")
    )
    citations = [
        samples.citation(1, "On <i>E. coli</i> &amp; <b>more</b>.", structured, headings),
        samples.citation(2, date="<MedlineDate>1998 Dec-1999 Jan</MedlineDate>"),
        samples.citation(3, abstract=""),
        samples.citation(4, headings=""),
        samples.citation(5, version="2"),
        samples.citation(6, date="<Season>Spring</Season>"),
    ]
    content = samples.xml(*citations)
    for name, stored in (("a.xml", content), ("a.xml.gz", gzip.compress(content))):
        data, report = read(tmp_path / name, stored)
        assert data.texts == [
            "On E. coli & more. To see. H2O and E. coli.",
            "Title 2. Abstract 2.",
            "Title 6. Abstract 6.",
        ]
        assert labels_of(data)[0] == ["Humans", "Mice", "Models, Biological"]
        assert data.ids == ("1", "2", "6") and data.dates == ("2020", "1998", "")
        assert report.passed_over == {
            "no abstract": 1,
            "no MeSH headings": 1,
            "a later version of a citation": 1,
        }
    data, report = read(tmp_path / "a.xml", content, major_topics=True)
    assert labels_of(data) == [["Mice", "Models, Biological"]]
    assert report.passed_over["no major topics"] == 4


def test_reuters_stories(tmp_path: Path, samples: Any) -> None:
    texts = {
        1: None,
        2: "<TITLE>A BRIEF &lt;ABC> TITLE</TITLE>",
        3: "\nALL IN ONE &amp; NEVER MARKED UP\n    line\n Reuter\n&#3;",
        4: "<TITLE>CAF\u00c9</TITLE>\n<DATELINE>    PARIS, </DATELINE>"
        "<BODY>Reuters said.&#127;</BODY>",
    }
    stories = [samples.story(number, text=text) for number, text in texts.items()]
    stories[1] = samples.story(2, ("wheat", "grain", "wheat"), "TEST", texts[2], " 5-MAR-1987 1:2")
    stories += [
        samples.story(5, (), "TRAIN"),
        samples.story(6, split="NOT-USED"),
        samples.story(7, has_topics="BYPASS"),
        samples.story(8, date="31-FEB-1987"),
        samples.story(9, date="1-XYZ-1987"),
    ]
    content = samples.sgml(*stories)
    data, report = read(tmp_path / "reut2-000.sgm", content)
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
        read(tmp_path / "reut2-000.sgm", content, encoding="utf-8")


def reuters_files(samples: Any) -> dict[str, bytes]:
    return {
        f"reut2-00{k}.sgm": samples.sgml(*(samples.story(10 * k + n) for n in range(1, 4)))
        for k in range(2)
    }


def tar_of(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def test_reuters_folder_and_archives(tmp_path: Path, samples: Any) -> None:
    files = reuters_files(samples)
    folder = tmp_path / "reuters"
    folder.mkdir()
    for name, content in {**files, "README.txt": b"about", "lewis.dtd": b"x"}.items():
        (folder / name).write_bytes(content)
    expected = read_data(folder)
    assert expected.ids == tuple(f"training/{k}" for k in (1, 2, 3, 11, 12, 13))
    for name, mode in (("a.tar.gz", "w:gz"), ("a.tgz", "w:gz"), ("a.tar", "w")):
        others = {"./lewis.dtd": b"x", **{f"./{n}": c for n, c in files.items()}}
        data, _ = read(tmp_path / name, tar_of(others, mode))
        assert (data.texts, data.ids) == (expected.texts, expected.ids)
    # The format as an argument, for a folder of another kind of names.
    (folder / "reut2-000.sgm").rename(folder / "some.sgm")
    (folder / "reut2-001.sgm").unlink()
    assert read_data(folder, "reuters").ids == ("training/1", "training/2", "training/3")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"expected the files reut2-000\.sgm"):
        read_data(tmp_path / "empty", "reuters")


NLTK = {
    "cats.txt": "training/1 cocoa coffee\ntest/2 coffee\n\ntraining/3 caf\u00e9\r\n".encode(),
    "training/1": b"TITLE\n  Body &lt;one>.",
    "test/2": b"Two \xe9",
    "training/3": b"Three",
    "README": b"about",
}


@pytest.fixture(params=["folder", "folder above", "zip", "zip without folder"])
def nltk(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param.startswith("folder"):
        for name, content in NLTK.items():
            (tmp_path / "reuters" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "reuters" / name).write_bytes(content)
        return tmp_path / "reuters" if request.param == "folder" else tmp_path
    path = tmp_path / "reuters.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in NLTK.items():
            archive.writestr(f"reuters/{name}" if request.param == "zip" else name, content)
    return path


def test_nltk(nltk: Path) -> None:
    data = read_data(nltk, "nltk")
    assert data.texts == ["TITLE\n  Body &lt;one>.", "Two é", "Three"]
    # The bytes of é in UTF-8 are no white space, though half of à would be in Latin-1.
    assert labels_of(data) == [["cocoa", "coffee"], ["coffee"], ["cafÃ©"]]
    assert data.ids == ("training/1", "test/2", "training/3")
    with pytest.raises(DataError, match=r"cats\.txt, line 2: not valid utf-8"):
        read_data(nltk, "nltk", encoding="utf-8")
    report = ReadReport()
    data = read_data(nltk, "nltk", encoding="utf-8", on_error="skip", report=report)
    assert data.ids == ("training/1", "training/3") and report.skipped == 1
    assert data.label_names == ("café", "cocoa", "coffee")


def test_nltk_without_cats(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected NLTK's cats\.txt"):
        read_data(tmp_path, "nltk")
    path = tmp_path / "a.zip"
    for names in ([], ["brown/cats.txt", "reuters/cats.txt"]):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("other", b"")
            for name in names:
                archive.writestr(name, b"training/1 a")
        with pytest.raises(DataError, match=r"expected one cats\.txt .*got (none|'brown)"):
            read_data(path)


@pytest.mark.parametrize("kind", ["bioasq", "medline", "jsonl", "jsonl.gz"])
def test_a_reader_holds_one_record_at_a_time(tmp_path: Path, samples: Any, kind: str) -> None:
    numbers = range(30_000)
    path = tmp_path / "large"
    if kind == "medline":
        content = samples.xml(*map(samples.citation, numbers))
        read_records: Any = read_medline
    elif kind == "bioasq":
        content = samples.bioasq(*map(samples.article, numbers))
        read_records = read_bioasq
    else:
        content = b"".join(b'{"text": "%0150d", "labels": ["a"]}\n' % n for n in numbers)
        read_records = read_jsonl
    path.write_bytes(gzip.compress(content, 0) if kind.endswith("gz") else content)
    ticks: list[int] = []
    records: Iterator[Any] = read_records(path, ReadOptions(), ticks.append)
    assert isinstance(next(records), Document)
    first = sum(ticks)
    # One buffer of 1 MiB at most, of 4 MB and more.
    assert 0 < first <= 1 << 20 < len(content) / 3
    for _ in range(25_000):
        next(records)
    assert first < sum(ticks)
    records.close()  # type: ignore[attr-defined]
    assert sum(ticks) <= path.stat().st_size


def test_memory_does_not_grow_with_a_medline_file(tmp_path: Path, samples: Any) -> None:
    import tracemalloc

    path = tmp_path / "a.xml"
    path.write_bytes(samples.xml(*map(samples.citation, range(3000))))
    tracemalloc.start()
    try:
        for _ in read_medline(path, ReadOptions(), lambda count: None):
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # All of the tree would be some 15 MB; the buffer of the file is 1 MiB.
    assert peak < 3 << 20
