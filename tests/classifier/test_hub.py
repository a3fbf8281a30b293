"""Uploads and downloads with a local hub and the real huggingface_hub."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import yaml
from huggingface_hub import constants
from huggingface_hub.utils import close_session

from longtail import LongTailClassifier
from longtail.classifier.export import to_onnx
from longtail.classifier.saving import CONFIG_FILE, HASHES_FILE
from longtail.errors import LIMIT, DataError, InputError, LongtailError, NotFittedError

from .cases import TEXTS
from .conftest import Classifier, Patch
from .hub_server import TOKEN, Hub


@pytest.fixture
def hub(monkeypatch: Patch, tmp_path: Path) -> Iterator[Hub]:
    """A hub, and a user without a token and with an empty cache."""
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    environment = {"HF_ENDPOINT": server.address, "NO_PROXY": "127.0.0.1", "HF_TOKEN": ""}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for name in ("HF_HUB_CACHE", "HF_TOKEN_PATH", "HF_XET_CACHE"):
        monkeypatch.setattr(constants, name, str(tmp_path / name))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.chdir(tmp_path)
    close_session()
    try:
        yield server
    finally:
        close_session()
        server.shutdown()
        thread.join()
        server.server_close()


def test_upload_and_download(hub: Hub, encoder: Classifier, tmp_path: Path) -> None:
    address = encoder.push_to_hub("somebody/news", token=TOKEN, commit_message="the first")
    assert address == f"{hub.address}/somebody/news"
    repository = hub.repositories["somebody/news"]
    assert repository.messages == ["the first"] and not repository.private
    files = repository.branches["main"]
    assert CONFIG_FILE in files and "model.safetensors" in files
    card = files["README.md"].decode()
    assert "LongTailClassifier.from_pretrained('somebody/news')" in card
    assert yaml.safe_load(card.split("---")[1])["library_name"] == "longtail"
    # Other files are not downloaded.
    files |= {"pytorch_model.bin": b"\x80\x02evil", "modeling.py": b"raise SystemExit"}
    downloaded = LongTailClassifier.from_pretrained("somebody/news")
    assert np.array_equal(downloaded.decision_function(TEXTS), encoder.decision_function(TEXTS))
    names = {path.name for path in (tmp_path / "HF_HUB_CACHE").rglob("*")}
    assert "model.safetensors" in names and not {"pytorch_model.bin", "modeling.py"} & names
    # Without the network, from the cache.
    hub.failing = 503
    again = LongTailClassifier.from_pretrained("somebody/news")
    assert np.array_equal(again.decision_function(TEXTS), encoder.decision_function(TEXTS))


def test_an_exported_model(hub: Hub, encoder: Classifier) -> None:
    exported = to_onnx(encoder)
    exported.push_to_hub("somebody/news", token=TOKEN)
    files = hub.repositories["somebody/news"].branches["main"]
    assert "model.onnx" in files and "model.safetensors" not in files
    loaded = LongTailClassifier.from_pretrained("somebody/news", engine="onnx")
    scores = exported.decision_function(TEXTS)
    assert np.array_equal(loaded.decision_function(TEXTS), scores)
    encoder.push_to_hub("somebody/news", token=TOKEN)  # in its place
    assert "model.onnx" not in files and "model.safetensors" in files


def test_hashes_of_training_documents_are_uploaded_on_request(
    hub: Hub, encoder: Classifier
) -> None:
    encoder.push_to_hub("somebody/news", token=TOKEN, include_hashes=True)
    files = hub.repositories["somebody/news"].branches["main"]
    assert HASHES_FILE in files and HASHES_FILE in files["README.md"].decode()
    assert LongTailClassifier.from_pretrained("somebody/news").trained_on(TEXTS).all()
    encoder.push_to_hub("somebody/news", token=TOKEN)
    assert HASHES_FILE not in files and "were not published" in files["README.md"].decode()
    assert LongTailClassifier.from_pretrained("somebody/news").document_hashes_ is None


def test_a_folder_takes_precedence(
    hub: Hub, encoder: Classifier, cross_fitted: Classifier, tmp_path: Path
) -> None:
    encoder.push_to_hub("somebody/news", token=TOKEN)
    cross_fitted.save_pretrained(tmp_path / "somebody" / "news")
    hub.requests.clear()
    assert len(LongTailClassifier.from_pretrained("somebody/news").ensemble_.models) == 2
    assert hub.requests == []
    with pytest.raises(InputError, match="revision is for models on the hub"):
        LongTailClassifier.from_pretrained("somebody/news", revision="main")


def test_paths_and_unfitted_classifiers_request_nothing(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        LongTailClassifier().push_to_hub("somebody/news", token=TOKEN)
    for path in (Path("somebody/news"), "./somebody/news", "news", "a/b/c", str(tmp_path / "x")):
        with pytest.raises(DataError, match="holds no longtail model"):
            LongTailClassifier.from_pretrained(path)
    assert hub.requests == []


def test_files_of_the_earlier_model_are_removed(
    hub: Hub, encoder: Classifier, blended: Classifier
) -> None:
    blended.push_to_hub("somebody/news", token=TOKEN)
    files = hub.repositories["somebody/news"].branches["main"]
    assert {"member-0/fold-1/model.safetensors", "member-1/model.safetensors"} <= files.keys()
    files |= dict.fromkeys(("notes.txt", "fold-0/config.json", "merges.txt"), b"mine")
    encoder.push_to_hub("somebody/news", token=TOKEN)
    assert not [name for name in files if name.startswith(("fold-", "member-", "merges"))]
    assert files["notes.txt"] == b"mine"
    downloaded = LongTailClassifier.from_pretrained("somebody/news")
    assert np.array_equal(downloaded.decision_function(TEXTS), encoder.decision_function(TEXTS))


def test_branches(hub: Hub, encoder: Classifier, cross_fitted: Classifier) -> None:
    encoder.push_to_hub("news", token=TOKEN)
    for _ in range(2):
        cross_fitted.push_to_hub("somebody/news", token=TOKEN, revision="v2")
    assert len(LongTailClassifier.from_pretrained("somebody/news").ensemble_.models) == 1
    other = LongTailClassifier.from_pretrained("somebody/news", revision="v2")
    assert len(other.ensemble_.models) == 2
    with pytest.raises(DataError, match=r"news at revision v3 could not be .* no such revision"):
        LongTailClassifier.from_pretrained("somebody/news", revision="v3")


def test_a_private_model_needs_a_token(hub: Hub, encoder: Classifier) -> None:
    encoder.push_to_hub("somebody/secret", token=TOKEN, private=True)
    assert hub.repositories["somebody/secret"].private
    for name in ("somebody/secret", "somebody/nothing"):
        message = f"no folder {name} here.*no such model, or it is private. Check the name. Log in"
        with pytest.raises(DataError, match=message):
            LongTailClassifier.from_pretrained(name)
    downloaded = LongTailClassifier.from_pretrained("somebody/secret", token=TOKEN)
    assert downloaded.classes_.tolist() == encoder.classes_.tolist()


@pytest.mark.parametrize(
    ("name", "token", "message"),
    [
        ("somebody/news", None, "hub refused access.*Log in with `hf auth login`, or pass token"),
        ("somebody/news", "hf_wrong", "hub refused access.*Log in"),
        ("another/news", TOKEN, "hub refused access.*of an account with access"),
        ("a b/c", TOKEN, "not the name of a repository, which looks like owner/name"),
        ("a/b/c", TOKEN, "not the name of a repository"),
    ],
)
def test_refused_uploads(
    name: str, token: str | None, message: str, hub: Hub, encoder: Classifier
) -> None:
    with pytest.raises(DataError, match=message) as raised:
        encoder.push_to_hub(name, token=token)
    assert "save_pretrained" in str(raised.value)
    assert hub.repositories == {}


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("status 500", r"answered with an error.*Try again later"),
        ("no network", r"could not be reached.*Check the network"),
        ("offline mode", "HF_HUB_OFFLINE is set"),
    ],
)
def test_a_hub_that_fails(
    fault: str, message: str, hub: Hub, encoder: Classifier, monkeypatch: Patch
) -> None:
    if fault == "status 500":
        hub.failing = 500
    elif fault == "no network":
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", fault == "offline mode")
    for call in (LongTailClassifier.from_pretrained, partial(encoder.push_to_hub, token=TOKEN)):
        with pytest.raises(DataError, match=message):
            call("somebody/news")
    assert (hub.requests == []) is (fault != "status 500")


HOSTILE = ["../../../../../outside.json", "/tmp/longtail-outside.json", "a/../../../outside.json"]
HOSTILE += ["..\\outside.json", "a\x00b.json", "\x1b[2J.json", "x" * 300 + ".json", "a//b.json"]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_stay_in_the_snapshot(
    hub: Hub, encoder: Classifier, tmp_path: Path, name: str
) -> None:
    encoder.push_to_hub("somebody/news", token=TOKEN)
    hub.repositories["somebody/news"].branches["main"][name] = b"{}"
    message = ""
    try:
        LongTailClassifier.from_pretrained("somebody/news")
    except LongtailError as error:
        message = str(error)
    assert not Path("/tmp/longtail-outside.json").exists()
    assert not [path for path in tmp_path.parent.glob("**/*outside*") if path.is_file()]
    for path in (tmp_path / "HF_HUB_CACHE").rglob("*"):
        assert tmp_path / "HF_HUB_CACHE" in path.resolve().parents
    assert len(message) <= LIMIT and "\x1b" not in message and "\x00" not in message


def test_a_revision_stays_in_the_cache(hub: Hub) -> None:
    for revision in ("../../../../outside", "/outside", "a/../../../../outside"):
        with pytest.raises(InputError, match="revision must be a branch, a tag or a"):
            LongTailClassifier.from_pretrained("somebody/news", revision=revision)
    assert hub.requests == []


@pytest.mark.parametrize("status", [400, 403, 500])
def test_a_large_error_is_shortened(hub: Hub, encoder: Classifier, status: int) -> None:
    hub.failing, hub.message = status, "\x1b[2Jno \u202e" * 1_000_000
    for call in (LongTailClassifier.from_pretrained, partial(encoder.push_to_hub, token=TOKEN)):
        with pytest.raises(DataError) as caught:
            call("somebody/news")
        message = str(caught.value)
        assert len(message) < 1000 and "\x1b" not in message and "\u202e" not in message


def test_invalid_model_names(hub: Hub) -> None:
    for name in ("x" * 5000, "a\x00b", "a/" + "b" * 5000, "../..", "\ud800/x"):
        with pytest.raises(LongtailError):
            LongTailClassifier.from_pretrained(name)
