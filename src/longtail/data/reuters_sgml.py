"""Reuters-21578 as distributed: 22 SGML files in a folder or a tar.gz, read in place."""

from __future__ import annotations

import html
import io
import re
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any, BinaryIO, cast

from longtail.data.documents import (
    Document,
    Omitted,
    ReadOptions,
    Record,
    RecordError,
    Records,
    attempt,
)
from longtail.data.files import ESCAPE, READ_ERRORS, Tick, TooLargeError, open_binary, unreadable
from longtail.errors import DataError, shown

HEAD = re.compile(r"\s([^>]*+)>")
DOCTYPE = re.compile(r"\s*+(<!DOCTYPE[^>]*+>)?\s*+")
# Possessive quantifiers: without them, 80,000 spaces before the end of a story took 39 s.
ATTRIBUTE = re.compile(r'(?<!\w)(\w++)="([^"]*+)"')
TAGS = ("TOPICS", "TEXT", "TITLE", "BODY", "DATE")
STARTS = {tag: re.compile(rf"<{tag}(?:\s[^<>]*+)?>") for tag in TAGS}
TOPIC = re.compile(r"<D>([^<]*+)</D>")
DATE = re.compile(r"([0-9]{1,2})-([A-Z]{3})-([0-9]{4})")
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
SIGNATURE = re.compile(r"\sreuter$", re.IGNORECASE)
# Linux paths have at most 4,096 bytes, but a header may state any size.
LONGEST_HEADER = 1 << 14
PIECE = 1 << 13  # small: a truncated file loses the piece with the cut
PARTS = {"TRAIN": "train", "TEST": "test"}
Read = Callable[[int], bytes]


