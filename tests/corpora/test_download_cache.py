"""The cache of downloads: what may be called how, and what is there that should not be."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pooch
import pytest

from longtail.corpora import download
from longtail.corpora.download import RemoteFile, cache_folder, fetch
from longtail.errors import DataError, InputError, LongtailError

CONTENT = b"the right bytes"
CHECKSUM = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
NOBODY = "http://127.0.0.1:1/texts.gz"  # an address at which nobody listens


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the file goes to."""
    monkeypatch.setenv("LONGTAIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path / "cache" / "wire"


def remote(*urls: str) -> RemoteFile:
    return RemoteFile("texts.gz", urls, CHECKSUM)


def promptly(strict: bool = True) -> str:
    """The message of a fetch that must fail, and not block for good."""
    messages: list[str] = []

    def call() -> None:
        try:
            fetch(remote(NOBODY), "wire", strict=strict)
        except LongtailError as error:
            messages.append(str(error))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive(), "it blocks"
    assert messages, "nothing was raised, or an error that is not ours"
    return messages[0]


@pytest.mark.parametrize("checksum", ["", "sha256:12", "f" * 64, "crc:" + "f" * 64])
def test_a_checksum_that_can_verify_nothing(checksum: str) -> None:
    with pytest.raises(InputError, match=r"checksum of texts\.gz must be"):
        RemoteFile("texts.gz", (), checksum)


def test_a_file_without_an_address_is_to_be_placed_by_hand(folder: Path) -> None:
    with pytest.raises(DataError, match=r"no address is known .*\n.* place it as"):
        fetch(remote(), "wire")
    (folder / "texts.gz").write_bytes(CONTENT)
    assert fetch(remote(), "wire") == folder / "texts.gz"


def test_a_folder_that_cannot_be_used(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(DataError, match=r"cannot write .*wire.*set LONGTAIL_CACHE"):
        fetch(remote(NOBODY), "wire")
    (tmp_path / "cache").unlink()
    (folder / "texts.gz").mkdir(parents=True)
    with pytest.raises(DataError, match=r"cannot read .*: it is a folder"):
        fetch(remote(NOBODY), "wire")


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTAIL_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.setenv("LONGTAIL_CACHE", "~/texts")
    assert cache_folder() == Path.home() / "texts"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LONGTAIL_CACHE", "near")
    assert cache_folder() == tmp_path / "near"
    for unset in ("", None):
        if unset is None:
            monkeypatch.delenv("LONGTAIL_CACHE")
        else:
            monkeypatch.setenv("LONGTAIL_CACHE", unset)
        assert cache_folder() == Path(pooch.os_cache("longtail"))


def test_importing_is_light() -> None:
    code = (
        "import sys, json, longtail.corpora.download\n"
        "print(json.dumps([n for n in ('pooch', 'requests', 'filelock') if n in sys.modules]))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(out.stdout) == []


def test_reasons_from_deep_inside() -> None:
    wrapped = RuntimeError("wrapped")
    wrapped.__cause__ = OSError(errno.ENETUNREACH, "Network is unreachable")
    assert download._reason(wrapped, "other") == "network is unreachable"
    assert download._reason(RuntimeError("bare"), "other") == "other"


BAD_NAMES = ["", ".", "..", "../x", "a/b", "/etc/x", "a\\b", "C:x", "a\0b", "a\nb", " x", "x "]
BAD_NAMES += [".hidden", "~", "-rf", "nul", "CON.gz", "com1", "x" * 201, "x?y"]
BAD_NAMES += ["\u202ex", "\ud800", "\x1b[2J"]


@pytest.mark.parametrize("name", [*BAD_NAMES, None, 3])
def test_names_that_leave_the_cache(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name of a file in the cache must be") as caught:
        RemoteFile(name, (NOBODY,), CHECKSUM)
    assert len(str(caught.value)) < 700
    with pytest.raises(InputError, match="name of a corpus in the cache must be"):
        fetch(remote(NOBODY), name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["reuters21578.tar.gz", "pubmed26n0001.xml.gz", "a", "x" * 200])
def test_names_that_stay(name: str) -> None:
    assert RemoteFile(name, (), CHECKSUM).name == name


def put(path: Path, kind: str, elsewhere: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(elsewhere)


@pytest.mark.parametrize("kind", ["folder", "fifo", "link"])
@pytest.mark.parametrize("ending", [".part", ".part.json", ".lock"])
def test_what_is_in_the_way_is_refused_and_left(
    tmp_path: Path, folder: Path, kind: str, ending: str
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    path = folder / f"texts.gz{ending}"
    put(path, kind, victim)
    message = promptly()
    assert f"cannot write {folder / 'texts.gz'}: it is not an ordinary file ({path})" in message
    assert os.path.lexists(path) and victim.read_text() == "mine"


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("kind", ["folder", "fifo", "link that leads nowhere"])
def test_a_target_that_is_no_file(tmp_path: Path, folder: Path, kind: str, strict: bool) -> None:
    put(folder / "texts.gz", kind, tmp_path / "nowhere")
    message = promptly(strict)
    assert f"cannot read {folder / 'texts.gz'}: it is a folder, a device or a link" in message
    assert os.path.lexists(folder / "texts.gz")


def test_links_that_the_user_made_are_followed(tmp_path: Path, folder: Path) -> None:
    disk = tmp_path / "second disk"
    (disk / "wire").mkdir(parents=True)
    (disk / "file").write_bytes(CONTENT)
    (tmp_path / "cache").symlink_to(disk)
    (disk / "wire" / "texts.gz").symlink_to(disk / "file")
    assert fetch(remote(NOBODY), "wire").read_bytes() == CONTENT


@pytest.mark.parametrize(
    "note",
    ["[" * 100_000, '{"url": 1, "validator": 2}', "\x00", json.dumps({"url": NOBODY}), "9" * 9000],
    ids=["deep", "numbers", "control", "half", "digits"],
)
def test_a_note_that_somebody_else_wrote(folder: Path, note: str) -> None:
    folder.mkdir(parents=True)
    (folder / "texts.gz.part").write_bytes(b"some")
    (folder / "texts.gz.part.json").write_text(note)
    assert "connection refused" in promptly()
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="the administrator may read and write anything")
@pytest.mark.parametrize("ending", ["", ".part", ".part.json"])
def test_what_may_not_be_read(folder: Path, ending: str) -> None:
    folder.mkdir(parents=True)
    path = folder / f"texts.gz{ending}"
    path.write_bytes(CONTENT)
    path.chmod(0)
    assert "texts.gz" in promptly()


def test_a_home_of_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTAIL_CACHE", "~nobody-of-this-name/texts")
    with pytest.raises(InputError, match="LONGTAIL_CACHE=~nobody-of-this-name/texts is no folder"):
        cache_folder()


def test_a_cache_with_too_long_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTAIL_CACHE", "/tmp/" + "x" * 1000)
    message = promptly()
    assert "File name too long" in message and len(message) <= 4000
