"""Reuters-21578 as distributed: 22 SGML files in a folder or a tar.gz, read in place."""

from __future__ import annotations

import html
import re
import tarfile
import zlib
from collections.abc import Iterator
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import IO

from longtail.data.documents import Document, PassedOver, Problem, ReadOptions, Record, Records
from longtail.data.files import (
    ESCAPE,
    Tick,
    check_member_names,
    check_member_size,
    open_binary,
    undecodable,
    wrong_encoding,
)
from longtail.errors import DataError

ENCODING = "latin-1"
STORY = re.compile(r"<REUTERS\b(?P<head>[^>]*)>(?P<body>.*?)</REUTERS>", re.DOTALL)
STORY_START = re.compile(r"<REUTERS\b")
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
# Small, because a cut costs the piece that it falls into.
PIECE = 1 << 13
PARTS = {"TRAIN": "train", "TEST": "test"}


def read_reuters(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """The stories of the ModApte split that have topics, each with its part and date."""
    found = False
    for name, content in _sgml_files(path, tick):
        found = True
        text = content.decode(options.encoding or ENCODING, errors=ESCAPE)
        starts = [match.start() for match in STORY_START.finditer(text)]
        for number, (start, stop) in enumerate(pairwise([*starts, len(text)]), start=1):
            at = f"{name}, story {number}"
            story = STORY.match(text, start, stop)
            if story is None:
                yield Problem(at, "the story has no end (</REUTERS>) and was not read.")
            elif undecodable(story[0]):
                yield Problem(at, wrong_encoding(options.encoding))
            else:
                yield _story(story, at, options.keep_unlabelled)
    if not found:
        raise DataError(f"{path}: expected the files reut2-000.sgm to reut2-021.sgm, found none.")


def _story(story: re.Match[str], at: str, keep_unlabelled: bool) -> Record:
    head = dict(ATTRIBUTE.findall(story["head"]))
    if head.get("TOPICS") != "YES" or head.get("LEWISSPLIT") not in PARTS:
        return PassedOver("not in the ModApte split")
    if not head.get("NEWID"):
        return Problem(at, "expected a story with a NEWID.")
    body = story["body"]
    topics = _inside(body, "TOPICS") or ""
    labels = sorted({html.unescape(name) for name in re.findall(r"<D>(.*?)</D>", topics)})
    if not labels and not keep_unlabelled:
        return PassedOver("no topic")
    part = PARTS[head["LEWISSPLIT"]]
    # The ids of NLTK's copy, which most of the literature uses.
    identity = f"{'training' if part == 'train' else 'test'}/{head['NEWID']}"
    return Document(_text(body), labels, identity, _date(body), part, at)


def _text(body: str) -> str:
    """Title and body; a story that was never marked up (UNPROC) is all body."""
    match = re.search(r"<TEXT\b([^>]*)>(.*?)</TEXT>", body, re.DOTALL)
    if match is None:
        return ""
    title, main = _inside(match[2], "TITLE"), _inside(match[2], "BODY")
    if title is None and main is None:
        main = match[2]
    # ETX and its like end every story; they are no text.
    plain = html.unescape(re.sub(r"&#\d+;", "", f"{(title or '').strip()}\n{main or ''}"))
    plain = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", plain)
    # The agency signs its stories; NLTK's copy leaves that out, and so does every model's input.
    return re.sub(r"\s+Reuter\s*$", "", plain, flags=re.IGNORECASE).strip()


def _inside(text: str, tag: str) -> str | None:
    match = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return match[1] if match else None


def _date(body: str) -> str | None:
    match = re.search(r"([0-9]{1,2})-([A-Z]{3})-([0-9]{4})", _inside(body, "DATE") or "")
    if match is None or match[2] not in MONTHS:
        return None
    try:
        return date(int(match[3]), MONTHS.index(match[2]) + 1, int(match[1])).isoformat()
    except ValueError:
        return None


def _sgml_files(path: Path, tick: Tick) -> Iterator[tuple[str, bytes]]:
    if path.is_dir():
        for file in sorted(path.glob("*.sgm")):
            with open_binary(file, tick) as opened:
                yield from _content(file.name, opened)
        return
    with open_binary(path, tick) as opened:
        if not str(path).lower().endswith((".tar.gz", ".tgz", ".tar")):
            yield from _content(path.name, opened)
            return
        try:
            with tarfile.open(fileobj=opened, mode="r|") as archive:
                for member in archive:
                    yield from _member(path, archive, member)
        except tarfile.TarError as error:
            raise EOFError(f"a broken tar archive: {error}") from error


def _member(
    path: Path, archive: tarfile.TarFile, member: tarfile.TarInfo
) -> Iterator[tuple[str, bytes]]:
    check_member_names(path, [member.name])
    if member.issym() or member.islnk():
        raise DataError(
            f"{path} was refused: {member.name!r} is a link to {member.linkname!r}. Get the "
            "archive from a source that you trust."
        )
    if member.name.lower().endswith(".sgm"):
        check_member_size(path, member.name, member.size)
        content = archive.extractfile(member)
        if content is not None:
            yield from _content(Path(member.name).name, content)


def _content(name: str, file: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """A file's name and bytes; if it is truncated, its whole stories, and then the error."""
    pieces = []
    try:
        while piece := file.read(PIECE):
            pieces.append(piece)
    except (OSError, EOFError, zlib.error, tarfile.TarError):
        whole, end, _ = b"".join(pieces).rpartition(b"</REUTERS>")
        yield name, whole + end
        raise
    yield name, b"".join(pieces)
