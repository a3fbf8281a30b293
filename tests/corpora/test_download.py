"""Downloads from a real server on the loopback: resumed, verified, from mirrors, never half."""

from __future__ import annotations

import gzip
import hashlib
import io
import logging
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pooch
import pytest

from longtail.corpora import download
from longtail.corpora.download import RemoteFile, fetch
from longtail.errors import DataError

CONTENT = bytes(range(256)) * 2000  # 512,000 bytes: several pieces
OTHER = CONTENT[::-1]


@dataclass
class Behaviour:
    """What the server does with one path, and the headers of the requests that it received."""

    content: bytes = CONTENT
    status: int = 200
    validators: dict[str, str] = field(default_factory=lambda: {"ETag": '"v1"'})
    cuts: list[int] = field(default_factory=list)  # bytes of the body until it breaks, in turn
    honours_range: bool = True
    honours_if_range: bool = True
    shifts_range: int = 0
    status_for_range: int = 206
    extra: dict[str, str] = field(default_factory=dict)
    tells_length: bool = True
    wait: threading.Event | None = None  # half of the body comes when it is set
    halfway: threading.Event = field(default_factory=threading.Event)
    requests: list[dict[str, str]] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *values: object) -> None:
        """Nothing: a test's output is its own."""

    def do_GET(self) -> None:
        does = self.server.paths[self.path]
        does.requests.append(dict(self.headers))
        self.close_connection = True
        if does.status == 0:  # hangs up without a word
            return
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        condition = self.headers.get("If-Range")
        known = condition in (None, *does.validators.values()) or not does.honours_if_range
        status, start = does.status, 0
        if asked and does.honours_range and known and status == 200:
            status, start = does.status_for_range, int(asked[1]) + does.shifts_range
        body = does.content[start:] if status < 400 else b"an error page"
        self.send_response(status)
        if does.tells_length:
            self.send_header("Content-Length", str(len(body)))
        if status == 206:
            last, size = len(does.content) - 1, len(does.content)
            self.send_header("Content-Range", f"bytes {start}-{last}/{size}")
        for name, value in (does.validators | does.extra).items():
            self.send_header(name, value)
        self.end_headers()
        if does.cuts:
            body = body[: does.cuts.pop(0)]
        does.sent.append(len(body))
        if does.wait is not None:
            self.wfile.write(body[: len(body) // 2])
            does.halfway.set()
            does.wait.wait(10)
            body = body[len(body) // 2 :]
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.paths: dict[str, Behaviour] = {}

    def serve(self, path: str, behaviour: Behaviour) -> str:
        self.paths[path] = behaviour
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the file goes to."""
    monkeypatch.setenv("LONGTAIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(download, "PAUSE", 0.01)
    return tmp_path / "cache" / "wire"


def remote(*urls: str, content: bytes = CONTENT, size: int | None = None) -> RemoteFile:
    return RemoteFile("texts.gz", urls, f"sha256:{hashlib.sha256(content).hexdigest()}", size)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refused_url() -> str:
    """An address at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/texts.gz"


def leave_a_part(server: Server, folder: Path, does: Behaviour, at: int = 200_000) -> str:
    """A download that broke for good, and the url that it was from."""
    url = server.serve("/texts.gz", does)
    does.cuts = [at, 0, 0]
    with pytest.raises(DataError, match="connection broken"):
        fetch(remote(url), "wire")
    assert (folder / "texts.gz.part").read_bytes() == does.content[:at]
    does.requests.clear()
    does.sent.clear()
    return url


def test_a_file_arrives_once_and_alone(server: Server, folder: Path) -> None:
    does = Behaviour()
    file = remote(server.serve("/texts.gz", does))
    steps: list[tuple[int, int | None]] = []
    path = fetch(file, "wire", lambda done, total: steps.append((done, total)))
    assert path == folder / "texts.gz" and path.read_bytes() == CONTENT
    assert names(folder) == ["texts.gz"]
    assert path.stat().st_mode & 0o777 == (folder.stat().st_mode & 0o666)
    assert len(steps) > 3 and steps[0][0] == 0 and steps[-1] == (len(CONTENT), len(CONTENT))
    assert steps == sorted(steps) and {total for _, total in steps} == {len(CONTENT)}
    touched = folder.stat().st_mtime_ns
    assert fetch(file, "wire") == path
    assert len(does.requests) == 1
    assert folder.stat().st_mtime_ns == touched  # reading needs no lock: caches may be read-only


def test_rights_follow_the_umask(server: Server, folder: Path) -> None:
    folder.mkdir(parents=True)
    before = os.umask(0o027)
    try:
        path = fetch(remote(server.serve("/texts.gz", Behaviour(cuts=[100_000]))), "wire")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_file_is_on_the_disk_before_it_takes_its_place(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, int, bool]] = []
    sync = os.fsync

    def record(handle: int) -> None:
        sync(handle)
        facts = os.fstat(handle)
        synced.append((facts.st_ino, facts.st_size, (folder / "texts.gz").exists()))

    monkeypatch.setattr(os, "fsync", record)
    path = fetch(remote(server.serve("/texts.gz", Behaviour())), "wire")
    assert (path.stat().st_ino, len(CONTENT), False) in synced
    assert (folder.stat().st_ino, True) in [(inode, there) for inode, _, there in synced]


def test_pooch_is_silent_here_and_as_before_elsewhere(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = io.StringIO()
    logger = pooch.get_logger()
    monkeypatch.setattr(logger, "handlers", [logging.StreamHandler(said)])
    logger.info("as before")
    fetch(remote(server.serve("/texts.gz", Behaviour())), "wire")
    logger.info("as before")
    assert said.getvalue() == "as before\n" * 2


def test_md5_is_a_checksum_too(server: Server) -> None:
    checksum = f"md5:{hashlib.md5(CONTENT).hexdigest().upper()}"
    file = RemoteFile("texts.gz", (server.serve("/texts.gz", Behaviour()),), checksum)
    assert fetch(file, "wire") == fetch(file, "wire")


def test_a_server_that_calls_the_file_packed_changes_nothing(server: Server) -> None:
    packed = gzip.compress(CONTENT)
    does = Behaviour(packed, extra={"Content-Encoding": "gzip"})
    file = remote(server.serve("/texts.gz", does), content=packed)
    assert fetch(file, "wire").read_bytes() == packed
    assert does.requests[0]["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("size", [None, len(CONTENT)])
def test_a_server_that_tells_no_length(server: Server, size: int | None) -> None:
    file = remote(server.serve("/texts.gz", Behaviour(tells_length=False)), size=size)
    totals = set()
    path = fetch(file, "wire", lambda _, total: totals.add(total))
    assert path.read_bytes() == CONTENT and totals == {size}


def test_without_a_length_the_known_size_shows_the_break(server: Server) -> None:
    does = Behaviour(tells_length=False, cuts=[100_000])
    file = remote(server.serve("/texts.gz", does), size=len(CONTENT))
    assert fetch(file, "wire").read_bytes() == CONTENT
    assert does.requests[1]["Range"] == "bytes=100000-"


def test_a_broken_connection_is_continued_at_once(server: Server, folder: Path) -> None:
    does = Behaviour(cuts=[200_000, 100_000])
    path = fetch(remote(server.serve("/texts.gz", does)), "wire")
    assert path.read_bytes() == CONTENT
    assert [request.get("Range") for request in does.requests] == [
        None,
        "bytes=200000-",
        "bytes=300000-",
    ]
    assert does.sent == [200_000, 100_000, len(CONTENT) - 300_000]
    assert names(folder) == ["texts.gz"]


def test_a_server_that_hangs_up_is_asked_again(server: Server) -> None:
    does = Behaviour(status=0)
    with pytest.raises(DataError, match="connection broken"):
        fetch(remote(server.serve("/texts.gz", does)), "wire")
    assert len(does.requests) == 1 + download.RETRIES


@pytest.mark.parametrize(
    ("validators", "condition"),
    [
        ({"ETag": '"v1"', "Last-Modified": "Mon, 01 Jun 2020 00:00:00 GMT"}, '"v1"'),
        (
            {"ETag": 'W/"v1"', "Last-Modified": "Mon, 01 Jun 2020 00:00:00 GMT"},
            "Mon, 01 Jun 2020 00:00:00 GMT",
        ),
    ],
)
def test_the_next_call_asks_for_the_rest_only(
    server: Server, folder: Path, validators: dict[str, str], condition: str
) -> None:
    does = Behaviour(validators=validators)
    url = leave_a_part(server, folder, does)
    assert names(folder) == ["texts.gz.part", "texts.gz.part.json"]
    steps: list[tuple[int, int | None]] = []
    path = fetch(remote(url), "wire", lambda done, total: steps.append((done, total)))
    assert path.read_bytes() == CONTENT and names(folder) == ["texts.gz"]
    assert does.sent == [len(CONTENT) - 200_000]
    assert does.requests[0]["Range"] == "bytes=200000-"
    assert does.requests[0]["If-Range"] == condition
    assert steps[0] == (200_000, len(CONTENT)) and steps[-1] == (len(CONTENT), len(CONTENT))


@pytest.mark.parametrize("honours_if_range", [True, False])
def test_a_new_version_is_not_joined_to_the_old(
    server: Server, folder: Path, honours_if_range: bool
) -> None:
    url = leave_a_part(server, folder, Behaviour())
    new = Behaviour(OTHER, validators={"ETag": '"v2"'}, honours_if_range=honours_if_range)
    server.serve("/texts.gz", new)
    steps: list[int] = []
    path = fetch(remote(url, content=OTHER), "wire", lambda done, _: steps.append(done))
    assert path.read_bytes() == OTHER and names(folder) == ["texts.gz"]
    assert steps[0] == 0  # it was seen before the rest was read, not by the checksum
    asked_for_the_rest = ["Range" in request for request in new.requests]
    assert asked_for_the_rest == ([True] if honours_if_range else [True, False])
    assert new.sent[-1] == len(OTHER)


def test_a_server_that_ignores_the_range(server: Server, folder: Path) -> None:
    does = Behaviour()
    url = leave_a_part(server, folder, does)
    does.honours_range = False
    assert fetch(remote(url), "wire").read_bytes() == CONTENT
    assert "Range" in does.requests[0] and does.sent == [len(CONTENT)]


@pytest.mark.parametrize("refusal", [{"status_for_range": 416}, {"shifts_range": 7}])
def test_a_refused_range_starts_again(
    server: Server, folder: Path, refusal: dict[str, int]
) -> None:
    does = Behaviour()
    url = leave_a_part(server, folder, does)
    for name, value in refusal.items():
        setattr(does, name, value)
    steps: list[int] = []
    path = fetch(remote(url), "wire", lambda done, _: steps.append(done))
    assert path.read_bytes() == CONTENT and steps[0] == 0
    assert ["Range" in request for request in does.requests] == [True, False]
    assert names(folder) == ["texts.gz"]


def test_a_part_that_was_spoiled_costs_one_more_download(server: Server, folder: Path) -> None:
    does = Behaviour()
    url = leave_a_part(server, folder, does)
    (folder / "texts.gz.part").write_bytes(bytes(200_000))
    assert fetch(remote(url), "wire").read_bytes() == CONTENT
    assert ["Range" in request for request in does.requests] == [True, False]


@pytest.mark.parametrize("note", ["", "{", "{}", "[]", '{"url": "http://elsewhere/"}'])
def test_a_note_that_cannot_be_used_starts_again(server: Server, folder: Path, note: str) -> None:
    does = Behaviour()
    url = leave_a_part(server, folder, does)
    (folder / "texts.gz.part.json").write_text(note)
    assert fetch(remote(url), "wire").read_bytes() == CONTENT
    assert ["Range" in request for request in does.requests] == [False]


def test_bytes_of_no_known_version_are_not_kept(server: Server, folder: Path) -> None:
    does = Behaviour(validators={}, cuts=[200_000, 200_000, 200_000])
    url = server.serve("/texts.gz", does)
    with pytest.raises(DataError, match="connection broken") as caught:
        fetch(remote(url), "wire")
    assert "is kept" not in str(caught.value) and names(folder) == []
    assert not any("Range" in request for request in does.requests)


def test_a_part_outlives_a_mirror_that_fails(server: Server, folder: Path) -> None:
    does = Behaviour()
    url = leave_a_part(server, folder, does)
    gone = server.serve("/gone", Behaviour(status=404))
    assert fetch(remote(gone, url), "wire").read_bytes() == CONTENT
    assert does.sent == [len(CONTENT) - 200_000]


def test_a_part_is_continued_from_its_own_url_only(server: Server, folder: Path) -> None:
    leave_a_part(server, folder, Behaviour())
    mirror = Behaviour()
    assert fetch(remote(server.serve("/mirror", mirror)), "wire").read_bytes() == CONTENT
    assert "Range" not in mirror.requests[0]


def test_wrong_bytes_lead_to_the_next_mirror(server: Server, folder: Path) -> None:
    wrong, right = Behaviour(OTHER), Behaviour()
    urls = server.serve("/wrong", wrong), server.serve("/right", right)
    assert fetch(remote(*urls), "wire").read_bytes() == CONTENT
    assert len(wrong.requests) == len(right.requests) == 1
    assert names(folder) == ["texts.gz"]


def test_a_wrong_size_is_seen_before_the_body(server: Server, folder: Path) -> None:
    url = server.serve("/texts.gz", Behaviour(CONTENT[:5000]))
    steps: list[int] = []
    with pytest.raises(DataError, match="has 5000 bytes, expected 512000"):
        fetch(remote(url, size=len(CONTENT)), "wire", lambda done, _: steps.append(done))
    assert steps == [] and names(folder) == []


def test_when_all_fail_the_message_names_all_and_the_place(server: Server, folder: Path) -> None:
    reasons = {
        server.serve("/gone", Behaviour(status=404)): "HTTP 404",
        server.serve("/ill", Behaviour(status=500)): "HTTP 500",
        server.serve("/never", Behaviour(status=416)): "HTTP 416",
        server.serve("/other", Behaviour(OTHER)): "checksum differs",
        server.serve("/cut", Behaviour(cuts=[70_000, 0, 0])): "connection broken",
        refused_url(): "connection refused",
        "ftp://127.0.0.1/texts.gz": "request failed (InvalidSchema)",
    }
    with pytest.raises(DataError) as caught:
        fetch(remote(*reasons), "wire", what="The wire corpus")
    message = str(caught.value)
    assert message.startswith("The wire corpus could not be downloaded:\n")
    for url, reason in reasons.items():
        assert f"\n  {url}: {reason}\n" in message
    assert "the next call continues it" in message
    assert f"place it as {folder / 'texts.gz'}, or set LONGTAIL_CACHE" in message
    assert "HTTPConnectionPool" not in message and "Errno" not in message
    assert len(message.splitlines()) == len(reasons) + 3
    assert names(folder) == ["texts.gz.part", "texts.gz.part.json"]
    assert [len(does.requests) for does in server.paths.values()] == [1, 1, 1, 1, 3]


def test_a_machine_without_a_network_is_told_quickly(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody_knows(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(download, "PAUSE", 5.0)
    began = time.monotonic()
    with pytest.raises(DataError, match=r"127\.0\.0\.1:.*: connection refused"):
        fetch(remote(refused_url(), refused_url()), "wire")
    monkeypatch.setattr(socket, "getaddrinfo", nobody_knows)
    with pytest.raises(DataError, match=r"example\.invalid/.*: host name not found"):
        fetch(remote("http://example.invalid/texts.gz"), "wire")
    assert time.monotonic() - began < 2
    assert names(folder) == []


def test_a_silent_server_times_out(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "TIMEOUTS", (0.1, 0.1))
    does = Behaviour(wait=threading.Event())
    with pytest.raises(DataError, match="timed out"):
        fetch(remote(server.serve("/texts.gz", does)), "wire")
    assert does.wait is not None
    does.wait.set()


def test_an_interrupted_call_leaves_a_part_and_no_lock(server: Server, folder: Path) -> None:
    def interrupt(done: int, _: int | None) -> None:
        if done > 100_000:
            raise KeyboardInterrupt

    does = Behaviour()
    file = remote(server.serve("/texts.gz", does))
    with pytest.raises(KeyboardInterrupt):
        fetch(file, "wire", interrupt)
    assert names(folder) == ["texts.gz.part", "texts.gz.part.json"]
    kept = (folder / "texts.gz.part").stat().st_size
    assert kept > 100_000 and fetch(file, "wire").read_bytes() == CONTENT
    assert does.requests[1]["Range"] == f"bytes={kept}-"


def test_an_error_of_the_callers_progress_is_the_callers(server: Server) -> None:
    def fail(done: int, _: int | None) -> None:
        raise ValueError("my own")

    with pytest.raises(ValueError, match="my own"):
        fetch(remote(server.serve("/texts.gz", Behaviour())), "wire", fail)


def test_a_file_placed_by_hand_is_used(server: Server, folder: Path) -> None:
    does = Behaviour()
    folder.mkdir(parents=True)
    (folder / "texts.gz").write_bytes(CONTENT)
    assert fetch(remote(server.serve("/texts.gz", does)), "wire").read_bytes() == CONTENT
    assert does.requests == [] and names(folder) == ["texts.gz"]


def test_another_file_under_the_name_is_left_alone(server: Server, folder: Path) -> None:
    does = Behaviour()
    file = remote(server.serve("/texts.gz", does))
    folder.mkdir(parents=True)
    placed = folder / "texts.gz"
    placed.write_bytes(OTHER)
    with pytest.raises(DataError, match="delete or move it") as caught:
        fetch(file, "wire")
    message = str(caught.value)
    assert str(placed) in message and file.checksum in message
    assert f"sha256:{hashlib.sha256(OTHER).hexdigest()}" in message
    assert fetch(file, "wire", strict=False) == placed
    assert placed.read_bytes() == OTHER and does.requests == []


def test_a_file_placed_while_waiting_for_the_lock_is_left_alone(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = download._part_of

    def late(target: Path) -> AbstractContextManager[Path | None]:
        target.write_bytes(OTHER)
        return lock(target)

    monkeypatch.setattr(download, "_part_of", late)
    with pytest.raises(DataError, match="delete or move it"):
        fetch(remote(server.serve("/texts.gz", Behaviour())), "wire")
    assert (folder / "texts.gz").read_bytes() == OTHER and names(folder) == ["texts.gz"]


def test_strict_or_not_a_download_is_verified(server: Server, folder: Path) -> None:
    with pytest.raises(DataError, match="checksum differs"):
        fetch(remote(server.serve("/wrong", Behaviour(OTHER))), "wire", strict=False)
    assert names(folder) == []


def test_two_at_the_same_time_do_not_meet(server: Server, folder: Path) -> None:
    does = Behaviour(wait=threading.Event())
    file = remote(server.serve("/texts.gz", does))
    found: list[bytes] = []
    first = threading.Thread(target=lambda: found.append(fetch(file, "wire").read_bytes()))
    first.start()
    assert does.halfway.wait(5)
    assert does.wait is not None
    wait, does.wait = does.wait, None
    part = folder / "texts.gz.part"
    while not (part.exists() and part.stat().st_size):
        time.sleep(0.01)
    own_of_first = [name for name in names(folder) if name.startswith("tmp")]
    does.cuts = [200_000, 0, 0]
    with pytest.raises(DataError, match="connection broken"):
        fetch(file, "wire")
    assert names(folder) == ["texts.gz.lock", "texts.gz.part", "texts.gz.part.json", *own_of_first]
    does.cuts = [200_000]  # broken once, it continues its own file
    second = fetch(file, "wire")
    assert second.read_bytes() == CONTENT
    assert names(folder)[:2] == ["texts.gz", "texts.gz.lock"]
    assert second.stat().st_mode & 0o777 == (folder.stat().st_mode & 0o666)
    wait.set()
    first.join(5)
    assert found == [CONTENT] and names(folder) == ["texts.gz"]
    ranges = [request.get("Range") for request in does.requests]
    rest = "bytes=200000-"
    assert ranges == [None, None, rest, rest, None, rest]


def test_a_killed_process_leaves_no_lock_behind(server: Server, folder: Path) -> None:
    does = Behaviour()
    url = leave_a_part(server, folder, does)
    lock = f"import filelock, os; filelock.FileLock({str(folder / 'texts.gz.lock')!r}).acquire()"
    killed = subprocess.run([sys.executable, "-c", f"{lock}; os.kill(os.getpid(), 9)"], check=False)
    assert killed.returncode == -9 and "texts.gz.lock" in names(folder)
    assert fetch(remote(url), "wire").read_bytes() == CONTENT
    assert "Range" in does.requests[0] and names(folder) == ["texts.gz"]
