"""Settings that a linear model may leave open, and the values to compare on held-out documents.

A stage maps the best settings so far to alternatives; the next stage starts from the best of all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Stage = Callable[[Any], list[Any]]
HINGE = "squared-hinge"
# The first C, and the next ones for a squared hinge and for losses with a sigmoid.
DEFAULT_C = 1.0
HINGE_PATH, PATH = (0.1, 10.0), (10.0, 100.0, 1000.0)
REFINEMENT = 10**0.5
# Character n-grams are tried if texts have fewer characters than this (median), as longer ones have
# enough words, or if words have more than LONG_WORD on average: a script without spaces.
SHORT_TEXT, LONG_WORD = 400, 20
CHAR_NGRAMS = 4
# Maximum document-label pairs for trying `db`, whose cost grows with them. (`bce` was worse than a
# squared hinge on every corpus of docs/log.md.)
ALL_PAIRS = 2_000_000
SAMPLE = 1000


def path(first: Any) -> list[Stage]:
    """Stages that search C: coarse steps, then finer ones around the best."""
    coarse = HINGE_PATH if first.loss == HINGE else PATH

    def fine(best: Any) -> list[Any]:
        around = (best.C / REFINEMENT, best.C * REFINEMENT)
        return [dataclasses.replace(best, C=float(f"{C:.2g}")) for C in around]

    return [
        lambda best: [first],
        lambda best: [dataclasses.replace(best, C=C) for C in coarse],
        fine,
    ]


def portfolio(first: Any, texts: Sequence[str], n_labels: int, any_loss: bool) -> list[Stage]:
    """Stages that search C, features and loss."""
    stages = path(first)
    if asks_for_characters(texts):
        stages[2:2] = [lambda best: [dataclasses.replace(best, char_ngrams=CHAR_NGRAMS)]]
    stages.append(lambda best: [dataclasses.replace(best, informed=False)])
    if any_loss and len(texts) * n_labels <= ALL_PAIRS:
        stages.append(lambda best: [dataclasses.replace(best, loss="db", C=100.0)])
    return stages


def learn_alike(first: Any, second: Any) -> bool:
    """Whether two settings differ at most in C."""
    return bool(dataclasses.replace(second, C=first.C) == first)


def asks_for_characters(texts: Sequence[str]) -> bool:
    """Whether to try character n-grams: texts are short, or written without spaces."""
    sample = texts[:: max(1, len(texts) // SAMPLE)]
    lengths = np.array([len(text) for text in sample])
    n_words = sum(len(text.split()) for text in sample)
    return bool(np.median(lengths) < SHORT_TEXT or lengths.sum() > LONG_WORD * n_words)
