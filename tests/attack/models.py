"""One small fitted classifier of every kind, for the attacks on folders and threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from longtail import LongTailClassifier

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
    common = {"thresholds": "global", "device": "cpu"}
    own = {"encoder": str(encoder), "max_length": 8}
    step = {**common, "epochs": 2, "batch_size": 8, "folds": 1}
    return {
        "bag": {**common, "model": "bag", "folds": 1},
        "bag, characters": {
            **common,
            "model": "bag",
            "folds": 2,
            "model_settings": {"char_ngrams": 3, "min_df": 1},
        },
        "bag, hashing": {
            **common, "model": "bag", "folds": 1, "model_settings": {"hashing": 64},
        },
        "bag, hidden layer": {
            **step, "model": "bag", "model_settings": {"hidden": 4, "dropout": 0.5},
        },
        "svm": {**common, "model": "svm", "folds": 2},
        "encoder": {**step, "model": "encoder", "model_settings": own},
        "encoder, own head": {
            **step, "model": "encoder", "model_settings": {**own, "pooling": "cls"},
        },
        "blend": {
            **common,
            "folds": 2,
            "members": [
                {"model": "bag", "min_df": 1},
                {"model": "encoder", "epochs": 2, **own},
            ],
        },
    }  # fmt: skip


def fit_kinds(scratch: Path) -> dict[str, Path]:
    """Kind -> the folder of a fitted and saved classifier."""
    scratch.mkdir(parents=True, exist_ok=True)
    encoder = make_encoder(scratch / "tiny-bert")
    folders = {}
    for number, (kind, arguments) in enumerate(kinds(encoder).items()):
        folders[kind] = scratch / f"model-{number}"
        LongTailClassifier(**arguments).fit(TEXTS, LABELS).save_pretrained(folders[kind])
    return folders
