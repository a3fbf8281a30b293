"""A fitted classifier as a folder: safetensors, JSON, tokenizer files and a model card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from longtail import __version__
from longtail.classifier.card import model_card
from longtail.classifier.plan import to_plain
from longtail.runs import CARD_FILE, CONFIG_FILE, manifest, seal

if TYPE_CHECKING:
    from longtail.classifier.estimator import LongTailClassifier

FORMAT = 4
"""Of the folder: raised when an older longtail could no longer read it."""
WEIGHTS_AND_TOKENIZER = (
    "*.safetensors", "*.model", "tokenizer*", "vocab*", "merges*", "special_tokens_map.json",
    "added_tokens.json", "chat_template*",
)  # fmt: skip
"""Files of an encoder beside its configuration."""


def write_files(
    classifier: LongTailClassifier,
    folder: Path,
    name: str | None = None,
    run: Mapping[str, Any] | None = None,
) -> None:
    """Write the files of a classifier, beside those that are in the folder already.

    `name`: what its card calls it. `run`: key and settings of the training that made it.
    """
    classifier.ensemble_.save(folder)
    # The same line ends on all systems, as checksums require.
    card = model_card(classifier, name)
    (folder / CARD_FILE).write_text(card, "utf-8", newline="\n")
    config = seal(_config(classifier) | {"run": run, "files": manifest(folder)})
    text = json.dumps(config, indent=2, ensure_ascii=False)
    (folder / CONFIG_FILE).write_text(text, "utf-8", newline="\n")


def _config(classifier: LongTailClassifier) -> dict[str, Any]:
    stats, ensemble = classifier.label_stats_, classifier.ensemble_
    return {
        "format": FORMAT,
        "longtail_version": __version__,
        "arguments": to_plain(classifier.get_params(deep=False)),
        "plans": [plan.to_dict() for plan in classifier.plans_],
        "label_names": classifier.classes_.tolist(),
        "label_counts": stats.label_counts.tolist(),
        "n_samples": stats.n_samples,
        "n_models": len(ensemble.models),
        "weights": list(ensemble.weights),
        "intercept": ensemble.intercept,
        "unknown": [np.flatnonzero(~row).tolist() for row in ensemble.known],
        "thresholds": classifier.thresholds_.to_dict(),
        "facts": classifier.facts_.to_dict(),
    }
