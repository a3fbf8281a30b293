"""Fetch the files of public corpora into a cache: mirrors, checksums, resumed downloads.

pooch verifies the checksum and renames the finished file into place; the downloader given to it
here adds what it lacks: continuing a broken download, time limits and progress.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longtail.errors import DataError, InputError

# Called with the bytes that are there, fewer again after a restart, and those of the whole file,
# where they are known.
Progress = Callable[[int, int | None], None]

TIMEOUTS = (10, 30)  # seconds: to connect, and between two pieces of the body
RETRIES = 2  # of a connection that broke; one that was never made is not tried again
PAUSE = 1.0  # seconds before a retry
PIECE = 1 << 16  # bytes; what a broken connection can lose at most

_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (ConnectionRefusedError, "connection refused"),
    (socket.gaierror, "host name not found"),
    (ssl.SSLCertVerificationError, "certificate not trusted"),
    (ssl.SSLError, "secure connection failed"),
    (TimeoutError, "timed out"),
    (ConnectionError, "connection broken"),
)


@dataclass(frozen=True)
class RemoteFile:
    """A file on the web: its name in the cache, mirrors tried in order, and how to verify it."""

    name: str
    urls: tuple[str, ...]
    checksum: str
    size: int | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"sha256:[0-9a-fA-F]{64}|md5:[0-9a-fA-F]{32}", self.checksum):
            raise InputError(
                f"the checksum of {self.name} must be 'sha256:' and 64 hex digits or 'md5:' and "
                f"32, but is {self.checksum!r}."
            )


def cache_folder() -> Path:
    """The folder of downloaded corpora: LONGTAIL_CACHE, or where the system keeps caches."""
    chosen = os.environ.get("LONGTAIL_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    import pooch  # type: ignore[import-untyped, unused-ignore]

    return Path(pooch.os_cache("longtail")).absolute()


def fetch(
    file: RemoteFile,
    corpus: str,
    progress: Progress | None = None,
    what: str = "",
    *,
    strict: bool = True,
) -> Path:
    """The path of the file in the cache, downloaded if it is not there yet.

    A file that is there is never overwritten: with another checksum it is refused, or, with
    `strict=False`, taken as it is (archives that were packed anew have another checksum).
    """
    target = cache_folder() / corpus / file.name
    if target.exists():
        return _verified(target, file, strict)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _part_of(target) as part:
            if target.exists():  # another process finished it before we got the lock
                return _verified(target, file, strict)
            downloader = _Downloader(part, file.size, progress)
            failures = []
            for url in file.urls:
                reason = _download(url, file, target, downloader)
                if reason is None:
                    return target
                failures.append(f"  {url}: {reason}")
            kept = part is not None and any(_resumable(part, url)[0] for url in file.urls)
            if part is not None and not kept:
                part.unlink(missing_ok=True)
                _sidecar(part).unlink(missing_ok=True)
    except OSError as error:
        raise DataError(
            f"cannot write {target}: {error.strerror or error}. Make room or mend the permissions "
            "there, or set LONGTAIL_CACHE to another folder."
        ) from error
    tried = "\n".join(failures or ["  no address is known for it"])
    arrived = "What has arrived is kept, and the next call continues it.\n" if kept else ""
    raise DataError(
        f"{what or file.name} could not be downloaded:\n{tried}\n{arrived}"
        "Download the file with a browser, or copy it from another machine, and place it as "
        f"{target}, or set LONGTAIL_CACHE to a folder that holds {Path(corpus) / file.name}"
    )


def _verified(path: Path, file: RemoteFile, strict: bool) -> Path:
    import pooch

    if not strict:
        return path
    algorithm, expected = file.checksum.split(":")
    try:
        found = pooch.file_hash(str(path), alg=algorithm)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}.") from error
    if found != expected.lower():
        raise DataError(
            f"{path} is not the expected file: its checksum is {algorithm}:{found}, expected "
            f"{algorithm}:{expected.lower()}. It was left as it is: delete or move it, and the "
            "next call downloads the right one."
        )
    return path


@contextmanager
def _part_of(target: Path) -> Iterator[Path | None]:
    """The path that keeps a broken download, or None while another process writes there.

    The lock is the operating system's, so it ends with its process and is never stale. Whoever
    does not get it downloads into a file of its own, from the start, rather than wait for a
    process that may be suspended.
    """
    from filelock import FileLock

    lock = FileLock(f"{target}.lock", timeout=0)
    with suppress(OSError, NotImplementedError):  # filelock's Timeout is an OSError too
        lock.acquire()
    try:
        yield target.with_name(f"{target.name}.part") if lock.is_locked else None
    finally:
        if lock.is_locked:
            # While it is still ours: filelock refuses a lock on a file that was unlinked.
            with suppress(OSError):
                os.unlink(lock.lock_file)
            lock.release()


def _download(url: str, file: RemoteFile, target: Path, downloader: _Downloader) -> str | None:
    """Put the file in place from this url; otherwise the reason why not, in a few words."""
    import pooch

    # It prints every download. A filter, since setLevel is not heard by a logger outside logging's
    # own tree, as pooch's is, once that has cached its level.
    logger = pooch.get_logger()
    logger.addFilter(_is_warning)
    try:
        # Twice only where the kept bytes were continued, for these may be what is wrong: after
        # a power failure a part can have its length but not its content.
        for _ in range(2):
            try:
                pooch.retrieve(url, file.checksum, target.name, target.parent, None, downloader)
                return None
            except _AttemptError as error:
                return error.reason
            except ValueError:  # pooch's word for a wrong checksum; it has removed the file
                if not downloader.complete:
                    raise
                if not downloader.resumed:
                    break
        return "checksum differs"
    finally:
        logger.removeFilter(_is_warning)


def _is_warning(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING


class _AttemptError(Exception):
    """One request failed; `again` says whether the same url deserves another."""

    def __init__(self, reason: str, again: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.again = again


class _Downloader:
    """What pooch calls to write a url into a file; continues the part of an earlier call."""

    def __init__(self, part: Path | None, size: int | None, progress: Progress | None) -> None:
        self.part = part
        self.size = size
        self.report = progress or (lambda done, total: None)
        self.resumed = self.complete = False

    def __call__(self, url: str, output_file: str, _pooch: object) -> None:
        self.resumed = self.complete = False
        part = self.part or Path(output_file)
        if not self.part:  # pooch's temporary file is the owner's only; anew, it has usual rights
            part.unlink()
        try:
            for retries_left in range(RETRIES, -1, -1):
                try:
                    self._receive(url, part)
                    break
                except _AttemptError as error:
                    if not (error.again and retries_left):
                        raise
                time.sleep(PAUSE)
            if self.part:
                os.replace(part, output_file)
            self.complete = True
        finally:
            if self.complete or not self.part:
                _sidecar(part).unlink(missing_ok=True)

    def _receive(self, url: str, part: Path) -> None:
        """One request for the bytes that are missing, appended to the part."""
        import requests  # type: ignore[import-untyped, unused-ignore]
        from urllib3.exceptions import HTTPError, ProtocolError

        start, validator = _resumable(part, url)
        # The bytes as they are stored: a server that packs them for the way, or calls a .gz file
        # packed, would change the checksum; hence also the raw stream below.
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers |= {"Range": f"bytes={start}-", "If-Range": validator}
        try:
            with requests.get(url, headers=headers, stream=True, timeout=TIMEOUTS) as response:
                if response.status_code == 200:  # all of it, whether or not a range was asked for
                    start = 0
                elif start and response.status_code in (206, 416):
                    if not _is_the_rest(response, start, validator):
                        # Without its note the part is not used: the next attempt is for all.
                        _sidecar(part).unlink(missing_ok=True)
                        raise _AttemptError("cannot be continued", again=True)
                else:
                    raise _AttemptError(f"HTTP {response.status_code}")
                self._write(url, response, part, start)
        except HTTPError as error:  # urllib3's, which the raw stream raises
            raise _AttemptError(_reason(error, "connection broken"), again=True) from error
        except requests.RequestException as error:
            broken = bool(error.args) and isinstance(error.args[0], ProtocolError)
            other = "connection broken" if broken else f"request failed ({type(error).__name__})"
            raise _AttemptError(_reason(error, other), again=broken) from error

    def _write(self, url: str, response: Any, part: Path, start: int) -> None:
        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdigit() else self.size
        if self.size is not None and total != self.size:
            raise _AttemptError(f"has {total} bytes, expected {self.size}")
        self.resumed |= start > 0
        with part.open("ab" if start else "wb") as out:
            if not start:
                # Only now, with the part empty: the note must never speak of other bytes.
                note = {"url": url, "validator": _validator(response)}
                _sidecar(part).write_text(json.dumps(note), "utf-8")
            done = start
            self.report(done, total)
            for piece in response.raw.stream(PIECE, decode_content=False):
                out.write(piece)
                done += len(piece)
                self.report(done, total)
        if total is not None and done < total:
            raise _AttemptError("connection broken", again=True)


def _sidecar(part: Path) -> Path:
    """The note beside a part that says which version of which url its bytes are from."""
    return part.with_name(f"{part.name}.json")


def _resumable(part: Path, url: str) -> tuple[int, str]:
    """How many bytes of the part this url can continue, and the version that they are from."""
    try:
        note = json.loads(_sidecar(part).read_text("utf-8"))
        if note["url"] == url and note["validator"]:
            return part.stat().st_size, str(note["validator"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no part, or a note that was cut off: from the start
    return 0, ""


def _validator(response: Any) -> str:
    """What names this version of the file; HTTP allows no weak ETag (W/) in If-Range."""
    etag = str(response.headers.get("ETag", ""))
    usable = etag and not etag.startswith("W/")
    return etag if usable else str(response.headers.get("Last-Modified", ""))


def _is_the_rest(response: Any, start: int, validator: str) -> bool:
    """Whether the body goes on where the part ends, in the same version of the file."""
    sent = response.headers.get("Content-Range", "")
    continues = response.status_code == 206 and sent.startswith(f"bytes {start}-")
    # Some servers know Range but not If-Range, and send the end of another version.
    return continues and _validator(response) in ("", validator)


def _reason(error: BaseException, other: str) -> str:
    """A short reason for people, from the exceptions that requests and urllib3 have wrapped."""
    cause: BaseException | None = error
    while cause is not None:
        for kind, words in _REASONS:
            if isinstance(cause, kind):
                return words
        if type(cause) is OSError and cause.strerror:  # such as: network is unreachable
            return cause.strerror.lower()
        cause = cause.__cause__ or cause.__context__
    return other
