"""Saved classifiers: the same predictions, no pickle, complete while others read and save."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from safetensors.numpy import load_file

from longtail import Encoder, LongTailClassifier, Training
from longtail.data import TextData
from longtail.errors import DataError, InputError
from longtail.models.encoder import EncoderModel
from longtail.runs import CONFIG_FILE

from .cases import LABELS, NAMES, TEXTS, change, files_limited_to, reload
from .conftest import Make


@pytest.mark.parametrize("name", ["encoder", "cross_fitted"])
def test_the_same_scores_after_loading(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    before: LongTailClassifier = request.getfixturevalue(name)
    after = reload(before, tmp_path / "run")
    assert after.classes_.tolist() == NAMES
    assert np.array_equal(after.label_stats_.label_counts, before.label_stats_.label_counts)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    # The loaded classifier saves the same model and card.
    after.save_pretrained(tmp_path / "again")
    assert contents_of(tmp_path / "run") == contents_of(tmp_path / "again")


def contents_of(folder: Path) -> dict[str, object]:
    """All files but those of the tokenizer, which change with its use."""
    contents: dict[str, object] = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "tokenizer" not in path.name
    }
    config = json.loads((folder / CONFIG_FILE).read_text("utf-8"))
    sizes = {name: size for name, size in config["files"].items() if "tokenizer" not in name}
    return contents | {CONFIG_FILE: config | {"files": sizes, "checksum": ""}}


def test_only_safetensors_json_tokenizers_and_a_card(
    encoder: LongTailClassifier, cross_fitted: LongTailClassifier, tmp_path: Path
) -> None:
    for k, classifier in enumerate((encoder, cross_fitted)):
        folder = tmp_path / str(k)
        classifier.save_pretrained(folder)
        listed = json.loads((folder / CONFIG_FILE).read_text())["files"]
        for path in folder.rglob("*"):
            if path.suffix == ".safetensors":
                assert load_file(path)
            elif path.suffix == ".json":
                assert json.loads(path.read_text("utf-8"))
            elif path.is_file():
                assert path.suffix in (".txt", ".model") or path.name == "README.md"
            if path.is_file() and path.name != CONFIG_FILE:
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                entry = {"size": path.stat().st_size, "sha256": digest}
                assert listed.pop(path.relative_to(folder).as_posix()) == entry
        assert listed == {}


def test_saving_over_a_model_with_more_folds(
    encoder: LongTailClassifier, cross_fitted: LongTailClassifier, tmp_path: Path
) -> None:
    cross_fitted.save_pretrained(tmp_path / "run")
    reload(encoder, tmp_path / "run")
    assert not list((tmp_path / "run").glob("fold-*"))


def test_saving_does_not_overwrite_something_else(
    encoder: LongTailClassifier, tmp_path: Path
) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(DataError, match="no model that longtail wrote"):
        encoder.save_pretrained(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(DataError, match=r"has no such file. Train one with: longtail train DATA"):
        LongTailClassifier.from_pretrained(tmp_path)


@pytest.mark.parametrize("limit", [100, 2000, 6000])
def test_a_full_disk_keeps_the_earlier_model(
    limit: int, cross_fitted: LongTailClassifier, copied: Path
) -> None:
    """The limits are reached at the weights, the tokenizer and the configuration."""
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    with files_limited_to(limit), pytest.raises(DataError, match=r"could not save.*is unchanged"):
        cross_fitted.save_pretrained(copied)
    after = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    assert after == before


def change_default(monkeypatch: pytest.MonkeyPatch, kind: Any, name: str, value: object) -> None:
    """As a later version might have it."""
    defaults = list(kind.__init__.__defaults__)
    defaults[kind.__match_args__.index(name)] = value
    monkeypatch.setattr(kind.__init__, "__defaults__", tuple(defaults))
    monkeypatch.setattr(kind.__dataclass_fields__[name], "default", value)
    assert getattr(kind(), name) == value


def test_changed_defaults_do_not_change_a_saved_model(
    tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where `fit` would now refuse the settings; the encoder is not needed either."""
    source = shutil.copytree(tiny_bert, tmp_path / "source")
    model, training = Encoder(str(source)), Training(epochs=1, device="cpu")
    before = LongTailClassifier([model, "bag"], training=training, folds=2).fit(TEXTS, LABELS)
    before.save_pretrained(tmp_path / "run")
    shutil.rmtree(source)
    for kind, name, value in (
        (Encoder, "pooling", "cls"),
        (Encoder, "max_length", 1),
        (Training, "warmup_ratio", 0.25),
    ):
        change_default(monkeypatch, kind, name, value)
    monkeypatch.setattr(EncoderModel, "defaults", {"weight_decay": 0.5})
    after = LongTailClassifier.from_pretrained(tmp_path / "run")
    assert np.array_equal(after.decision_function(TEXTS), before.decision_function(TEXTS))
    assert after.plans_ == before.plans_
    plan = after.plans_[0]
    assert isinstance(plan.model, Encoder) and plan.model.max_length == 512
    assert (plan.training.weight_decay, plan.training.warmup_ratio) == (0.01, 0.1)
    # What the user left to the default is still None.
    assert after.training == training and after.model == [model, "bag"]


