"""A bounded part of the attack on downloads, and each promise about hostile servers alone."""

from __future__ import annotations

import hashlib
import shutil
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from longtail.corpora import download, load_corpus, pubmed
from longtail.corpora.download import RemoteFile, fetch, fetch_text
from longtail.errors import DataError, InputError, LongtailError

from . import downloads
from .downloads import Server, Wire, chunked, good, headed, raw, status
from .outcome import GOOD, OUR_ERROR, RIGHT

CONTENT = bytes(range(256)) * 400  # 102,400 bytes


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
    monkeypatch.setattr(download, "SLOW_SECONDS", 20)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Server(context) as running:
        yield running


def remote(url: str, size: int | None = None) -> RemoteFile:
    return RemoteFile("texts.gz", (url,), f"sha256:{hashlib.sha256(CONTENT).hexdigest()}", size)


def failure(url: str, size: int | None = None) -> str:
    with pytest.raises(DataError) as caught:
        fetch(remote(url, size), "wire")
    return str(caught.value)


def left(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "cache" / "wire").iterdir())


def test_a_bounded_part_of_the_attack(tmp_path: Path) -> None:
    outcomes = list(islice(downloads.attack(1, tmp_path), 40))
    assert [outcome for outcome in outcomes if outcome.verdict not in GOOD] == []
    assert {outcome.verdict for outcome in outcomes} == {RIGHT, OUR_ERROR}
    assert len({outcome.kind for outcome in outcomes}) > 6


class UnboundedError(LongtailError):
    def __str__(self) -> str:
        return "x" * 10**7


class RawError(LongtailError):
    def __str__(self) -> str:
        return "\x1b[2J"


def raising(error: Exception) -> Callable[[], bytes]:
    def call() -> bytes:
        raise error

    return call


@pytest.mark.parametrize(
    ("call", "verdict"),
    [
        (lambda: b"right", RIGHT),
        (lambda: b"wrong", "wrong content"),
        (raising(DataError("ours")), OUR_ERROR),
        (raising(KeyError("x")), "KeyError is not ours"),
        (raising(UnboundedError()), "a message without bound"),
        (raising(RawError()), "a message that is not printable"),
        (lambda: time.sleep(0.5) or b"right", "took more than 0.2 seconds"),
    ],
)
def test_the_judge_can_fail(call: Callable[[], bytes], verdict: str, tmp_path: Path) -> None:
    assert downloads.judge(call, b"right", tmp_path, 0.2) == verdict


def test_the_judge_looks_at_what_is_left(tmp_path: Path) -> None:
    ours = raising(DataError("ours"))
    (tmp_path / "texts.gz.part").write_bytes(b"some")
    assert downloads.judge(ours, b"", tmp_path) == OUR_ERROR
    assert downloads.judge(lambda: b"", b"", tmp_path) == "left texts.gz.part"
    (tmp_path / "texts.gz.part").write_bytes(bytes(3 << 20))
    assert downloads.judge(ours, b"", tmp_path) == "kept far more than was announced"
    (tmp_path / "tmpabc").touch()
    assert downloads.judge(ours, b"", tmp_path) == "left tmp"


@pytest.mark.parametrize(
    ("extra", "size", "most"),
    [
        (f"Content-Length: {len(CONTENT)}\r\nTransfer-Encoding: chunked", None, len(CONTENT)),
        ("Transfer-Encoding: chunked", len(CONTENT), len(CONTENT)),
        ("X: y", len(CONTENT), len(CONTENT)),
        ("X: y", None, 1 << 20),
        ("Content-Length: none", None, 1 << 20),
    ],
)
def test_a_body_without_end_is_cut_off(
    server: Server, tmp_path: Path, extra: str, size: int | None, most: int
) -> None:
    def reply(wire: Wire) -> None:
        wire.send(f'HTTP/1.1 200 OK\r\nETag: "v1"\r\n{extra}\r\n\r\n')
        wire.flood(chunked(CONTENT) if "chunked" in extra else CONTENT)

    message = failure(server.serve("/texts.gz", reply), size)
    assert f": sends more than the {most} bytes that were expected\n" in message
    assert "is kept" not in message and left(tmp_path) == []
    assert server.flooded <= downloads.UNREAD and len(server.asked) == 1


def test_one_byte_too_many_is_too_many(server: Server, tmp_path: Path) -> None:
    url = server.serve("/texts.gz", headed(CONTENT + b"x"), good(CONTENT))
    assert "sends more than the 102400 bytes" in failure(url, len(CONTENT))
    assert fetch(remote(url), "wire").read_bytes() == CONTENT


