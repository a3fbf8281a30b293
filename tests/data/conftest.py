"""Small files in the real formats of the corpora, written here."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

DOCTYPE = (
    '<?xml version="1.0" encoding="utf-8"?>\n'
    '<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle, 1st January 2019//EN" '
    '"http://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_190101.dtd">\n'
)
SGML_HEAD = b'<!DOCTYPE lewis SYSTEM "lewis.dtd">\n'


class Samples(NamedTuple):
    """Writes one story, citation or article each, and a file of several."""

    @staticmethod
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

    @staticmethod
    def sgml(*stories: str) -> bytes:
        return SGML_HEAD + "".join(stories).encode("latin-1")

    @staticmethod
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
            headings = Samples.heading("Humans")
        return (
            '<PubmedArticle><MedlineCitation Status="MEDLINE" Owner="NLM">'
            f'<PMID Version="{version}">{number}</PMID><Article PubModel="Print"><Journal>'
            f"<JournalIssue><PubDate>{date}</PubDate></JournalIssue></Journal>"
            f"<ArticleTitle>{title or f'Title {number}.'}</ArticleTitle>{abstract}</Article>"
            f"<MeshHeadingList>{headings}</MeshHeadingList></MedlineCitation></PubmedArticle>\n"
        )

    @staticmethod
    def heading(name: str, major: str = "N", qualifiers: str = "") -> str:
        return (
            f'<MeshHeading><DescriptorName UI="D1" MajorTopicYN="{major}">{name}'
            f"</DescriptorName>{qualifiers}</MeshHeading>"
        )

    @staticmethod
    def xml(*citations: str, head: str = DOCTYPE) -> bytes:
        return f"{head}<PubmedArticleSet>\n{''.join(citations)}</PubmedArticleSet>\n".encode()

    @staticmethod
    def article(number: int, **fields: Any) -> dict[str, Any]:
        return {
            "journal": "J",
            "meshMajor": ["Humans"],
            "year": "2020",
            "abstractText": f"Abstract {number}.",
            "pmid": str(number),
            "title": f"Title {number}.",
        } | fields

    @staticmethod
    def bioasq(*articles: Any, **style: Any) -> bytes:
        """One article per line, as BioASQ has it; with a style, as json.dumps does it."""
        if style:
            return json.dumps({"articles": articles}, **style).encode()
        lines = ",\n".join(json.dumps(article, ensure_ascii=False) for article in articles)
        return b'{"articles":[\n' + lines.encode() + b"\n]}"


@pytest.fixture(scope="session")
def samples() -> type[Samples]:
    return Samples
