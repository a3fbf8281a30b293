"""Downloads from servers that lie, redirect and break off: the file, or one of our errors.

A server on the loopback sends raw bytes that no HTTP library would send. After an error nothing may
be left in the cache, and the same address, now with a good server, must give the right file.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from longtail.corpora import download, pubmed
from longtail.corpora.download import RemoteFile, fetch

from . import GOOD, OUR_ERROR, RIGHT, Outcome, verdict_on

MINIMUM = 500
PATIENCE = 20.0  # seconds for one case: its limits add up to 3, on a machine with others on it
# So that a case takes a fraction of a second.
LIMITS = {"TIMEOUTS": (1.0, 0.3), "LARGEST": 1 << 20}
FLOOD = 32 << 20  # bytes of an endless body; more than the buffers of a socket can hold
CHUNKED = "Transfer-Encoding: chunked"
UNREAD = 16 << 20  # bytes that these buffers may have held when the connection was closed


class Client(socketserver.BaseRequestHandler):
    """One request, and what the server sends in reply."""

    server: Server

    def handle(self) -> None:
        self.request.settimeout(10)
        if self.server.context:
            self.request = self.server.context.wrap_socket(self.request, server_side=True)
        head = b""
        while b"\r\n\r\n" not in head and len(head) < 1 << 16:
            head += self.request.recv(1 << 14) or b"\r\n\r\n"
        lines = head.decode("latin-1").split("\r\n")
        path = [*lines[0].split(" "), ""][1]
        headers = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
        self.server.requests.append((path, headers))
        replies = self.server.replies.get(path.partition("?")[0], [status(404)])
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        with self.request:
            reply(self)

    def send(self, data: bytes | str) -> None:
        self.request.sendall(data.encode("latin-1") if isinstance(data, str) else data)

    def flood(self, data: bytes) -> None:
        for _ in range(FLOOD // len(data)):
            self.send(data)
            self.server.flooded += len(data)


Reply = Callable[[Client], None]


class Server(socketserver.ThreadingTCPServer):
    """Answers each path with its replies, one per request, the last one again and again."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Client)
        self.context = context
        self.url = f"http{'s' if context else ''}://127.0.0.1:{self.server_address[1]}"
        self.replies: dict[str, list[Reply]] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.flooded = 0
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """Nothing: clients hang up."""

    def serve(self, path: str, *replies: Reply) -> str:
        self.replies[path] = list(replies)
        return self.url + path

    @property
    def paths(self) -> list[str]:
        """The paths that were requested."""
        return [path for path, _ in self.requests]


def raw(*pieces: bytes | str) -> Reply:
    def reply(client: Client) -> None:
        for piece in pieces:
            client.send(piece)

    return reply


def headed(content: bytes, *headers: str, line: str = "HTTP/1.1 200 OK") -> Reply:
    return raw("\r\n".join([line, *headers, "", ""]), content)


def good(content: bytes) -> Reply:
    return headed(content, f"Content-Length: {len(content)}")


def status(number: int, *headers: str, body: bytes = b"an error page") -> Reply:
    return headed(body, *headers, f"Content-Length: {len(body)}", line=f"HTTP/1.1 {number} Words")


def redirect(to: str, number: int = 302) -> Reply:
    return status(number, f"Location: {to}")


