"""Downloads from servers that lie, drip, redirect and break off: the file, or one of our errors.

A server on the loopback answers with bytes of its own choice, which no library would send. After
an error the same address answers rightly, and what was kept must be continued to the right file.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import socket
import ssl
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longtail.corpora import download, pubmed
from longtail.corpora.download import RemoteFile, fetch
from longtail.errors import LIMIT, LongtailError

from .outcome import GOOD, OUR_ERROR, RIGHT, Outcome

MINIMUM = 500
PATIENCE = 20.0  # seconds for one case: its limits add up to 3, on a machine with others on it
# So that a case takes a fraction of a second; the rate is that of a server that drips.
LIMITS = {"TIMEOUTS": (1.0, 0.3), "SLOW_SECONDS": 0.4, "PAUSE": 0.0, "LARGEST": 1 << 20}
FLOOD = 32 << 20  # bytes of an endless body; more than the buffers of a socket can take
UNREAD = 16 << 20  # bytes that these buffers may have taken before the connection was closed


@dataclass
class Wire:
    """One connection: what was asked on it, and what the server sends."""

    socket: socket.socket
    path: str
    headers: dict[str, str]
    server: Server

    def send(self, data: bytes | str) -> None:
        self.socket.sendall(data.encode("latin-1") if isinstance(data, str) else data)

    def drip(self, data: bytes) -> None:
        """A byte every 50 ms: each in time, all of them never."""
        for at in range(len(data)):
            self.send(data[at : at + 1])
            time.sleep(0.05)

    def flood(self, data: bytes, counted: bool = True) -> None:
        """Not counted is what http.client throws away unseen: the watch ends it, after its time."""
        for _ in range(FLOOD // len(data)):
            self.send(data)
            self.server.flooded += len(data) * counted


Reply = Callable[[Wire], None]


@dataclass
class Server:
    """Answers each path with its replies in turn, the last one again and again."""

    context: ssl.SSLContext | None = None
    replies: dict[str, list[Reply]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    flooded: int = 0

    def __post_init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.socket.close()

    def serve(self, path: str, *replies: Reply) -> str:
        self.replies[path] = list(replies)
        return f"{'https' if self.context else 'http'}://127.0.0.1:{self.port}{path}"

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                opened, _ = self.socket.accept()
                threading.Thread(target=self._answer, args=(opened,), daemon=True).start()

    def _answer(self, opened: socket.socket) -> None:
        with suppress(OSError), opened:
            opened.settimeout(10)
            if self.context:
                opened = self.context.wrap_socket(opened, server_side=True)
            with opened:
                head = b""
                while b"\r\n\r\n" not in head and len(head) < 1 << 16:
                    head += opened.recv(1 << 14) or b"\r\n\r\n"
                    if head.startswith(b"\x16"):  # somebody begins to speak TLS
                        head = b"GET /hello HTTP/1.1\r\n\r\n"
                lines = head.decode("latin-1").split("\r\n")
                path = [*lines[0].split(" "), ""][1]
                headers = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
                self.asked.append((path, headers))
                replies = self.replies.get(path.partition("?")[0], [status(404)])
                reply = replies.pop(0) if len(replies) > 1 else replies[0]
                reply(Wire(opened, path, headers, self))


def status(number: int, extra: str = "", body: bytes = b"an error page") -> Reply:
    head = f"HTTP/1.1 {number} Words\r\n{extra}Content-Length: {len(body)}\r\n\r\n"
    return lambda wire: wire.send(head.encode("latin-1") + body)


def raw(*pieces: bytes | str) -> Reply:
    def reply(wire: Wire) -> None:
        for piece in pieces:
            wire.send(piece)

    return reply


def good(content: bytes) -> Reply:
    """What a server should do, ranges included."""

    def reply(wire: Wire) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-", wire.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        if start >= len(content) or wire.headers.get("If-Range") != '"v1"':
            start = 0
        last = len(content) - 1
        part = f"206 P\r\nContent-Range: bytes {start}-{last}/{len(content)}" if start else "200 OK"
        wire.send(
            f'HTTP/1.1 {part}\r\nETag: "v1"\r\nContent-Length: {len(content) - start}\r\n\r\n'
        )
        wire.send(content[start:])

    return reply


def headed(content: bytes, *headers: str, line: str = "HTTP/1.1 200 OK") -> Reply:
    return raw("\r\n".join([line, 'ETag: "v1"', *headers, "", ""]), content)


def chunked(content: bytes, size: int = 5000) -> bytes:
    cut = [content[at : at + size] for at in range(0, len(content), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in cut)


def lengths(rng: random.Random, content: bytes) -> Reply:
    n = len(content)
    told = [n - 1, n + 1, n * 2 + 7, -1, -n, 10**12, 10**18, 10**30, "9" * 5000, "\xb2", "0x1", ""]
    told += [f"{n}, {n}", f"{n}, {n + 1}", f"{n}\r\nContent-Length: {n + 3}", "\x00", f" +{n}"]
    return headed(content, f"Content-Length: {rng.choice(told)}")


def surplus(rng: random.Random, content: bytes) -> Reply:
    told = rng.choice([f"Content-Length: {len(content)}", "X: y", "Transfer-Encoding: chunked"])
    more = b"x" * rng.choice([1, 100, 200_000])
    body = content + more
    return headed(chunked(body) + b"0\r\n\r\n" if "chunked" in told else body, told)


def endless(rng: random.Random, content: bytes) -> Reply:
    kind = rng.choice(["plain", "chunked", "lying", "redirect", "trailers", "continue", "line"])
    extra = {
        "plain": "X: y",
        "lying": "Transfer-Encoding: chunked\r\nContent-Length: 10",
        "redirect": "Location: /elsewhere",
    }.get(kind, "Transfer-Encoding: chunked")

    def reply(wire: Wire) -> None:
        if kind == "continue":
            wire.flood(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, counted=False)
        wire.send(f"HTTP/1.1 {302 if kind == 'redirect' else 200} OK\r\n{extra}\r\n\r\n")
        if kind == "trailers":
            wire.send(chunked(content) + b"0\r\n")
            wire.flood(b"A: b\r\n" * 1000, counted=False)
        piece = b"y" * (1 << 16)
        wire.flood(chunked(piece, len(piece)) if kind in ("chunked", "lying") else piece)

    return reply


def breaks(rng: random.Random, content: bytes) -> Reply:
    at = rng.randrange(len(content) + 1)
    told = rng.choice([f"Content-Length: {len(content)}", "X: y", "Transfer-Encoding: chunked"])
    cut = chunked(content)[:at] if "chunked" in told else content[:at]
    head = f'HTTP/1.1 200 OK\r\nETag: "v1"\r\n{told}\r\n\r\n'
    return raw(rng.choice(["", head[: rng.randrange(len(head))], head + cut.decode("latin-1")]))


def drips(rng: random.Random, content: bytes) -> Reply:
    kind = rng.choice(["head", "body", "size", "late"])

    def reply(wire: Wire) -> None:
        if kind == "head":
            wire.drip(b"HTTP/1.1 200 OK\r\nX: " + b"z" * 200)
        told = f"Content-Length: {len(content)}" if kind == "body" else "Transfer-Encoding: chunked"
        wire.send(f'HTTP/1.1 200 OK\r\nETag: "v1"\r\n{told}\r\n\r\n')
        if kind == "size":
            wire.drip(b"0" * 200)
        if kind == "late":
            wire.send(chunked(content))
            wire.drip(b"0" * 200)
        wire.drip(content[:200])

    return reply


def redirects(rng: random.Random, content: bytes) -> Reply:
    to = ["/good", "/good", "/loop", "/elsewhere", "file:///etc/hostname", "ftp://127.0.0.1/x", ""]
    to += ["http://[::1", "http://", "https://", "//", "http://127.0.0.1:99999/", "http://a\x00b/"]
    to += ["\x1b[2J", "\xff\xfe", "http://\xe4\xf6/", "?" + "q" * 60_000, "http://x.invalid:port/"]
    to += ["http://127.0.0.1:1/", "https://127.0.0.1:1/", "../../good", "http:good", "javascript:1"]
    to += ["http://u:p@127.0.0.1:1/\x1b", "http://%00/", "http://" + "a" * 300 + "/", "\\\\x\\y"]
    number = rng.choice([301, 302, 303, 307, 308, 300, 304])
    return status(number, f"Location: {rng.choice(to)}\r\n")


def ranges(rng: random.Random, content: bytes) -> Reply:
    start, n = rng.randrange(len(content)), len(content)
    said = [f"bytes {start}-{n - 1}/{n}", "bytes */5", "bytes 0-0/1", "garbage", f"bytes {n}-{n}/*"]
    kind = rng.choice(["Content-Range: " + rng.choice(said), "X: y"])
    number = rng.choice([206, 206, 416, 200])
    return headed(content[start:], kind, line=f"HTTP/1.1 {number} P")


def odd_headers(rng: random.Random, content: bytes) -> Reply:
    n = f"Content-Length: {len(content)}"
    odd = [
        'ETag: "a\x1b[31m"',
        "ETag: \x00",
        'ETag: "\xff"',
        "ETag: a\r\n b",
        "no colon",
        " folded",
    ]
    odd += ["Last-Modified: \x7f\x80", "\x00: x", ": x", "Set-Cookie: \x00=;;", "X: \x85y"]
    odd += ["ETag: " + "e" * 60_000, "X: " + "x" * 70_000, "\r\n".join(["H: h"] * 200)]
    odd += ["Transfer-Encoding: identity", "Connection: \x1b", "Content-Location: ../../x"]
    odd += ["Transfer-Encoding: gzip"]
    first = [
        "HTTP/9.9 200 OK",
        "HTTP/1.1 abc",
        "HTTP/1.1",
        "",
        "\x1b[2J",
        "HTTP/1.1 200",
        "ICY 200",
    ]
    first += ["HTTP/1.1 999 \x1b]0;x\x07", "HTTP/1.0 200 OK", "HTTP/1.1 -200 x", "x" * 70_000]
    line = rng.choice(first) if rng.random() < 0.4 else "HTTP/1.1 200 OK"
    head = "\r\n".join([line, rng.choice(odd), n, "", ""])
    return raw(head, content[: rng.choice([len(content), len(content) // 2])])


def odd_chunks(rng: random.Random, content: bytes) -> Reply:
    end = [b"0\r\n\r\n", b"zz\r\n", b"-5\r\nabcde\r\n", b"f" * 40 + b"\r\n", b"", b"\r\n"]
    end += [b"0\r\nA: b\r\n\r\n", b"5;x=\x1b\r\nabcde\r\n0\r\n\r\n", b"1" * 70_000, b"3\r\nabcde"]
    end += [b"0" * 20 + b"\r\n\r\n"]
    return headed(chunked(content) + rng.choice(end), "Transfer-Encoding: chunked")


def encodings(rng: random.Random, content: bytes) -> Reply:
    kind = rng.choice(["gzip", "deflate", "br", "zstd", "gzip, gzip, gzip", "\x00", "identity"])
    return headed(content, f"Content-Length: {len(content)}", f"Content-Encoding: {kind}")


def statuses(rng: random.Random, content: bytes) -> Reply:
    number = rng.choice([rng.randrange(100, 600), rng.randrange(100, 104), 204, 205, 304])
    return status(number, 'ETag: "v1"\r\n', content)


KINDS: dict[str, Callable[[random.Random, bytes], Reply]] = {
    "length": lengths,
    "surplus": surplus,
    "endless body": endless,
    "early end": breaks,
    "drip": drips,
    "redirect": redirects,
    "range": ranges,
    "odd header": odd_headers,
    "odd chunk": odd_chunks,
    "encoding": encodings,
    "status": statuses,
}
NAMES = ["../x", "/etc/x", "a/b", "..", ".", "", "a\x00b", "a\\b", "C:x", "nul", "COM1.gz", "~"]
NAMES += ["-rf", "\u202ex", "\ud800", "a\nb", "x.gz", "~root", "x" * 200, "\x1b[2J", "x ", "%2e%2e"]
NAMES += ["x" * 300]


@contextmanager
def conditions(scratch: Path) -> Iterator[Server]:
    """A server, a cache in the scratch folder, and limits of fractions of a second."""
    environment = {"LONGTAIL_CACHE": str(scratch / "cache"), "NO_PROXY": "*"}
    before = {name: os.environ.get(name) for name in environment}
    limits = {name: getattr(download, name) for name in LIMITS}
    look_up = socket.getaddrinfo

    def only_here(host: str | bytes | None, *values: Any, **settings: Any) -> Any:
        if host not in ("127.0.0.1", "localhost"):
            raise socket.gaierror(socket.EAI_NONAME, "no network in tests")
        return look_up(host, *values, **settings)

    socket.getaddrinfo = only_here
    os.environ |= environment
    for name, value in LIMITS.items():
        setattr(download, name, value)
    try:
        with Server() as server:
            yield server
    finally:
        socket.getaddrinfo = look_up
        for name, value in limits.items():
            setattr(download, name, value)
        for variable, earlier in before.items():
            os.environ.pop(variable)
            if earlier is not None:
                os.environ[variable] = earlier


def judge(call: Callable[[], bytes], expected: bytes, cache: Path, limit: float = PATIENCE) -> str:
    """RIGHT, OUR_ERROR, or what is wrong with what the call did."""
    began = time.monotonic()
    try:
        verdict = RIGHT if call() == expected else "wrong content"
        allowed = r"[^.]+(\.gz)?"
    except LongtailError as error:
        verdict = _of_message(str(error))
        allowed = r".+\.part(\.json)?"
    except Exception as error:
        return f"{type(error).__name__} is not ours"
    if time.monotonic() - began > limit:
        return f"took more than {limit:g} seconds"
    left = {path.name for path in cache.rglob("*") if not path.is_dir()}
    odd = sorted(name for name in left if not re.fullmatch(allowed, name))
    if odd and verdict in GOOD:
        return f"left {re.sub('tmp.*', 'tmp', odd[0])}"
    if any(path.stat().st_size > (2 << 20) for path in cache.rglob("*.part")):
        return "kept far more than was announced"
    return verdict


def _of_message(message: str) -> str:
    if len(message) > LIMIT:
        return "a message without bound"
    odd = [c for c in message if unicodedata.category(c) in ("Cc", "Cs") and c != "\n"]
    return "a message that is not printable" if odd else OUR_ERROR


def attack(seed: int, scratch: Path) -> Iterator[Outcome]:
    """One case after another, without end."""
    with conditions(scratch) as server:
        number = 0
        while True:
            rng = random.Random(f"downloads {seed} {number}")
            shutil.rmtree(scratch / "cache", ignore_errors=True)
            server.asked.clear()
            server.flooded = 0
            case = rng.choices([_file, _text, _name], [10, 1, 1])[0]
            yield case(rng, server, scratch, f"seed {seed}, case {number}")
            number += 1


def _file(rng: random.Random, server: Server, scratch: Path, detail: str) -> Outcome:
    content = rng.randbytes(rng.choice([1, 1000, 70_000, 300_000]))
    kinds = rng.choices(list(KINDS), k=rng.choice([1, 1, 2, 3]))
    replies = [KINDS[kind](rng, content) for kind in kinds]
    if rng.random() < 0.2:
        replies.append(good(content))
    path = f"/{rng.getrandbits(48):x}"
    server.serve("/good", good(content))
    server.serve("/loop", status(302, "Location: /loop\r\n"))
    server.serve("/elsewhere", headed(b"e" * len(content)))
    url = server.serve(path, *replies)
    size = rng.choice([None, len(content)])
    checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
    file = RemoteFile("texts.gz", (url,), checksum, size)
    detail = f"{detail}: {kinds}, {len(content)} bytes, size {size}"

    def call() -> bytes:
        return fetch(file, "wire").read_bytes()

    verdict = judge(call, content, scratch / "cache")
    if server.flooded > UNREAD:
        verdict = "went on reading past the announced size"
    elif verdict == OUR_ERROR:
        server.serve(path, good(content))
        again = judge(call, content, scratch / "cache")
        verdict = verdict if again == RIGHT else f"afterwards, with a good server: {again}"
    return Outcome(f"file: {kinds[0]}", verdict, detail)


def _text(rng: random.Random, server: Server, scratch: Path, detail: str) -> Outcome:
    digits = rng.randbytes(16).hex()
    content = rng.choice(
        [f"MD5(x.gz)= {digits}\n", digits, f"{digits}0", "", "<html>\x1b[2J", "\xff", "z" * 90_000]
    ).encode("latin-1")
    kind = rng.choice(["good", *KINDS])
    reply = good(content) if kind == "good" else KINDS[kind](rng, content or b"-")
    url = server.serve(f"/{rng.getrandbits(48):x}.md5", reply)
    verdict = judge(
        lambda: pubmed.published_md5(url.removesuffix(".md5")).encode(),
        f"md5:{digits}".encode(),
        scratch / "cache",
    )
    return Outcome("checksum text", verdict, f"{detail}: {kind}, {content[:40]!r}")


def _name(rng: random.Random, server: Server, scratch: Path, detail: str) -> Outcome:
    content = b"the right bytes"
    url = server.serve("/named", good(content))
    name, corpus = rng.choice(NAMES), rng.choice([*NAMES, "wire", "wire"])
    checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
    before = {path for path in scratch.rglob("*") if scratch / "cache" not in path.parents}

    def call() -> bytes:
        path = fetch(RemoteFile(name, (url,), checksum), corpus)
        return path.read_bytes() if (scratch / "cache") in path.resolve().parents else b""

    verdict = judge(call, content, scratch / "cache")
    after = {path for path in scratch.rglob("*") if scratch / "cache" not in path.parents}
    if after - before - {scratch / "cache"}:
        verdict = "wrote outside the cache"
    return Outcome("name", verdict, f"{detail}: {name!r} in {corpus!r}")
