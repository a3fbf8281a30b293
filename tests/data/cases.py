"""Small files in the formats of the corpora, and helpers to read them."""

from __future__ import annotations

import io
import json
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from longtail.data import ReadReport, TextData, read_data

DOCTYPE = (
    '<?xml version="1.0" encoding="utf-8"?>\n'
    '<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle, 1st January 2019//EN" '
    '"http://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_190101.dtd">\n'
)
SGML_HEAD = b'<!DOCTYPE lewis SYSTEM "lewis.dtd">\n'


def story(
    number: int,
    topics: tuple[str, ...] = ("cocoa",),
    split: str = "TRAIN",
    text: str | None = None,
    date: str = "26-FEB-1987 15:01:01.79",
    has_topics: str = "YES",
) -> str:
    if text is None:
        text = f"<TITLE>TITLE {number}</TITLE>\n<BODY>Body {number}.\n REUTER\n&#3;</BODY>"
    kind = "" if "<TITLE>" in text else ' TYPE="UNPROC"'
    named = "".join(f"<D>{name}</D>" for name in topics)
    return (
        f'<REUTERS TOPICS="{has_topics}" LEWISSPLIT="{split}" CGISPLIT="TRAINING-SET" '
        f'OLDID="{number + 5000}" NEWID="{number}">\n<DATE>{date}</DATE>\n'
        f"<TOPICS>{named}</TOPICS>\n<PLACES><D>usa</D></PLACES>\n<PEOPLE></PEOPLE>\n"
        f"<UNKNOWN> \n&#5;&#5;&#5;C T\n</UNKNOWN>\n<TEXT{kind}>&#2;\n{text}</TEXT>\n"
        "</REUTERS>\n"
    )


def sgml(*stories: str) -> bytes:
    return SGML_HEAD + "".join(stories).encode("latin-1")


def citation(
    number: int,
    title: str | None = None,
    abstract: str | None = None,
    headings: str | None = None,
    date: str = "<Year>2020</Year>",
    version: str = "1",
) -> str:
    if abstract is None:
        abstract = f"<Abstract><AbstractText>Abstract {number}.</AbstractText></Abstract>"
    if headings is None:
        headings = heading("Humans")
    return (
        '<PubmedArticle><MedlineCitation Status="MEDLINE" Owner="NLM">'
        f'<PMID Version="{version}">{number}</PMID><Article PubModel="Print"><Journal>'
        f"<JournalIssue><PubDate>{date}</PubDate></JournalIssue></Journal>"
        f"<ArticleTitle>{title or f'Title {number}.'}</ArticleTitle>{abstract}</Article>"
        f"<MeshHeadingList>{headings}</MeshHeadingList></MedlineCitation></PubmedArticle>\n"
    )


def heading(name: str, major: str = "N", qualifiers: str = "") -> str:
    return (
        f'<MeshHeading><DescriptorName UI="D1" MajorTopicYN="{major}">{name}'
        f"</DescriptorName>{qualifiers}</MeshHeading>"
    )


def xml(*citations: str, head: str = DOCTYPE) -> bytes:
    return f"{head}<PubmedArticleSet>\n{''.join(citations)}</PubmedArticleSet>\n".encode()


def article(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "journal": "J",
        "meshMajor": ["Humans"],
        "year": "2020",
        "abstractText": f"Abstract {number}.",
        "pmid": str(number),
        "title": f"Title {number}.",
    } | fields


def bioasq(*articles: Any, **style: Any) -> bytes:
    """One article per line as in BioASQ or, with a style, in the layout of json.dumps."""
    if style:
        return json.dumps({"articles": articles}, **style).encode()
    lines = ",\n".join(json.dumps(article, ensure_ascii=False) for article in articles)
    return b'{"articles":[\n' + lines.encode() + b"\n]}"


def tar_of(files: dict[str, Any], mode: str = "w") -> bytes:
    """An archive; content that is a string makes a symbolic link, a number a hard link."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
                continue
            member.type = tarfile.SYMTYPE if isinstance(content, str) else tarfile.LNKTYPE
            member.linkname = content if isinstance(content, str) else "reut2-000.sgm"
            archive.addfile(member)
    return buffer.getvalue()


def zip_of(path: Path, members: dict[str, Any], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def write_files(folder: Path, files: dict[str, Any]) -> Path:
    """Write files by name; return the folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def read(path: Path, content: str | bytes | None = None, **options: Any) -> TextData:
    """Read a file, written first if content is given."""
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_data(path, **options)


def reported(
    path: Any, content: str | bytes | None = None, **options: Any
) -> tuple[TextData, ReadReport]:
    """Read a file; return the documents and the report."""
    report = ReadReport()
    return read(path, content, report=report, **options), report


def skip(path: Any, content: str | bytes | None = None, **options: Any) -> Any:
    """Read a file, skipping bad records; return the documents and the report."""
    return reported(path, content, on_error="skip", **options)


def peak_of(action: Callable[[], Any]) -> int:
    """Return the peak of Python's memory in bytes."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def assert_same(data: TextData, expected: TextData) -> None:
    assert data.texts == expected.texts and data.label_names == expected.label_names
    assert (data.ids, data.dates) == (expected.ids, expected.dates)
    assert data.Y.shape == expected.Y.shape and (data.Y != expected.Y).nnz == 0


def labels_of(data: TextData) -> list[list[str]]:
    return [list(document.labels) for document in data]


def sizes(parts: dict[str, TextData]) -> dict[str, int]:
    return {part: len(data) for part, data in parts.items()}
