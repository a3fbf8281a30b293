"""BioASQ Task A: one huge {"articles": [...]} file, read an article at a time."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Any, BinaryIO

from longtail.data.documents import Document, PassedOver, Problem, ReadOptions, Record, Records
from longtail.data.fields import FieldError, plain_value
from longtail.data.files import Tick, codec_of, open_binary, undecodable, wrong_encoding
from longtail.errors import InputError

# A code point that Unicode promises never to give to a character: it marks undecodable bytes.
MARK = "\ufdd0"
codecs.register_error("longtail.mark", lambda error: (MARK, error.end))  # type: ignore[attr-defined]


class _AsUtf8:
    """Re-codes a stream as valid UTF-8, so that one wrong byte spoils one article, not the file."""

    def __init__(self, file: BinaryIO, encoding: str) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)(errors="longtail.mark")

    def read(self, size: int = -1) -> bytes:
        if size == 0:  # ijson asks this way whether it gets bytes or text
            return b""
        chunk = self._file.read(size if size > 0 else 1 << 16)
        text = self._decoder.decode(chunk, final=not chunk)
        # An empty answer would mean the end: read on while a character is incomplete.
        return text.encode("utf-8", "longtail.mark") if text or not chunk else self.read(size)


def read_bioasq(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """Articles with an abstract and MeSH headings: text = title + space + abstract."""
    import ijson

    if options.major_topics:
        raise InputError(
            "BioASQ files do not say which headings are major topics (their field meshMajor holds "
            "all of them). Use MEDLINE files for major_topics."
        )
    number = 0
    with open_binary(path, tick) as file:
        try:
            stream = _AsUtf8(file, codec_of(options.encoding))
            # Without use_float ijson 3.6 ends the whole process at a number of 5,000 digits.
            articles = ijson.items(stream, "articles.item", use_float=True)
            for number, article in enumerate(articles, start=1):
                yield _article(article, number, options)
        except ijson.JSONError as error:
            why = str(error).splitlines()[0].strip()
            if number == 0:
                yield Problem("whole file", _no_articles(f"no articles ({why})"))
                return
            yield Problem(
                number, f"not valid JSON after this article ({why}); the rest was not read."
            )
            return
    if number == 0:
        yield Problem("whole file", _no_articles("no articles"))


def _no_articles(found: str) -> str:
    return (
        f'expected {{"articles": [...]}} as in BioASQ Task A, found {found}. For one JSON '
        "object per line use format='jsonl' (--format jsonl)."
    )


def _article(article: Any, number: int, options: ReadOptions) -> Record:
    if not isinstance(article, dict):
        return Problem(number, f"expected a JSON object, got {article!r:.60}.")
    for field in ("abstractText", "meshMajor", "pmid"):
        if field not in article:
            return Problem(number, f"no field {field!r}, the fields are: {', '.join(article)}.")
    title, abstract = article.get("title") or "", article["abstractText"] or ""
    labels = article["meshMajor"] or []
    if not isinstance(title, str) or not isinstance(abstract, str):
        return Problem(number, "expected strings in 'title' and 'abstractText'.")
    if not isinstance(labels, list) or not all(isinstance(name, str) for name in labels):
        return Problem(number, f"expected a list of strings in 'meshMajor', got {labels!r:.60}.")
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
