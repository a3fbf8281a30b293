"""Multi-label documents, and a helper that fits a model without a classifier."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import torch

from longtail.data import TextData
from longtail.losses import build_loss
from longtail.models import Encoder, ModelSettings, build_model
from longtail.models.base import FitContext
from longtail.models.encoder import EncoderModel
from longtail.training import Training
from longtail.training.interrupt import NEVER

# Metal; corn (rare, so that balancing shows); a label on no document; one on all.
NAMES = ("metal", "corn & co", "née", "all")
TEXTS = ["copper rose", "zinc fell", "copper and zinc", "wheat", "wheat and tin", "tin fell"]
LABELS = [["metal", "all"]] * 3 + [["all"]] + [["corn & co", "all"]] * 2
DATA = TextData.from_lists(TEXTS, LABELS, NAMES)
ODD = ["", "x", "zinc " * 100_000, "🙂", "ذهب", "zinc\x00", "and the", "qqqq", " \t\n"]


def fit_model(settings: ModelSettings, data: TextData = DATA, **arguments: Any) -> Any:
    """Fit a model on the CPU; `arguments`: fields of FitContext and of Training, and the loss."""
    make_loss = arguments.pop("loss", "db")
    if isinstance(make_loss, str):
        make_loss = partial(build_loss, make_loss)
    context: dict[str, Any] = {
        "encode": lambda model: model.learn_encoding(data.texts),
        "validation": lambda model: None,
        "seeded": lambda: torch.random.fork_rng([]),
        "seed": 0,
        "checkpoints": None,
        "progress": lambda moment: None,
        "note": print,
        "stop": NEVER,
        "kept": "Nothing was saved.",
        "describe": str,
        "label_texts": {},
    }
    context |= {key: arguments.pop(key) for key in arguments.keys() & context.keys()}
    model = build_model(settings)
    torch.manual_seed(0)

    def loss(stats: Any, **options: Any) -> Any:
        return make_loss(stats, **{"reduction": "batchmean", **options})

    model.fit(data, loss, Training(device="cpu", **arguments), FitContext(**context))
    return model


def load_encoder(folder: Path, *, trust: bool = False, **settings: Any) -> EncoderModel:
    """A pretrained encoder with a new head."""
    model = EncoderModel(Encoder(str(folder), **settings))
    model.trust_remote_code = trust
    torch.manual_seed(0)
    model.load_pretrained(NAMES)
    model.to_device(torch.device("cpu"))
    return model


def edit_json(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**content, **changes}))