def test_a_length_that_nobody_would_download(server: Server, tmp_path: Path) -> None:
    url = server.serve("/texts.gz", headed(b"", "Content-Length: 10000000000"))
    assert "has 10000000000 bytes, more than the 1048576 that are taken" in failure(url)
    assert left(tmp_path) == []


def test_the_body_of_a_redirect_is_not_read(server: Server) -> None:
    def reply(wire: Wire) -> None:
        wire.send("HTTP/1.1 302 Found\r\nLocation: /good\r\nContent-Encoding: gzip\r\n\r\n")
        wire.flood(b"y" * (1 << 16))

    server.serve("/good", good(CONTENT))
    url = server.serve("/texts.gz", reply)
    assert fetch(remote(url), "wire").read_bytes() == CONTENT
    assert server.flooded <= downloads.UNREAD


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        ("/loop", "more than 10 redirects"),
        ("file:///etc/hostname", "request failed (InvalidSchema)"),
        ("ftp://127.0.0.1/texts.gz", "request failed (InvalidSchema)"),
        ("http://[::1", "request failed ("),
        ("http://127.0.0.1:99999/", "request failed ("),
        ("http://" + "a" * 300 + "/", "request failed ("),
        ("\xff\xfe", "request failed (UnicodeDecodeError)"),
        ("http://\xc3\xa4" + "\xc3\xb6" * 80 + "/", "request failed ("),
        ("http://a\x1b[2Jb/", ""),
    ],
)
def test_redirects_that_lead_nowhere(server: Server, to: str, reason: str) -> None:
    server.serve("/loop", status(302, "Location: /loop\r\n"))
    message = failure(server.serve("/texts.gz", status(301, f"Location: {to}\r\n")))
    assert f"/texts.gz: {reason}" in message and "\x1b" not in message
    assert len(server.asked) <= 1 + download.REDIRECTS


def test_from_http_to_https_and_never_back(server: Server, secure: Server, tmp_path: Path) -> None:
    plain = server.serve("/good", good(CONTENT))
    down = secure.serve("/down", status(302, f"Location: {plain}\r\n"))
    to_down = server.serve("/to-down", status(302, f"Location: {down}\r\n"))
    for url in (down, to_down):
        assert "redirected from https to http, which is refused" in failure(url)
    assert [path for path, _ in server.asked] == ["/to-down"]
    up = server.serve("/up", status(302, f"Location: {secure.serve('/good', good(CONTENT))}\r\n"))
    assert fetch(remote(up), "wire").read_bytes() == CONTENT
    secure.serve("/x.md5", status(302, f"Location: {plain}\r\n"))
    with pytest.raises(DataError, match="redirected from https to http"):
        pubmed.published_md5(f"https://127.0.0.1:{secure.port}/x")


