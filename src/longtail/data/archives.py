"""Reading tar and zip archives that may be damaged or hostile, in bounded memory and linear time.

Not by tarfile.open: it ends at a damaged header without an error, and reads headers of any size.
"""

from __future__ import annotations

import re
import struct
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from longtail.data.limits import READ_ERRORS, TooLargeError, shown
from longtail.errors import DataError

BLOCK = tarfile.BLOCKSIZE
PIECE = 1 << 16
# For names in their own header; Linux has no path of more than 4,096 bytes.
LONGEST_HEADER = 1 << 16
LONG_NAMES = (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE)
LINKS = (tarfile.LNKTYPE, tarfile.SYMTYPE)
WITHOUT_CONTENT = (tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE)
# Global headers, long names of links, volumes and folders of backups.
SKIPPED = tuple(bytes([kind]) for kind in b"gKVNXD")
TRUST = "Get the archive from a source that you trust."


def _broken(kind: str, why: object) -> EOFError:
    return EOFError(f"a broken {kind} archive: {why}")


class Member:
    """One file of a tar archive, to be read before the next one is requested."""

    def __init__(self, file: IO[bytes], header: tarfile.TarInfo) -> None:
        self.name = header.name
        self._file, self._padding = file, -header.size % BLOCK
        self._left = header.size + self._padding

    def read(self, size: int = PIECE, padding: bool = False) -> bytes:
        """At most `size` bytes of the content; empty at its end."""
        size = min(size, self._left - (0 if padding else self._padding))
        content = self._file.read(size) if size > 0 else b""
        if size > 0 and not content:
            raise _broken("tar", "unexpected end of data")
        self._left -= len(content)
        return content

    def skip(self) -> None:
        """Read over the rest of the content and the padding."""
        while self.read(PIECE, padding=True):
            pass


def tar_members(archive: Path, file: IO[bytes]) -> Iterator[Member]:
    """The regular files of a tar archive in their order; links and names outside are refused."""
    long_name: str | None = None
    is_first = True
    while header := _header(file, is_first):
        is_first = False
        member = Member(file, header)
        if header.type in LONG_NAMES:
            if header.size > LONGEST_HEADER:
                raise _refused(archive, f"it holds a file name of {header.size:,} bytes")
            content = b"".join(iter(member.read, b""))
            if header.type == tarfile.XHDTYPE:
                long_name = _pax_name(archive, content)
            else:
                long_name = content.partition(b"\0")[0].decode("utf-8", "surrogateescape")
        elif header.type not in SKIPPED:
            member.name, long_name = long_name or header.name, None
            check_member_names(archive, [member.name])
            if header.type in LINKS:
                what = f"{shown(member.name)} is a link to {shown(header.linkname)}"
                raise _refused(archive, what)
            if header.type == tarfile.GNUTYPE_SPARSE:
                raise _refused(archive, f"{shown(member.name)} is a sparse file")
            if header.type in WITHOUT_CONTENT:
                continue
            # The oldest archives mark a folder by its name.
            if header.isreg() and not member.name.endswith("/"):
                yield member
        member.skip()


def _refused(archive: Path, why: str) -> DataError:
    return DataError(f"{archive} was refused: {why}. {TRUST}")


def _header(file: IO[bytes], is_first: bool) -> tarfile.TarInfo | None:
    """The next header; None at the end of the archive."""
    block = b""
    while len(block) < BLOCK and (piece := file.read(BLOCK - len(block))):
        block += piece
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        if is_first and not block:
            raise _broken("tar", "empty file") from error
        if block.strip(b"\0"):
            raise _broken("tar", error) from error
        while rest := file.read(PIECE):
            if rest.strip(b"\0"):
                raise _broken("tar", "data after its end") from error
        return None
    if header.size < 0:
        raise _broken("tar", "invalid number in a header")
    return header


def _pax_name(archive: Path, content: bytes) -> str | None:
    """The path in a header of records such as `27 path=reut2-000.sgm`."""
    name, at = None, 0
    while at < len(content) and content[at]:
        digits = content[at : at + 20].split(b" ", 1)[0]
        length = int(digits) if digits.isdigit() else 0
        record = content[at + len(digits) + 1 : at + length]
        key, equals, value = record.partition(b"=")
        if not equals or at + length > len(content):
            raise _broken("tar", "invalid pax header")
        if key.startswith(b"GNU.sparse") or key == b"size":
            raise _refused(archive, "it holds a sparse file or one of over 8 GiB")
        if key == b"path":
            name = value.rstrip(b"\n").decode("utf-8", "surrogateescape")
        at += length
    return name


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
