"""Encoders with code, pickles or absurd sizes: nothing is run or allocated."""

from __future__ import annotations

import builtins
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from longtail import Encoder, LongTailClassifier, Training
from longtail.errors import DataError
from longtail.models.encoder import EncoderModel

from ..classifier.cases import LABELS, TEXTS
from .cases import edit_json, load_encoder

BAIT = """
from pathlib import Path
from transformers import BertConfig, BertModel

Path(__file__).with_name("RAN").touch()


class Config(BertConfig):
    model_type = "bait"


class Model(BertModel):
    config_class = Config
"""
NO_CODE = "needs to run its own code.*--trust-remote-code"


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code is copied to a temporary folder; a prompt would read texts that are to be classified."""
    from transformers import dynamic_module_utils, utils

    def prompt(*_: object) -> str:
        raise AssertionError("a prompt on stdin")

    monkeypatch.setattr(builtins, "input", prompt)
    for module in (dynamic_module_utils, utils):
        monkeypatch.setattr(module, "HF_MODULES_CACHE", str(tmp_path / "modules"))


@pytest.fixture
def encoder(tiny_bert: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bert, tmp_path / "encoder"))


def with_code(folder: Path, model_type: str = "bait") -> Path:
    (folder / "bait.py").write_text(BAIT)
    auto = {"AutoConfig": "bait.Config", "AutoModel": "bait.Model"}
    edit_json(folder / "config.json", model_type=model_type, auto_map=auto)
    return folder


def ran(folder: Path) -> bool:
    """Whether code was run, from the folder or from the copy that transformers makes."""
    return any(folder.parent.rglob("RAN"))


def make_classifier(encoder: Path) -> LongTailClassifier:
    training = Training(epochs=1, device="cpu")
    return LongTailClassifier(Encoder(str(encoder)), training=training, folds=1)


def test_code_of_an_encoder_is_not_run(encoder: Path) -> None:
    with pytest.raises(DataError, match=NO_CODE):
        load_encoder(with_code(encoder))
    # Not needed for a model that transformers has.
    load_encoder(with_code(encoder, "bert"))
    assert not ran(encoder)


def test_trusted_code_is_run(encoder: Path, tmp_path: Path) -> None:
    classifier = make_classifier(with_code(encoder))
    with pytest.raises(DataError, match=NO_CODE):
        classifier.fit(TEXTS, LABELS)
    assert not ran(encoder)
    classifier.fit(TEXTS, LABELS, trust_remote_code=True)
    assert ran(encoder)
    classifier.save_pretrained(tmp_path / "run")
    # Trust is not saved.
    with pytest.raises(DataError, match=NO_CODE):
        LongTailClassifier.from_pretrained(tmp_path / "run")
    loaded = LongTailClassifier.from_pretrained(tmp_path / "run", trust_remote_code=True)
    assert loaded.predict_labels(TEXTS) == classifier.predict_labels(TEXTS)


class Pickled:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_pickle_is_never_loaded(encoder: Path) -> None:
    (encoder / "model.safetensors").unlink()
    (encoder / "pytorch_model.bin").write_bytes(pickle.dumps(Pickled(encoder / "RAN")))
    with pytest.raises(DataError, match=r"it lacks model\.safetensors"):
        load_encoder(encoder)
    assert not ran(encoder)


CODE, SIZE = r"would download and run code.*Remove the setting", "weights have nothing of that size"
PATH = "which is outside its folder"
KERNEL = "somebody/kernel:function"
TOKENIZER, INDEX = "tokenizer_config.json", "model.safetensors.index.json"


@pytest.mark.parametrize(
    ("file", "key", "value", "message"),
    [
        ("config.json", "attn_implementation", "kernels-community/flash-attn", CODE),
        ("config.json", "_attn_implementation", KERNEL, CODE),
        ("config.json", "_attn_implementation_internal", "flash_attention_2", CODE),
        ("config.json", "attn_implementation", {"": KERNEL}, CODE),
        ("config.json", "experts_implementation", KERNEL, CODE),
        ("config.json", "use_kernels", True, CODE),
        ("config.json", "inner_config", {"attn_implementation": KERNEL}, CODE),
        ("config.json", "num_hidden_layers", 10**9, SIZE),
        ("config.json", "num_hidden_layers", 4096, SIZE),
        ("config.json", "hidden_size", 10**12, SIZE),
        ("config.json", "max_position_embeddings", 10**10, SIZE),
        ("config.json", "num_labels", 10**9, SIZE),
        (TOKENIZER, "fast_tokenizer_files", ["../other/tokenizer.5.0.0.json"], PATH),
        (TOKENIZER, "vocab", "/etc/passwd", PATH),
        (TOKENIZER, "merges", "..\\merges.txt", PATH),
        (INDEX, "weight_map", {"a": "../other/model.safetensors"}, PATH),
    ],
)
def test_refused_settings(encoder: Path, file: str, key: str, value: Any, message: str) -> None:
    """Downloaded kernels, sizes that the weights lack, files outside the folder."""
    edit_json(encoder / file, **{key: value})
    for trust in (False, True):
        with pytest.raises(DataError, match=message):
            load_encoder(encoder, trust=trust)


@pytest.mark.parametrize("choice", ["eager", "sdpa", None])
def test_built_in_attention_may_be_chosen(encoder: Path, choice: str | None) -> None:
    edit_json(encoder / "config.json", attn_implementation=choice)
    model = load_encoder(encoder)
    assert model._pretrained.config._attn_implementation == (choice or "sdpa")


def test_a_tokenizer_of_another_encoder(encoder: Path) -> None:
    model = load_encoder(encoder)
    model._pretrained.resize_token_embeddings(5)
    with pytest.raises(DataError, match=r"5 token embeddings: they do not belong together"):
        model.encode(["copper wheat zinc"])


def test_paths_that_are_not_read_are_harmless(encoder: Path) -> None:
    """Tokenizers often name files of the machine that they were made on."""
    paths = {"special_tokens_map_file": "/home/x/map.json", "name_or_path": "/home/x/model"}
    edit_json(encoder / "tokenizer_config.json", **paths)
    assert len(load_encoder(encoder).encode(["copper rose"])) == 1


def test_a_failing_library_is_explained(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        """As Rust raises it."""

    classifier = make_classifier(encoder).fit(TEXTS, LABELS)
    for error in (OverflowError("raw"), PanicException("raw"), AttributeError("raw")):

        def fail(*_: object, raised: BaseException = error) -> None:
            raise raised

        monkeypatch.setattr(EncoderModel, "encode", fail)
        with pytest.raises(DataError, match=rf"cannot score these texts: {type(error).__name__}"):
            classifier.predict(TEXTS)
