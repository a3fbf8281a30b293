"""NLTK's categorised corpora, such as its Reuters: a folder or zip with cats.txt, read in place."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from longtail.data.documents import Document, Problem, ReadOptions, Records
from longtail.data.files import (
    ESCAPE,
    Tick,
    check_member_names,
    check_member_size,
    undecodable,
    wrong_encoding,
)
from longtail.errors import DataError

ENCODING = "latin-1"
# What a damaged or encrypted archive, a folder in place of a file or an impossible name raises.
UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
)
PARTS = {"training": "train", "train": "train", "test": "test"}


def read_nltk(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """NLTK's categorised corpora: cats.txt with `training/1 cocoa`, and one file per document."""
    if path.is_dir():
        root = path if (path / "cats.txt").is_file() else path / "reuters"
        if not (root / "cats.txt").is_file():
            raise DataError(f"{path}: expected NLTK's cats.txt, found none.")
        categories = (root / "cats.txt").read_bytes()
        yield from _nltk(categories, lambda name: (root / name).read_bytes(), options, tick)
        return
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            check_member_names(path, names)
            cats = [name for name in names if name.rsplit("/", 1)[-1] == "cats.txt"]
            if len(cats) != 1:
                there = ", ".join(cats) or "none"
                raise DataError(f"{path}: expected one cats.txt of NLTK inside, found {there}.")
            folder = cats[0].removesuffix("cats.txt")

            def content(name: str) -> bytes:
                check_member_size(path, name, archive.getinfo(folder + name).file_size)
                return archive.read(folder + name)

            yield from _nltk(content("cats.txt"), content, options, tick)
    except DataError:
        raise
    except UNREADABLE as error:
        raise EOFError(f"a broken zip archive: {error}") from error


def _nltk(
    categories: bytes, content: Callable[[str], bytes], options: ReadOptions, tick: Tick
) -> Records:
    encoding = options.encoding or ENCODING
    # Bytes, because in Latin-1 a part of many a character of UTF-8 counts as white space.
    for number, line in enumerate(categories.split(b"\n"), start=1):
        cells = [cell.decode(encoding, errors=ESCAPE) for cell in line.split()]
        if not cells:
            continue
        at = f"cats.txt, line {number}"
        name, *labels = cells
        check_member_names(Path("cats.txt"), [name])
        try:
            document = content(name)
        except (KeyError, FileNotFoundError):
            yield Problem(at, f"expected a file {name!r} beside cats.txt, found none.")
            continue
        except DataError:
            raise
        except UNREADABLE as error:
            yield Problem(at, f"the file {name!r} cannot be read ({error}).")
            continue
        tick(len(document))
        text = document.decode(encoding, errors=ESCAPE)
        if any(map(undecodable, (text, *cells))):
            yield Problem(at, wrong_encoding(encoding))
            continue
        yield Document(text, labels, name, None, PARTS.get(name.partition("/")[0]), at)
