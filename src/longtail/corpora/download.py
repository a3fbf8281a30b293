"""Fetch the files of public corpora into a cache: pooch, with limits on size, time and redirects.

pooch verifies the checksum and `runs.files` puts the file into place once it is on the disk. The
downloader that pooch calls is here. A download that breaks leaves nothing behind.
"""

from __future__ import annotations

import errno
import logging
import os
import queue
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longtail.errors import DataError, InputError
from longtail.progress import OnProgress, Progress, ignore
from longtail.runs.files import whole_file

# Called with the bytes received, fewer again after a retry, and the size of the file or None.
# Pieces of a body, each with the size of the file or None.
Pieces = Generator[tuple[bytes, int | None], None, None]
Connected = Callable[[socket.socket], None]

TIMEOUTS = (10, 30)  # seconds: to connect, and between two pieces of the body
SLOW_SECONDS = 60.0  # an answer must begin within these, and then bring in as many
SLOW_RATE = 1024  # times this number of bytes; TIMEOUTS alone allow one byte in 30 seconds
RETRIES = 2  # of a connection that broke; one that was never made is not tried again
PAUSE = 1.0  # seconds before a retry
PIECE = 1 << 16  # bytes, at most, of one read from a connection
REDIRECTS = 10
LARGEST = 16 << 30  # bytes of a file whose size is not known beforehand
TEXT_LIMIT = 4096  # bytes of a text such as a checksum

# No separators, no drive letters, no name that begins with a dot or a hyphen.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,199}")
_DEVICE = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")  # on Windows, in any folder

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
        except RuntimeError as error:  # ~name of an unknown user
            raise InputError(f"LONGTAIL_CACHE={chosen} is no folder: {error}") from error
    import pooch  # type: ignore[import-untyped, unused-ignore]

    return Path(pooch.os_cache("longtail")).absolute()


def fetch(
    file: RemoteFile,
    corpus: str,
    progress: OnProgress = ignore,
    title: str = "",
    *,
    strict: bool = True,
) -> Path:
    """The path of the file in the cache, downloaded if it is not there yet.

    A file that is there is never overwritten: with another checksum it is refused, or, with
    `strict=False`, used as it is (the same archive packed again has another checksum). The cache,
    a corpus in it and a file may be symbolic links.
    """
    target = cache_folder() / check_name(corpus, "the name of a corpus") / file.name
    failures = []
    try:
        if os.path.lexists(target):
            return _verified(target, file, strict)
        for url in file.urls:
            reason = _download(url, file, target, progress)
            if reason is None:
                return target
            failures.append(f"  {url}: {reason}")
    except OSError as error:
        at = error.filename if error.filename not in (None, str(target)) else ""
        raise DataError(
            f"cannot write {target}: {error.strerror or error}{at and f' ({at})'}. Free some space "
            "or fix the permissions there, or set LONGTAIL_CACHE to another folder."
        ) from error
    tried = "\n".join(failures or ["  no address is known for it"])
    raise DataError(
        f"{title or file.name} could not be downloaded:\n{tried}\n"
        "Download the file with a browser, or copy it from another machine, and place it as "
        f"{target}, or set LONGTAIL_CACHE to a folder that holds {Path(corpus) / file.name}"
    )


def fetch_text(url: str) -> str:
    """A short text from the web, such as a checksum."""
    try:
        with closing(_receive(url, None, TEXT_LIMIT)) as pieces:
            content = b"".join(piece for piece, _ in pieces)
    except _AttemptError as error:
        raise DataError(f"cannot download {url}: {error.reason}.") from error
    return content.decode("utf-8", "replace")


def _verified(path: Path, file: RemoteFile, strict: bool) -> Path:
    import pooch

    algorithm, expected = file.checksum.lower().split(":")
    try:
        if not path.is_file():  # opening a FIFO would block until somebody writes to it
            raise OSError(errno.EINVAL, "it is a folder, a device or a link that leads nowhere")
        if not strict:
            return path
        actual = pooch.file_hash(str(path), alg=algorithm)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}.") from error
    if actual != expected:
        raise DataError(
            f"{path} is not the expected file: its checksum is {algorithm}:{actual}, expected "
            f"{algorithm}:{expected}. It was left as it is: delete or move it, and the next call "
            "downloads the right one."
        )
    return path


def _download(url: str, file: RemoteFile, target: Path, progress: OnProgress) -> str | None:
    """Put the file into place from this url; otherwise the reason why not, in a few words."""
    import pooch

    complete = False

    def report(done: int, total: int | None) -> None:
        progress(Progress(f"downloading {file.name}", done, total, "bytes"))

    def downloader(url: str, output_file: str, _pooch: object) -> None:
        nonlocal complete
        _save(url, output_file, file.size, report)
        complete = True

    # pooch prints every download, and its logger does not notice setLevel once it has been used.
    silence = logging.Filter("nothing has this name")
    pooch.get_logger().addFilter(silence)
    try:
        with whole_file(target) as path:
            pooch.retrieve(url, file.checksum, path.name, path.parent, None, downloader)
        return None
    except _AttemptError as error:
        return error.reason
    except ValueError:  # how pooch reports a wrong checksum, but also any mistake in `progress`
        if not complete:
            raise
        return "checksum differs"
    finally:
        pooch.get_logger().removeFilter(silence)


