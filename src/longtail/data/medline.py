"""MEDLINE/PubMed XML as NLM publishes it, gzipped or not, read a citation at a time.

Files that declare entities or attributes (an internal subset) are refused: MEDLINE files do not,
while entity bombs, endless attribute defaults and references to local files need them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from xml.etree import ElementTree
from xml.parsers import expat

from longtail.data.documents import Document, Omitted, ReadOptions, Record, RecordError, Records
from longtail.data.files import Tick, open_binary
from longtail.data.limits import TooLargeError, shown
from longtail.errors import DataError

YEAR = re.compile(r"\d{4}")
CHUNK = 1 << 14
# Bytes of memory that one takes at most, however few bytes of XML make it.
BYTES_PER_ELEMENT, BYTES_PER_ATTRIBUTE = 100, 500
ARTICLE, BOOK = "PubmedArticle", "PubmedBookArticle"
ITEMS = ARTICLE, BOOK, "DeleteCitation"
OTHER = "element of another name than PubmedArticle"


def read_medline(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """Citations with an abstract and MeSH headings: text = title + space + abstract."""
    with open_binary(path, lambda count: None) as file:
        _refuse_subset(file, path, options.max_record)
    number = 0
    with open_binary(path, tick) as file:
        try:
            for item in _items(file, options.max_record):
                if isinstance(item, Omitted):
                    yield item
                elif item.tag == ARTICLE:
                    number += 1
                    yield _citation(item, number, options)
                elif item.tag == BOOK:
                    yield Omitted("left_out", "book (PubmedBookArticle), not an article")
                else:
                    for _ in item.iter("PMID"):
                        yield Omitted("passed_over", "a note that a citation was deleted")
        except ElementTree.ParseError as error:
            line = f"line {error.position[0]}"
            yield RecordError(f"not valid XML ({error}); the rest of the file was not read.", line)
            return
    if number == 0:
        message = "expected PubmedArticle elements as in NLM's MEDLINE files, got none."
        yield RecordError(message, "whole file")


@dataclass
class _Open:
    """An element that has not ended yet."""

    element: ElementTree.Element
    has_items: bool
    n_others: int = 0
    """Ended children, as long as no item has begun inside of the element."""


def _items(file: BinaryIO, limit: int) -> Iterator[ElementTree.Element | Omitted]:
    """The items at any depth and the number of elements beside them, in bounded memory."""
    parser: Any = ElementTree.XMLPullParser(("start", "end"))
    opened: list[_Open] = []
    item: ElementTree.Element | None = None
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
                if item is None and element.tag in ITEMS:
                    item = element
                    # The children that ended before the first item inside of each open element.
                    for outer in reversed(opened):
                        if outer.has_items:
                            break
                        outer.has_items = True
                        if outer.n_others:
                            yield Omitted("left_out", OTHER, outer.n_others)
                opened.append(_Open(element, has_items=not opened))
                continue
            ended = opened.pop()
            if item is not None and element is not item:
                continue
            if item is not None:
                yield item
                item = None
            elif opened and not ended.has_items and opened[-1].has_items:
                yield Omitted("left_out", OTHER)
            elif opened and not ended.has_items:
                opened[-1].n_others += 1
            if opened:
                opened[-1].element.remove(element)
            n_bytes = n_attributes = 0
            n_elements = len(opened)
        n_stalled = n_stalled + len(chunk) if n_elements == before else 0
    parser.close()


def _read(file: BinaryIO, n_stalled: int) -> bytes:
    """The next bytes: one chunk, or as many as have come without an element.

    Expat scans an unfinished tag from its beginning whenever more of it comes; doubling the bytes
    keeps that linear.
    """
    pieces = [file.read(CHUNK)]
    missing = n_stalled - CHUNK if n_stalled >= 4 * CHUNK else 0
    while missing > 0 and (piece := file.read(CHUNK)):
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)


def _refuse_subset(file: BinaryIO, path: Path, limit: int) -> None:
    """Raise if the document declares anything; that is possible only before the first element."""
    parser = expat.ParserCreate()
    started: list[str] = []

    def doctype(name: str, system: str | None, public: str | None, has_subset: int) -> None:
        if has_subset:
            raise DataError(
                f"{path} was refused: its <!DOCTYPE {shown(name)}> declares entities or attributes "
                "([...]), which can exhaust memory or read other files. MEDLINE files declare "
                "none; get the file from NLM."
            )

    parser.StartElementHandler = lambda name, attributes: started.append(name)
    parser.StartDoctypeDeclHandler = doctype
    n_bytes = 0
    try:
        while not started and (chunk := _read(file, n_bytes)):
            parser.Parse(chunk, False)
            n_bytes += len(chunk)
            if n_bytes > limit:
                raise TooLargeError("the part before the first element of the XML", limit)
    except expat.ExpatError:
        return  # The reader itself meets the same error and reports its line.
    except LookupError as error:
        raise EOFError(f"its XML declaration: {error}") from error


def _citation(article: ElementTree.Element, number: int, options: ReadOptions) -> Record:
    citation = article.find("MedlineCitation")
    pmid = None if citation is None else citation.find("PMID")
    if citation is None or pmid is None or not (pmid.text or "").strip():
        return RecordError("expected a MedlineCitation with a PMID.", f"citation {number}")
    if pmid.get("Version", "1") != "1":
        return Omitted("passed_over", "a later version of a citation")
    title = _flat(citation.find("Article/ArticleTitle"))
    abstract = " ".join(map(_flat, citation.iterfind("Article/Abstract/AbstractText"))).strip()
    headings = citation.findall("MeshHeadingList/MeshHeading")
    if options.major_topics:
        # NLM marks the descriptor, or one of its qualifiers.
        headings = [h for h in headings if any(c.get("MajorTopicYN") == "Y" for c in h)]
    names = [_flat(heading.find("DescriptorName")) for heading in headings]
    if not abstract or not (names or options.keep_unlabelled):
        kind = "major topics" if options.major_topics else "MeSH headings"
        return Omitted("passed_over", "no abstract" if names else f"no {kind}")
    date = citation.find("Article/Journal/JournalIssue/PubDate")
    year = YEAR.search(" ".join(date.itertext())) if date is not None else None
    text = f"{title} {abstract}".strip()
    return Document(
        text, names, _flat(pmid), year.group() if year else None, at=f"citation {number}"
    )


def _flat(element: ElementTree.Element | None) -> str:
    """The text of an element without its markup (<i>, <sup>), white space folded."""
    return "" if element is None else " ".join("".join(element.itertext()).split())
