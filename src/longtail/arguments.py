"""Arguments of the estimator other than model and training: defaults and help texts.

Imports no torch, so that `--help` is fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from longtail.settings import Settings, setting

LabelTexts = str | Mapping[str, str | Sequence[str]]
"""`names`, or a text or several for each label."""


@dataclass(repr=False)
class Arguments(Settings):
    """Documented in `LongTailClassifier`, which takes each of them."""

    loss: str | None = setting(
        None, "A loss of docs/losses.md, such as db; default: the model's.", common=True
    )
    folds: int | None = setting(
        None, "Folds to cross-fit, one model each; 1: one model and a validation part."
    )
    label_texts: str | Mapping[str, str | Sequence[str]] | None = setting(
        None,
        "`names`, or a JSON file of label descriptions, which help rare labels.",
        common=True,
    )
    random_state: int = setting(0, "Seed: the same seed gives the same model.", common=True)
    thresholds: str = setting(
        "auto", "A method of docs/evaluation.md, such as global.", common=True
    )
    objective: Literal["micro", "macro", "mean"] = setting(
        "mean",
        "What the thresholds maximise: micro- or macro-F1, or the mean of both.",
        common=True,
    )
    min_labels: int = setting(0, "Minimum number of labels per text.", common=True)
    max_labels: int | None = setting(
        None, "Maximum number of labels per text; default: no limit.", common=True
    )
