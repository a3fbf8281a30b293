"""The encoder, with tiny random networks and no download."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.special import expit

from longtail.errors import DataError
from longtail.fused import chunks
from longtail.models import Encoder
from longtail.models.encoder import HEAD_NORM, EncoderModel
from longtail.training import steps

from .cases import NAMES, TEXTS, fit_model, load_encoder

CPU = torch.device("cpu")
SHAPE: dict[str, Any] = {
    **dict(vocab_size=14, hidden_size=16, num_hidden_layers=2, num_attention_heads=2),
    **dict(intermediate_size=32, max_position_embeddings=24, pad_token_id=0),
}
# What each family needs beside its shape.
FAMILIES: dict[str, dict[str, Any]] = {
    "Bert": {},
    "Roberta": {},
    "DistilBert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32},
    "DebertaV2": dict(
        relative_attention=True, pos_att_type=["p2c", "c2p"], position_biased_input=False
    ),
    "ModernBert": {
        **dict(cls_token_id=2, bos_token_id=2, sep_token_id=3, eos_token_id=3),
        **dict(local_attention=8, global_attn_every_n_layers=2),
    },
}
Family = Callable[[str], Path]


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Callable[[], Any]) -> Family:
    """Makes the folder of a tiny encoder of a family, once."""
    import transformers

    folders: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp(name)
            tiny_tokenizer().save_pretrained(folders[name])
            torch.manual_seed(0)
            with warnings.catch_warnings():
                # DeBERTa is imported with a deprecated part of torch.
                warnings.simplefilter("ignore", DeprecationWarning)
                kind = getattr(transformers, f"{name}Model")
            kind(kind.config_class(**SHAPE, **FAMILIES[name])).save_pretrained(folders[name])
        return folders[name]

    return make


@pytest.fixture
def bert(family: Family, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(family("Bert"), tmp_path / "encoder"))


@pytest.mark.parametrize(
    ("pooling", "precision"), [("mean", "fp32"), ("cls", "fp32"), ("mean", "bf16")]
)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_learns_saves_and_loads(
    family: Family, tmp_path: Path, name: str, pooling: str, precision: str
) -> None:
    """Rotary angles are not saved: rounded in bf16, they would be exact after loading."""
    settings = Encoder(str(family(name)), pooling=pooling, max_length=10_000)
    before = dict(load_encoder(family(name), pooling=pooling).network.named_parameters())
    model = fit_model(settings, epochs=2, batch_size=6, weight_decay=0.1, precision=precision)
    after = dict(model.network.named_parameters())
    assert {value.dtype for value in model.network.state_dict().values()} == {torch.float32}
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert changed == {name for name, value in after.items() if value.requires_grad}
    heads = {name for name in after if model.is_head(name)}
    in_head = "labels" if pooling == "mean" else "classif"
    assert any(in_head in name for name in heads)
    assert not any("encoder" in name or "embeddings" in name for name in heads)
    # Texts longer than the encoder has positions are truncated.
    texts = [*TEXTS, "copper rose " * 500]
    assert model.encode(texts[-1:]).lengths.tolist() == [23 if name == "Roberta" else 24]
    scores = model.scores(texts)
    model.save(tmp_path)
    loaded = EncoderModel(settings)
    loaded.load(tmp_path, len(NAMES), CPU)
    np.testing.assert_array_equal(loaded.scores(texts), scores)
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".bin", ".pkl", ".pt")]


def test_cls_loads_in_the_pipeline_of_transformers(family: Family, tmp_path: Path) -> None:
    from transformers import pipeline

    model = fit_model(Encoder(str(family("Bert")), "cls"), epochs=3)
    assert model.works_in_pipeline and not EncoderModel(Encoder()).works_in_pipeline
    model.save(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classify = pipeline("text-classification", model=str(tmp_path), top_k=None, device="cpu")
        answers = classify(TEXTS)
    for row, answer in zip(model.scores(TEXTS), answers, strict=True):
        probabilities = {entry["label"]: entry["score"] for entry in answer}
        expected = dict(zip(NAMES, expit(row.astype(np.float64)), strict=True))
        assert probabilities == pytest.approx(expected, abs=1e-5)
    # Loaded and saved again, it still has its labels.
    loaded = EncoderModel(model.settings)
    loaded.load(tmp_path, len(NAMES), CPU)
    loaded.save(tmp_path / "again")
    config = json.loads((tmp_path / "again" / "config.json").read_text())
    assert config["id2label"] == {str(k): name for k, name in enumerate(NAMES)}
    assert config["problem_type"] == "multi_label_classification"


def test_labels_start_from_their_texts(family: Family) -> None:
    """Similar texts give similar weights; labels without a text start at random."""
    settings = Encoder(str(family("Bert")), max_length=8)
    texts = {"metal": ["copper zinc"], "all": ["copper tin", "zinc tin"], "née": ["wheat"]}
    still = {"epochs": 1, "learning_rate": 1e-12, "head_learning_rate": 1e-12}
    plain, started = (
        fit_model(settings, label_texts=given, **still).network.labels.weight.detach()
        for given in ({}, texts)
    )
    rows = [NAMES.index(name) for name in texts]
    assert torch.allclose(started[rows].norm(dim=1), torch.tensor(HEAD_NORM))
    metal, similar, other = started[rows]
    assert metal @ similar > metal @ other
    rest = [k for k in range(len(NAMES)) if k not in rows]
    assert torch.allclose(started[rest], plain[rest])
    # One text alone is its own mean.
    alone = fit_model(settings, label_texts={"metal": ["copper"]}, **still).network.labels.weight
    assert torch.allclose(alone, plain)


@pytest.mark.parametrize("loss", ["db", "pw-bce", "zlpr"])
def test_many_labels_are_trained_without_all_logits(
    family: Family, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    """With the same result; zlpr needs all logits of a document."""
    settings = Encoder(str(family("Bert")), max_length=8)
    plain = fit_model(settings, epochs=2, batch_size=4, loss=loss)
    monkeypatch.setattr(chunks, "CHUNK_ELEMENTS", 2)
    monkeypatch.setattr(chunks, "STEP", 1)
    used = Mock(wraps=steps.linear_balanced_loss)
    monkeypatch.setattr(steps, "linear_balanced_loss", used)
    fused = fit_model(settings, epochs=2, batch_size=4, loss=loss)
    assert used.called == (loss != "zlpr")
    pairs = zip(plain.network.parameters(), fused.network.parameters(), strict=True)
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in pairs)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_classifier_as_the_encoder_of_another(
    family: Family, tmp_path: Path, pooling: str
) -> None:
    """It contributes its body, and gets a new head for other labels."""
    first = fit_model(Encoder(str(family("Bert")), "cls"), epochs=1)
    first.save(tmp_path)
    second = EncoderModel(Encoder(str(tmp_path), pooling))
    second.load_pretrained([*NAMES, "one more"])
    bodies = [model._pretrained.base_model.embeddings for model in (first, second)]
    assert torch.equal(*(body.word_embeddings.weight for body in bodies))
    second.to_device(CPU)
    assert second.scores(TEXTS).shape == (len(TEXTS), len(NAMES) + 1)


def test_the_mean_ignores_padding(family: Family) -> None:
    model = load_encoder(family("Bert"), max_length=7)
    assert model.encode(["copper " * 50]).lengths.tolist() == [7]
    alone = np.concatenate([model.scores([text]) for text in TEXTS])
    np.testing.assert_allclose(model.scores(TEXTS), alone, atol=1e-5)


def test_a_missing_encoder_is_explained(tmp_path: Path) -> None:
    for source in (str(tmp_path / "missing"), "nobody/nothing"):
        message = f"the encoder {source!r} was not found.*hub was not contacted.*--encoder FOLDER"
        with pytest.raises(DataError, match=message):
            load_encoder(Path(source))


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_an_incomplete_folder_is_explained(bert: Path, file: str) -> None:
    whole = (bert / file).read_bytes()
    (bert / file).write_bytes(whole[: len(whole) // 2])
    message = r"is not an encoder: it could not be read \(.+\)\. Pass the"
    with pytest.raises(DataError, match=message):
        load_encoder(bert)
    # Without any file of a tokenizer transformers makes one that has special tokens only.
    for path in bert.glob("tokenizer*") if file == "tokenizer.json" else [bert / file]:
        path.unlink()
    with pytest.raises(DataError, match=rf"is not an encoder: it lacks {file}\. Pass the path"):
        load_encoder(bert)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_missing_weights_are_not_initialised(bert: Path, tmp_path: Path, pooling: str) -> None:
    path = bert / "model.safetensors"
    weights = load_file(path)

    def keep(path: Path, without: str) -> None:
        kept = {name: value for name, value in load_file(path).items() if without not in name}
        save_file(kept, path, metadata={"format": "pt"})

    keep(path, "layer.1")
    with pytest.raises(DataError, match=r"no weights for 16 of its parts.*encoder\.layer\.1"):
        load_encoder(bert, pooling=pooling)
    # Except for a pooler, which is often left out.
    save_file(weights, path, metadata={"format": "pt"})
    keep(path, "pooler")
    load_encoder(bert, pooling=pooling).save(tmp_path)
    # A saved model must be complete.
    names = list(load_file(tmp_path / "model.safetensors"))
    for lost in (names[0], names[-1]):
        keep(tmp_path / "model.safetensors", lost)
        with pytest.raises(DataError, match=r"has no weights for .*It is damaged: train it again"):
            EncoderModel(Encoder(str(bert), pooling)).load(tmp_path, len(NAMES), CPU)


@pytest.mark.parametrize(("bars", "pooling"), [(True, "mean"), (False, "cls")])
def test_transformers_logging_is_restored_and_nothing_is_printed(
    family: Family, tmp_path: Path, capfd: pytest.CaptureFixture[str], bars: bool, pooling: str
) -> None:
    from transformers.utils import logging

    set_bars = {True: logging.enable_progress_bar, False: logging.disable_progress_bar}
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    try:
        set_bars[bars]()
        logging.set_verbosity_warning()
        load_encoder(family("Bert"), pooling=pooling).save(tmp_path)
        after = logging.get_verbosity(), logging.is_progress_bar_enabled()
    finally:
        logging.set_verbosity(before[0])
        set_bars[before[1]]()
    assert after == (logging.WARNING, bars)
    assert capfd.readouterr() == ("", "")
