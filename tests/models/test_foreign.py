"""Encoders that bring code, pickles or absurd sizes along: nothing of it is run or allocated."""

from __future__ import annotations

import builtins
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from longtail import LongTailClassifier
from longtail.errors import DataError
from longtail.models.encoder import EncoderModel
from longtail.settings import EncoderSettings

NAMES = ("copper", "wheat")
TEXTS, LABELS = ["copper rose", "wheat fell"] * 6, [["copper"], ["wheat"]] * 6
BAIT = """
from pathlib import Path
from transformers import BertConfig, BertModel

Path(__file__).with_name("RAN").touch()


class Config(BertConfig):
    model_type = "bait"


class Model(BertModel):
    config_class = Config
"""


@pytest.fixture(autouse=True)
def _no_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks on stdin would be answered by the texts that are to be classified."""

    def asked(*_: object) -> str:
        raise AssertionError("a question was asked")

    monkeypatch.setattr(builtins, "input", asked)


@pytest.fixture
def encoder(tiny_bert: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bert, tmp_path / "encoder"))


def edit(folder: Path, **changes: Any) -> Path:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return folder


def with_code(folder: Path, model_type: str = "bait") -> Path:
    (folder / "bait.py").write_text(BAIT)
    auto = {"AutoConfig": "bait.Config", "AutoModel": "bait.Model"}
    return edit(folder, model_type=model_type, auto_map=auto)


def ran(folder: Path) -> bool:
    """Whether the code was run, from the folder or from the copy that transformers makes of it."""
    from transformers.utils import HF_MODULES_CACHE

    copies = Path(HF_MODULES_CACHE).rglob("RAN")
    return (folder / "RAN").exists() or any(copies)


@pytest.fixture(autouse=True)
def _own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import dynamic_module_utils, utils

    for module in (dynamic_module_utils, utils):
        monkeypatch.setattr(module, "HF_MODULES_CACHE", str(tmp_path / "modules"))


def prepare(folder: Path, *, trust: bool = False) -> EncoderModel:
    model = EncoderModel(EncoderSettings(encoder=str(folder)))
    model.trust_remote_code = trust
    model.prepare([], NAMES)
    return model


def test_code_of_an_encoder_is_not_run(encoder: Path) -> None:
    with pytest.raises(DataError, match=r"brings code of its own.*--trust-remote-code"):
        prepare(with_code(encoder))
    assert not ran(encoder)


def test_code_is_not_needed_where_transformers_knows_the_model(encoder: Path) -> None:
    prepare(with_code(encoder, "bert"))
    assert not ran(encoder)


def test_code_is_run_where_a_user_asks_for_it(encoder: Path, tmp_path: Path) -> None:
    arguments = {"model_settings": {"encoder": str(with_code(encoder))}, "epochs": 1, "folds": 1}
    classifier = LongTailClassifier("encoder", device="cpu", **arguments)
    with pytest.raises(DataError, match="brings code of its own"):
        classifier.fit(TEXTS, LABELS)
    assert not ran(encoder)
    classifier.fit(TEXTS, LABELS, trust_remote_code=True)
    assert ran(encoder)
    classifier.save_pretrained(tmp_path / "run")
    # Nothing in the folder says that its code is trusted: it has to be said again.
    with pytest.raises(DataError, match="brings code of its own"):
        LongTailClassifier.from_pretrained(tmp_path / "run")
    again = LongTailClassifier.from_pretrained(tmp_path / "run", trust_remote_code=True)
    assert again.predict_labels(TEXTS) == classifier.predict_labels(TEXTS)


class Pickled:
    """Unpickled, it leaves a trace."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.place,)


def test_a_pickle_is_never_loaded(encoder: Path) -> None:
    (encoder / "model.safetensors").unlink()
    (encoder / "pytorch_model.bin").write_bytes(pickle.dumps(Pickled(encoder / "RAN")))
    with pytest.raises(DataError, match=r"it lacks model\.safetensors"):
        prepare(encoder)
    torch.save({"weight": torch.zeros(3)}, encoder / "pytorch_model.bin")
    with pytest.raises(DataError, match=r"it lacks model\.safetensors"):
        prepare(encoder)
    assert not ran(encoder)


