"""Fetch the files of public corpora into a cache, with limits on size, time and redirects.

pooch checks what requests receives, and `runs.files` puts a file with the right checksum into place
once it is on the disk. A download that breaks leaves nothing behind.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from longtail.errors import DataError, InputError
from longtail.progress import OnProgress, Progress, ignore
from longtail.runs.files import whole_file

# Pieces of a body, each with the size of the file or None.
Pieces = Generator[tuple[bytes, int | None], None, None]

TIMEOUTS = (10, 30)  # seconds: to connect, and between two pieces of the body
SLOW_SECONDS = 60.0  # an answer must begin within these, and then bring in as many
SLOW_RATE = 1024  # times this number of bytes; TIMEOUTS alone allow one byte in 30 seconds
RETRIES = 2  # of a connection that broke; one that was never made is not tried again
PAUSE = 1.0  # seconds before a retry
PIECE = 1 << 16  # bytes, at most, of one read from a connection
REDIRECTS = 10
LARGEST = 16 << 30  # bytes of a file whose size is not known beforehand
TEXT_LIMIT = 4096  # bytes of a text such as a checksum

_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (ConnectionRefusedError, "connection refused"),
    (socket.gaierror, "host name not found"),
    (ssl.SSLCertVerificationError, "certificate not trusted"),
    (ssl.SSLError, "secure connection failed"),
    (TimeoutError, "timed out"),
    (ConnectionError, "connection broken"),
)


class RemoteFile(NamedTuple):
    """A file on the web."""

    name: str  # in the cache
    urls: tuple[str, ...]  # mirrors, tried in order
    checksum: str  # "sha256:" or "md5:" and hex digits
    size: int | None = None


def cache_folder() -> Path:
    """The folder of downloaded corpora: LONGTAIL_CACHE, or `longtail` where caches are kept."""
    chosen = os.environ.get("LONGTAIL_CACHE")
    if not chosen:
        import pooch

        return Path(pooch.os_cache("longtail")).absolute()
    try:
        return Path(chosen).expanduser().absolute()
    except RuntimeError as error:  # ~name of an unknown user
        raise InputError(f"LONGTAIL_CACHE={chosen} is no folder: {error}") from error


def fetch(file: RemoteFile, corpus: str, progress: OnProgress = ignore) -> Path:
    """The path of the file in the cache, downloaded if it is not there yet.

    A file that is there is used as it is, whatever its checksum: the same archive packed again has
    another one. The cache, a corpus in it and a file may be symbolic links.
    """
    target = cache_folder() / corpus / file.name
    failures = []
    try:
        if os.path.lexists(target):
            if target.is_file():
                return target
            raise DataError(
                f"cannot read {target}: it is a folder, a device or a link that leads nowhere."
            )
        for url in file.urls:
            try:
                _download(url, file, target, progress)
                return target
            except _AttemptError as error:
                failures.append(f"  {url}: {error}\n")
    except OSError as error:
        at = error.filename if error.filename not in (None, str(target)) else ""
        raise DataError(
            f"cannot write {target}: {error.strerror or error}{at and f' ({at})'}. Free some space "
            "or fix the permissions there, or set LONGTAIL_CACHE to another folder."
        ) from error
    raise DataError(
        f"{file.name} could not be downloaded:\n{''.join(failures)}"
        "Download the file with a browser, or copy it from another machine, and place it as "
        f"{target}, or set LONGTAIL_CACHE to a folder that holds {corpus}/{file.name}"
    )


def fetch_text(url: str, hint: str) -> str:
    """A short text from the web, such as a checksum; `hint`: what to do if that fails."""
    try:
        with closing(_receive(url, None, TEXT_LIMIT)) as pieces:
            content = b"".join(piece for piece, _ in pieces)
    except _AttemptError as error:
        raise DataError(f"cannot download {url}: {error}. {hint}") from error
    return content.decode("utf-8", "replace")


def _download(url: str, file: RemoteFile, target: Path, progress: OnProgress) -> None:
    """Put the body of a url into place; a connection that breaks is tried again."""
    import pooch

    complete = False

    def downloader(url: str, path: str, _: object) -> None:
        nonlocal complete
        for retries_left in range(RETRIES, -1, -1):
            try:
                with open(path, "wb") as out, closing(_receive(url, file.size, LARGEST)) as pieces:
                    for piece, total in pieces:
                        out.write(piece)
                        progress(Progress(f"downloading {file.name}", out.tell(), total, "bytes"))
                complete = True
                return
            except _AttemptError as error:
                if not (error.retry and retries_left):
                    raise
            time.sleep(PAUSE)

    # pooch prints every download, and its logger does not notice setLevel once it has been used.
    silence = logging.Filter("nothing has this name")
    pooch.get_logger().addFilter(silence)
    try:
        with whole_file(target) as path:
            pooch.retrieve(url, file.checksum, path.name, path.parent, downloader=downloader)
    except ValueError as error:  # how pooch reports a wrong checksum, but also any of `progress`
        raise (_AttemptError("checksum differs") if complete else error) from error
    finally:
        pooch.get_logger().removeFilter(silence)


class _AttemptError(Exception):
    """A request failed; `retry` says whether the same url deserves another."""

    def __init__(self, reason: str, retry: bool = False) -> None:
        super().__init__(reason)
        self.retry = retry


class _Watch:
    """Cuts the connections of a request that does not begin, or comes too slowly.

    The time limit of a socket starts over with every byte, and what reads a header or the size of a
    chunk returns only when it is complete.
    """

    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []
        self.reason = ""  # why they were cut
        self.seconds, self.required = SLOW_SECONDS, SLOW_RATE * SLOW_SECONDS

    def connected(self, opened: socket.socket) -> None:
        self.sockets.append(opened)
        if self.reason:
            raise _AttemptError(self.reason)

    @contextmanager
    def limit(self, seconds: float, reason: str) -> Iterator[None]:
        timer = threading.Timer(seconds, self._cut, [f"{reason} {SLOW_SECONDS:g} seconds"])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
        if self.reason:
            raise _AttemptError(self.reason)

    def _cut(self, reason: str) -> None:
        self.reason = reason
        for opened in self.sockets:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)

    def read(self, body: Any) -> bytes:
        """The next piece of a body; only the time of waiting for it counts."""
        began = time.monotonic()
        with self.limit(self.seconds, f"slower than {SLOW_RATE} bytes a second over"):
            piece: bytes = body.read1(PIECE, decode_content=False)
        self.seconds -= time.monotonic() - began
        self.required -= len(piece)
        if self.required <= 0:
            self.seconds, self.required = SLOW_SECONDS, SLOW_RATE * SLOW_SECONDS
        return piece


def _receive(url: str, size: int | None, largest: int) -> Pieces:
    """The body of a url as it arrives, after an empty piece."""
    watch, done = _Watch(), 0
    # As stored: a server that compresses, or calls a .gz file compressed, changes the checksum.
    headers = {"Accept-Encoding": "identity"}
    try:
        with _session(watch) as session:
            with watch.limit(SLOW_SECONDS, "no answer within"):
                response = session.get(url, headers=headers, stream=True, timeout=TIMEOUTS)
            with response:
                total = _size_of(response, size, largest)
                yield b"", total
                while piece := watch.read(response.raw):
                    done += len(piece)
                    limit = largest if total is None else total
                    if done > limit:
                        raise _AttemptError(f"sends more than the {limit} bytes that were expected")
                    yield piece, total
        if total is not None and done < total:
            raise _AttemptError("connection broken", retry=True)
    except Exception as error:  # also ValueErrors of odd addresses and headers
        raise (_AttemptError(watch.reason) if watch.reason else _failure(error)) from None


def _size_of(response: Any, size: int | None, largest: int) -> int | None:
    """The size of a body that may be read, None where it is not known."""
    if response.status_code != 200:
        raise _AttemptError(f"HTTP {response.status_code}")
    length = response.headers.get("Content-Length", "")
    total = int(length) if re.fullmatch(r"[0-9]{1,18}", length) else size
    if size not in (None, total):
        raise _AttemptError(f"has {total} bytes, expected {size}")
    if total is not None and total > largest:
        raise _AttemptError(f"has {total} bytes, more than the limit of {largest}")
    return total


def _session(watch: _Watch) -> Any:
    """A session of requests with few redirects, never from https to http."""
    import requests
    from requests.adapters import HTTPAdapter  # type: ignore[import-untyped, unused-ignore]

    class Adapter(HTTPAdapter):  # type: ignore[misc, unused-ignore]
        secure = False

        def send(self, request: Any, **settings: Any) -> Any:
            # Called for every hop, with the address that is really requested.
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

            class Connection(pool.ConnectionCls):  # type: ignore[misc, name-defined, unused-ignore]
                def connect(self) -> None:
                    super().connect()
                    watch.connected(self.sock)

            pool.ConnectionCls = Connection
            return pool

    session = requests.Session()
    session.max_redirects = REDIRECTS
    adapter = Adapter()
    for scheme in ("https://", "http://"):
        session.mount(scheme, adapter)
    return session


def _failure(error: Exception) -> _AttemptError:
    """A short reason for people, from the exceptions that requests and urllib3 have wrapped."""
    import requests  # type: ignore[import-untyped, unused-ignore]
    from urllib3.exceptions import ProtocolError

    if isinstance(error, _AttemptError):
        return error
    if isinstance(error, requests.TooManyRedirects):
        return _AttemptError(f"more than {REDIRECTS} redirects")
    causes: list[BaseException] = [error]
    while cause := causes[-1].__cause__ or causes[-1].__context__:
        causes.append(cause)
    broken = any(isinstance(cause, ProtocolError) for cause in causes)
    for cause in causes:
        for kind, reason in _REASONS:
            if isinstance(cause, kind):
                return _AttemptError(reason, retry=broken)
        if type(cause) is OSError and cause.strerror:  # such as: network is unreachable
            return _AttemptError(cause.strerror.lower(), retry=broken)
    reason = "connection broken" if broken else f"request failed ({type(error).__name__})"
    return _AttemptError(reason, retry=broken)
