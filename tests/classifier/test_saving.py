"""Saved classifiers: the same answers anywhere, no pickle, whole whoever reads and saves."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from longtail import LongTailClassifier
from longtail.classifier.saving import write_files
from longtail.data import TextData
from longtail.errors import DataError, InputError
from longtail.models.encoder import EncoderModel
from longtail.runs import CONFIG_FILE, check_out
from longtail.settings import EncoderSettings, TrainingConfig

from .cases import LABELS, NAMES, TEXTS, change, files_limited_to

KINDS = (".safetensors", ".json", ".txt", ".model")


@pytest.mark.parametrize("name", ["encoder", "cross_fitted"])
def test_the_same_answers_after_loading(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    before: LongTailClassifier = request.getfixturevalue(name)
    before.save_pretrained(tmp_path / "run")
    after = LongTailClassifier.from_pretrained(tmp_path / "run")
    assert np.array_equal(after.decision_function(TEXTS), before.decision_function(TEXTS))
    assert after.predict_labels(TEXTS) == before.predict_labels(TEXTS)
    assert after.classes_.tolist() == NAMES
    assert after.get_params() == before.get_params()
    assert after.plans_ == before.plans_ and after.facts_ == before.facts_
    assert np.array_equal(after.label_stats_.label_counts, before.label_stats_.label_counts)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    # Saved once more by the loaded one, the model and its card are the same.
    after.save_pretrained(tmp_path / "again")
    contents = [contents_of(tmp_path / name) for name in ("run", "again")]
    assert contents[0] == contents[1]


def contents_of(folder: Path) -> dict[str, object]:
    """All files, without those of the tokenizer, which write down when they were last asked."""
    found: dict[str, object] = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "tokenizer" not in path.name
    }
    config = json.loads((folder / CONFIG_FILE).read_text("utf-8"))
    sizes = {name: size for name, size in config["files"].items() if "tokenizer" not in name}
    return found | {CONFIG_FILE: config | {"files": sizes, "checksum": ""}}


def test_only_safetensors_json_tokenizers_and_a_card(
    encoder: LongTailClassifier, cross_fitted: LongTailClassifier, tmp_path: Path
) -> None:
    for k, classifier in enumerate((encoder, cross_fitted)):
        folder = tmp_path / str(k)
        classifier.save_pretrained(folder)
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert len(files) >= 4
        for path in files:
            assert path.suffix in KINDS or path.name == "README.md", path
            if path.suffix == ".safetensors":
                assert load_file(path)
            elif path.suffix == ".json":
                assert json.loads(path.read_text("utf-8"))
            else:
                assert path.read_text("utf-8")
        listed = json.loads((folder / CONFIG_FILE).read_text())["files"]
        for path in (path for path in files if path.name != CONFIG_FILE):
            entry = listed.pop(path.relative_to(folder).as_posix())
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            assert entry == {"size": len(content), "sha256": digest}
        assert listed == {}


def test_saving_over_a_model_with_more_folds(
    encoder: LongTailClassifier, cross_fitted: LongTailClassifier, tmp_path: Path
) -> None:
    cross_fitted.save_pretrained(tmp_path / "run")
    encoder.save_pretrained(tmp_path / "run")
    assert not list((tmp_path / "run").glob("fold-*"))
    after = LongTailClassifier.from_pretrained(tmp_path / "run")
    assert np.array_equal(after.decision_function(TEXTS), encoder.decision_function(TEXTS))


def test_saving_does_not_overwrite_something_else(
    encoder: LongTailClassifier, tmp_path: Path
) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(DataError, match="no model that longtail wrote"):
        encoder.save_pretrained(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(DataError, match=r"has no such file. Train one with: longtail train DATA"):
        LongTailClassifier.from_pretrained(tmp_path)


def test_the_command_writes_its_files_itself(encoder: LongTailClassifier, tmp_path: Path) -> None:
    write_files(encoder, tmp_path)
    assert check_out(tmp_path) == tmp_path
    assert LongTailClassifier.from_pretrained(str(tmp_path)).predict_labels(["wheat fell"])


@pytest.mark.parametrize("limit", [100, 2000, 6000])
def test_a_full_disk_leaves_the_model_before(
    limit: int, cross_fitted: LongTailClassifier, copied: Path
) -> None:
    """The limits stop it at the weights, at the tokenizer and at its configuration."""
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    with files_limited_to(limit), pytest.raises(DataError, match=r"could not save.*is unchanged"):
        cross_fitted.save_pretrained(copied)
    after = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    assert after == before


def test_changed_defaults_do_not_change_a_saved_model(
    encoder_arguments: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = {"encoder": encoder_arguments["model_settings"]["encoder"]}
    before = LongTailClassifier(**encoder_arguments | {"model_settings": short, "epochs": 1})
    before.fit(TEXTS, LABELS)
    before.save_pretrained(tmp_path / "run")
    expected = EncoderSettings().max_length, EncoderModel.training_defaults["weight_decay"]
    # As a later version might have it.
    for name, value in {"pooling": "cls", "max_length": 1}.items():
        monkeypatch.setattr(EncoderSettings.__init__, "__defaults__", _with(name, value))
    monkeypatch.setattr(EncoderModel, "training_defaults", {"weight_decay": 0.5})
    assert EncoderSettings().max_length == 1
    after = LongTailClassifier.from_pretrained(tmp_path / "run")
    assert np.array_equal(after.decision_function(TEXTS), before.decision_function(TEXTS))
    assert after.plans_ == before.plans_
    found = after.plans_[0].model_settings["max_length"], after.plans_[0].training.weight_decay
    assert found == expected and expected[0] != 1 and expected[1] != 0.5
    # The user had said nothing, and still has not.
    assert after.weight_decay is None and after.model_settings == short


def test_what_a_fit_of_today_would_refuse_still_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A linear head refuses settings of steps unless they are the defaults, which may change."""
    before = LongTailClassifier(device="cpu", folds=2).fit(TEXTS, LABELS)
    before.save_pretrained(tmp_path / "run")
    defaults = TrainingConfig.__init__.__defaults__ or ()
    changed = tuple(0.25 if value == 0.1 else value for value in defaults)
    assert changed != defaults
    monkeypatch.setattr(TrainingConfig.__init__, "__defaults__", changed)
    monkeypatch.setattr(TrainingConfig.__dataclass_fields__["warmup"], "default", 0.25)
    after = LongTailClassifier.from_pretrained(tmp_path / "run")
    assert after.plans_ == before.plans_ and after.plans_[0].training.warmup == 0.1
    assert np.array_equal(after.decision_function(TEXTS), before.decision_function(TEXTS))