def read_reuters(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """Read the stories of the ModApte split that have topics, with their parts and dates."""
    name = ""
    for name, read in _sgml_files(path, tick):
        yield from _stories(name, read, options)
    if not name:
        raise DataError(f"{path}: expected the files reut2-000.sgm to reut2-021.sgm, got none.")


def _sgml_files(path: Path, tick: Tick) -> Iterator[tuple[str, Read]]:
    """Yield the name of every SGML file of a folder or archive, and a function that reads it."""
    if path.is_dir():
        for file in sorted(file for file in path.iterdir() if _is_sgml(file.name)):
            with open_binary(file, tick) as opened:
                yield file.name, opened.read
        return
    with open_binary(path, tick) as opened:
        if str(path).lower().endswith((".tar.gz", ".tgz", ".tar")):
            yield from _tar_members(opened)
        else:
            yield path.name, opened.read


class _TarFile(io.BufferedReader):
    """A file for tarfile that bounds the size of headers; its reads are full."""

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size > LONGEST_HEADER:
            raise TooLargeError("a header of the tar archive", LONGEST_HEADER)
        return super().read(size)


def _tar_members(file: BinaryIO) -> Iterator[tuple[str, Read]]:
    try:
        with _TarFile(cast(io.RawIOBase, file)) as opened:
            tar: Any = tarfile.TarFile(fileobj=opened, encoding="utf-8")
            while member := tar.next():
                tar.members.clear()  # it would keep all of them
                name = Path(member.name).name
                if member.isreg() and not member.issparse() and _is_sgml(name):
                    yield name, tar.extractfile(member).read
            # tarfile takes a damaged header for the end of the archive.
            opened.seek(tar.offset)
            if any(piece.strip(b"\0") for piece in iter(lambda: opened.read(PIECE), b"")):
                raise EOFError("a broken tar archive: a damaged header, or data after its end")
    except tarfile.TarError as error:
        raise EOFError(f"a broken tar archive: {error}") from error


def _is_sgml(name: str) -> bool:
    # macOS adds files such as ._reut2-000.sgm, which hold no text.
    return name.lower().endswith(".sgm") and not name.startswith("._")


def _stories(name: str, read: Read, options: ReadOptions) -> Iterator[Record]:
    """Yield the stories of one file; of a file too large or truncated, those before the cut."""
    content, limit, failure = bytearray(), options.max_record, None
    try:
        while len(content) <= limit and (piece := read(PIECE)):
            content += piece
    except READ_ERRORS as error:
        failure = error
    is_large = len(content) > limit
    if is_large or failure is not None:
        del content[content.rfind(b"</REUTERS>") + len(b"</REUTERS>") :]
    text = content.decode(options.encoding or "latin-1", errors=ESCAPE)
    before, *stories = text.split("<REUTERS")
    if not DOCTYPE.fullmatch(before):
        yield RecordError(f"expected a story (<REUTERS ...>), got {shown(before)}.", name)
    for number, story in enumerate(stories, start=1):
        at = f"{name}, story {number}"
        body, end, rest = story.partition("</REUTERS>")
        if not end:
            yield RecordError("the story does not end with </REUTERS> and was not read.", at)
            continue
        yield attempt(_story, at, body, options)
        if rest := rest.strip():
            # Possibly a story with a damaged start tag.
            message = f"expected the start of a story (<REUTERS ...>) after it, got {shown(rest)}."
            yield RecordError(message, at)
    if is_large:
        yield RecordError(str(TooLargeError("the file", limit)), name)
    if failure is not None:
        raise failure


def _story(at: int | str, story: str, options: ReadOptions) -> Record:
    if (fault := unreadable(story, options)) is not None:
        raise RecordError(fault)
    match = HEAD.match(story)
    head = dict(ATTRIBUTE.findall(match[1])) if match else {}
    if not head.get("NEWID"):
        raise RecordError("expected a story with a NEWID.")
    if head.get("TOPICS") != "YES" or head.get("LEWISSPLIT") not in PARTS:
        return Omitted("not in the ModApte split")
    topics = _inside(story, "TOPICS") or ""
    rest = TOPIC.sub("", topics)
    if rest.strip():
        raise RecordError(f"expected topics as in <D>cocoa</D>, got {shown(rest)}.")
    labels = sorted({" ".join(html.unescape(name).split()) for name in TOPIC.findall(topics)})
    text = _text(story)
    if not labels and not options.keep_unlabelled:
        return Omitted("no topic")
    part = PARTS[head["LEWISSPLIT"]]
    # Ids as in NLTK's copy, which most of the literature uses.
    identity = f"{'training' if part == 'train' else 'test'}/{head['NEWID']}"
    return Document(text, labels, identity, _date(story), part, at)


def _text(story: str) -> str:
    """Return title and body; a story without markup (UNPROC) is all body."""
    inside = _inside(story, "TEXT") or ""
    title, main = _inside(inside, "TITLE"), _inside(inside, "BODY")
    if title is None and main is None:
        main = inside
    # Control characters such as ETX end every story.
    plain = re.sub(r"&#\d++;", "", f"{(title or '').strip()}\n{main or ''}")
    plain = CONTROLS.sub("", html.unescape(plain)).rstrip()
    # The agency's signature, which NLTK's copy leaves out too.
    return SIGNATURE.sub("", plain).strip()


def _inside(text: str, tag: str) -> str | None:
    """Return the content of an element; None if neither its start nor its end is there."""
    starts, ends = list(STARTS[tag].finditer(text)), text.count(f"</{tag}>")
    if not starts and not ends:
        return None
    if (len(starts), ends) != (1, 1):
        raise RecordError(f"expected one <{tag}> and </{tag}>, got {len(starts)} and {ends}.")
    return text[starts[0].end() : text.index(f"</{tag}>")]


def _date(story: str) -> str | None:
    for day, month, year in DATE.findall(_inside(story, "DATE") or "")[:1]:
        with suppress(ValueError):  # no such month or day
            return date(int(year), MONTHS.index(month) + 1, int(day)).isoformat()
    return None
