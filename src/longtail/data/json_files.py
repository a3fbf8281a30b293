"""JSON Lines, and BioASQ Task A: one huge {"articles": [...]} file, read an article at a time."""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from longtail.checks import has_surrogate
from longtail.data.documents import (
    Document,
    LabelNames,
    PassedOver,
    Problem,
    ReadOptions,
    Record,
    Records,
)
from longtail.data.fields import FieldError, label_columns, plain_value, to_document, used_fields
from longtail.data.files import (
    Tick,
    codec_of,
    counted,
    numbered_lines,
    open_binary,
    writing,
    wrong_encoding,
)
from longtail.data.limits import TooLargeError, has_many_items, shown, shown_names, too_large
from longtail.data.textdata import TextData
from longtail.errors import InputError
from longtail.progress import OnProgress, ignore

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


def _object_fault(value: Any, used: Container[str]) -> str | None:
    """Why a value is no object whose used fields occur once."""
    if not isinstance(value, dict):
        return f"expected a JSON object, got {shown(value)}."
    for name in getattr(value, "repeated", ()):
        if name in used:
            return f"the field {shown(name)} occurs twice."
    return None


def _reason(error: Exception) -> str:
    """Without the line number inside the line, which would contradict the file's."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def read_jsonl(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """One record per line that is not blank."""
    if options.label_columns is not None:
        yield LabelNames(tuple(label_columns((), options)))
    for number, line in numbered_lines(path, options, tick):
        if isinstance(line, Problem):
            yield line
        elif has_many_items(line, options.max_record):
            yield Problem(number, too_large("the parsed line", options.max_record))
        else:
            yield _parsed(line, number, options)


def _parsed(line: str, number: int, options: ReadOptions) -> Record:
    try:
        record = _decoder.decode(line)
    except (ValueError, RecursionError) as error:
        # Not JSONDecodeError alone: a whole number of 5,000 digits is a ValueError.
        return Problem(number, f"not valid JSON ({_reason(error)}).")
    if type(record) is not dict:
        used = used_fields(record, options) if isinstance(record, dict) else ()
        if (fault := _object_fault(record, used)) is not None:
            return Problem(number, fault)
    return to_document(record, options, number)


def write_jsonl(data: TextData, path: str | Path, progress: OnProgress = ignore) -> None:
    """Write one document per line, gzipped if the name ends in .gz."""
    with writing(path) as file:
        for document in counted(data, path, progress):
            record: dict[str, object] = {} if document.id is None else {"id": document.id}
            record |= {"text": document.text, "labels": list(document.labels)}
            if document.date is not None:
                record["date"] = document.date
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


class NotJsonError(ValueError):
    """The first error in a JSON file; the rest of it cannot be read."""


class _Stream:
    """A JSON text that is read as needed and parsed a value at a time.

    At most one value is in memory, and no value larger than the limit.
    """

    def __init__(self, pieces: Iterator[str], limit: int) -> None:
        self._pieces, self._limit = pieces, limit
        self._text, self._at = "", 0

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
                raise NotJsonError(_reason(error)) from error
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
    number, reason = 0, ""
    with open_binary(path, tick) as file:
        try:
            stream = _Stream(_decoded(file, codec_of(options.encoding, file)), options.max_record)
            for article in _articles(stream):
                number += 1
                yield _article(article, number, options)
        except NotJsonError as error:
            reason = f" ({error})"
    if number == 0:
        yield Problem(
            "whole file",
            f'expected {{"articles": [...]}} as in BioASQ Task A, got no articles{reason}. For one '
            "JSON object per line use format='jsonl' (--format jsonl).",
        )
    elif reason:
        yield Problem(number, f"not valid JSON after this article{reason}; the rest was not read.")


def _decoded(file: BinaryIO, encoding: str) -> Iterator[str]:
    """Pieces of the text; undecodable bytes are marked, so that they spoil one article only."""
    decoder = codecs.getincrementaldecoder(encoding)(errors="longtail.mark")
    while chunk := file.read(PIECE):
        # An empty piece would mean the end: continue while a character is incomplete.
        if text := decoder.decode(chunk):
            yield text
    if text := decoder.decode(b"", final=True):
        yield text


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


def _article(article: Any, number: int, options: ReadOptions) -> Record:
    if (fault := _object_fault(article, FIELDS)) is not None:
        return Problem(number, fault)
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
    if any(MARK in part for part in (text, *labels)):
        return Problem(number, wrong_encoding(options.encoding))
    if any(has_surrogate(part) for part in (text, *labels)):
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
