"""JSON Lines, and BioASQ Task A: one huge {"articles": [...]} file with an article per line."""

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

# The first line of BioASQ's file, which may hold an article, and the end of its last line.
HEAD = re.compile(r'\s*\{\s*"articles"\s*:\s*\[')
TAIL = re.compile(r"\]\s*\}\s*$")
FIELDS = ReadOptions("abstractText", "meshMajor", "pmid", "year")
FIELDS_NEEDED = ("abstractText", "meshMajor", "pmid")


def read_jsonl(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """One record per line that is not blank."""
    if options.label_columns is not None:
        yield LabelNames(tuple(fields.label_columns((), options)))
    yield from line_records(
        path, options, tick, lambda at, line, how: fields.to_document(at, _object(line), how)
    )


def _object(value: Any) -> dict[str, Any]:
    """A JSON object, parsed if it is text."""
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError) as error:
        # Not JSONDecodeError alone: a whole number of 5,000 digits is a ValueError.
        raise RecordError(f"not valid JSON ({reason(error)}).") from error
    if not isinstance(value, dict):
        raise RecordError(f"expected a JSON object, got {shown(value)}.")
    return value


def read_bioasq(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """Articles with an abstract and MeSH headings: text = title + space + abstract.

    BioASQ writes one article per line, read a line at a time; a file of another layout is read as a
    whole if it is within the limit on a record.
    """
    if options.major_topics:
        raise InputError(
            "BioASQ files do not say which headings are major topics (their field meshMajor holds "
            "all of them). Use MEDLINE files for major_topics."
        )
    with open_lines(path, options, tick) as lines:
        first = next(lines, "")
        head = HEAD.match(first)
        body = first[head.end() :].strip().removesuffix(",") if head else ""
        if not head or (body and not _is_json(body)):
            yield from _whole_file(chain([first], lines), options)
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
            yield RecordError("the file breaks off: expected ]} after the last article.", "the end")


def _is_json(text: str) -> bool:
    with suppress(RecordError):
        _object(text)
        return True
    return False


def _whole_file(lines: Iterator[str], options: ReadOptions) -> Iterator[Record]:
    pieces, size, why = [], 0, ""
    for line in lines:
        pieces.append(line)
        size += len(line)
        if size > options.max_record or line == TOO_LONG:
            raise TooLargeError("the file, which has not one article per line,", options.max_record)
    try:
        articles = _object("".join(pieces)).get("articles")
    except RecordError as error:
        articles, why = None, f" ({error})"
    if not isinstance(articles, list) or not articles:
        raise DataError(
            f'expected {{"articles": [...]}} as in BioASQ Task A, got no articles{why}. For one '
            "JSON object per line use format='jsonl' (--format jsonl)."
        )
    for number, value in enumerate(articles, start=1):
        yield attempt(_article, f"article {number}", value, options)


def _article(at: int | str, value: Any, options: ReadOptions) -> Record:
    article = _object(value)
    needed = ("abstractText", "pmid") if options.labels_field is None else FIELDS_NEEDED
    for field in needed:
        if field not in article:
            raise RecordError(f"no field {field!r}, the fields are: {shown_names(article)}.")
    title, abstract = article.get("title") or "", article["abstractText"] or ""
    if not isinstance(title, str) or not isinstance(abstract, str):
        raise RecordError("expected strings in 'title' and 'abstractText'.")
    text, labels = f"{title} {abstract}".strip(), article.get("meshMajor") or []
    document = fields.to_document(
        at, {**article, "abstractText": text, "meshMajor": labels}, FIELDS
    )
    if not abstract.strip() or not (labels or options.keep_unlabelled):
        return Omitted("passed_over", "no abstract" if labels else "no MeSH headings")
    return document
