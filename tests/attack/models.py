"""One small fitted classifier of every kind, for the attacks on folders and threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from longtail import Bag, Encoder, LongTailClassifier, Svm, Training

TEXTS = ["copper rose", "wheat fell", "copper and nickel rose", "wheat rose again"] * 6
LABELS = [["copper"], ["wheat"], ["copper", "nickel"], ["wheat"]] * 6


def make_encoder(folder: Path, dropout: float = 0.5) -> Path:
    """A BERT with random weights and much dropout, which knows the words of TEXTS."""
    words = ["[PAD]", "[UNK]", *sorted({word for text in TEXTS for word in text.split()})]
    core = Tokenizer(WordLevel({word: k for k, word in enumerate(words)}, unk_token="[UNK]"))
    core.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        hidden_dropout_prob=dropout,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertModel(config).save_pretrained(folder)
    return folder


def kinds(encoder: Path) -> dict[str, dict[str, Any]]:
    """Arguments of LongTailClassifier by the kind of model that they make."""
    step = Training(epochs=2, batch_size=8, device="cpu")
    tiny = {"encoder": str(encoder), "max_length": 8}
    blend = [Bag(min_df=1), Encoder(**tiny, training=Training(epochs=2, device="cpu"))]
    arguments: dict[str, dict[str, Any]] = {
        "bag": {"model": Bag(), "folds": 1},
        "bag, characters": {"model": Bag(char_ngrams=3, min_df=1), "folds": 2},
        "bag, hashing": {"model": Bag(hashing=64), "folds": 1},
        "bag, hidden layer": {"model": Bag(hidden=4), "folds": 1, "training": step},
        "svm": {"model": Svm(), "folds": 2},
        "encoder": {"model": Encoder(**tiny), "folds": 1, "training": step},
        "encoder, own head": {
            "model": Encoder(**tiny, pooling="cls"), "folds": 1, "training": step,
        },
        "blend": {"model": blend, "folds": 2},
    }  # fmt: skip
    common = {"thresholds": "global", "training": Training(device="cpu")}
    return {kind: {**common, **each} for kind, each in arguments.items()}


def fit_kinds(scratch: Path) -> dict[str, Path]:
    """Kind -> the folder of a fitted and saved classifier."""
    scratch.mkdir(parents=True, exist_ok=True)
    encoder = make_encoder(scratch / "tiny-bert")
    folders = {}
    for number, (kind, arguments) in enumerate(kinds(encoder).items()):
        folders[kind] = scratch / f"model-{number}"
        LongTailClassifier(**arguments).fit(TEXTS, LABELS).save_pretrained(folders[kind])
    return folders
