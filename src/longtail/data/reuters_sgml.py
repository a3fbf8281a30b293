"""Reuters-21578 as distributed: 22 SGML files in a folder or a tar.gz, read in place."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from datetime import date
from itertools import islice, pairwise
from pathlib import Path

from longtail.checks import has_surrogate
from longtail.data.archives import tar_members
from longtail.data.documents import (
    Document,
    Omitted,
    ReadOptions,
    Record,
    RecordError,
    Records,
    reports_problems,
)
from longtail.data.files import ESCAPE, Tick, open_binary, wrong_encoding
from longtail.data.limits import READ_ERRORS, shown, too_large
from longtail.errors import DataError

ENCODING = "latin-1"
# SGML ignores the case of names. The quantifiers are possessive: without that, 80,000 spaces
# before the end of a story took 39 s.
STORY_START = re.compile(r"<REUTERS\b", re.IGNORECASE)
STORY_HEAD = re.compile(r"<REUTERS\b(?P<head>[^>]*+)>", re.IGNORECASE)
STORY_END = re.compile(r"</REUTERS\s*+>", re.IGNORECASE)
# Tags may hold white space before their end, and <TEXT> attributes.
TAGS = {"TEXT": r"\b[^<>]*+"} | dict.fromkeys(("TOPICS", "TITLE", "BODY", "DATE"), r"\s*+")
STARTS = {tag: re.compile(f"<{tag}{rest}>", re.IGNORECASE) for tag, rest in TAGS.items()}
ENDS = {tag: re.compile(rf"</{tag}\s*+>", re.IGNORECASE) for tag in TAGS}
# Files that come with the stories: lists of topics, the document type.
ABOUT = ("", ".txt", ".dtd", ".md")
TOPIC = re.compile(r"<D\s*+>([^<]*+)</D\s*+>", re.IGNORECASE)
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
ATTRIBUTE = re.compile(r"""(?<!\w)(\w++)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'>]++))""")
# Between stories there may be the document type and comments.
BETWEEN = re.compile(
    r"(?:[\s\ufeff]++|\xef\xbb\xbf|<!DOCTYPE[^>]*+>|<!--(?:(?!-->).)*+-->)*+",
    re.DOTALL | re.IGNORECASE,
)
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
SIGNATURE = re.compile(r"\sreuter$", re.IGNORECASE)
# Small, because a cut costs the piece that it falls into.
PIECE = 1 << 13
PARTS = {"TRAIN": "train", "TEST": "test"}


