"""The encoder on tiny networks with random weights, made here: no download."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from longtail.data import TextData
from longtail.errors import DataError, InputError
from longtail.losses import build_loss
from longtail.models import build_model
from longtail.models.encoder import EncoderModel
from longtail.settings import EncoderSettings, TrainingConfig
from longtail.training import predict_logits, train

NAMES = ("copper", "grain & co", "née")
TEXTS = ["copper rose", "wheat fell", "copper and nickel rose", "wheat rose", "the tin of zinc"]
LABELS = [["copper"], ["née"], ["copper", "grain & co"], ["née"], []]
DATA = TextData.from_lists(TEXTS, LABELS, NAMES)

SHAPE: dict[str, Any] = {
    "vocab_size": 14,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 24,
    "pad_token_id": 0,
}
# What each family wants beside its shape, and how many tokens it can read.
FAMILIES: dict[str, tuple[dict[str, Any], int]] = {
    "Bert": ({}, 24),
    "Roberta": ({}, 23),
    "DistilBert": ({"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}, 24),
    "DebertaV2": (
        {
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_biased_input": False,
        },
        24,
    ),
    "ModernBert": (
        {
            "cls_token_id": 2,
            "bos_token_id": 2,
            "sep_token_id": 3,
            "eos_token_id": 3,
            "local_attention": 8,
            "global_attn_every_n_layers": 2,
        },
        24,
    ),
}


@pytest.fixture(scope="module")
def family(
    tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Callable[[], Any]
) -> Callable[[str], Path]:
    """Makes the folder of a tiny encoder of a family, once."""
    import transformers

    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name)
            tiny_tokenizer().save_pretrained(made[name])
            more, _ = FAMILIES[name]
            torch.manual_seed(0)
            with warnings.catch_warnings():
                # DeBERTa is imported with a deprecated part of torch.
                warnings.simplefilter("ignore", DeprecationWarning)
                kind = getattr(transformers, f"{name}Model")
            kind(kind.config_class(**SHAPE, **more)).save_pretrained(made[name])
        return made[name]

    return make


def made(folder: Path, **settings: Any) -> EncoderModel:
    model = EncoderModel(EncoderSettings(encoder=str(folder), **settings))
    torch.manual_seed(0)
    model.prepare(TEXTS, NAMES)
    return model


def learn(model: EncoderModel, **settings: Any) -> None:
    used = {"epochs": 1, "batch_size": 5, "device": "cpu", **settings}
    loss = build_loss("db", DATA.stats(), reduction="batchmean")
    train(model, model.encode(TEXTS), DATA.Y, loss, TrainingConfig(**used))


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_learns_saves_and_loads(
    family: Callable[[str], Path], tmp_path: Path, name: str, pooling: str
) -> None:
    model = made(family(name), pooling=pooling, max_length=10_000)
    before = {k: v.detach().clone() for k, v in model.network.named_parameters()}
    learn(model, weight_decay=0.1)
    moved = {k for k, v in model.network.named_parameters() if not torch.equal(v, before[k])}
    assert moved == {k for k, v in model.network.named_parameters() if v.requires_grad}
    heads = {k for k in before if model.is_head(k)}
    assert heads and all(
        ("labels" in k) if pooling == "mean" else ("encoder" not in k) for k in heads
    )
    # Longer texts than the encoder has positions are cut.
    long = model.encode(["copper rose " * 500])
    assert long.lengths.tolist() == [FAMILIES[name][1]]
    scores = predict_logits(model.network, model.encode([*TEXTS, "copper " * 500]))
    assert scores.shape == (6, 3) and np.isfinite(scores).all()
    model.save(tmp_path)
    again = EncoderModel(model.settings)
    again.load(tmp_path, len(NAMES))
    found = predict_logits(again.network, again.encode([*TEXTS, "copper " * 500]))
    np.testing.assert_array_equal(found, scores)
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".bin", ".pkl", ".pt")]


@pytest.mark.parametrize("name", FAMILIES)
def test_bf16_leaves_float32_that_loads_to_the_same(
    family: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    """Rotary angles are not saved: rounded by the training, they would be exact after loading."""
    model = made(family(name))
    kept = {k: v.clone() for k, v in model.network.state_dict().items() if "pooler" in k}
    learn(model, precision="bf16", epochs=2)
    assert {v.dtype for v in model.network.state_dict().values()} == {torch.float32}
    assert all(torch.equal(v, model.network.state_dict()[k]) for k, v in kept.items())
    model.save(tmp_path)
    again = EncoderModel(model.settings)
    again.load(tmp_path, len(NAMES))
    scores = [predict_logits(m.network, m.encode(TEXTS)) for m in (model, again)]
    np.testing.assert_array_equal(*scores)


def test_cls_loads_in_the_pipeline_of_transformers(
    family: Callable[[str], Path], tmp_path: Path
) -> None:
    from transformers import pipeline

    model = made(family("Bert"), pooling="cls")
    learn(model, epochs=3)
    model.save(tmp_path)
    logits = predict_logits(model.network, model.encode(TEXTS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classify = pipeline("text-classification", model=str(tmp_path), top_k=None, device="cpu")
        answers = classify(TEXTS)
    for row, answer in zip(logits, answers, strict=True):
        found = {entry["label"]: entry["score"] for entry in answer}
        assert set(found) == set(NAMES)
        expected = dict(zip(NAMES, 1 / (1 + np.exp(-row.astype(np.float64))), strict=True))
        assert found == pytest.approx(expected, abs=1e-5)
    # Loaded and saved by us, it still knows its labels.
    again = EncoderModel(model.settings)
    again.load(tmp_path, len(NAMES))
    again.save(tmp_path / "again")
    config = json.loads((tmp_path / "again" / "config.json").read_text())
    assert config["id2label"] == {str(k): name for k, name in enumerate(NAMES)}
    assert config["problem_type"] == "multi_label_classification"


def test_a_classifier_can_be_the_encoder_of_another(
    family: Callable[[str], Path], tmp_path: Path
) -> None:
    """Its body is taken, its head for other labels is not."""
    first = made(family("Bert"), pooling="cls")
    learn(first)
    first.save(tmp_path)
    for pooling in ("cls", "mean"):
        second = EncoderModel(EncoderSettings(encoder=str(tmp_path), pooling=pooling))
        second.prepare(TEXTS, [*NAMES, "one more"])
        body = first._core().bert if pooling == "cls" else first._core().base_model
        mine = second._core().base_model
        assert torch.equal(
            mine.embeddings.word_embeddings.weight, body.embeddings.word_embeddings.weight
        )
        assert second.network(**second.encode(TEXTS).batch(np.arange(2))).shape == (2, 4)


def test_the_mean_leaves_out_padding(family: Callable[[str], Path]) -> None:
    model = made(family("Bert"))
    model.network.eval()
    encoded = model.encode(TEXTS)
    together = model.network(**encoded.batch(np.arange(5)))
    alone = torch.cat([model.network(**encoded.batch(np.array([k]))) for k in range(5)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)


def test_settings_by_name(family: Callable[[str], Path]) -> None:
    model = build_model("encoder", encoder=str(family("Bert")), max_length=7)
    assert isinstance(model, EncoderModel) and model.settings.max_length == 7
    model.prepare([], NAMES)
    assert model.encode(["copper " * 50]).lengths.tolist() == [7]


def test_a_limit_below_the_special_tokens(family: Callable[[str], Path]) -> None:
    with pytest.raises(InputError, match="max_length must be above 2"):
        made(family("Bert"), max_length=2).encode(TEXTS)


def test_a_missing_encoder_is_explained(tmp_path: Path) -> None:
    for source in (str(tmp_path / "missing"), "nobody/nothing"):
        with pytest.raises(DataError) as caught:
            EncoderModel(EncoderSettings(encoder=source)).prepare(TEXTS, NAMES)
        said = str(caught.value)
        assert (
            f"the encoder {source!r} was not found: no such folder here, not in the cache" in said
        )
        assert "hub was not asked, as HF_HUB_OFFLINE is set" in said
        assert "a folder that holds config.json, model.safetensors and the tokenizer files" in said
        assert "--encoder FOLDER" in said


FILES = ("config.json", "model.safetensors", "tokenizer.json")


@pytest.mark.parametrize("file", FILES)
def test_an_incomplete_folder_is_explained(
    family: Callable[[str], Path], tmp_path: Path, file: str
) -> None:
    folder = tmp_path / "encoder"
    shutil.copytree(family("Bert"), folder)
    whole = (folder / file).read_bytes()
    (folder / file).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"is no encoder: it could not be read \(.+\)\. Pass the"):
        made(folder)
    (folder / file).unlink()
    with pytest.raises(DataError, match=rf"is no encoder: it lacks {file}\. Pass the path"):
        made(folder)


def test_a_tokenizer_without_words_is_not_made_up(
    family: Callable[[str], Path], tmp_path: Path
) -> None:
    """transformers makes one that knows special tokens only: every text would be the same."""
    folder = tmp_path / "encoder"
    shutil.copytree(family("Bert"), folder)
    for path in folder.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(DataError, match=r"it lacks tokenizer\.json"):
        made(folder)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_weights_that_are_missing_are_not_made_up(
    family: Callable[[str], Path], tmp_path: Path, pooling: str
) -> None:
    folder = tmp_path / "encoder"
    shutil.copytree(family("Bert"), folder)
    weights = load_file(folder / "model.safetensors")
    kept = {name: value for name, value in weights.items() if "layer.1" not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError, match=r"no weights for 16 of its parts.*encoder\.layer\.1"):
        made(folder, pooling=pooling)
    # A pooler is often left out, and made anew.
    without = {name: value for name, value in weights.items() if "pooler" not in name}
    save_file(without, folder / "model.safetensors", metadata={"format": "pt"})
    model = made(folder, pooling=pooling)
    # In what was saved, nothing may be missing.
    model.save(tmp_path)
    names = list(load_file(tmp_path / "model.safetensors"))
    for lost in (names[0], names[-1]):
        rest = load_file(tmp_path / "model.safetensors")
        del rest[lost]
        save_file(rest, tmp_path / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(DataError, match=r"has no weights for .*It is damaged: train it again"):
            EncoderModel(model.settings).load(tmp_path, len(NAMES))


def test_transformers_speaks_as_before(family: Callable[[str], Path], tmp_path: Path) -> None:
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    try:
        for bars in (True, False):
            (logging.enable_progress_bar if bars else logging.disable_progress_bar)()
            logging.set_verbosity_warning()
            made(family("Bert")).save(tmp_path)
            assert logging.is_progress_bar_enabled() is bars
            assert logging.get_verbosity() == logging.WARNING
    finally:
        logging.set_verbosity(before[0])
        (logging.enable_progress_bar if before[1] else logging.disable_progress_bar)()


def test_nothing_is_printed(
    family: Callable[[str], Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for pooling in ("mean", "cls"):
        made(family("Bert"), pooling=pooling).save(tmp_path)
    printed = capfd.readouterr()
    assert printed.out == printed.err == ""
