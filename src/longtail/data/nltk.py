"""NLTK's categorised corpora, such as its Reuters: a folder or zip with cats.txt, read in place."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO

from longtail.checks import has_surrogate
from longtail.data.documents import PART_NAMES, Document, ReadOptions, RecordError, Records, attempt
from longtail.data.files import (
    ESCAPE,
    READ_ERRORS,
    Tick,
    TooLargeError,
    shown_names,
    wrong_encoding,
)
from longtail.errors import DataError, shown

ENCODING = "latin-1"
Files = tuple[Collection[str], Callable[[str], bytes]]


def read_nltk(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """NLTK's categorised corpora: cats.txt with `training/1 cocoa`, and one file per document."""
    limit, encoding = options.max_record, options.encoding or ENCODING
    source: AbstractContextManager[Files] = (
        nullcontext(_open_folder(path, limit)) if path.is_dir() else _open_zip(path, limit)
    )
    with source as (files, read):
        cats = [name for name in files if name.rsplit("/", 1)[-1] == "cats.txt"]
        if "cats.txt" not in cats and len(cats) != 1:
            raise DataError(f"{path}: expected one cats.txt of NLTK, got {shown_names(cats)}.")
        root = "" if "cats.txt" in cats else cats[0].removesuffix("cats.txt")
        named: set[str] = set()

        def document(at: int | str, line: bytes) -> Document:
            # Bytes, because in Latin-1 a part of many a character of UTF-8 counts as white space.
            name, *labels = (cell.decode(encoding, errors=ESCAPE) for cell in line.split())
            if name in named:
                # Before the file is unpacked again: a small archive can name a large one often.
                raise RecordError(f"the id {shown(name)} is already taken by another document.")
            named.add(name)
            if root + name not in files:
                raise RecordError(f"expected a file {shown(name)} beside cats.txt, got none.")
            try:
                content = read(root + name)
            except (TooLargeError, *READ_ERRORS) as error:
                raise RecordError(f"the file {shown(name)} cannot be read ({error}).") from error
            tick(len(content))
            text = content.decode(encoding, errors=ESCAPE)
            if any(map(has_surrogate, (text, name, *labels))):
                raise RecordError(wrong_encoding(encoding))
            return Document(text, labels, name, None, PART_NAMES.get(name.partition("/")[0]), at)

        for number, line in enumerate(read(f"{root}cats.txt").split(b"\n"), start=1):
            if line.strip():
                yield attempt(document, f"cats.txt, line {number}", line)


def _open_folder(root: Path, limit: int) -> Files:
    """The names of the regular files at any depth, and a function that reads one."""
    files = {file.relative_to(root).as_posix(): file for file in root.rglob("*") if file.is_file()}

    def read(name: str) -> bytes:
        with files[name].open("rb") as file:
            return _bounded(file, name, limit)

    return files.keys(), read


@contextmanager
def _open_zip(path: Path, limit: int) -> Iterator[Files]:
    """The names of the files, and a function that reads one; KeyError if there is none."""
    try:
        archive = zipfile.ZipFile(path)
    except READ_ERRORS as error:
        raise EOFError(f"a broken zip archive: {error}") from error
    with archive:

        def read(name: str) -> bytes:
            with archive.open(name) as file:
                return _bounded(file, name, limit)

        yield [name for name in archive.namelist() if not name.endswith("/")], read


def _bounded(file: IO[bytes], name: str, limit: int) -> bytes:
    content = file.read(limit + 1)
    if len(content) > limit:
        raise TooLargeError(f"the file {shown(name)}", limit)
    return content