def read_reuters(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """The stories of the ModApte split that have topics, each with its part and date."""
    is_empty = True
    for file in _sgml_files(path, tick):
        if isinstance(file, Omitted):
            yield file
        else:
            is_empty = False
            yield from _stories(*file, options)
    if is_empty:
        raise DataError(f"{path}: expected the files reut2-000.sgm to reut2-021.sgm, got none.")


Read = Callable[[int], bytes]


def _sgml_files(path: Path, tick: Tick) -> Iterator[tuple[str, Read] | Omitted]:
    """The SGML files of a folder or an archive; other data in an archive is left out."""
    if path.is_dir():
        for file in sorted(file for file in path.iterdir() if _is_sgml(file.name)):
            with open_binary(file, tick) as opened:
                yield file.name, opened.read
        return
    with open_binary(path, tick) as opened:
        if not str(path).lower().endswith((".tar.gz", ".tgz", ".tar")):
            yield path.name, opened.read
            return
        for member, read in tar_members(path, opened):
            name = Path(member).name
            if _is_sgml(name):
                yield name, read
            elif not name.startswith(".") and Path(name).suffix.lower() not in ABOUT:
                yield Omitted("left_out", "file of the archive that is no .sgm file")


def _is_sgml(name: str) -> bool:
    # macOS puts ._reut2-000.sgm beside reut2-000.sgm; it holds no text.
    return name.lower().endswith(".sgm") and not name.startswith("._")


def _stories(name: str, read: Read, options: ReadOptions) -> Iterator[Record]:
    """The stories of one file; the whole ones before the cut if it is too large or truncated."""
    content, limit, failure = bytearray(), options.max_record, None
    try:
        while len(content) <= limit and (piece := read(PIECE)):
            content += piece
    except READ_ERRORS as error:
        failure = error
    is_large = len(content) > limit
    if is_large or failure is not None:
        last = 0
        for story_end in re.finditer(rb"(?i)</REUTERS\s*+>", content):
            last = story_end.end()
        del content[last:]
    text = content.decode(options.encoding or ENCODING, errors=ESCAPE)
    starts = [match.start() for match in STORY_START.finditer(text)]
    if not BETWEEN.fullmatch(text, 0, starts[0] if starts else len(text)):
        yield RecordError(f"expected a story (<REUTERS ...>), got {_first(text)}.", name)
    for number, (start, stop) in enumerate(pairwise([*starts, len(text)]), start=1):
        at = f"{name}, story {number}"
        end = STORY_END.search(text, start, stop)
        head = STORY_HEAD.match(text, start, stop)
        if end is None or head is None:
            yield RecordError("the story has no end (</REUTERS>) and was not read.", at)
            continue
        if has_surrogate(text[start : end.start()]):
            yield RecordError(wrong_encoding(options.encoding), at)
        else:
            yield _story(at, head["head"], text[head.end() : end.start()], options.keep_unlabelled)
        if not BETWEEN.fullmatch(text, end.end(), stop):
            # A story with a damaged start tag would be lost silently.
            rest = _first(text[end.end() : min(stop, end.end() + 1000)])
            yield RecordError(f"expected the next story after it, got {rest}.", at)
    if is_large:
        yield RecordError(too_large("the file", limit), name)
    if failure is not None:
        raise failure


def _first(text: str) -> str:
    return shown(text[:1000].strip(), 40)


@reports_problems
def _story(at: int | str, attributes: str, body: str, keep_unlabelled: bool) -> Record:
    head = {name.upper(): a or b or c for name, a, b, c in ATTRIBUTE.findall(attributes)}
    if head.get("TOPICS", "").upper() != "YES" or head.get("LEWISSPLIT", "").upper() not in PARTS:
        return Omitted("passed_over", "not in the ModApte split")
    if not head.get("NEWID"):
        raise RecordError("expected a story with a NEWID.")
    topics = _inside(body, "TOPICS") or ""
    rest = TOPIC.sub("", topics)
    if rest.strip():
        raise RecordError(f"expected topics as in <D>cocoa</D>, got {_first(rest)}.")
    labels = sorted({" ".join(_unescape(name).split()) for name in TOPIC.findall(topics)})
    text = _text(body)
    if not labels and not keep_unlabelled:
        return Omitted("passed_over", "no topic")
    part = PARTS[head["LEWISSPLIT"].upper()]
    # The ids of NLTK's copy, which most of the literature uses.
    identity = f"{'training' if part == 'train' else 'test'}/{head['NEWID']}"
    return Document(text, labels, identity, _date(body), part, at)


def _text(body: str) -> str:
    """Title and body; a story that was never marked up (UNPROC) is all body."""
    inside = _inside(body, "TEXT")
    if inside is None:
        return ""
    title, main = _inside(inside, "TITLE"), _inside(inside, "BODY")
    if title is None and main is None:
        main = inside
    # ETX and its like end every story; they are no text.
    plain = re.sub(r"&#\d++;", "", f"{(title or '').strip()}\n{main or ''}")
    plain = CONTROLS.sub("", _unescape(plain)).rstrip()
    # The agency signs its stories; NLTK's copy leaves that out, and so does every model's input.
    return SIGNATURE.sub("", plain).strip()


def _unescape(text: str) -> str:
    try:
        return html.unescape(text)
    except ValueError as error:  # a character entity of 5,000 digits
        raise RecordError(str(error)) from error


def _inside(text: str, tag: str) -> str | None:
    """The content of an element; None if there is neither its start nor its end."""
    starts = list(islice(STARTS[tag].finditer(text), 2))
    stop = ENDS[tag].search(text, starts[0].end() if starts else 0)
    if len(starts) > 1:
        raise RecordError(f"expected one <{tag}>, got several.")
    if not starts and stop is None:
        return None
    if not starts or stop is None:
        raise RecordError(f"expected <{tag}> and </{tag}>, got one of them.")
    return text[starts[0].end() : stop.start()]


def _date(body: str) -> str | None:
    try:
        text = _inside(body, "DATE") or ""
        match = re.search(r"([0-9]{1,2})-([A-Za-z]{3})-([0-9]{4})", text)
        if match is None:
            return None
        month = MONTHS.index(match[2].upper()) + 1
        return date(int(match[3]), month, int(match[1])).isoformat()
    except ValueError:  # wrong markup, an unknown month, or no such day
        return None
