"""The encoder model on a tiny BERT with random weights, made here: no download."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from longtail import LongTailClassifier
from longtail.errors import DataError

TEXTS = ["copper rose", "wheat fell", "copper and nickel rose", "wheat rose"] * 6
LABELS = [["copper"], ["wheat"], ["copper", "nickel"], ["wheat"]] * 6


@pytest.fixture(scope="module")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("tiny-bert")
    words = ["[PAD]", "[UNK]", *sorted({word for text in TEXTS for word in text.split()})]
    core = Tokenizer(WordLevel({word: k for k, word in enumerate(words)}, unk_token="[UNK]"))
    core.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="[PAD]", unk_token="[UNK]")
    tokenizer.save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
    )
    BertModel(config).save_pretrained(folder)
    return folder


def test_train_save_and_load(tiny_bert: Path, tmp_path: Path) -> None:
    classifier = LongTailClassifier(
        model="encoder",
        model_settings={"encoder": str(tiny_bert), "max_length": 8},
        epochs=30,
        batch_size=8,
        device="cpu",
    ).fit(TEXTS, LABELS)
    assert classifier.predict_labels(["copper and nickel rose", "wheat fell"]) == [
        ["copper", "nickel"],
        ["wheat"],
    ]
    classifier.save_pretrained(tmp_path / "run")
    again = LongTailClassifier.from_pretrained(tmp_path / "run")
    scores = classifier.decision_function(TEXTS)
    assert again.decision_function(TEXTS) == pytest.approx(scores, abs=1e-6)
    assert not list((tmp_path / "run").rglob("*.bin"))


def test_a_missing_encoder_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    classifier = LongTailClassifier(model="encoder", model_settings={"encoder": missing})
    with pytest.raises(DataError, match=r"config\.json, model\.safetensors"):
        classifier.fit(TEXTS, LABELS)
