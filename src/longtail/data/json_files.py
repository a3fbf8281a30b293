"""JSON Lines, and BioASQ Task A: one huge {"articles": [...]} file, read an article at a time."""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from longtail.checks import has_surrogate
from longtail.data import fields
from longtail.data.documents import (
    Document,
    LabelNames,
    Omitted,
    ReadOptions,
    Record,
    RecordError,
    Records,
    reports_problems,
)
from longtail.data.files import Tick, line_records, open_binary, write_lines, wrong_encoding
from longtail.data.limits import (
    TooLargeError,
    has_many_items,
    reason,
    shown,
    shown_names,
    too_large,
)
from longtail.data.textdata import TextData
from longtail.errors import InputError

SPACE = re.compile(r"[ \t\n\r]*")
# How near to the end of the text read so far an error may be that more text would fix: an escape
# such as \ud83d\ude00, a literal such as -Infinity.
CUT = 16
PIECE = 1 << 16
# A noncharacter, which Unicode never assigns: it marks undecodable bytes.
MARK = "\ufdd0"
codecs.register_error("longtail.mark", lambda error: (MARK, error.end))  # type: ignore[attr-defined]
FIELDS = ("title", "abstractText", "meshMajor", "pmid", "year")


class _Ambiguous(dict[str, Any]):
    """An object with repeated keys; as everywhere in Python, the last value counts."""

    repeated: tuple[str, ...] = ()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        record = _Ambiguous(record)
        record.repeated = tuple(k for k, n in Counter(key for key, _ in pairs).items() if n > 1)
    return record


_decoder = json.JSONDecoder(object_pairs_hook=_object)


def _check_object(value: Any, options: ReadOptions, names: Collection[str] = ()) -> None:
    """Raise unless the value is an object whose used fields, or these, occur once."""
    if not isinstance(value, dict):
        raise RecordError(f"expected a JSON object, got {shown(value)}.")
    if isinstance(value, _Ambiguous):
        for name in value.repeated:
            if name in (names or fields.used_fields(value, options)):
                raise RecordError(f"the field {shown(name)} occurs twice.")