def _with(name: str, value: object) -> tuple[object, ...]:
    names = list(EncoderSettings.__dataclass_fields__)
    found = list(EncoderSettings.__init__.__defaults__ or ())
    found[names.index(name)] = value
    return tuple(found)


def test_loading_never_asks_the_network(
    encoder: LongTailClassifier, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    asked: list[object] = []

    def refuse(*arguments: object, **_: object) -> None:
        asked.append(arguments)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    loaded = LongTailClassifier.from_pretrained(saved)
    assert asked == []
    assert np.array_equal(loaded.decision_function(TEXTS), encoder.decision_function(TEXTS))


def test_the_encoder_that_it_came_from_is_not_needed(
    encoder_arguments: dict[str, Any], tmp_path: Path
) -> None:
    source = shutil.copytree(encoder_arguments["model_settings"]["encoder"], tmp_path / "source")
    arguments = encoder_arguments | {"model_settings": {"encoder": source}, "epochs": 1}
    before = LongTailClassifier(**arguments).fit(TEXTS, LABELS)
    before.save_pretrained(tmp_path / "run")
    shutil.rmtree(source)
    after = LongTailClassifier.from_pretrained(tmp_path / "run")
    assert np.array_equal(after.decision_function(TEXTS), before.decision_function(TEXTS))


def test_where_a_loaded_model_computes(saved: Path, copied: Path) -> None:
    assert LongTailClassifier.from_pretrained(saved).ensemble_.device == "cpu"
    moved = LongTailClassifier.from_pretrained(saved, device="auto")
    assert moved.ensemble_.device == moved.device == "auto"
    assert moved.predict_labels(["wheat fell"]) == [["wheat"]]
    with pytest.raises(InputError, match="device must be"):
        LongTailClassifier.from_pretrained(saved, device="gpu")
    import torch

    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="no CUDA GPU can be used here"):
            LongTailClassifier.from_pretrained(saved, device="cuda")
        # Trained on a GPU, and read where there is none.
        change(copied, lambda config: config["arguments"].update(device="cuda:1"))
        change(copied, lambda config: config["plans"][0]["training"].update(device="cuda:1"))
        loaded = LongTailClassifier.from_pretrained(copied)
        assert loaded.device == loaded.ensemble_.device == "auto"
        assert loaded.predict_labels(["wheat fell"]) == [["wheat"]]