def test_a_certificate_that_nobody_vouches_for(
    secure: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    assert ": certificate not trusted\n" in failure(secure.serve("/texts.gz", good(CONTENT)))


def test_a_drip_in_the_handshake_of_tls(server: Server) -> None:
    server.serve("/hello", lambda wire: wire.drip(b"\x16\x03\x03\x20\x00" + bytes(900)))
    assert "no answer within 0.4 seconds" in failure(f"https://127.0.0.1:{server.port}/texts.gz")
    assert [path for path, _ in server.asked] == ["/hello"]


def test_credentials_stay_with_their_host(server: Server) -> None:
    with Server() as other:
        other.serve("/good", good(CONTENT))
        server.serve("/private", status(302, f"Location: http://localhost:{other.port}/good\r\n"))
        url = f"http://user:secret@127.0.0.1:{server.port}/private"
        assert fetch(remote(url), "wire").read_bytes() == CONTENT
        assert "Authorization" in server.asked[0][1]
        assert "Authorization" not in other.asked[0][1]
        assert "secret" not in str(other.asked) and "user" not in other.asked[0][1]["Host"]


def test_a_header_that_drips_is_given_up(server: Server, tmp_path: Path) -> None:
    url = server.serve("/texts.gz", lambda wire: wire.drip(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 900))
    began = time.monotonic()
    assert ": no answer within 0.4 seconds\n" in failure(url)
    assert time.monotonic() - began < 5 and len(server.asked) == 1
    assert left(tmp_path) == []


@pytest.mark.parametrize("kind", ["length", "chunk", "size of a chunk", "no length"])
def test_a_body_that_drips_is_given_up_and_kept(
    server: Server, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "RETRIES", 0)

    def reply(wire: Wire) -> None:
        told = f"Content-Length: {len(CONTENT)}" if kind == "length" else "X: y"
        if "chunk" in kind:
            told = "Transfer-Encoding: chunked"
        wire.send(f'HTTP/1.1 200 OK\r\nETag: "v1"\r\n{told}\r\n\r\n')
        first = CONTENT[:5000]
        wire.send(chunked(first) if "chunk" in kind else first)
        if kind == "chunk":
            wire.send(f"{len(CONTENT) - 5000:x}\r\n")
        wire.drip(b"0" * 900 if kind == "size of a chunk" else CONTENT[5000:5900])

    url = server.serve("/texts.gz", reply, good(CONTENT))
    began = time.monotonic()
    message = failure(url)
    assert ": slower than 1024 bytes a second over 0.4 seconds\n" in message
    assert "What has arrived is kept" in message and time.monotonic() - began < 10
    kept = (tmp_path / "cache" / "wire" / "texts.gz.part").read_bytes()
    assert len(kept) >= 5000 and CONTENT.startswith(kept)
    assert fetch(remote(url), "wire").read_bytes() == CONTENT
    assert server.asked[-1][1]["Range"] == f"bytes={len(kept)}-"


def test_a_slow_answer_and_a_fast_body_are_fine(server: Server) -> None:
    def reply(wire: Wire) -> None:
        time.sleep(0.25)
        for at in range(0, len(CONTENT), 10_000):
            wire.send(b"" if at else headed_line)
            wire.send(CONTENT[at : at + 10_000])
            time.sleep(0.1)

    headed_line = f"HTTP/1.1 200 OK\r\nContent-Length: {len(CONTENT)}\r\n\r\n".encode()
    assert fetch(remote(server.serve("/texts.gz", reply)), "wire").read_bytes() == CONTENT


@pytest.mark.parametrize("tag", ["\x1b[31m", "\xff", "e" * 5000, "", "\x00"])
def test_a_tag_that_cannot_be_sent_back_is_not_kept(
    server: Server, tmp_path: Path, tag: str
) -> None:
    head = f"HTTP/1.1 200 OK\r\nETag: {tag}\r\nContent-Length: {len(CONTENT)}\r\n\r\n"
    url = server.serve("/texts.gz", raw(head, CONTENT[:3000]))
    assert "connection broken" in failure(url) and left(tmp_path) == []
    server.serve("/texts.gz", good(CONTENT))
    assert fetch(remote(url), "wire").read_bytes() == CONTENT


def test_a_checksum_beside_a_file(server: Server) -> None:
    digits = hashlib.md5(CONTENT).hexdigest()
    url = server.serve("/x.gz", good(CONTENT))
    server.serve("/x.gz.md5", good(f"MD5(x.gz)= {digits.upper()}\n".encode()))
    assert pubmed.published_md5(url) == f"md5:{digits}"


@pytest.mark.parametrize("text", ["", "<html>\x1b[2J not today", "MD5(x.gz)= 12", "\u202e" * 500])
def test_a_text_that_is_no_checksum(server: Server, text: str) -> None:
    url = server.serve("/x.gz", good(CONTENT))
    server.serve("/x.gz.md5", good(text.encode() or b" "))
    with pytest.raises(DataError, match=r"x\.gz\.md5 holds no MD5 checksum") as caught:
        pubmed.published_md5(url)
    assert len(str(caught.value)) < 1000 and str(caught.value).isprintable()


def test_a_checksum_without_end(server: Server) -> None:
    def reply(wire: Wire) -> None:
        wire.send("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n")
        wire.flood(b"a" * (1 << 16))

    url = server.serve("/x.md5", reply)
    with pytest.raises(DataError, match=r"x\.md5: sends more than 4096 bytes\. Check the network"):
        pubmed.published_md5(url.removesuffix(".md5"))
    assert server.flooded <= downloads.UNREAD
    with pytest.raises(DataError, match=r"cannot download .*/gone: HTTP 404"):
        fetch_text(f"http://127.0.0.1:{server.port}/gone")


@pytest.mark.parametrize(
    "files", ["1-999999999", "0", "0-3", "10000", "9" * 5000, "1-" + "9" * 5000, "\u0661" * 30]
)
def test_numbers_of_files_are_bounded(server: Server, files: str) -> None:
    with pytest.raises(InputError, match="files must be numbers from 1 to 9999") as caught:
        load_corpus("pubmed", files=files)
    assert len(str(caught.value)) < 500 and server.asked == []


@pytest.mark.parametrize(
    "baseline", ["../x", "/etc/", "a/b", "..", "\x00", "x?y=", "x#", "-", "x" * 300, "http://x/"]
)
def test_a_baseline_stays_in_the_cache(
    server: Server, baseline: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pubmed, "BASELINE", f"http://127.0.0.1:{server.port}/")
    with pytest.raises(InputError, match=r"baseline .* in the cache must be at most 200 letters"):
        load_corpus("pubmed", files="1", baseline=baseline)
    assert server.asked == []
