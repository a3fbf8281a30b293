"""MEDLINE/PubMed XML as NLM publishes it, gzipped or not, read a citation at a time.

Files that declare entities are refused: MEDLINE has none, an entity bomb or a peek at local files
needs them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import BinaryIO
from xml.etree import ElementTree
from xml.parsers import expat

from longtail.data.documents import Document, PassedOver, Problem, ReadOptions, Record, Records
from longtail.data.files import Tick, open_binary
from longtail.errors import DataError

YEAR = re.compile(r"\d{4}")
CHUNK = 1 << 14


def read_medline(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """Citations with an abstract and MeSH headings: text = title + space + abstract."""
    with open_binary(path, lambda count: None) as file:
        refuse_entities(file, path)
    number = 0
    with open_binary(path, tick) as file:
        root = None
        try:
            for event, element in ElementTree.iterparse(file, events=("start", "end")):
                if root is None:
                    root = element
                if event == "end" and element.tag == "PubmedArticle":
                    number += 1
                    yield _citation(element, number, options)
                    # Parsed citations hang on the root until it lets them go.
                    root.clear()
        except ElementTree.ParseError as error:
            line = f"line {error.position[0]}"
            yield Problem(line, f"not valid XML ({error}); the rest of the file was not read.")
            return
    if number == 0:
        why = "expected PubmedArticle elements as in NLM's MEDLINE files, found none."
        yield Problem("whole file", why)


def refuse_entities(file: BinaryIO, path: Path) -> None:
    """Raise if the document declares entities; they can only stand before the first element."""
    parser = expat.ParserCreate()
    started = False

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal started
        started = True

    def entity(name: str, *declaration: object) -> None:
        raise DataError(
            f"{path} was refused: it declares an XML entity ({name!r}), which can blow up memory "
            "or read other files. MEDLINE files declare none; get the file from NLM."
        )

    parser.StartElementHandler = start
    parser.EntityDeclHandler = entity
    try:
        while not started and (chunk := file.read(CHUNK)):
            parser.Parse(chunk, False)
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
