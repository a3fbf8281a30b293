"""JSON Lines, and BioASQ Task A: one large {"articles": [...]} file with an article per line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from longtail.data import fields
from longtail.data.documents import (
    FieldNames,
    LabelNames,
    Omitted,
    ReadOptions,
    Record,
    RecordError,
    Records,
    attempt,
)
from longtail.data.files import (
    TOO_LONG,
    Tick,
    TooLargeError,
    line_records,
    open_lines,
    reason,
    shown_names,
    unreadable,
)
from longtail.errors import DataError, InputError, shown

# The start of BioASQ's first line, which may hold an article, and the end of its last line.
HEAD = re.compile(r'\s*\{\s*"articles"\s*:\s*\[')
TAIL = re.compile(r"\]\s*\}\s*$")
FIELDS = ReadOptions("abstractText", "meshMajor", "pmid", "year")


def read_jsonl(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """Read one record per non-blank line."""
    if options.label_columns is not None:
        yield LabelNames(tuple(fields.label_columns((), options)))
    names = dict[str, None]()

    def parse(at: int, line: str, options: ReadOptions) -> Record:
        record = _object(line)
        # Of later records only the fields that the options name: few, however many keys there are.
        new = [name for name in options.other_fields if name in record] if names else record
        names.update(dict.fromkeys(new))
        return fields.to_document(at, record, options)

    yield from line_records(path, options, tick, parse)
    yield FieldNames(names)


def _object(value: Any) -> dict[str, Any]:
    """Return a JSON object, parsed if it is text."""
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError) as error:
        # A number of 5,000 digits raises ValueError, not JSONDecodeError.
        raise RecordError(f"not valid JSON ({reason(error)}).") from error
    if not isinstance(value, dict):
        raise RecordError(f"expected a JSON object, got {shown(value)}.")
    return value


def read_bioasq(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """Read articles with an abstract and MeSH headings: text = title + space + abstract.

    BioASQ writes one article per line, read a line at a time. A file with another layout is read as
    a whole, within the limit of a record.
    """
    if options.major_topics:
        raise InputError(
            "BioASQ files do not say which headings are major topics (their field meshMajor holds "
            "all headings). Use MEDLINE files for major_topics."
        )
    with open_lines(path, options, tick) as lines:
        first = next(lines, "")
        head = HEAD.match(first)
        body = first[head.end() :].strip().removesuffix(",") if head else ""
        if not head or (body and not _is_json(body)):
            yield from _whole_file(path, chain([first], lines), options)
            return
        is_open = True
        for number, line in enumerate(chain([body], lines), start=1):
            article = line.strip().removesuffix(",")
            if (fault := unreadable(line, options)) is not None:
                yield RecordError(fault, number)
                continue
            if TAIL.search(line) and not _is_json(article):
                is_open, article = False, TAIL.sub("", article)
            if article:
                yield attempt(_article, number, article, options)
        if is_open:
            yield RecordError("the file is cut off: expected ]} after the last article.", "the end")


def _is_json(text: str) -> bool:
    with suppress(RecordError):
        _object(text)
        return True
    return False


def _whole_file(path: Path, lines: Iterator[str], options: ReadOptions) -> Iterator[Record]:
    pieces, size, details = [], 0, ""
    for line in lines:
        pieces.append(line)
        size += len(line)
        if size > options.max_record or line == TOO_LONG:
            what = "the file, which does not have one article per line,"
            raise TooLargeError(what, options.max_record)
    try:
        articles = _object("".join(pieces)).get("articles")
    except RecordError as error:
        articles, details = None, f" ({str(error).removesuffix('.')})"
    if not isinstance(articles, list) or not articles:
        raise DataError(
            f'{path}: expected {{"articles": [...]}} as in BioASQ Task A, got no '
            f"articles{details}. If the file has one JSON object per line, pass format='jsonl' "
            "(--format jsonl). If not, write it so, in pandas with "
            "to_json('data.jsonl', orient='records', lines=True)."
        )
    for number, value in enumerate(articles, start=1):
        yield attempt(_article, f"article {number}", value, options)


def _article(at: int | str, value: Any, options: ReadOptions) -> Record:
    article = _object(value)
    for field in ("abstractText", "meshMajor", "pmid"):
        if field not in article and (field != "meshMajor" or options.labels_field is not None):
            raise RecordError(f"no field {field!r}, the fields are: {shown_names(article)}.")
    title, abstract = article.get("title") or "", article["abstractText"] or ""
    if not isinstance(title, str) or not isinstance(abstract, str):
        raise RecordError("expected strings in 'title' and 'abstractText'.")
    text, labels = f"{title} {abstract}".strip(), article.get("meshMajor") or []
    document = fields.to_document(
        at, {**article, "abstractText": text, "meshMajor": labels}, FIELDS
    )
    if not abstract.strip() or not (labels or options.keep_unlabelled):
        return Omitted("no abstract" if labels else "no MeSH headings")
    return document
