"""The cache of downloads: names, its folder, and files there that are no files.

Downloads themselves, from good and hostile servers, are tested in tests/attack/test_downloads.py.
"""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pooch
import pytest

from longtail.corpora.download import RemoteFile, cache_folder, fetch
from longtail.errors import DataError, InputError

CONTENT = b"the right bytes"
CHECKSUM = f"sha256:{sha256(CONTENT).hexdigest()}"
REFUSED = "http://127.0.0.1:1/texts.gz"  # no server listens there


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the file goes to."""
    monkeypatch.setenv("LONGTAIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path / "cache" / "wire"


def remote(*urls: str) -> RemoteFile:
    return RemoteFile("texts.gz", urls, CHECKSUM)


def failure(strict: bool = True) -> str:
    with pytest.raises(DataError) as caught:
        fetch(remote(REFUSED), "wire", strict=strict)
    return str(caught.value)


@pytest.mark.parametrize("checksum", ["", "sha256:12", "f" * 64, "crc:" + "f" * 64])
def test_a_checksum_that_can_verify_nothing(checksum: str) -> None:
    with pytest.raises(InputError, match=r"checksum of texts\.gz must be"):
        RemoteFile("texts.gz", (), checksum)


def test_a_file_placed_by_hand_is_used_or_refused(folder: Path) -> None:
    with pytest.raises(DataError, match=r"no address is known .*\n.* place it as"):
        fetch(remote(), "wire")
    path, other = folder / "texts.gz", b"other bytes"
    folder.mkdir(parents=True)
    path.write_bytes(CONTENT)
    assert fetch(remote(), "wire") == fetch(remote(REFUSED), "wire") == path
    path.write_bytes(other)
    message = failure()
    for words in (str(path), CHECKSUM, f"sha256:{sha256(other).hexdigest()}", "delete or move it"):
        assert words in message
    assert fetch(remote(REFUSED), "wire", strict=False) == path and path.read_bytes() == other


def test_a_folder_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    message = failure()
    assert f"cannot write {tmp_path}/cache/wire/texts.gz: " in message
    assert "set LONGTAIL_CACHE to another folder" in message
    monkeypatch.setenv("LONGTAIL_CACHE", "/tmp/" + "x" * 1000)
    message = failure()
    assert "File name too long" in message and len(message) <= 4000


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    system = Path(pooch.os_cache("longtail"))
    paths = {str(tmp_path): tmp_path, "~/texts": Path.home() / "texts", "near": tmp_path / "near"}
    for value, path in {**paths, "": system}.items():
        monkeypatch.setenv("LONGTAIL_CACHE", value)
        assert cache_folder() == path
    monkeypatch.setenv("LONGTAIL_CACHE", "~no-such-user/texts")
    with pytest.raises(InputError, match="LONGTAIL_CACHE=~no-such-user/texts is no folder"):
        cache_folder()
    monkeypatch.delenv("LONGTAIL_CACHE")
    assert cache_folder() == system


def test_importing_is_light() -> None:
    code = "import sys, longtail.corpora; print({'pooch', 'requests'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "set()\n"


def test_a_machine_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr(socket, "getaddrinfo", unreachable)
    assert f"  {REFUSED}: network is unreachable\n" in failure()


BAD_NAMES = ["", ".", "..", "../x", "a/b", "/etc/x", "a\\b", "C:x", "a\0b", "a\nb", " x", "x "]
BAD_NAMES += [".hidden", "~", "-rf", "nul", "CON.gz", "com1", "x" * 201, "x?y", "%2e"]


@pytest.mark.parametrize("name", [*BAD_NAMES, "\u202ex", "\ud800", "\x1b[2J", None, 3])
def test_names_that_leave_the_cache(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name of a file in the cache must be") as caught:
        RemoteFile(name, (REFUSED,), CHECKSUM)
    assert len(str(caught.value)) < 700
    with pytest.raises(InputError, match="name of a corpus in the cache must be"):
        fetch(remote(REFUSED), name)
    assert list(tmp_path.iterdir()) == []
    assert RemoteFile("x" * 200, (), CHECKSUM).name == "x" * 200


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("kind", ["folder", "fifo", "dangling link"])
def test_a_target_that_is_no_file(tmp_path: Path, folder: Path, kind: str, strict: bool) -> None:
    path = folder / "texts.gz"
    folder.mkdir(parents=True)
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path / "nowhere")
    assert f"cannot read {path}: it is a folder, a device or a link" in failure(strict)
    assert os.path.lexists(path)


def test_links_that_the_user_made_are_followed(tmp_path: Path, folder: Path) -> None:
    disk = tmp_path / "second disk"
    (disk / "wire").mkdir(parents=True)
    (disk / "file").write_bytes(CONTENT)
    (tmp_path / "cache").symlink_to(disk)
    (disk / "wire" / "texts.gz").symlink_to(disk / "file")
    assert fetch(remote(REFUSED), "wire").read_bytes() == CONTENT


@pytest.mark.skipif(os.geteuid() == 0, reason="the administrator may read and write anything")
def test_a_file_that_may_not_be_read(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "texts.gz").write_bytes(CONTENT)
    (folder / "texts.gz").chmod(0)
    assert "cannot read" in failure()