def test_loading_does_not_use_the_network(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    refuse = Mock(side_effect=OSError("no network in this test"))
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    LongTailClassifier.from_pretrained(saved).predict(TEXTS)
    assert not refuse.called


def test_the_device_of_a_loaded_model(saved: Path, copied: Path) -> None:
    for device in (None, "cpu", "auto"):
        loaded = LongTailClassifier.from_pretrained(saved, device=device)
        assert loaded.predict_labels(["wheat fell"]) == [["wheat"]]
    model: Any = LongTailClassifier.from_pretrained(saved, device="cpu").ensemble_.models[0]
    assert {weight.device.type for weight in model.network.parameters()} == {"cpu"}
    with pytest.raises(InputError, match="device must be"):
        LongTailClassifier.from_pretrained(saved, device="gpu")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="needs a CUDA GPU"):
            LongTailClassifier.from_pretrained(saved, device="cuda")
        # Trained on a GPU, and loaded where there is none.
        change(copied, lambda config: config["plans"][0]["training"].update(device="cuda:1"))
        loaded = LongTailClassifier.from_pretrained(copied)
        assert loaded.predict_labels(["wheat fell"]) == [["wheat"]]


@pytest.mark.parametrize("names", [("encoder", "cross_fitted"), ("cross_fitted", "encoder")])
def test_another_model_is_saved_while_one_is_loaded(
    names: tuple[str, str], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    old, new = (request.getfixturevalue(name) for name in names)
    old.save_pretrained(tmp_path / "run")

    class Saving(LongTailClassifier):
        """Created after the configuration is read, and before the weights are."""

        saved = False

        def __new__(cls, *_: Any, **__: Any) -> Any:
            if not cls.saved:
                cls.saved = True
                new.save_pretrained(tmp_path / "run")
            return super().__new__(cls)

    loaded = Saving.from_pretrained(tmp_path / "run")
    assert len(loaded.ensemble_.models) == len(new.ensemble_.models)
    assert np.array_equal(loaded.decision_function(TEXTS), new.decision_function(TEXTS))
    assert np.array_equal(loaded.thresholds_.values, new.thresholds_.values)


def test_loading_while_another_thread_saves(
    encoder: LongTailClassifier, make: Make, tmp_path: Path
) -> None:
    both = (encoder, make(random_state=5).fit(TEXTS, LABELS))
    scores = [each.decision_function(TEXTS) for each in both]
    encoder.save_pretrained(tmp_path / "run")
    done = threading.Event()

    def save_repeatedly() -> None:
        while not done.is_set():
            for each in reversed(both):
                each.save_pretrained(tmp_path / "run")
                time.sleep(0.05)

    with ThreadPoolExecutor(1) as pool:
        saving = pool.submit(save_repeatedly)
        try:
            for _ in range(12):
                loaded = LongTailClassifier.from_pretrained(tmp_path / "run")
                new = loaded.decision_function(TEXTS)
                (which,) = [k for k in range(2) if np.array_equal(new, scores[k])]
                assert np.array_equal(loaded.thresholds_.values, both[which].thresholds_.values)
        finally:
            done.set()
        saving.result()


def test_unusual_label_names(make: Make, tmp_path: Path) -> None:
    names = ["a\nb", "\u202eright", "<b>|`*", "", "emoji \U0001f600", "0", "__proto__", "a" * 500]
    labels = [[names[k % len(names)], names[0]] for k in range(len(TEXTS))]
    before = make(epochs=1).fit(TextData.from_lists(TEXTS, labels))
    assert reload(before, tmp_path / "run").classes_.tolist() == sorted(names)
