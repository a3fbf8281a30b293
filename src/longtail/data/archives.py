"""Tar and zip archives that may be damaged or hostile, read in bounded memory and linear time."""

from __future__ import annotations

import re
import struct
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from longtail.data.limits import READ_ERRORS, TooLargeError, shown
from longtail.errors import DataError

PIECE = 1 << 16
# What one header may hold, with the names in headers of their own; Linux has no path of more than
# 4,096 bytes, but the map of a sparse file can be endless.
LONGEST_HEADER = 1 << 16


def _broken(kind: str, why: object) -> EOFError:
    return EOFError(f"a broken {kind} archive: {why}")


def _refused(archive: Path, why: str) -> DataError:
    return DataError(f"{archive} was refused: {why}. Get the archive from a source that you trust.")


class _Forward:
    """A file for tarfile that is read once from its beginning to its end."""

    def __init__(self, file: IO[bytes], archive: Path) -> None:
        self.file, self.archive = file, archive
        self.at, self.budget, self.last = 0, LONGEST_HEADER, b""

    def tell(self) -> int:
        return self.at

    def seek(self, position: int) -> None:
        if position < self.at:
            raise tarfile.ReadError("invalid number in a header")
        while self.at < position and (piece := self.file.read(min(PIECE, position - self.at))):
            self.at += len(piece)

    def read(self, size: int) -> bytes:
        self.budget -= size
        if self.budget < 0:
            raise _refused(self.archive, f"a header of it has over {LONGEST_HEADER:,} bytes")
        pieces = []
        while size > 0 and (piece := self.file.read(size)):
            pieces.append(piece)
            size -= len(piece)
            self.at += len(piece)
        self.last = b"".join(pieces)
        return self.last


def tar_members(archive: Path, file: IO[bytes]) -> Iterator[tuple[str, Callable[[int], bytes]]]:
    """The name of every regular file, and a function that reads it until the next is requested.

    Links and names outside are refused.
    """
    forward = _Forward(file, archive)
    try:
        tar: Any = tarfile.TarFile(fileobj=cast(IO[bytes], forward), encoding="utf-8")
        while member := tar.next():
            tar.members.clear()  # It would keep all of them.
            check_member_names(archive, [member.name])
            if member.islnk() or member.issym():
                link = f"{shown(member.name)} is a link to {shown(member.linkname)}"
                raise _refused(archive, link)
            if member.issparse():
                raise _refused(archive, f"{shown(member.name)} is a sparse file")
            forward.budget = member.size
            if member.isreg():
                yield member.name, tar.extractfile(member).read
            forward.budget = LONGEST_HEADER
        # tarfile ends at a damaged header as if it were the end.
        if forward.last.strip(b"\0"):
            raise _broken("tar", "a damaged header")
        while rest := file.read(PIECE):
            if rest.strip(b"\0"):
                raise _broken("tar", "data after its end")
    except tarfile.TarError as error:
        raise _broken("tar", error) from error


@contextmanager
def open_zip(path: Path, limit: int) -> Iterator[tuple[Collection[str], Callable[[str], bytes]]]:
    """The names of the files, and a function that reads one; KeyError if there is none.

    The directory is checked first: its size, names, and that no two files share bytes.
    """
    if _directory_size(path) > limit:
        raise TooLargeError("the directory of the zip archive", limit)
    try:
        archive = zipfile.ZipFile(path)
    except READ_ERRORS as error:
        raise _broken("zip", error) from error
    with archive:
        members = sorted(archive.infolist(), key=lambda member: member.header_offset)
        check_member_names(path, (member.filename for member in members))
        counts = Counter(member.filename for member in members)
        end = 0
        for member in members:
            if counts[member.filename] > 1 or member.header_offset < end:
                what = f"its directory names {shown(member.filename)} twice, or its bytes belong to"
                raise _refused(path, f"{what} another file as well")
            end = member.header_offset + 30 + member.compress_size
        files = {member.filename: member for member in members if not member.is_dir()}

        def read(name: str) -> bytes:
            if files[name].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                # Python unpacks other methods in pieces of any size: 4 KB of bzip2 are 80 MB.
                raise NotImplementedError("packed by another method than deflate")
            if files[name].file_size > limit:
                raise TooLargeError(f"the file {shown(name)}", limit)
            # In pieces, since the true size may differ from the one in the directory.
            with archive.open(files[name]) as file:
                return b"".join(iter(lambda: file.read(PIECE), b""))

        yield files.keys(), read


def _directory_size(path: Path) -> int:
    """Bytes of the directory, for which zipfile allocates ten times as many."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - (1 << 16) - 98))
        tail = file.read()
    at = tail.rfind(b"PK\5\6")
    if at < 0 or at + 16 > len(tail):
        return 0
    stated: int = struct.unpack_from("<L", tail, at + 12)[0]
    zip64 = at - 76
    if stated == 0xFFFFFFFF and zip64 >= 0 and tail.startswith(b"PK\6\6", zip64):
        stated = struct.unpack_from("<Q", tail, zip64 + 40)[0]
    # The directory cannot be larger than the file.
    return min(size, stated)


def check_member_names(archive: Path, names: Iterable[str]) -> None:
    """Refuse an archive that names files outside of itself."""
    for name in names:
        parts = PurePosixPath(name.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts or re.match("[A-Za-z]:", name):
            what = f"it holds a file called {shown(name)}, which points outside of the archive"
            raise _refused(archive, what)
