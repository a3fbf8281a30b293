"""NLTK's categorised corpora, such as its Reuters: a folder or zip with cats.txt, read in place."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

from longtail.checks import has_surrogate
from longtail.data.archives import BrokenArchiveError, check_member_names, open_zip
from longtail.data.documents import Document, LeftOut, Problem, ReadOptions, Records
from longtail.data.files import ESCAPE, Tick, wrong_encoding
from longtail.data.limits import TooLargeError, shown, shown_names
from longtail.errors import DataError

ENCODING = "latin-1"
# Errors of a damaged or encrypted archive, a folder in place of a file or an impossible name.
UNREADABLE = (
    *(OSError, EOFError, ValueError, RuntimeError),
    *(struct.error, zlib.error, zipfile.BadZipFile),
)
PARTS = {"training": "train", "train": "train", "test": "test"}
# Files beside the documents of NLTK's corpora.
ABOUT = {"cats", "stopwords", "readme", "license", "contents", "index"}
Content = Callable[[str], bytes]


def read_nltk(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """NLTK's categorised corpora: cats.txt with `training/1 cocoa`, and one file per document."""
    limit = options.max_record
    if path.is_dir():
        root = path if (path / "cats.txt").is_file() else path / "reuters"
        if not (root / "cats.txt").is_file():
            raise DataError(f"{path}: expected NLTK's cats.txt, got none.")

        def content(name: str) -> bytes:
            file = root / name
            if file.exists() and not file.is_file():
                raise OSError("not a regular file")
            if file.stat().st_size > limit:
                raise TooLargeError(f"the file {shown(name)}", limit)
            return file.read_bytes()

        names = (file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file())
        yield from _nltk(content, names, options, tick)
        return
    try:
        members = open_zip(path, limit)
        with members.archive:
            cats = [name for name in members.files if name.rsplit("/", 1)[-1] == "cats.txt"]
            if len(cats) != 1:
                raise DataError(
                    f"{path}: expected one cats.txt of NLTK inside, got {shown_names(cats)}."
                )
            folder = cats[0].removesuffix("cats.txt")
            names = (name.removeprefix(folder) for name in members.files)
            yield from _nltk(lambda n: members.read(folder + n, limit), names, options, tick)
    except DataError:
        raise
    except UNREADABLE as error:
        raise BrokenArchiveError("zip", error) from error


def _nltk(content: Content, names: Iterable[str], options: ReadOptions, tick: Tick) -> Records:
    encoding = options.encoding or ENCODING
    named: set[str] = set()
    # Bytes, because in Latin-1 a part of many a character of UTF-8 counts as white space.
    for number, line in enumerate(content("cats.txt").split(b"\n"), start=1):
        cells = [cell.decode(encoding, errors=ESCAPE) for cell in line.split()]
        if not cells:
            continue
        at = f"cats.txt, line {number}"
        name, *labels = cells
        check_member_names(Path("cats.txt"), [name])
        if name in named:
            # Before the file is unpacked again: a small archive can name a large one many times.
            yield Problem(at, f"the id {shown(name)} is already taken by another document.")
            continue
        named.add(name)
        try:
            document = content(name)
        except (KeyError, FileNotFoundError):
            yield Problem(at, f"expected a file {shown(name)} beside cats.txt, got none.")
            continue
        except (TooLargeError, *UNREADABLE) as error:
            is_large = isinstance(error, TooLargeError)
            why = f"the file {shown(name)} cannot be read ({error})."
            yield Problem(at, str(error) if is_large else why)
            continue
        tick(len(document))
        text = document.decode(encoding, errors=ESCAPE)
        if any(map(has_surrogate, (text, *cells))):
            yield Problem(at, wrong_encoding(encoding))
            continue
        yield Document(text, labels, name, None, PARTS.get(name.partition("/")[0]), at)
    n_others = sum(_is_document(PurePosixPath(name)) for name in names if name not in named)
    if n_others:
        yield LeftOut("file beside the documents that cats.txt does not name", n_others)


def _is_document(name: PurePosixPath) -> bool:
    """Whether a file may be a document, not README, LICENSE.txt, .DS_Store or the like."""
    hidden = any(part.startswith((".", "__MACOSX")) for part in name.parts)
    return not hidden and name.name.partition(".")[0].lower() not in ABOUT
