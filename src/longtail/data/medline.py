"""MEDLINE/PubMed XML as NLM publishes it, gzipped or not, read a citation at a time.

Files with a document type of their own (an internal subset) are refused: MEDLINE has none, while
entity bombs, attribute defaults that grow without end and a peek at local files need one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO
from xml.etree import ElementTree
from xml.parsers import expat

from longtail.data.documents import (
    Document,
    LeftOut,
    PassedOver,
    Problem,
    ReadOptions,
    Record,
    Records,
)
from longtail.data.files import Tick, open_binary
from longtail.data.limits import TooLargeError, shown
from longtail.errors import DataError

YEAR = re.compile(r"\d{4}")
CHUNK = 1 << 14
# An element takes some 100 bytes of memory and an attribute 200, however few bytes of XML make it.
BYTES_PER_ELEMENT, BYTES_PER_ATTRIBUTE = 100, 500
ITEMS = ARTICLE, BOOK, DELETED = "PubmedArticle", "PubmedBookArticle", "DeleteCitation"


def read_medline(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """Citations with an abstract and MeSH headings: text = title + space + abstract."""
    with open_binary(path, lambda count: None) as file:
        refuse_subset(file, path, options.max_record)
    number = 0
    with open_binary(path, tick) as file:
        try:
            for element in _elements(file, options.max_record):
                if element.tag == ARTICLE:
                    number += 1
                    yield _citation(element, number, options)
                elif element.tag == BOOK:
                    yield LeftOut("book (PubmedBookArticle), not an article")
                elif element.tag == DELETED:
                    for _ in element.iter("PMID"):
                        yield PassedOver("a note that a citation was deleted")
                else:
                    yield LeftOut("element of another name than PubmedArticle")
        except ElementTree.ParseError as error:
            line = f"line {error.position[0]}"
            yield Problem(line, f"not valid XML ({error}); the rest of the file was not read.")
            return
    if number == 0:
        why = "expected PubmedArticle elements as in NLM's MEDLINE files, found none."
        yield Problem("whole file", why)


def _elements(file: BinaryIO, limit: int) -> Iterator[ElementTree.Element]:
    """The articles at any depth, and what stands beside them, in bounded memory."""
    parser: Any = ElementTree.XMLPullParser(("start", "end"))
    opened: list[_Open] = []
    n_bytes = n_elements = n_attributes = n_stalled = 0
    while chunk := _read(file, n_stalled):
        n_bytes += len(chunk)
        n_attributes += chunk.count(b"=")
        over = n_elements > limit // BYTES_PER_ELEMENT or n_bytes > max(limit, 4 * CHUNK)
        if over or n_attributes > max(limit // BYTES_PER_ATTRIBUTE, 4 * CHUNK):
            raise TooLargeError("one citation of the XML", limit)
        parser.feed(chunk)
        before = n_elements
        for event, element in parser.read_events():
            if event == "start":
                n_elements += 1
                if element.tag in ITEMS:
                    child = element
                    for outer in takewhile(lambda outer: not outer.is_set, reversed(opened)):
                        yield from outer.begin_set(child)
                        child = outer.element
                opened.append(_Open(element, not opened and element.tag not in ITEMS))
                continue
            closed = opened.pop()
            if opened and not opened[-1].is_set:
                continue
            if element.tag == ARTICLE or (opened and not closed.is_set):
                yield element
            if opened:
                # Parsed citations hang on their parent until it lets them go.
                opened[-1].element.remove(element)
            n_bytes = n_attributes = 0
            n_elements = len(opened)
        n_stalled = n_stalled + len(chunk) if n_elements == before else 0
    parser.close()


@dataclass
class _Open:
    """An element whose end has not come yet."""

    element: Any
    is_set: bool = False
    """Whether it is the root, or articles stand in it at any depth."""

    def begin_set(self, child: Any) -> Iterator[ElementTree.Element]:
        """Let go what stood in the element before the child that holds the first article."""
        self.is_set = True
        # What stands after it has been parsed, but its end is yet to be told.
        earlier = list(takewhile(lambda other: other is not child, self.element))
        yield from earlier
        del self.element[: len(earlier)]


def _read(file: BinaryIO, n_stalled: int) -> bytes:
    """The next bytes: as they come, or as many as have come without an element.

    Expat looks at an unfinished tag from its beginning whenever more of it comes; twice as much
    each time keeps that linear.
    """
    chunk = file.read(CHUNK)
    if n_stalled < 4 * CHUNK:
        return chunk
    pieces = [chunk]
    missing = n_stalled - len(chunk)
    while missing > 0 and (piece := file.read(CHUNK)):
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)


def refuse_subset(file: BinaryIO, path: Path, limit: int) -> None:
    """Raise if the document declares anything; that can only stand before the first element."""
    parser = expat.ParserCreate()
    started = False

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal started
        started = True

    def doctype(name: str, system: str | None, public: str | None, has_subset: int) -> None:
        if has_subset:
            raise DataError(
                f"{path} was refused: its <!DOCTYPE {shown(name)}> declares entities or attributes "
                "of its own ([...]), which can blow up memory or read other files. MEDLINE files "
                "declare none; get the file from NLM."
            )

    parser.StartElementHandler = start
    parser.StartDoctypeDeclHandler = doctype
    n_bytes = 0
    try:
        while not started and (chunk := _read(file, n_bytes)):
            parser.Parse(chunk, False)
            n_bytes += len(chunk)
            if n_bytes > limit:
                raise TooLargeError("what stands before the first element of the XML", limit)
    except expat.ExpatError:
        return  # The reader proper meets the same error and says where it is.
    except LookupError as error:
        raise EOFError(f"its XML declaration: {error}") from error


def _citation(article: ElementTree.Element, number: int, options: ReadOptions) -> Record:
    citation = article.find("MedlineCitation")
    pmid = None if citation is None else citation.find("PMID")
    if citation is None or pmid is None or not (pmid.text or "").strip():
        return Problem(f"citation {number}", "expected a MedlineCitation with a PMID.")
    if pmid.get("Version", "1") != "1":
        return PassedOver("a later version of a citation")
    title = _flat(citation.find("Article/ArticleTitle"))
    abstract = " ".join(map(_flat, citation.iterfind("Article/Abstract/AbstractText"))).strip()
    headings = citation.findall("MeshHeadingList/MeshHeading")
    if options.major_topics:
        headings = [heading for heading in headings if _is_major(heading)]
    names = [_flat(heading.find("DescriptorName")) for heading in headings]
    if not abstract or not (names or options.keep_unlabelled):
        kind = "major topics" if options.major_topics else "MeSH headings"
        return PassedOver("no abstract" if names else f"no {kind}")
    date = citation.find("Article/Journal/JournalIssue/PubDate")
    year = YEAR.search(" ".join(date.itertext())) if date is not None else None
    text = f"{title} {abstract}".strip()
    found = year.group() if year else None
    return Document(text, names, _flat(pmid), found, at=f"citation {number}")


def _is_major(heading: ElementTree.Element) -> bool:
    """NLM marks the descriptor, or one of its qualifiers."""
    return any(child.get("MajorTopicYN") == "Y" for child in heading)


def _flat(element: ElementTree.Element | None) -> str:
    """The text of an element without its markup (<i>, <sup>), white space folded."""
    return "" if element is None else " ".join("".join(element.itertext()).split())
