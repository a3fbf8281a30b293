"""Downloads from good servers and from those that lie, drip, redirect and break off."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from longtail.corpora import download, load_corpus, pubmed
from longtail.corpora.download import RemoteFile, fetch, fetch_text
from longtail.errors import DataError, InputError
from longtail.progress import Progress

from . import server as downloads
from .server import Client, Reply, Server, endless, good, headed, redirect, sha256, status

CONTENT = bytes(range(256)) * 400  # 102,400 bytes: several pieces
OTHER = CONTENT[::-1]
EXPECTED = "102400 bytes that were expected"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with downloads.conditions(tmp_path) as running:
        yield running


@pytest.fixture
def secure(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A second server that speaks TLS, with a certificate that is trusted here."""
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


def remote(*urls: str, size: int | None = None) -> RemoteFile:
    return RemoteFile("texts.gz", urls, sha256(CONTENT), size)


def failure(*urls: str, size: int | None = None) -> str:
    with pytest.raises(DataError) as caught:
        fetch(remote(*urls, size=size), "wire")
    return str(caught.value)


def left(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "cache" / "wire").iterdir())


def test_a_file_arrives_once_alone_and_synced(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "cache" / "wire" / "texts.gz"
    synced: list[tuple[int, bool]] = []
    sync, umask = os.fsync, os.umask(0o027)

    def record(handle: int) -> None:
        sync(handle)
        synced.append((os.fstat(handle).st_ino, target.exists()))

    monkeypatch.setattr(os, "fsync", record)
    steps: list[tuple[int, int | None]] = []
    file = remote(server.serve("/texts.gz", good(CONTENT)))
    try:
        path = fetch(file, "wire", lambda now: steps.append((now.done, now.total)))
    finally:
        os.umask(umask)
    assert path == target and path.read_bytes() == CONTENT and left(tmp_path) == ["texts.gz"]
    assert path.stat().st_mode & 0o777 == 0o640
    assert len(steps) > 1 and steps == sorted(steps)
    assert steps[-1] == (len(CONTENT), len(CONTENT))
    assert {(path.stat().st_ino, False), (path.parent.stat().st_ino, True)} <= set(synced)
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
    ("reply", "size", "total"),
    [
        (headed(CONTENT), None, None),
        (headed(CONTENT), len(CONTENT), None),
        (headed(CONTENT, "Content-Encoding: gzip"), None, None),
        (slow_answer, None, len(CONTENT)),
    ],
)
def test_odd_replies_that_bring_the_file(
    server: Server, reply: Reply, size: int | None, total: int | None
) -> None:
    totals = set()
    md5 = f"md5:{hashlib.md5(CONTENT).hexdigest().upper()}"
    file = RemoteFile("texts.gz", (server.serve("/texts.gz", reply),), md5, size)
    path = fetch(file, "wire", lambda now: totals.add(now.total))
    assert path.read_bytes() == CONTENT and totals == {total} and fetch(file, "wire") == path
    assert server.requests[0][1]["Accept-Encoding"] == "identity"
    assert server.flooded <= downloads.UNREAD


@pytest.mark.parametrize("length", [f"Content-Length: {len(CONTENT)}", "X: y"])
def test_a_broken_connection_is_tried_again(server: Server, tmp_path: Path, length: str) -> None:
    cut = headed(CONTENT[:70_000], length)
    url = server.serve("/texts.gz", cut, good(CONTENT))
    steps: list[int] = []
    file = remote(url, size=len(CONTENT))
    assert fetch(file, "wire", lambda now: steps.append(now.done)).read_bytes() == CONTENT
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
        fetch(remote(*reasons, size=len(CONTENT)), "wire")
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


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), ValueError("a mistake"), OSError(28, "Full")]
)
def test_a_progress_that_raises_leaves_nothing(
    server: Server, tmp_path: Path, error: BaseException
) -> None:
    def progress(now: Progress) -> None:
        if now.done:
            raise error

    url = server.serve("/texts.gz", good(CONTENT))
    kind = DataError if isinstance(error, OSError) else type(error)
    with pytest.raises(kind, match=r"a mistake|cannot write .*: Full\. Free some space|^$"):
        fetch(remote(url), "wire", progress)
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("kind", "size"),
    [("lying", None), ("chunked", len(CONTENT)), ("plain", len(CONTENT)), ("plain", None)],
)
def test_an_endless_body_is_cut_off(
    server: Server, tmp_path: Path, kind: str, size: int | None
) -> None:
    url = server.serve("/x.md5", endless(kind))
    limit = size or 1 << 20
    assert f": sends more than the {limit} bytes that were expected\n" in failure(url, size=size)
    assert left(tmp_path) == []
    with pytest.raises(DataError, match=r"x\.md5: sends more than the 4096 bytes .* Check"):
        pubmed.published_md5(url.removesuffix(".md5"))
    assert server.flooded <= downloads.UNREAD


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
    secure.serve("/x.md5", redirect(plain))
    with pytest.raises(DataError, match="redirected from https to http"):
        pubmed.published_md5(f"{secure.url}/x")
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    with pytest.raises(DataError, match=r"/good: .*certificate verify failed"):
        fetch_text(f"{secure.url}/good", "")


@pytest.mark.parametrize("text", [" ", "<html>\x1b[2J", "MD5(x.gz)= 12", "\u202e" * 500])
def test_a_checksum_beside_a_file(server: Server, text: str) -> None:
    digits = hashlib.md5(CONTENT).hexdigest()
    sound = good(f"MD5(x.gz)= {digits.upper()}\n".encode())
    server.serve("/x.gz.md5", good(text.encode()), sound)
    server.serve("/long.md5", good(bytes(4097)))
    for name, reason in (("gone", "HTTP 404"), ("long", "sends more than the 4096 bytes")):
        with pytest.raises(DataError, match=f"cannot download .*/{name}.md5: {reason}"):
            pubmed.published_md5(f"{server.url}/{name}")
    with pytest.raises(DataError, match=r"x\.gz\.md5 holds no MD5 checksum") as caught:
        pubmed.published_md5(f"{server.url}/x.gz")
    assert len(str(caught.value)) < 1000 and str(caught.value).isprintable()
    assert pubmed.published_md5(f"{server.url}/x.gz") == f"md5:{digits}"


FILES = ["1-999999999", "0", "0-3", "10000", "9" * 5000, "1-" + "9" * 5000, "\u0661" * 30]
BASELINES = ["../x", "..", "\x00", "x?y=", "x" * 201, "http://x/", "a/b", "", "a\\b", "\x1b[2J"]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"files": files}, "files must (be numbers from 1 to 9999|look like)") for files in FILES]
    + [
        ({"files": "1", "baseline": name}, "baseline must be letters and digits")
        for name in BASELINES
    ],
)
def test_files_of_pubmed_are_bounded_and_stay_in_the_cache(
    server: Server, settings: dict[str, str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pubmed, "BASELINE", f"{server.url}/")
    with pytest.raises(InputError, match=reason) as caught:
        load_corpus("pubmed", **settings)
    assert len(str(caught.value)) < 1000 and server.requests == []
