"""The cache of downloads: its folder, and files placed there.

Downloads themselves, from good and hostile servers, are tested in test_hostile_servers.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from longtail.corpora.download import RemoteFile, cache_folder, fetch
from longtail.errors import DataError, InputError

REFUSED = "http://127.0.0.1:1/texts.gz"  # no server listens there
FILE = RemoteFile("texts.gz", (REFUSED,), "0" * 64, 10)


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The target of the download, in a folder that does not exist yet."""
    monkeypatch.setenv("LONGTAIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path / "cache" / "wire" / "texts.gz"


def failure() -> str:
    with pytest.raises(DataError) as caught:
        fetch(FILE, "wire")
    return str(caught.value)


def test_a_file_placed_by_hand_is_used(path: Path) -> None:
    assert f"place it as {path}" in failure()
    path.write_bytes(b"the same documents, packed again")
    assert fetch(FILE, "wire") == path


def test_a_folder_that_cannot_be_used(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.parents[1].write_text("a file where a folder should be")
    message = failure()
    assert f"cannot write {path}: " in message and "set LONGTAIL_CACHE to another" in message
    monkeypatch.setenv("LONGTAIL_CACHE", "/tmp/" + "x" * 1000)
    message = failure()
    assert "File name too long" in message and len(message) <= 4000


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    usual = Path.home() / ".cache" / "longtail"
    paths = {str(tmp_path): tmp_path, "~/texts": Path.home() / "texts", "near": tmp_path / "near"}
    for value, expected in {**paths, "": usual}.items():
        monkeypatch.setenv("LONGTAIL_CACHE", value)
        assert cache_folder() == expected
    monkeypatch.setenv("LONGTAIL_CACHE", "~no-such-user/texts")
    with pytest.raises(InputError, match="LONGTAIL_CACHE=~no-such-user/texts is not a folder"):
        cache_folder()
    monkeypatch.delenv("LONGTAIL_CACHE")
    assert cache_folder() == usual
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "longtail"


def test_a_target_that_is_no_file(path: Path) -> None:
    path.mkdir(parents=True)
    assert str(path) in failure() and path.is_dir()