def chunked(content: bytes, size: int = 5000) -> bytes:
    cut = [content[at : at + size] for at in range(0, len(content), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in cut)


def endless(kind: str) -> Reply:
    header = {
        "plain": "X: y",
        "lying": f"{CHUNKED}\r\nContent-Length: 10",
    }.get(kind, CHUNKED)

    def reply(client: Client) -> None:
        client.send(f"HTTP/1.1 200 OK\r\n{header}\r\n\r\n")
        piece = b"y" * (1 << 16)
        client.flood(chunked(piece, len(piece)) if kind in ("chunked", "lying") else piece)

    return reply


ENDLESS = ("plain", "chunked", "lying")
TARGETS = (
    *("/good", "/good", "/loop", "/elsewhere", "file:///etc/hostname", "ftp://127.0.0.1/x", ""),
    *("http://[::1", "http://", "https://", "//", "http://127.0.0.1:99999/", "http://a\x00b/"),
    *("\x1b[2J", "\xff\xfe", "http://\xe4\xf6/", "?" + "q" * 60_000, "http://x.invalid:port/"),
    *("http://127.0.0.1:1/", "https://127.0.0.1:1/", "../../good", "http:good", "javascript:1"),
    *("http://u:p@127.0.0.1:1/\x1b", "http://%00/", "http://" + "a" * 300 + "/", "\\\\x\\y"),
)
HEADERS = (
    *('ETag: "a\x1b[31m"', "ETag: \x00", 'ETag: "\xff"', "ETag: a\r\n b", "no colon", " folded"),
    *("Last-Modified: \x7f\x80", "\x00: x", ": x", "Set-Cookie: \x00=;;", "X: \x85y"),
    *("ETag: " + "e" * 60_000, "X: " + "x" * 70_000, "\r\n".join(["H: h"] * 200)),
    *("Transfer-Encoding: identity", "Connection: \x1b", "Content-Location: ../../x"),
    "Transfer-Encoding: gzip",
)
LINES = (
    *("HTTP/9.9 200 OK", "HTTP/1.1 abc", "HTTP/1.1", "", "\x1b[2J", "HTTP/1.1 200", "ICY 200"),
    *("HTTP/1.1 999 \x1b]0;x\x07", "HTTP/1.0 200 OK", "HTTP/1.1 -200 x", "x" * 70_000),
)
CHUNK_ENDS = (
    *(b"0\r\n\r\n", b"zz\r\n", b"-5\r\nabcde\r\n", b"f" * 40 + b"\r\n", b"", b"\r\n"),
    *(b"0\r\nA: b\r\n\r\n", b"5;x=\x1b\r\nabcde\r\n0\r\n\r\n", b"1" * 70_000, b"3\r\nabcde"),
    b"0" * 20 + b"\r\n\r\n",
)
KINDS = (
    *("length", "surplus", "endless body", "early end", "redirect"),
    *("odd header", "odd chunk", "encoding", "status"),
)


def random_reply(kind: str, rng: random.Random, content: bytes) -> Reply:
    """One of the many replies of a kind."""
    n = len(content)
    length = f"Content-Length: {n}"
    match kind:
        case "length":
            values = [n - 1, n + 1, n * 2 + 7, -1, -n, 10**12, 10**18, 10**30, "9" * 5000, "\xb2"]
            values += ["0x1", "", "\x00", f" +{n}", f"{n}, {n}", f"{n}, {n + 1}"]
            values.append(f"{n}\r\nContent-Length: {n + 3}")
            return headed(content, f"Content-Length: {rng.choice(values)}")
        case "surplus":
            header = rng.choice([length, "X: y", CHUNKED])
            body = content + b"x" * rng.choice([1, 100, 200_000])
            return headed(chunked(body) + b"0\r\n\r\n" if header == CHUNKED else body, header)
        case "endless body":
            return endless(rng.choice(ENDLESS))
        case "early end":
            header, at = rng.choice([length, "X: y", CHUNKED]), rng.randrange(n + 1)
            head = f"HTTP/1.1 200 OK\r\n{header}\r\n\r\n"
            cut = (chunked(content) if header == CHUNKED else content)[:at].decode("latin-1")
            return raw(rng.choice(["", head[: rng.randrange(len(head))], head + cut]))
        case "redirect":
            return redirect(rng.choice(TARGETS), rng.choice([301, 302, 303, 307, 308, 300, 304]))
        case "odd header":
            line = rng.choice(LINES) if rng.random() < 0.4 else "HTTP/1.1 200 OK"
            sent = content[: rng.choice([n, n // 2])]
            return headed(sent, rng.choice(HEADERS), length, line=line)
        case "odd chunk":
            return headed(chunked(content) + rng.choice(CHUNK_ENDS), CHUNKED)
        case "encoding":
            names = ["gzip", "deflate", "br", "zstd", "gzip, gzip, gzip", "\x00", "identity"]
            return headed(content, length, f"Content-Encoding: {rng.choice(names)}")
    start = rng.randrange(n)
    number = rng.choice([rng.randrange(100, 600), rng.randrange(100, 104), 204, 205, 206, 304, 416])
    ranges = [f"bytes {start}-{n - 1}/{n}", "bytes */5", "bytes 0-0/1", "garbage"]
    return status(number, f"Content-Range: {rng.choice(ranges)}", body=content[start:])


@contextmanager
def conditions(scratch: Path) -> Iterator[Server]:
    """A server, a cache in the scratch folder, and limits of fractions of a second."""
    look_up = socket.getaddrinfo

    def only_here(host: str | bytes | None, *values: Any, **settings: Any) -> Any:
        if host not in ("127.0.0.1", "localhost"):
            raise socket.gaierror(socket.EAI_NONAME, "no network in tests")
        return look_up(host, *values, **settings)

    with pytest.MonkeyPatch.context() as patch, Server() as server:
        patch.setattr(socket, "getaddrinfo", only_here)
        patch.setenv("LONGTAIL_CACHE", str(scratch / "cache"))
        patch.setenv("NO_PROXY", "*")
        for name, value in LIMITS.items():
            patch.setattr(download, name, value)
        yield server


def verdict_of(
    call: Callable[[], bytes], expected: bytes, cache: Path, limit: float = PATIENCE
) -> str:
    """RIGHT, OUR_ERROR, or what is wrong with what the call did."""
    began = time.monotonic()
    verdict, content = verdict_on(call)
    if verdict == RIGHT and content != expected:
        return "wrong content"
    if time.monotonic() - began > limit:
        return f"took more than {limit:g} seconds"
    left = [path.name for path in cache.rglob("*") if not path.is_dir() or path.name[0] == "."]
    if verdict in GOOD and len(left) > (verdict == RIGHT):
        return "left files behind"
    return verdict


def attack(seed: int, scratch: Path) -> Iterator[Outcome]:
    """One case after another, without end."""
    with conditions(scratch) as server:
        for number in count():
            rng = random.Random(f"downloads {seed} {number}")
            shutil.rmtree(scratch / "cache", ignore_errors=True)
            server.flooded = 0
            case = rng.choices([_file, _text], [10, 1])[0]
            yield case(rng, server, scratch / "cache", f"seed {seed}, case {number}")


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _file(rng: random.Random, server: Server, cache: Path, detail: str) -> Outcome:
    content = rng.randbytes(rng.choice([1, 1000, 70_000, 300_000]))
    kinds = rng.choices(KINDS, k=rng.choice([1, 1, 2, 3]))
    replies = [random_reply(kind, rng, content) for kind in kinds]
    if rng.random() < 0.2:
        replies.append(good(content))
    path = f"/{rng.getrandbits(48):x}"
    server.serve("/good", good(content))
    server.serve("/loop", redirect("/loop"))
    server.serve("/elsewhere", headed(b"e" * len(content)))
    url = server.serve(path, *replies)
    size = rng.choice([None, len(content)])
    file = RemoteFile("texts.gz", (url,), sha256(content), size)

    def verdict_now() -> str:
        return verdict_of(lambda: fetch(file, "wire").read_bytes(), content, cache)

    verdict = verdict_now()
    if server.flooded > UNREAD:
        verdict = "read past the announced size"
    elif verdict == OUR_ERROR:
        server.serve(path, good(content))
        if (second := verdict_now()) != RIGHT:
            verdict = f"afterwards, with a good server: {second}"
    detail = f"{detail}: {kinds}, {len(content)} bytes, size {size}"
    return Outcome(f"file: {kinds[0]}", verdict, detail)


def _text(rng: random.Random, server: Server, cache: Path, detail: str) -> Outcome:
    digits = rng.randbytes(16).hex()
    content = rng.choice(
        [f"MD5(x.gz)= {digits}\n", digits, f"{digits}0", "", "<html>\x1b[2J", "\xff", "z" * 90_000]
    ).encode("latin-1")
    kind = rng.choice(["good", *KINDS])
    reply = good(content) if kind == "good" else random_reply(kind, rng, content or b"-")
    url = server.serve(f"/{rng.getrandbits(48):x}.md5", reply).removesuffix(".md5")
    expected = f"md5:{digits}".encode()
    verdict = verdict_of(lambda: pubmed.published_md5(url).encode(), expected, cache)
    return Outcome("checksum text", verdict, f"{detail}: {kind}, {content[:40]!r}")
