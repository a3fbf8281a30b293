"""Saved classifiers: the same predictions, no pickle, complete while others read and save.

Folders that are damaged, incomplete, of another version or not of longtail: a clear error.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

import longtail
from longtail import Bag, Encoder, LongTailClassifier, Training
from longtail.classifier.saving import FORMAT
from longtail.data import TextData
from longtail.errors import DataError, InputError, LongtailError
from longtail.runs.model import CONFIG_FILE, seal

from .cases import LABELS, NAMES, TEXTS, change, files_limited_to, reload
from .conftest import Classifier, Make, Patch, Request


@pytest.mark.parametrize("name", ["encoder", "cross_fitted"])
def test_the_same_after_loading(name: str, request: Request, tmp_path: Path) -> None:
    before: Classifier = request.getfixturevalue(name)
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
    encoder: Classifier, cross_fitted: Classifier, tmp_path: Path
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


def test_saving_over_more_folds(
    encoder: Classifier, cross_fitted: Classifier, tmp_path: Path
) -> None:
    cross_fitted.save_pretrained(tmp_path / "run")
    reload(encoder, tmp_path / "run")
    assert not list((tmp_path / "run").glob("fold-*"))


def test_nothing_else_is_overwritten(encoder: Classifier, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(DataError, match="no model that longtail wrote"):
        encoder.save_pretrained(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(DataError, match=r"has no such file. Train one with: longtail train DATA"):
        LongTailClassifier.from_pretrained(tmp_path)
    with pytest.raises(DataError, match=r"does not exist. Train one"):
        LongTailClassifier.from_pretrained(tmp_path / "nowhere")


@pytest.mark.parametrize("limit", [100, 2000, 6000])
def test_a_full_disk_keeps_the_model(limit: int, cross_fitted: Classifier, copied: Path) -> None:
    """The limits are reached at the weights, the tokenizer and the configuration."""
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    with files_limited_to(limit), pytest.raises(DataError, match=r"could not save.*is unchanged"):
        cross_fitted.save_pretrained(copied)
    after = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    assert after == before


def change_default(monkeypatch: Patch, kind: Any, name: str, value: object) -> None:
    """As a later version might have it."""
    defaults = list(kind.__init__.__defaults__)
    defaults[kind.__match_args__.index(name)] = value
    monkeypatch.setattr(kind.__init__, "__defaults__", tuple(defaults))
    monkeypatch.setattr(kind.__dataclass_fields__[name], "default", value)
    assert getattr(kind(), name) == value


def test_changed_defaults(tiny_bert: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    """Saved models keep theirs, even those that `fit` would now refuse, and need no encoder."""
    source = shutil.copytree(tiny_bert, tmp_path / "source")
    model, training = Encoder(str(source)), Training(epochs=1, device="cpu")
    before = LongTailClassifier([model, Bag(C=9.0)], training=training, folds=2).fit(TEXTS, LABELS)
    before.save_pretrained(tmp_path / "run")
    shutil.rmtree(source)
    for kind, name, value in (
        (Encoder, "pooling", "cls"),
        (Encoder, "max_length", 1),
        (Training, "warmup_ratio", 0.25),
    ):
        change_default(monkeypatch, kind, name, value)
    monkeypatch.setattr(Encoder, "training_defaults", {"weight_decay": 0.5})
    after = LongTailClassifier.from_pretrained(tmp_path / "run")
    assert np.array_equal(after.decision_function(TEXTS), before.decision_function(TEXTS))
    assert after.plans_ == before.plans_
    plan = after.plans_[0]
    assert isinstance(plan.model, Encoder) and plan.model.max_length == 512
    assert (plan.training.weight_decay, plan.training.warmup_ratio) == (0.01, 0.1)
    # What the user left to the default is still None.
    assert after.training == training and after.model == [model, Bag(C=9.0)]


def test_loading_does_not_use_the_network(saved: Path, monkeypatch: Patch) -> None:
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
    names: tuple[str, str], request: Request, tmp_path: Path
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


def test_loading_while_a_thread_saves(encoder: Classifier, make: Make, tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (FORMAT + 1, rf"; this is longtail {longtail.__version__}.*install --upgrade longtail"),
        (3, rf", which longtail {longtail.__version__} no longer reads. Train it again.*==9\.1"),
        (1, ".* no longer reads"),
    ],
)
def test_other_formats(number: int, message: str, copied: Path) -> None:
    change(copied, lambda config: config.update(format=number, longtail_version="9.1"))
    with pytest.raises(DataError, match=rf"written by longtail 9\.1, format {number}{message}"):
        LongTailClassifier.from_pretrained(copied)


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("plans", 0, "model", "colour"), 1, "unknown setting of the model encoder 'colour'"),
        (("plans", 0, "model", "kind"), "tree", "unknown model 'tree'"),
        (("plans", 0, "model", "pooling"), "max", "pooling must be"),
        (("plans", 0, "loss"), "dbx", "unknown loss 'dbx'"),
        (("plans", 0, "training", "max_grad_norm"), -1, "max_grad_norm must be"),
        (("plans", 0, "training", "colour"), 1, "unknown setting of Training 'colour'"),
        (("plans", 0, "colour"), 1, "unknown setting 'colour'"),
        (("arguments", "colour"), 1, "unknown parameter 'colour'"),
    ],
)
def test_other_settings(keys: tuple[Any, ...], value: Any, message: str, copied: Path) -> None:
    change(copied, lambda config: reduce(getitem, keys[:-1], config).update({keys[-1]: value}))
    change(copied, lambda config: config.update(longtail_version="0.9.7"))
    expected = rf"rejects: {message}(?s:.*)Install the version that.*pip install longtail==0\.9\.7"
    with pytest.raises(DataError, match=expected):
        LongTailClassifier.from_pretrained(copied)


def test_inconsistent_numbers(copied: Path) -> None:
    config = json.loads((copied / CONFIG_FILE).read_text("utf-8"))
    for key, value in (
        ("weights", [1.0, 1.0]),
        ("weights", [0.0]),
        *(("sizes", sizes) for sizes in ([], [0], [2], [1, 1])),
        ("plans", config["plans"] * 2),
        ("unknown", []),
        ("unknown", [[]] * 99),
        ("unknown", [[3]]),
        ("unknown", [[-1]]),
        ("thresholds", config["thresholds"] | {"values": [0.0] * 4, "n_labels": 4}),
        ("thresholds", config["thresholds"] | {"scale": None}),
    ):
        (copied / CONFIG_FILE).write_text(json.dumps(seal(config | {key: value})), "utf-8")
        with pytest.raises(DataError, match=r"the model in .* is damaged: ValueError"):
            LongTailClassifier.from_pretrained(copied)


def test_every_missing_or_truncated_file_is_named(copied: Path) -> None:
    for path in sorted(copied.iterdir()):
        content = path.read_bytes()
        for damaged in (None, content[: len(content) // 2], b""):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            if path.name == "README.md":
                assert LongTailClassifier.from_pretrained(copied).classes_.tolist() == NAMES
            else:
                with pytest.raises(DataError, match=path.name):
                    LongTailClassifier.from_pretrained(copied)
            path.write_bytes(content)
    assert LongTailClassifier.from_pretrained(copied).classes_.tolist() == NAMES


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_damage_that_keeps_the_length(name: str, copied: Path) -> None:
    path = copied / name
    path.write_bytes(b"{" * path.stat().st_size)
    with pytest.raises(DataError, match=rf"{name} was changed.*Copy the model again"):
        LongTailClassifier.from_pretrained(copied)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"null", b"[]", b'"x"', b"{}", b"\x00", b"[", b"\xff\xfe\xff", b"[" * 100_000),
        *(b'{"format": "1"}', b'{"format": true}', b'{"format": 0}'),
    ],
)
def test_invalid_configurations(content: bytes, copied: Path) -> None:
    (copied / CONFIG_FILE).write_bytes(content)
    with pytest.raises(DataError, match=CONFIG_FILE):
        LongTailClassifier.from_pretrained(copied)


@pytest.mark.parametrize("name", ["merges.txt", "Tokenizer.model", "modeling.py", "config.JSON"])
def test_files_that_transformers_would_read_are_refused(name: str, copied: Path) -> None:
    (copied / "notes.md").write_text("mine")
    assert LongTailClassifier.from_pretrained(copied).classes_.tolist() == NAMES
    (copied / name).write_text("{}")
    with pytest.raises(DataError, match=f"{name} is not part of the model.*Move it out"):
        LongTailClassifier.from_pretrained(copied)


def test_links_and_files_outside_the_folder_are_refused(copied: Path, tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes((copied / "model.safetensors").read_bytes())
    (copied / "model.safetensors").unlink()
    (copied / "model.safetensors").symlink_to(tmp_path / "weights")
    with pytest.raises(DataError, match=r"model.safetensors cannot be read"):
        LongTailClassifier.from_pretrained(copied)
    for name in ("../weights", "/weights", "a//b", "./config.json"):
        change(copied, lambda config, name=name: config.update(files={name: {}}))  # type: ignore[misc]
        with pytest.raises(DataError, match="a file outside the folder"):
            LongTailClassifier.from_pretrained(copied)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of keys to every value of a JSON document."""
    items: Any = ()
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
    return [path] * bool(path) + [p for key, item in items for p in paths(item, (*path, key))]


ODD = st.sampled_from([None, True, -1, 0, 1, 2, 10**12, 0.5, "", "x", [], [0], {}, {"a": 1}])


@settings(max_examples=80)
@given(st.data(), ODD)
def test_a_wrong_value_is_explained(saved: Path, data: st.DataObject, odd: Any) -> None:
    """No value in longtail.json makes loading fail with another error, or hang."""
    good = json.loads((saved / CONFIG_FILE).read_text("utf-8"))
    before = (saved / CONFIG_FILE).read_bytes()
    *keys, last = data.draw(st.sampled_from(paths(good)))
    reduce(getitem, keys, good)[last] = odd
    try:
        # With the right checksum, so that later checks are tested.
        (saved / CONFIG_FILE).write_text(json.dumps(seal(good) if "checksum" in good else good))
        loaded = LongTailClassifier.from_pretrained(saved)
    except LongtailError:
        pass
    else:
        assert loaded.predict(TEXTS[:2]).shape == (2, len(loaded.classes_))
    finally:
        (saved / CONFIG_FILE).write_bytes(before)
