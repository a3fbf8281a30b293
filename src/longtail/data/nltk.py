"""NLTK's categorised corpora, such as its Reuters: a folder or zip with cats.txt, read in place."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path, PurePosixPath

from longtail.checks import has_surrogate
from longtail.data.archives import check_member_names, open_zip
from longtail.data.documents import PART_NAMES, Document, Omitted, ReadOptions, RecordError, Records
from longtail.data.files import ESCAPE, Tick, wrong_encoding
from longtail.data.limits import READ_ERRORS, TooLargeError, shown, shown_names
from longtail.errors import DataError

ENCODING = "latin-1"
# Files beside the documents of NLTK's corpora.
ABOUT = {"cats", "stopwords", "readme", "license", "contents", "index"}
Files = tuple[Collection[str], Callable[[str], bytes]]


def read_nltk(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """NLTK's categorised corpora: cats.txt with `training/1 cocoa`, and one file per document."""
    limit, encoding = options.max_record, options.encoding or ENCODING
    source: AbstractContextManager[Files] = (
        nullcontext(_open_folder(path, limit)) if path.is_dir() else open_zip(path, limit)
    )
    with source as (files, read):
        cats = [name for name in files if name.rsplit("/", 1)[-1] == "cats.txt"]
        if "cats.txt" not in cats and len(cats) != 1:
            raise DataError(f"{path}: expected one cats.txt of NLTK, got {shown_names(cats)}.")
        root = "" if "cats.txt" in cats else cats[0].removesuffix("cats.txt")
        named: set[str] = set()
        # Bytes, because in Latin-1 a part of many a character of UTF-8 counts as white space.
        for number, line in enumerate(read(f"{root}cats.txt").split(b"\n"), start=1):
            cells = [cell.decode(encoding, errors=ESCAPE) for cell in line.split()]
            if not cells:
                continue
            at = f"cats.txt, line {number}"
            name, *labels = cells
            check_member_names(Path("cats.txt"), [name])
            if name in named:
                # Before the file is unpacked again: a small archive can name a large one often.
                yield RecordError(f"the id {shown(name)} is already taken by another document.", at)
                continue
            named.add(name)
            try:
                content = read(root + name)
            except (KeyError, FileNotFoundError):
                yield RecordError(f"expected a file {shown(name)} beside cats.txt, got none.", at)
                continue
            except TooLargeError as error:
                yield RecordError(str(error), at)
                continue
            except READ_ERRORS as error:
                yield RecordError(f"the file {shown(name)} cannot be read ({error}).", at)
                continue
            tick(len(content))
            text = content.decode(encoding, errors=ESCAPE)
            if any(map(has_surrogate, (text, *cells))):
                yield RecordError(wrong_encoding(encoding), at)
            else:
                part = PART_NAMES.get(name.partition("/")[0])
                yield Document(text, labels, name, None, part, at)
        others = {name.removeprefix(root) for name in files} - named
        if n_others := sum(_is_document(PurePosixPath(name)) for name in others):
            yield Omitted(
                "left_out", "file beside the documents that cats.txt does not name", n_others
            )


def _open_folder(root: Path, limit: int) -> Files:
    """The names of the regular files at any depth, and a function that reads one."""
    files = {file.relative_to(root).as_posix(): file for file in root.rglob("*") if file.is_file()}

    def read(name: str) -> bytes:
        if files[name].stat().st_size > limit:
            raise TooLargeError(f"the file {shown(name)}", limit)
        return files[name].read_bytes()

    return files.keys(), read


def _is_document(name: PurePosixPath) -> bool:
    """Whether a file may be a document, not README, LICENSE.txt, .DS_Store or the like."""
    hidden = any(part.startswith((".", "__MACOSX")) for part in name.parts)
    return not hidden and name.name.partition(".")[0].lower() not in ABOUT
