"""BioASQ Task A: one huge {"articles": [...]} file, read an article at a time."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from longtail.data.documents import Document, PassedOver, Problem, ReadOptions, Record, Records
from longtail.data.fields import FieldError, plain_value
from longtail.data.files import Tick, codec_of, open_binary, undecodable, wrong_encoding
from longtail.data.json_text import Ambiguous, NotJsonError, Stream
from longtail.data.limits import shown, shown_names
from longtail.errors import InputError

# A code point that Unicode promises never to give to a character: it marks undecodable bytes.
MARK = "\ufdd0"
codecs.register_error("longtail.mark", lambda error: (MARK, error.end))  # type: ignore[attr-defined]
PIECE = 1 << 16
FIELDS = ("title", "abstractText", "meshMajor", "pmid", "year")


def read_bioasq(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """Articles with an abstract and MeSH headings: text = title + space + abstract."""
    if options.major_topics:
        raise InputError(
            "BioASQ files do not say which headings are major topics (their field meshMajor holds "
            "all of them). Use MEDLINE files for major_topics."
        )
    number = 0
    with open_binary(path, tick) as file:
        try:
            stream = Stream(_decoded(file, codec_of(options.encoding, file)), options.max_record)
            for article in _articles(stream):
                number += 1
                yield _article(article, number, options)
        except NotJsonError as error:
            if number == 0:
                yield Problem("whole file", _no_articles(f"no articles ({error})"))
            else:
                why = f"not valid JSON after this article ({error}); the rest was not read."
                yield Problem(number, why)
            return
    if number == 0:
        yield Problem("whole file", _no_articles("no articles"))


def _decoded(file: BinaryIO, encoding: str) -> Iterator[str]:
    """Pieces of the text, so marked that one wrong byte spoils one article, not the file."""
    decoder = codecs.getincrementaldecoder(encoding)(errors="longtail.mark")
    while chunk := file.read(PIECE):
        # An empty piece would mean the end: go on while a character is incomplete.
        if text := decoder.decode(chunk):
            yield text
    if text := decoder.decode(b"", final=True):
        yield text


def _articles(stream: Stream) -> Iterator[Any]:
    """The items of every list called `articles` in the file's object."""
    stream.expect("{")
    if stream.peek() != "}":
        while True:
            key = stream.value()
            if not isinstance(key, str):
                raise NotJsonError(f"expected the name of a field, found {shown(key)}")
            stream.expect(":")
            if key == "articles" and stream.peek() == "[":
                yield from stream.items()
            else:
                stream.value()
            if stream.peek() == "}":
                break
            stream.expect(",}")
    stream.expect("}")
    if extra := stream.peek():
        raise NotJsonError(f"expected the end of the file, found {shown(extra)}")


def _no_articles(found: str) -> str:
    return (
        f'expected {{"articles": [...]}} as in BioASQ Task A, found {found}. For one JSON '
        "object per line use format='jsonl' (--format jsonl)."
    )


def _article(article: Any, number: int, options: ReadOptions) -> Record:
    if not isinstance(article, dict):
        return Problem(number, f"expected a JSON object, got {shown(article)}.")
    twice = [f for f in FIELDS if isinstance(article, Ambiguous) and f in article.twice]
    if twice:
        return Problem(number, f"the field {twice[0]!r} stands there twice.")
    for field in ("abstractText", "meshMajor", "pmid"):
        if field not in article:
            return Problem(number, f"no field {field!r}, the fields are: {shown_names(article)}.")
    title, abstract = article.get("title") or "", article["abstractText"] or ""
    labels = article["meshMajor"] or []
    if not isinstance(title, str) or not isinstance(abstract, str):
        return Problem(number, "expected strings in 'title' and 'abstractText'.")
    if not isinstance(labels, list) or not all(isinstance(name, str) for name in labels):
        return Problem(number, f"expected a list of strings in 'meshMajor', got {shown(labels)}.")
    text = f"{title} {abstract}".strip()
    everything = [text, *labels]
    if any(MARK in part for part in everything):
        return Problem(number, wrong_encoding(options.encoding))
    if any(undecodable(part) for part in everything):
        return Problem(number, "holds half of a surrogate pair, which is no character.")
    if not abstract.strip() or not (labels or options.keep_unlabelled):
        return PassedOver("no abstract" if labels else "no MeSH headings")
    try:
        identity = plain_value(article["pmid"], "pmid")
        year = plain_value(article.get("year"), "year")
    except FieldError as error:
        return Problem(number, str(error))
    if identity is None:
        return Problem(number, "the field 'pmid' is empty.")
    return Document(text, labels, identity, year, at=number)
