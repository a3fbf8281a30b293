"""MEDLINE/PubMed XML as published by NLM, gzipped or not, read one citation at a time.

Files that declare entities or attributes (an internal subset) are refused: MEDLINE files do not,
XML bombs must.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO
from xml.etree import ElementTree

from longtail.data.documents import Document, Omitted, ReadOptions, Record, RecordError, Records
from longtail.data.files import Tick, TooLargeError, open_binary
from longtail.errors import DataError

YEAR = re.compile(r"\d{4}")
CHUNK = 1 << 14
SUBSET = re.compile(rb"<!DOCTYPE[^>\[]*\[")
ARTICLE, BOOK = "PubmedArticle", "PubmedBookArticle"


def read_medline(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """Read citations with an abstract and MeSH headings: text = title + space + abstract."""
    number = 0
    with open_binary(path, tick) as file:
        try:
            for item in _items(file, path, options.max_record):
                if item.tag == ARTICLE:
                    number += 1
                    yield _citation(item, number, options)
                else:
                    yield Omitted("book (PubmedBookArticle), not an article", "left_out")
        except ElementTree.ParseError as error:
            line = f"line {error.position[0]}"
            yield RecordError(f"not valid XML ({error}); the rest of the file was not read.", line)
            return
    if number == 0:
        message = "expected PubmedArticle elements as in NLM's MEDLINE files, got none."
        yield RecordError(message, "whole file")


def _items(file: BinaryIO, path: Path, limit: int) -> Iterator[ElementTree.Element]:
    """Yield articles and books at any depth, in bounded memory."""
    parser: Any = ElementTree.XMLPullParser(("start", "end"))
    open_elements: list[ElementTree.Element] = []
    item: ElementTree.Element | None = None
    has_root = False
    n_bytes = n_stalled = 0
    pending, prolog = bytearray(), bytearray()
    for chunk in chain(iter(partial(file.read, CHUNK), b""), [b""]):
        pending += chunk
        n_bytes += len(chunk)
        if n_bytes > max(limit, 4 * CHUNK):
            raise TooLargeError("one citation of the XML", limit)
        # Before 2.6 expat rescans an unfinished tag with every feed: 160 s for 64 MB in chunks.
        # Doubling the bytes per feed is linear.
        if chunk and len(pending) < n_stalled:
            continue
        if not has_root:
            # The whole prolog: a declaration may lie across two chunks.
            prolog += pending
            if SUBSET.search(prolog.replace(b"\0", b"")):
                raise DataError(
                    f"{path} was refused: its <!DOCTYPE> declares entities or attributes ([...]), "
                    "which can exhaust memory or read other files. MEDLINE files declare none."
                )
        parser.feed(bytes(pending))
        n_stalled += len(pending)
        pending.clear()
        for event, element in parser.read_events():
            has_root, n_stalled = True, 0
            if event == "start":
                open_elements.append(element)
                if item is None and element.tag in (ARTICLE, BOOK):
                    item = element
                continue
            open_elements.pop()
            if item is not None and element is item:
                yield item
                item = None
            if item is None and open_elements:
                open_elements[-1].remove(element)
                n_bytes = 0
    parser.close()


def _citation(article: ElementTree.Element, number: int, options: ReadOptions) -> Record:
    citation = article.find("MedlineCitation")
    pmid = None if citation is None else citation.find("PMID")
    if citation is None or pmid is None or not (pmid.text or "").strip():
        return RecordError("expected a MedlineCitation with a PMID.", f"citation {number}")
    if pmid.get("Version", "1") != "1":
        return Omitted("a later version of a citation")
    title = _flat(citation.find("Article/ArticleTitle"))
    abstract = " ".join(map(_flat, citation.iterfind("Article/Abstract/AbstractText"))).strip()
    headings = citation.findall("MeshHeadingList/MeshHeading")
    if options.major_topics:
        # The descriptor or one of its qualifiers is marked.
        headings = [h for h in headings if any(c.get("MajorTopicYN") == "Y" for c in h)]
    names = [_flat(heading.find("DescriptorName")) for heading in headings]
    if not abstract or not (names or options.keep_unlabelled):
        kind = "major topics" if options.major_topics else "MeSH headings"
        return Omitted("no abstract" if names else f"no {kind}")
    date = citation.find("Article/Journal/JournalIssue/PubDate")
    year = YEAR.search(" ".join(date.itertext())) if date is not None else None
    text = f"{title} {abstract}".strip()
    return Document(
        text, names, _flat(pmid), year.group() if year else None, at=f"citation {number}"
    )


def _flat(element: ElementTree.Element | None) -> str:
    """Return the text of an element without markup (<i>, <sup>), white space normalised."""
    return "" if element is None else " ".join("".join(element.itertext()).split())