def _save(url: str, path: str, size: int | None, report: Callable[..., None]) -> None:
    """Write the body of a url to a file; a connection that breaks is tried again."""
    for retries_left in range(RETRIES, -1, -1):
        try:
            with open(path, "wb") as out, closing(_receive(url, size, LARGEST)) as pieces:
                for piece, total in pieces:
                    out.write(piece)
                    report(out.tell(), total)
            return
        except _AttemptError as error:
            if not (error.retry and retries_left):
                raise
        time.sleep(PAUSE)


class _AttemptError(Exception):
    """A request failed; `retry` says whether the same url deserves another."""

    def __init__(self, reason: str, retry: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry = retry


def _receive(url: str, size: int | None, largest: int) -> Pieces:
    """The body of a url as a thread receives it; raise if it does not begin, or comes too slowly.

    The thread's connections are cut then: the time limit of a socket starts over with every byte,
    and what reads a header or the size of a chunk returns only when it is complete.
    """
    arrived: queue.Queue[tuple[bytes, int | None] | _AttemptError | None] = queue.Queue(maxsize=16)
    sockets: list[socket.socket] = []
    stopped = threading.Event()

    def connected(opened: socket.socket) -> None:
        sockets.append(opened)
        if stopped.is_set():
            raise _AttemptError("stopped")

    def receive() -> None:
        try:
            with closing(_request(url, size, largest, connected)) as pieces:
                for piece in pieces:
                    arrived.put(piece)
                    if stopped.is_set():
                        return
            arrived.put(None)
        except Exception as error:  # also ValueErrors of odd addresses and headers
            arrived.put(_failure(error))

    threading.Thread(target=receive, daemon=True).start()
    reason = f"no answer within {SLOW_SECONDS:g} seconds"
    required, deadline = 0.0, time.monotonic() + SLOW_SECONDS
    try:
        while item := arrived.get(timeout=max(0.0, deadline - time.monotonic())):
            if isinstance(item, _AttemptError):
                raise item
            yield item
            required -= len(item[0])
            if required <= 0:
                reason = f"slower than {SLOW_RATE} bytes a second over {SLOW_SECONDS:g} seconds"
                required, deadline = SLOW_RATE * SLOW_SECONDS, time.monotonic() + SLOW_SECONDS
    except queue.Empty:
        raise _AttemptError(reason) from None
    finally:
        stopped.set()
        for opened in sockets:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        while not arrived.empty():  # the thread may wait for space in the queue
            arrived.get()


def _request(url: str, size: int | None, largest: int, connected: Connected) -> Pieces:
    """The body of a url as it arrives, after an empty piece."""
    done = 0
    # As stored: a server that compresses, or calls a .gz file compressed, changes the checksum.
    headers = {"Accept-Encoding": "identity"}
    with (
        _session(connected) as session,
        session.get(url, headers=headers, stream=True, timeout=TIMEOUTS) as response,
    ):
        if response.status_code != 200:
            raise _AttemptError(f"HTTP {response.status_code}")
        length = response.headers.get("Content-Length", "")
        total = int(length) if re.fullmatch(r"[0-9]{1,18}", length) else size
        limit = largest if total is None else total
        if size not in (None, total):
            raise _AttemptError(f"has {total} bytes, expected {size}")
        if limit > largest:
            raise _AttemptError(f"has {total} bytes, more than the limit of {largest}")
        yield b"", total
        while piece := response.raw.read1(PIECE, decode_content=False):
            done += len(piece)
            if done > limit:
                raise _AttemptError(f"sends more than the {limit} bytes that were expected")
            yield piece, total
    if total is not None and done < total:
        raise _AttemptError("connection broken", retry=True)


def _session(connected: Connected) -> Any:
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
                    connected(self.sock)

            pool.ConnectionCls = Connection
            return pool

    session = requests.Session()
    session.max_redirects = REDIRECTS
    adapter = Adapter()
    for scheme in ("https://", "http://"):
        session.mount(scheme, adapter)
    return session


def _failure(error: Exception) -> _AttemptError:
    """A short reason for people, from the exceptions that requests and urllib3 have wrapped.

    A new exception without a traceback, which would keep sockets open.
    """
    import requests  # type: ignore[import-untyped, unused-ignore]
    from urllib3.exceptions import ProtocolError

    if isinstance(error, _AttemptError):
        return _AttemptError(error.reason, error.retry)
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