def read_jsonl(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """One record per line that is not blank."""
    if options.label_columns is not None:
        yield LabelNames(tuple(fields.label_columns((), options)))
    yield from line_records(path, options, tick, _parsed)


def _parsed(at: int, line: str, options: ReadOptions) -> Record:
    if has_many_items(line, options.max_record):
        raise RecordError(too_large("the parsed line", options.max_record))
    try:
        record = _decoder.decode(line)
    except (ValueError, RecursionError) as error:
        # Not JSONDecodeError alone: a whole number of 5,000 digits is a ValueError.
        raise RecordError(f"not valid JSON ({reason(error)}).") from error
    _check_object(record, options)
    return fields.to_document(at, record, options)


def _jsonl_lines(data: TextData) -> Iterator[str]:
    for document in data:
        record: dict[str, object] = {} if document.id is None else {"id": document.id}
        record |= {"text": document.text, "labels": list(document.labels)}
        if document.date is not None:
            record["date"] = document.date
        yield json.dumps(record, ensure_ascii=False) + "\n"


write_jsonl = partial(write_lines, _jsonl_lines)


class NotJsonError(ValueError):
    """The first error in a JSON file; the rest of it cannot be read."""


class _Stream:
    """A JSON text that is read as needed and parsed a value at a time.

    At most one value is in memory, and no value larger than the limit.
    """

    def __init__(self, pieces: Iterator[str], limit: int) -> None:
        self._pieces, self._limit = pieces, limit
        self._text, self._at = next(pieces, "").removeprefix("\ufeff"), 0

    def peek(self) -> str:
        """The next character that is no white space; empty at the end."""
        while True:
            self._at = SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            self._text, self._at = next(self._pieces, ""), 0
            if not self._text:
                return ""

    def take(self, characters: str) -> str:
        """The next character, which must be one of these."""
        character = self.peek()
        if not character or character not in characters:
            expected = " or ".join(map(repr, characters))
            got = shown(character) if character else "the end"
            raise NotJsonError(f"expected {expected}, got {got}")
        self._at += 1
        return character

    def value(self) -> Any:
        """Parse the next value."""
        self.peek()
        while True:
            try:
                value, stop = _decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                is_cut = error.pos >= len(self._text) - CUT or error.msg.startswith("Unterminated")
                if not is_cut or not self._more():
                    raise NotJsonError(error.msg) from error
            except (RecursionError, ValueError) as error:
                raise NotJsonError(reason(error)) from error
            else:
                # A number at the very end may continue in the next piece, as may `1.` and `1e-`.
                is_number = isinstance(value, (int, float))
                if not is_number or stop < len(self._text) - 2 or not self._more():
                    self._at = stop
                    return value

    def _more(self) -> bool:
        """Read as much again as there is of the value; False at the end of the file."""
        pieces = [self._text[self._at :]]
        before = size = len(pieces[0])
        if size > self._limit or has_many_items(pieces[0], self._limit):
            raise TooLargeError("one value of the JSON text", self._limit)
        while size < 2 * before + 1 and (piece := next(self._pieces, "")):
            pieces.append(piece)
            size += len(piece)
        self._text, self._at = "".join(pieces), 0
        return size > before

    def items(self) -> Iterator[Any]:
        """The items of the list that comes next."""
        self.take("[")
        if self.peek() == "]":
            self.take("]")
            return
        yield self.value()
        while self.take(",]") == ",":
            yield self.value()


def read_bioasq(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """Articles with an abstract and MeSH headings: text = title + space + abstract."""
    if options.major_topics:
        raise InputError(
            "BioASQ files do not say which headings are major topics (their field meshMajor holds "
            "all of them). Use MEDLINE files for major_topics."
        )
    number, why = 0, ""
    with open_binary(path, tick) as file:
        try:
            # Undecodable bytes are marked, so that they spoil one article only.
            chunks = iter(partial(file.read, PIECE), b"")
            pieces = codecs.iterdecode(chunks, options.encoding or "utf-8", "longtail.mark")
            stream = _Stream(pieces, options.max_record)
            for number, article in enumerate(_articles(stream), start=1):
                yield _article(number, article, options)
        except NotJsonError as error:
            why = f" ({error})"
    if number == 0:
        yield RecordError(
            f'expected {{"articles": [...]}} as in BioASQ Task A, got no articles{why}. For one '
            "JSON object per line use format='jsonl' (--format jsonl).",
            "whole file",
        )
    elif why:
        yield RecordError(f"not valid JSON after this article{why}; the rest was not read.", number)


def _articles(stream: _Stream) -> Iterator[Any]:
    """The items of every list called `articles` in the file's object."""
    stream.take("{")
    end = stream.peek() == "}" and stream.take("}")
    while end != "}":
        key = stream.value()
        if not isinstance(key, str):
            raise NotJsonError(f"expected the name of a field, got {shown(key)}")
        stream.take(":")
        if key == "articles" and stream.peek() == "[":
            yield from stream.items()
        else:
            stream.value()
        end = stream.take(",}")
    if extra := stream.peek():
        raise NotJsonError(f"expected the end of the file, got {shown(extra)}")


@reports_problems
def _article(at: int | str, article: Any, options: ReadOptions) -> Record:
    _check_object(article, options, FIELDS)
    for field in ("abstractText", "meshMajor", "pmid"):
        if field not in article:
            raise RecordError(f"no field {field!r}, the fields are: {shown_names(article)}.")
    title, abstract = article.get("title") or "", article["abstractText"] or ""
    labels = article["meshMajor"] or []
    if not isinstance(title, str) or not isinstance(abstract, str):
        raise RecordError("expected strings in 'title' and 'abstractText'.")
    if not fields.is_strings(labels):
        raise RecordError(f"expected a list of strings in 'meshMajor', got {shown(labels)}.")
    text = f"{title} {abstract}".strip()
    if any(MARK in part for part in (text, *labels)):
        raise RecordError(wrong_encoding(options.encoding))
    if any(map(has_surrogate, (text, *labels))):
        raise RecordError(f"holds {fields.NO_CHARACTER}")
    if not abstract.strip() or not (labels or options.keep_unlabelled):
        return Omitted("passed_over", "no abstract" if labels else "no MeSH headings")
    identity = fields.plain_value(article["pmid"], "pmid")
    if identity is None:
        raise RecordError("the field 'pmid' is empty.")
    return Document(text, labels, identity, fields.plain_value(article.get("year"), "year"), at=at)
