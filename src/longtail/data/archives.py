"""Reading tar and zip archives that may be damaged or hostile, in bounded memory and linear time.

Not Python's tarfile: it reads headers of any size into memory, and its search in them is quadratic.
"""

from __future__ import annotations

import struct
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from longtail.data.files import check_member_names
from longtail.data.limits import TooLargeError, shown
from longtail.errors import DataError

BLOCK = 512
PIECE = 1 << 16
# Names in a header of their own; Linux knows no path of more than 4,096 bytes.
LONGEST_HEADER = 1 << 16
CHECKSUM = slice(148, 156)
REGULAR, LONG_NAME, PAX = b"07\0", b"L", b"x"
LINKS, SPARSE, SKIPPED = b"12", b"S", b"gKVNXD"


class BrokenArchiveError(EOFError):
    """An archive that cannot be read any further."""


class Member:
    """One file of a tar archive, to be read before the next one is asked for."""

    def __init__(self, file: IO[bytes], name: str, size: int) -> None:
        self.name, self.size = name, size
        self._file, self._left = file, size + -size % BLOCK

    def read(self, size: int = PIECE) -> bytes:
        """At most so many bytes of the content; nothing at its end."""
        padding = -self.size % BLOCK
        wanted = min(size, self._left - padding)
        content = self._file.read(wanted) if wanted > 0 else b""
        if wanted > 0 and not content:
            raise BrokenArchiveError("a broken tar archive: unexpected end of data")
        self._left -= len(content)
        return content

    def skip(self) -> None:
        """Read over what is left of the content and the padding."""
        while self._left:
            content = self._file.read(min(PIECE, self._left))
            if not content:
                raise BrokenArchiveError("a broken tar archive: unexpected end of data")
            self._left -= len(content)


def tar_members(archive: Path, file: IO[bytes]) -> Iterator[Member]:
    """The regular files of a tar archive in their order; links and names outside are refused."""
    longer_name: str | None = None
    n_headers = 0
    while header := _header(file, n_headers == 0):
        n_headers += 1
        kind, size = header[156:157], _number(header[124:136])
        name = longer_name or _ustar_name(header)
        member = Member(file, name, size)
        if kind in LONG_NAME + PAX:
            if size > LONGEST_HEADER:
                raise DataError(
                    f"{archive} was refused: it holds a file name of {size:,} bytes. Get the "
                    "archive from a source that you trust."
                )
            content = b"".join(iter(member.read, b""))
            member.skip()
            longer_name = _pax_name(archive, content) if kind == PAX else _text(content)
            continue
        if kind in SKIPPED:
            member.skip()
            continue
        longer_name = None
        check_member_names(archive, [name])
        if kind in LINKS or kind == SPARSE:
            what = "is a sparse file" if kind == SPARSE else f"is a link to {_link(header)}"
            raise DataError(
                f"{archive} was refused: {shown(name)} {what}. Get the archive from a source that "
                "you trust."
            )
        if kind in REGULAR and not name.endswith("/"):
            yield member
            member.skip()
        elif kind in REGULAR:
            member.skip()  # How the oldest archives mark a folder.


def _header(file: IO[bytes], is_first: bool) -> bytes | None:
    """The next header; None at the end of the archive."""
    header = _block(file)
    if not header and is_first:
        raise BrokenArchiveError("a broken tar archive: empty file")
    if not header:
        return None
    if not any(header):
        while rest := file.read(PIECE):
            if any(rest.strip(b"\0")):
                raise BrokenArchiveError("a broken tar archive: data after its end")
        return None
    if len(header) < BLOCK:
        raise BrokenArchiveError("a broken tar archive: truncated header")
    plain = header[:148] + b" " * 8 + header[156:]
    signed = sum(struct.unpack(f"{BLOCK}b", plain))  # Some old writers added signed bytes.
    if _number(header[CHECKSUM]) not in (sum(plain), signed):
        raise BrokenArchiveError("a broken tar archive: bad checksum")
    return header


def _block(file: IO[bytes]) -> bytes:
    pieces, missing = [], BLOCK
    while missing and (piece := file.read(missing)):
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)


def _number(field: bytes) -> int:
    if field[0] == 0x80:  # GNU's binary form, for sizes over 8 GiB
        return int.from_bytes(field[1:], "big")
    try:
        number = int(field.split(b"\0", 1)[0].strip() or b"0", 8)
    except ValueError:
        number = -1
    if number < 0:
        raise BrokenArchiveError("a broken tar archive: invalid number in a header")
    return number


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _ustar_name(header: bytes) -> str:
    name, prefix = _text(header[:100]), _text(header[345:500])
    # Other writers than POSIX ones keep other things in the place of the prefix.
    return f"{prefix}/{name}" if prefix and header[257:263] == b"ustar\0" else name


def _link(header: bytes) -> str:
    return shown(_text(header[157:257]))


def _pax_name(archive: Path, content: bytes) -> str | None:
    """The path in a header of records such as `27 path=reut2-000.sgm`."""
    name, at = None, 0
    while at < len(content) and content[at]:
        digits = content[at : at + 20].split(b" ", 1)[0]
        length = int(digits) if digits.isdigit() else 0
        record = content[at + len(digits) + 1 : at + length]
        key, equals, value = record.partition(b"=")
        if not equals or at + length > len(content):
            raise BrokenArchiveError("a broken tar archive: invalid pax header")
        if key.startswith(b"GNU.sparse") or key == b"size":
            raise DataError(f"{archive} was refused: it holds a sparse file or one of over 8 GiB.")
        if key == b"path":
            name = value.rstrip(b"\n").decode("utf-8", "surrogateescape")
        at += length
    return name


class ZipMembers(NamedTuple):
    """A zip archive whose directory has been checked, and its files by name."""

    archive: zipfile.ZipFile
    files: dict[str, zipfile.ZipInfo]

    def read(self, name: str, limit: int) -> bytes:
        """The content of one file; KeyError if there is none of this name."""
        member = self.files[name]
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            # Python unpacks other methods in pieces of any size: 4 KB of bzip2 are 80 MB.
            raise NotImplementedError("packed by another method than deflate")
        if member.file_size > limit:
            raise TooLargeError(f"the file {shown(name)}", limit)
        # In pieces, since the true size may be another than the one in the directory.
        with self.archive.open(member) as file:
            return b"".join(iter(lambda: file.read(PIECE), b""))


def open_zip(path: Path, limit: int) -> ZipMembers:
    """Open an archive and check its directory: size, names, and that no two files share bytes."""
    if _directory_size(path) > limit:
        raise TooLargeError("the directory of the zip archive", limit)
    archive = zipfile.ZipFile(path)
    members = sorted(archive.infolist(), key=lambda member: member.header_offset)
    check_member_names(path, (member.filename for member in members))
    names = Counter(member.filename for member in members)
    twice = next((name for name, n in names.items() if n > 1), None)
    end = 0
    for member in members:
        if twice is not None or member.header_offset < end:
            name = member.filename if twice is None else twice
            raise DataError(
                f"{path} was refused: its directory names {shown(name)} twice, or its bytes belong "
                "to another file as well. Get the archive from a source that you trust."
            )
        end = member.header_offset + 30 + member.compress_size
    return ZipMembers(archive, {m.filename: m for m in members if not m.is_dir()})


def _directory_size(path: Path) -> int:
    """Bytes of the directory, of which zipfile makes ten times as many in memory."""
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
