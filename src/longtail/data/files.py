"""Opening files: bytes counted as they are read, unpacked if gzipped, written whole or not at all.

Text is decoded so that a wrong byte spoils only its line instead of ending the file.
"""

from __future__ import annotations

import codecs
import gzip
import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, BinaryIO, TextIO, cast

from longtail.checks import has_surrogate
from longtail.data.documents import ReadOptions, Record, RecordError
from longtail.data.limits import TOO_LONG, bounded_lines, too_large
from longtail.data.textdata import TextData
from longtail.errors import DataError, InputError
from longtail.progress import OnProgress, Progress, ignore
from longtail.runs import whole_file

Tick = Callable[[int], None]
"""Called with the number of bytes just read from disk."""

GZIP_MAGIC = b"\x1f\x8b"
BUFFER = 1 << 20
# Python's surrogateescape gives up at bytes below 128, which UTF-16 can have wrong as well.
ESCAPE = "longtail.escape"
codecs.register_error(ESCAPE, lambda error: ("\udc80", error.end))  # type: ignore[attr-defined]


class _CountedFile(io.FileIO):
    def __init__(self, path: Path, tick: Tick) -> None:
        super().__init__(path, "rb")
        self._tick = tick

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = super().readinto(buffer) or 0
        self._tick(count)
        return count


class _Unpacked(gzip.GzipFile):
    """Returns what is before the cut of a truncated file, where GzipFile.read drops it."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(size) if size is None or size < 0 else self.read1(size)


@contextmanager
def open_binary(path: Path, tick: Tick) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked if it is gzipped, whatever its name says."""
    with io.BufferedReader(_CountedFile(path, tick), BUFFER) as raw:
        if raw.peek(2)[:2] == GZIP_MAGIC:
            with _Unpacked(fileobj=raw) as unpacked:
                yield cast(BinaryIO, unpacked)
        else:
            yield raw


@contextmanager
def open_text(
    path: Path, encoding: str | None, tick: Tick, newline: str = "\n"
) -> Iterator[TextIO]:
    """The text of a file, newlines as they are; undecodable bytes become lone surrogates."""
    with open_binary(path, tick) as file:
        text = io.TextIOWrapper(file, encoding or "utf-8", errors=ESCAPE, newline=newline)
        try:
            yield text
        finally:
            text.detach()


def line_records(
    path: Path, options: ReadOptions, tick: Tick, parse: Callable[[int, str, ReadOptions], Record]
) -> Iterator[Record]:
    """What `parse` makes of every line that is not blank; a problem for an unreadable one."""
    with open_text(path, options.encoding, tick) as file:
        for number, line in enumerate(bounded_lines(file, options.max_record), start=1):
            if line is TOO_LONG:
                yield RecordError(too_large("the line", options.max_record), number)
            elif has_surrogate(line):
                yield RecordError(wrong_encoding(options.encoding), number)
            elif line.strip():
                try:
                    record = parse(number, line, options)
                except RecordError as error:
                    record = RecordError(str(error), number)
                yield record


def wrong_encoding(encoding: str | None) -> str:
    """The message for a line that is not in the encoding."""
    return (
        f"not valid {encoding or 'UTF-8'}. If the file is in another encoding, name it, as in "
        "encoding='latin-1' (--encoding latin-1)."
    )


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary name to write to; it replaces `path` only if nothing fails."""
    try:
        with whole_file(path) as temporary:
            yield temporary
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror or error}).") from error
    except UnicodeEncodeError as error:
        raise InputError(
            f"{path} was not written: {error.object[error.start]!r} in a text, label or id is "
            "half of a surrogate pair, which is no character. Take it out."
        ) from error


@contextmanager
def writing(path: str | Path) -> Iterator[TextIO]:
    """A text file in UTF-8 that replaces `path`, gzipped if the name ends in .gz."""
    with replacing(path) as temporary, ExitStack() as stack:
        file: IO[bytes] = stack.enter_context(temporary.open("wb"))
        if str(path).lower().endswith(".gz"):
            # No time stamp inside: the same documents give the same bytes.
            packed = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
            file = cast(IO[bytes], packed)
        yield stack.enter_context(io.TextIOWrapper(file, encoding="utf-8", newline=""))


def write_lines(
    lines: Callable[[TextData], Iterator[str]],
    data: TextData,
    path: str | Path,
    progress: OnProgress = ignore,
) -> None:
    """Write a text file of what `lines` makes of the documents."""
    with writing(path) as file:
        for number, line in enumerate(lines(data), start=1):
            file.write(line)
            if number % 500 == 0 or number == len(data):
                done = min(number, len(data))
                progress(Progress(f"writing {Path(path).name}", done, len(data)))
