"""Downloads from good servers and from broken, slow or malicious ones."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from longtail.corpora import download
from longtail.corpora.download import RemoteFile, fetch
from longtail.errors import DataError

from . import server as downloads
from .server import Client, Reply, Server, good, headed, redirect, sha256, status

CONTENT = bytes(range(256)) * 400  # 102,400 bytes: several pieces
OTHER = CONTENT[::-1]
EXPECTED = "102400 bytes that were expected"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with downloads.conditions(tmp_path) as running:
        yield running


@pytest.fixture
def secure(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A second server with TLS and a trusted certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make a certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subject = "-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -nodes -days 2"
    command = f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 {subject}".split()
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    monkeypatch.setattr(download, "TIMEOUTS", (10, 10))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Server(context) as running:
        yield running


def remote(*urls: str) -> RemoteFile:
    return RemoteFile("texts.gz", urls, sha256(CONTENT), len(CONTENT))


def failure(*urls: str) -> str:
    with pytest.raises(DataError) as caught:
        fetch(remote(*urls), "wire")
    return str(caught.value)


def left(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "cache" / "wire").iterdir())


def test_a_file_arrives_once_and_alone(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "cache" / "wire" / "texts.gz"
    steps: list[tuple[int, int | None]] = []
    file = remote(server.serve("/texts.gz", good(CONTENT)))
    path = fetch(file, "wire", lambda now: steps.append((now.done, now.total)))
    assert path == target and path.read_bytes() == CONTENT and left(tmp_path) == ["texts.gz"]
    assert len(steps) > 1 and steps == sorted(steps)
    assert steps[-1] == (len(CONTENT), len(CONTENT))
    touched = path.parent.stat().st_mtime_ns
    assert fetch(file, "wire") == path and server.paths == ["/texts.gz"]
    assert path.parent.stat().st_mtime_ns == touched  # a cache may be read-only


def slow_answer(client: Client) -> None:
    time.sleep(0.25)
    client.send(f"HTTP/1.1 200 OK\r\nContent-Length: {len(CONTENT)}\r\n\r\n")
    for at in range(0, len(CONTENT), 10_000):
        client.send(CONTENT[at : at + 10_000])
        time.sleep(0.1)


@pytest.mark.parametrize(
    "reply", [headed(CONTENT), headed(CONTENT, "Content-Encoding: gzip"), slow_answer]
)
def test_odd_replies_that_bring_the_file(server: Server, reply: Reply) -> None:
    file = remote(server.serve("/texts.gz", reply))
    assert fetch(file, "wire").read_bytes() == CONTENT
    assert server.requests[0][1]["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("length", [f"Content-Length: {len(CONTENT)}", "X: y"])
def test_a_broken_connection_is_tried_again(server: Server, tmp_path: Path, length: str) -> None:
    cut = headed(CONTENT[:70_000], length)
    file = remote(server.serve("/texts.gz", cut, good(CONTENT)))
    assert fetch(file, "wire").read_bytes() == CONTENT
    assert len(server.paths) == 2 and left(tmp_path) == ["texts.gz"]


def test_when_all_fail_the_message_names_all_and_the_place(server: Server, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        refused = f"http://127.0.0.1:{free.getsockname()[1]}/texts.gz"
    reasons = {
        server.serve("/gone", status(404)): "HTTP 404",
        server.serve("/partial", status(206, body=CONTENT)): "HTTP 206",
        server.serve("/other", good(OTHER)): "checksum differs",
        server.serve("/short", good(CONTENT[:5000])): "checksum differs",
        server.serve("/long", headed(CONTENT + b"x")): f"sends more than the {EXPECTED}",
        server.serve("/loop", redirect("/loop")): "Exceeded 30 redirects.",
        server.serve("/file", redirect("file:///etc/hostname")): "No connection adapters",
        server.serve("/bytes", redirect("\xff\xfe")): "'utf-8' codec can't decode",
        server.serve("/cut", headed(CONTENT[:70_000])): "checksum differs",
        server.serve("/hang-up", downloads.raw()): "Remote end closed connection",
        server.serve("/silent", lambda client: time.sleep(0.35)): "timed out",
        refused: "[Errno 111] Connection refused",
        "http://example.invalid/texts.gz": "[Errno -2] no network in tests",
        "ftp://127.0.0.1/texts.gz": "No connection adapters",
    }
    began = time.monotonic()
    with pytest.raises(DataError) as caught:
        fetch(remote(*reasons), "wire")
    lines = str(caught.value).split("\n")
    assert lines[0] == "texts.gz could not be downloaded:"
    for line, (url, reason) in zip(lines[1:-1], reasons.items(), strict=True):
        assert line.startswith(f"  {url}: {reason}")
    target = tmp_path / "cache" / "wire" / "texts.gz"
    assert f"place it as {target}, or set LONGTAIL_CACHE" in lines[-1]
    assert left(tmp_path) == [] and time.monotonic() - began < 5
    counts = [server.paths.count(path) for path in ("/gone", "/other", "/loop", "/cut", "/hang-up")]
    assert counts == [n * download.ATTEMPTS for n in (1, 1, 31, 1, 1)]
    right = server.serve("/right", good(CONTENT))
    assert fetch(remote(*list(reasons)[:3], right), "wire").read_bytes() == CONTENT


def test_from_http_to_https_and_never_back(
    server: Server, secure: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = server.serve("/good", good(CONTENT))
    down = secure.serve("/down", redirect(plain))
    to_down = server.serve("/to-down", redirect(down))
    escaped = secure.serve("/escaped", redirect(plain.replace("http", "%68ttp")))
    for url in (down, to_down, escaped):
        assert "redirected from https to http, which is refused" in failure(url)
    up = server.serve("/up", redirect(secure.serve("/good", good(CONTENT))))
    assert fetch(remote(up), "wire").read_bytes() == CONTENT
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    other = remote(f"{secure.url}/good")._replace(name="other.gz")
    with pytest.raises(DataError, match=r"/good: .*certificate verify failed"):
        fetch(other, "wire")