@pytest.mark.parametrize(
    "setting",
    [
        {"attn_implementation": "kernels-community/flash-attn"},
        {"_attn_implementation": "somebody/kernel:function"},
        {"_attn_implementation_internal": "flash_attention_2"},
        {"attn_implementation": {"": "somebody/kernel"}},
        {"experts_implementation": "somebody/kernel"},
        {"use_kernels": True},
        {"inner_config": {"attn_implementation": "somebody/kernel"}},
    ],
    ids=str,
)
def test_kernels_by_name_are_refused(encoder: Path, setting: dict[str, Any]) -> None:
    for trust in (False, True):
        with pytest.raises(DataError, match=r"would fetch and run code.*Remove the setting"):
            prepare(edit(encoder, **setting), trust=trust)


@pytest.mark.parametrize("choice", ["eager", "sdpa", None])
def test_what_is_built_in_may_be_chosen(encoder: Path, choice: str | None) -> None:
    model = prepare(edit(encoder, attn_implementation=choice))
    assert model._core().config._attn_implementation == (choice or "sdpa")


@pytest.mark.parametrize(
    "sizes",
    [
        {"num_hidden_layers": 10**9},
        {"hidden_size": 10**12},
        {"vocab_size": 10**15},
        {"max_position_embeddings": 10**10},
        {"intermediate_size": 2**62},
        {"num_hidden_layers": 4096},
        {"num_labels": 10**9},
    ],
    ids=str,
)
def test_sizes_that_the_weights_do_not_have(encoder: Path, sizes: dict[str, int]) -> None:
    with pytest.raises(DataError, match=r"its weights have nothing of that size"):
        prepare(edit(encoder, **sizes))


def test_a_tokenizer_of_another_encoder(encoder: Path) -> None:
    model = prepare(encoder)
    model._core().resize_token_embeddings(5)
    with pytest.raises(DataError, match=r"5 token embeddings: they do not belong together"):
        model.encode(["copper wheat zinc"])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer_config.json", {"fast_tokenizer_files": ["../other/tokenizer.5.0.0.json"]}),
        ("tokenizer_config.json", {"vocab": "/etc/passwd"}),
        ("tokenizer_config.json", {"merges": "..\\merges.txt"}),
        ("model.safetensors.index.json", {"weight_map": {"a": "../other/model.safetensors"}}),
    ],
)
def test_files_elsewhere_are_not_read(encoder: Path, name: str, content: dict[str, Any]) -> None:
    (encoder / name).write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"which is outside of its folder"):
        prepare(encoder)


def test_a_library_that_fails_is_explained(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PanicException(BaseException):
        pass

    arguments = {"model_settings": {"encoder": str(encoder)}, "epochs": 1, "folds": 1}
    classifier = LongTailClassifier("encoder", device="cpu", **arguments).fit(TEXTS, LABELS)
    for error in (OverflowError("raw"), PanicException("raw"), AttributeError("raw")):

        def fail(*_: object, raised: BaseException = error) -> None:
            raise raised

        monkeypatch.setattr(EncoderModel, "encode", fail)
        with pytest.raises(DataError, match=rf"cannot score these texts: {type(error).__name__}"):
            classifier.predict(TEXTS)


def test_paths_of_the_machine_it_was_made_on_do_no_harm(encoder: Path) -> None:
    place = encoder / "tokenizer_config.json"
    config = json.loads(place.read_text()) if place.exists() else {}
    known = {"special_tokens_map_file": "/home/somebody/special_tokens_map.json"}
    place.write_text(json.dumps({**config, **known, "name_or_path": "/home/somebody/model"}))
    assert len(prepare(encoder).encode(["copper rose"])) == 1
