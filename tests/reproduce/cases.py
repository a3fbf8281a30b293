"""Sixty tiny documents in three parts, quick recipes, and a function to run them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from longtail.data import TextData
from longtail.reproduce import Reproduced, reproduce
from longtail.reproduce.run import Event

WORDS = ("copper", "nickel", "tin", "wheat", "zinc")
BAG = {"model": "bag", "folds": 1, "device": "cpu", "thresholds": "global", "objective": "micro"}


def documents(n: int = 60, seed: int = 5) -> dict[str, TextData]:
    """Texts with names of metals and grains, most of which are also their labels."""
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(n):
        # Later words are rarer; some labels are dropped, so that F1 stays below 100 %.
        chances = 0.6 ** np.arange(len(WORDS))
        words = rng.choice(WORDS, size=rng.integers(1, 4), replace=False, p=chances / chances.sum())
        filler = rng.choice(["the", "of", "and", "rose", "fell"], size=rng.integers(0, 12))
        texts.append(" ".join([*words, *filler]))
        labels.append([word for word in words.tolist() if rng.random() < 0.8] or ["copper"])
    data = TextData.from_lists(texts, labels, WORDS)
    cuts = {"train": (0, n // 2), "validation": (n // 2, 2 * n // 3), "test": (2 * n // 3, n)}
    return {part: data.select(np.arange(*rows)) for part, rows in cuts.items()}


def bags(*losses: str) -> dict[str, dict[str, Any]]:
    """Recipes of linear models, which use no random numbers."""
    return {loss: {**BAG, "loss": loss} for loss in losses}


def networks(*losses: str) -> dict[str, dict[str, Any]]:
    """Recipes of small networks, which use random numbers."""
    quick = {"epochs": 2, "batch_size": 8, "hidden": 4}
    return {loss: {**BAG, "loss": loss, **quick} for loss in losses}


def run(
    recipes: dict[str, dict[str, Any]], out: Path, **settings: Any
) -> tuple[Reproduced, list[str]]:
    """Reproduce on the tiny documents; also returns the events `begins`, `done`, `failed`."""
    events: list[str] = []
    notes: list[str] = settings.pop("notes", [])

    def watch(event: Event) -> None:
        if event.kind == "note":
            notes.append(event.message)
        elif event.kind != "progress":
            events.append(f"{event.kind} {event.cell.row} {event.cell.seed}")

    parts = settings.pop("parts", None) or documents()
    return reproduce(parts, recipes, out, watch=watch, **settings), events
