"""NLTK's categorised corpora, such as its Reuters: a folder or zip with cats.txt, read in place."""

from __future__ import annotations

import zipfile
from contextlib import ExitStack
from pathlib import Path

from longtail.data.documents import PART_NAMES, Document, ReadOptions, RecordError, Records, attempt
from longtail.data.files import ESCAPE, READ_ERRORS, Tick, TooLargeError, shown_names, unreadable
from longtail.errors import DataError, shown


def read_nltk(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """Read cats.txt with lines such as `training/1 cocoa`, and one file per document."""
    limit, encoding = options.max_record, options.encoding or "latin-1"
    named: set[str] = set()

    def content_of(file: Path | zipfile.Path) -> bytes:
        with file.open("rb") as opened:
            content: bytes = opened.read(limit + 1)
        if len(content) > limit:
            raise TooLargeError(f"the file {shown(file.name)}", limit)
        tick(len(content))
        return content

    def document(at: int | str, line: bytes) -> Document:
        # Split bytes: decoded as Latin-1, UTF-8 characters may contain white space.
        name, *labels = (cell.decode(encoding, errors=ESCAPE) for cell in line.split())
        if name in named:
            # Before the file is unpacked again: a small archive may name a large one often.
            raise RecordError(f"the id {shown(name)} is already taken by another document.")
        named.add(name)
        # No file outside the folder, and no file by two names.
        is_plain = {"", ".", ".."}.isdisjoint(name.split("/"))
        if not is_plain or not (root / name).is_file():
            raise RecordError(f"expected a file {shown(name)} beside cats.txt, got none.")
        try:
            text = content_of(root / name).decode(encoding, errors=ESCAPE)
        except (TooLargeError, *READ_ERRORS) as error:
            raise RecordError(f"the file {shown(name)} cannot be read ({error}).") from error
        if (fault := unreadable("".join((text, name, *labels)), options)) is not None:
            raise RecordError(fault)
        return Document(text, labels, name, None, PART_NAMES.get(name.partition("/")[0]), at)

    with ExitStack() as stack:
        root: Path | zipfile.Path = path
        if not path.is_dir():
            root = zipfile.Path(stack.enter_context(zipfile.ZipFile(path)))
        if not (root / "cats.txt").is_file():
            folders = [folder for folder in root.iterdir() if (folder / "cats.txt").is_file()]
            if len(folders) != 1:
                names = shown_names(f"{folder.name}/cats.txt" for folder in folders)
                raise DataError(f"{path}: expected one cats.txt of NLTK, got {names}.")
            root = folders[0]
        for number, line in enumerate(content_of(root / "cats.txt").split(b"\n"), start=1):
            if line.strip():
                yield attempt(document, f"cats.txt, line {number}", line)
