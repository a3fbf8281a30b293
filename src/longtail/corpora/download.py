"""Fetch the files of public corpora into a cache: mirrors, checksums, resumed downloads.

pooch verifies the checksum and renames the finished file into place; the downloader given to it
here adds what it lacks: continuing a broken download, time limits and progress.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import socket
import ssl
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from longtail.errors import DataError, InputError
from longtail.runs.files import sync_folder

# Called with the bytes that are there, fewer again after a restart, and those of the whole file,
# where they are known.
Progress = Callable[[int, int | None], None]

TIMEOUTS = (10, 30)  # seconds: to connect, and between two pieces of the body
SLOW_SECONDS = 60.0  # an answer must begin within these, and then bring in as many
SLOW_RATE = 1024  # times this number of bytes; TIMEOUTS alone let one byte a second go on for years
RETRIES = 2  # of a connection that broke; one that was never made is not tried again
PAUSE = 1.0  # seconds before a retry
PIECE = 1 << 16  # bytes, at most, that are asked of a connection at a time
REDIRECTS = 10
LARGEST = 16 << 30  # bytes of a file whose size is not known beforehand
TEXT_LIMIT = 4096  # bytes of a text such as a checksum

# Room for the endings .part.json and .lock in the 255 bytes of a file system; no separators, no
# drive letters, no name that begins with a dot or a hyphen.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,199}")
_DEVICE = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")  # on Windows, in any folder
# What may be sent back in If-Range; a server can send anything.
_VALIDATOR = re.compile(r"[\x21-\x7e][\x20-\x7e]{0,198}")

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
        check_name(self.name, "the name of a file")
        if not re.fullmatch(r"sha256:[0-9a-fA-F]{64}|md5:[0-9a-fA-F]{32}", self.checksum):
            raise InputError(
                f"the checksum of {self.name} must be 'sha256:' and 64 hex digits or 'md5:' and "
                f"32, but is {self.checksum!r}."
            )


def check_name(name: str, what: str) -> str:
    """The name of a file or folder, if it stays in the folder that it is put into."""
    if not (isinstance(name, str) and _NAME.fullmatch(name)) or _DEVICE.fullmatch(name):
        raise InputError(
            f"{what} in the cache must be at most 200 letters, digits and . _ + -, must not begin "
            f"with one of the last three, and must not be the name of a device, got {name!r:.300}."
        )
    return name


def cache_folder() -> Path:
    """The folder of downloaded corpora: LONGTAIL_CACHE, or where the system keeps caches."""
    chosen = os.environ.get("LONGTAIL_CACHE")
    if chosen:
        try:
            return Path(chosen).expanduser().absolute()
        except RuntimeError as error:  # ~name of nobody
            raise InputError(f"LONGTAIL_CACHE={chosen} is no folder: {error}") from error
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
    `strict=False`, taken as it is (archives that were packed anew have another checksum). The
    cache, a corpus in it and a file may be symbolic links, as somebody with a second disk makes
    them. What a download writes to is never reached through a link.
    """
    target = cache_folder() / check_name(corpus, "the name of a corpus") / file.name
    if os.path.lexists(target):
        return _verified(target, file, strict)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _part_of(target) as part:
            if os.path.lexists(target):  # another process finished it before we got the lock
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
                _remove(part)
    except OSError as error:
        at = error.filename if error.filename not in (None, str(target)) else ""
        raise DataError(
            f"cannot write {target}: {error.strerror or error}{at and f' ({at})'}. Make room or "
            "mend the permissions there, or set LONGTAIL_CACHE to another folder."
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

    algorithm, expected = file.checksum.split(":")
    try:
        if not path.is_file():  # to open a FIFO would be to wait for whoever writes to it
            raise OSError(errno.EINVAL, "it is a folder, a device or a link that leads nowhere")
        if not strict:
            return path
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

    part = target.with_name(f"{target.name}.part")
    for path in (f"{target}.lock", part, _sidecar(part)):
        _require_ordinary(path)
    lock = FileLock(f"{target}.lock", timeout=0)
    with suppress(OSError, NotImplementedError):  # filelock's Timeout is an OSError too
        lock.acquire()
    try:
        yield part if lock.is_locked else None
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
                sync_folder(target.parent)
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
        start, validator = _resumable(part, url)
        headers = {"Range": f"bytes={start}-", "If-Range": validator} if start else {}
        with _answer(url, headers) as (response, pieces):
            if response.status_code == 200:  # all of it, whether or not a range was asked for
                start = 0
            elif start and response.status_code in (206, 416):
                if not _is_the_rest(response, start, validator):
                    # Without its note the part is not used: the next attempt is for all.
                    _sidecar(part).unlink(missing_ok=True)
                    raise _AttemptError("cannot be continued", again=True)
            else:
                raise _AttemptError(f"HTTP {response.status_code}")
            total = self._total(response, start)
            self.resumed |= start > 0
            with open(part, "ab" if start else "wb", opener=_open_ordinary) as out:
                if not start:
                    # Only now, with the part empty: the note must never speak of other bytes.
                    note = {"url": url, "validator": _validator(response)}
                    with open(_sidecar(part), "w", encoding="utf-8", opener=_open_ordinary) as text:
                        json.dump(note, text)
                try:
                    done = self._write(pieces, out, start, total)
                except _TooLongError:
                    _remove(part)
                    raise
                if total is not None and done < total:
                    raise _AttemptError("connection broken", again=True)
                out.flush()
                os.fsync(out.fileno())

    def _total(self, response: Any, start: int) -> int | None:
        """The bytes of the whole file, if the server or we know them."""
        length = response.headers.get("Content-Length", "")
        told = start + int(length) if re.fullmatch(r"[0-9]{1,18}", length) else None
        if self.size is None and told is not None and told > LARGEST:
            raise _AttemptError(f"has {told} bytes, more than the {LARGEST} that are taken")
        if None not in (self.size, told) and told != self.size:
            raise _AttemptError(f"has {told} bytes, expected {self.size}")
        return self.size if told is None else told

    def _write(self, pieces: Iterator[bytes], out: Any, done: int, total: int | None) -> int:
        """Write what comes, and stop where more comes than was announced."""
        most = LARGEST if total is None else total
        self.report(done, total)
        for piece in pieces:
            if done + len(piece) > most:
                raise _TooLongError(f"sends more than the {most} bytes that were expected")
            out.write(piece)
            done += len(piece)
            self.report(done, total)
        return done


def _sidecar(part: Path) -> Path:
    """The note beside a part that says which version of which url its bytes are from."""
    return part.with_name(f"{part.name}.json")


def _remove(part: Path) -> None:
    part.unlink(missing_ok=True)
    _sidecar(part).unlink(missing_ok=True)


def _resumable(part: Path, url: str) -> tuple[int, str]:
    """How many bytes of the part this url can continue, and the version that they are from."""
    try:
        with open(_sidecar(part), encoding="utf-8", opener=_open_ordinary) as text:
            note = json.loads(text.read(PIECE))
        known = _VALIDATOR.fullmatch(note["validator"])
        if note["url"] == url and known and stat.S_ISREG(os.lstat(part).st_mode):
            return os.lstat(part).st_size, known[0]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass  # no part, or a note that was cut off or is not ours: from the start
    return 0, ""


def _validator(response: Any) -> str:
    """What names this version of the file; HTTP allows no weak ETag (W/) in If-Range."""
    etag = str(response.headers.get("ETag", ""))
    usable = _VALIDATOR.fullmatch(etag) and not etag.startswith("W/")
    return etag if usable else str(response.headers.get("Last-Modified", ""))


def _is_the_rest(response: Any, start: int, validator: str) -> bool:
    """Whether the body goes on where the part ends, in the same version of the file."""
    sent = response.headers.get("Content-Range", "")
    continues = response.status_code == 206 and sent.startswith(f"bytes {start}-")
    # Some servers know Range but not If-Range, and send the end of another version.
    return continues and _validator(response) in ("", validator)


def _require_ordinary(path: str | Path) -> None:
    """Refuse what is there and no ordinary file: a link leads elsewhere, a FIFO blocks."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise OSError(errno.EINVAL, "it is not an ordinary file", str(path))


def _open_ordinary(path: str, flags: int) -> int:
    _require_ordinary(path)
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    return os.open(path, flags, 0o666)


class _AttemptError(Exception):
    """One request failed; `again` says whether the same url deserves another."""

    def __init__(self, reason: str, again: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.again = again


class _TooLongError(_AttemptError):
    """More bytes came than were announced: none of them are kept."""


def fetch_text(url: str) -> str:
    """A short text from the web, such as a checksum."""
    content = b""
    try:
        with _answer(url, {}) as (response, pieces):
            if response.status_code != 200:
                raise _AttemptError(f"HTTP {response.status_code}")
            for piece in pieces:
                content += piece
                if len(content) > TEXT_LIMIT:
                    raise _AttemptError(f"sends more than {TEXT_LIMIT} bytes")
    except _AttemptError as error:
        raise DataError(f"cannot download {url}: {error.reason}.") from error
    return content.decode("utf-8", "replace")


@contextmanager
def _answer(url: str, headers: dict[str, str]) -> Iterator[tuple[Any, Iterator[bytes]]]:
    """The response to a request and the pieces of its body; any failure is an _AttemptError."""
    # The bytes as they are stored: a server that packs them for the way, or calls a .gz file
    # packed, would change the checksum; hence also the raw stream in _pieces.
    headers = {"Accept-Encoding": "identity"} | headers
    with _Watch() as watch, _session(watch) as session:
        try:
            response = session.get(url, headers=headers, stream=True, timeout=TIMEOUTS)
        except _AttemptError:
            raise
        except Exception as error:  # also ValueErrors of odd addresses and headers
            if watch.too_slow:
                raise _AttemptError(f"no answer within {SLOW_SECONDS:g} seconds") from error
            raise _request_failure(error) from error
        with response:
            watch.begin()
            yield response, _pieces(response, watch)


def _pieces(response: Any, watch: _Watch) -> Iterator[bytes]:
    """The body as it arrives: nothing is lost when it breaks, and nothing waits for more."""
    slow = f"slower than {SLOW_RATE} bytes a second over {SLOW_SECONDS:g} seconds"
    read = response.raw.read1
    while True:
        try:
            piece = read(PIECE, decode_content=False)
        except Exception as error:
            reason = slow if watch.too_slow else _reason(error, "connection broken")
            raise _AttemptError(reason, again=True) from error
        if watch.too_slow:  # which looks like the end of a body of unknown length
            raise _AttemptError(slow, again=True)
        if not piece:
            return
        watch.received += len(piece)
        yield piece


def _session(watch: _Watch) -> Any:
    """A session of requests with few redirects, never from https to http, that is watched."""
    import requests
    from requests.adapters import HTTPAdapter  # type: ignore[import-untyped, unused-ignore]

    class Adapter(HTTPAdapter):  # type: ignore[misc, unused-ignore]
        secure = False

        def send(self, request: Any, **settings: Any) -> Any:
            # Every hop comes by here, as the address that is really asked for.
            secure = request.url.lower().startswith("https:")
            if self.secure and not secure:
                raise _AttemptError("redirected from https to http, which is refused")
            self.secure = secure
            response = super().send(request, **settings)
            if response.is_redirect:
                response.raw.close()  # requests would read its body into memory, however long
            return response

        def get_connection_with_tls_context(self, *values: Any, **settings: Any) -> Any:
            pool = super().get_connection_with_tls_context(*values, **settings)
            if "ConnectionCls" not in vars(pool):
                pool.ConnectionCls = watch.connections_of(pool.ConnectionCls)
            return pool

    session = requests.Session()
    session.max_redirects = REDIRECTS
    adapter = Adapter()
    for scheme in ("https://", "http://"):
        session.mount(scheme, adapter)
    return session


class _Watch:
    """Cuts the connections of a request that does not begin, or that brings in too little.

    From outside, since what reads a header, or the line before a chunk, comes back when it is
    whole, and the time limit of a socket starts anew with every byte.
    """

    def __init__(self) -> None:
        self.received = 0
        self.too_slow = False
        self._sockets: list[socket.socket] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        for twin in self._sockets:
            twin.close()

    def begin(self) -> None:
        """The header is there: the body has a whole turn of its own, after this one."""
        self.received += int(SLOW_RATE * SLOW_SECONDS) + 1

    def connections_of(self, kind: Any) -> Any:
        """That kind of urllib3's connections, known to the watch."""
        watch = self

        class Watched(kind):  # type: ignore[misc, unused-ignore]
            def _new_conn(self) -> socket.socket:
                opened: socket.socket = super()._new_conn()
                watch._sockets.append(opened.dup())  # its own is taken over by TLS
                if watch.too_slow:
                    watch._cut()
                return opened

        return Watched

    def _watch(self) -> None:
        while not self._ended.wait(SLOW_SECONDS):
            if self.received < SLOW_RATE * SLOW_SECONDS:
                self.too_slow = True
                self._cut()
                return
            self.received = 0

    def _cut(self) -> None:
        for twin in list(self._sockets):
            with suppress(OSError):
                twin.shutdown(socket.SHUT_RDWR)


def _request_failure(error: Exception) -> _AttemptError:
    import requests  # type: ignore[import-untyped, unused-ignore]
    from urllib3.exceptions import ProtocolError

    if isinstance(error, requests.TooManyRedirects):
        return _AttemptError(f"more than {REDIRECTS} redirects")
    broken = bool(error.args) and isinstance(error.args[0], ProtocolError)
    other = "connection broken" if broken else f"request failed ({type(error).__name__})"
    return _AttemptError(_reason(error, other), again=broken)


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
