"""A local server that sends raw bytes, including invalid HTTP."""

from __future__ import annotations

import hashlib
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from longtail.corpora import download

# Short, so that a case takes a fraction of a second.
LIMITS = {"TIMEOUTS": (1.0, 0.3)}


class Client(socketserver.BaseRequestHandler):
    """Handles one request."""

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


Reply = Callable[[Client], None]


class Server(socketserver.ThreadingTCPServer):
    """Answers each path with its replies in turn, repeating the last."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Client)
        self.context = context
        self.url = f"http{'s' if context else ''}://127.0.0.1:{self.server_address[1]}"
        self.replies: dict[str, list[Reply]] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """Ignore clients that hang up."""

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
    return status(number, f"Location: {to}", "Connection: close")


@contextmanager
def conditions(scratch: Path) -> Iterator[Server]:
    """Run a server, with a cache in the scratch folder and short timeouts."""
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


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
