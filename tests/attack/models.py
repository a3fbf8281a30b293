"""One small fitted classifier of every kind, for the attacks on folders and threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from longtail import Bag, Encoder, LongTailClassifier, Svm, Training

from ..conftest import save_bert

TEXTS = ["copper rose", "wheat fell", "copper and nickel rose", "wheat rose again"] * 6
LABELS = [["copper"], ["wheat"], ["copper", "nickel"], ["wheat"]] * 6


def kinds(encoder: Path) -> dict[str, dict[str, Any]]:
    """Return arguments of LongTailClassifier by kind of model."""
    step = Training(epochs=2, batch_size=8, device="cpu")
    tiny = {"encoder": str(encoder), "max_length": 8}
    blend = [Bag(C=9.0, min_df=1), Encoder(**tiny, training=Training(epochs=2, device="cpu"))]
    arguments: dict[str, dict[str, Any]] = {
        "bag": {"model": Bag(C=9.0), "folds": 1},
        "bag, characters": {"model": Bag(C=9.0, char_ngrams=3, min_df=1), "folds": 2},
        "bag, squared hinge": {"model": Bag(C=1.0, loss="squared-hinge"), "folds": 2},
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
    """Fit and save a classifier of each kind; return kind -> folder."""
    # A high dropout reveals a network in training mode.
    encoder = save_bert(scratch / "tiny-bert", hidden_dropout_prob=0.5)
    folders = {}
    for number, (kind, arguments) in enumerate(kinds(encoder).items()):
        folders[kind] = scratch / f"model-{number}"
        LongTailClassifier(**arguments).fit(TEXTS, LABELS).save_pretrained(folders[kind])
    return folders
