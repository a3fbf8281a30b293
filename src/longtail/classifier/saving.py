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
from longtail.runs.model import CARD_FILE, CONFIG_FILE, check_out, manifest, replace_model, seal

if TYPE_CHECKING:
    from longtail.classifier.estimator import LongTailClassifier

FORMAT = 4
"""Of the folder: raised when an older longtail could no longer read it."""


def save_classifier(classifier: LongTailClassifier, folder: str | Path) -> None:
    """Write everything that `load_classifier` needs, all or nothing."""
    replace_model(check_out(folder), lambda staged: write_files(classifier, staged))


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
    _write(folder / CARD_FILE, model_card(classifier, name))
    config = seal(_config(classifier) | {"run": run, "files": manifest(folder)})
    _write(folder / CONFIG_FILE, json.dumps(config, indent=2, ensure_ascii=False))


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


def _write(path: Path, text: str) -> None:
    # The same line ends on all systems, as checksums require.
    with open(path, "w", encoding="utf-8", newline="\n") as opened:
        opened.write(text)