@pytest.mark.parametrize("names", [("encoder", "cross_fitted"), ("cross_fitted", "encoder")])
def test_another_model_is_saved_in_the_midst_of_reading(
    names: tuple[str, str], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    old, new = (request.getfixturevalue(name) for name in names)
    old.save_pretrained(tmp_path / "run")

    class Meddler(LongTailClassifier):
        """Made after the configuration was read, and before the weights are."""

        saved = False

        def __new__(cls, *_: Any, **__: Any) -> Any:
            if not cls.saved:
                cls.saved = True
                new.save_pretrained(tmp_path / "run")
            return super().__new__(cls)

    found = Meddler.from_pretrained(tmp_path / "run")
    assert len(found.ensemble_.models) == len(new.ensemble_.models)
    assert np.array_equal(found.decision_function(TEXTS), new.decision_function(TEXTS))
    assert np.array_equal(found.thresholds_.values, new.thresholds_.values)


def test_reading_while_somebody_saves(
    encoder: LongTailClassifier, encoder_arguments: dict[str, Any], tmp_path: Path
) -> None:
    other = LongTailClassifier(**encoder_arguments | {"seed": 5}).fit(TEXTS, LABELS)
    scores = [one.decision_function(TEXTS) for one in (encoder, other)]
    limits = [one.thresholds_.values for one in (encoder, other)]
    folder = tmp_path / "run"
    encoder.save_pretrained(folder)
    done = threading.Event()
    errors: list[BaseException] = []

    def save_in_turn() -> None:
        try:
            while not done.is_set():
                for one in (other, encoder):
                    one.save_pretrained(folder)
                    time.sleep(0.05)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=save_in_turn)
    thread.start()
    seen = []
    try:
        for _ in range(12):
            loaded = LongTailClassifier.from_pretrained(folder)
            found = loaded.decision_function(TEXTS)
            which = [k for k in range(2) if np.array_equal(found, scores[k])]
            assert len(which) == 1
            assert np.array_equal(loaded.thresholds_.values, limits[which[0]])
            seen += which
    finally:
        done.set()
        thread.join()
    assert errors == []


def test_odd_label_names_survive(encoder_arguments: dict[str, Any], tmp_path: Path) -> None:
    names = ["a\nb", "\u202eright", "<b>|`*", "", "emoji \U0001f600", "0", "__proto__", "a" * 500]
    labels = [[names[k % len(names)], names[0]] for k in range(len(TEXTS))]
    arguments = encoder_arguments | {"epochs": 1}
    before = LongTailClassifier(**arguments).fit(TextData.from_lists(TEXTS, labels))
    before.save_pretrained(tmp_path / "run")
    after = LongTailClassifier.from_pretrained(tmp_path / "run")
    assert after.classes_.tolist() == before.classes_.tolist() == sorted(names)
    assert after.predict_labels(TEXTS) == before.predict_labels(TEXTS)
