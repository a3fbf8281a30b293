"""What a linear model may leave open, and which values are compared on held-out documents.

A stage lists alternatives to the best settings so far; the next one starts from the best of these.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Stage = Callable[[Any], list[Any]]
HINGE = "squared-hinge"
# Where the path of C begins, and where it goes: of a squared hinge, and of losses with a sigmoid.
DEFAULT_C = 1.0
HINGE_PATH, PATH = (0.1, 10.0), (10.0, 100.0, 1000.0)
REFINEMENT = 10**0.5
# Median characters of a text below which n-grams of characters are tried: longer texts have enough
# words. A script whose words are longer than LONG_WORD on average has no spaces.
SHORT_TEXT, LONG_WORD = 400, 20
CHAR_NGRAMS = 4
# Pairs of document and label up to which `db` is tried, which costs all of them. (`bce` was behind
# a squared hinge on each of the corpora of docs/log.md.)
ALL_PAIRS = 2_000_000
SAMPLE = 1000


def path(first: Any) -> list[Stage]:
    """Coarse steps of C, then finer ones around the best."""
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
    """Of features, C and loss."""
    stages = path(first)
    if asks_for_characters(texts):
        stages[2:2] = [lambda best: [dataclasses.replace(best, char_ngrams=CHAR_NGRAMS)]]
    stages.append(lambda best: [dataclasses.replace(best, informed=False)])
    if any_loss and len(texts) * n_labels <= ALL_PAIRS:
        stages.append(lambda best: [dataclasses.replace(best, loss="db", C=100.0)])
    return stages


def learn_alike(first: Any, second: Any) -> bool:
    """Whether two settings differ in nothing but C."""
    return bool(dataclasses.replace(second, C=first.C) == first)


def asks_for_characters(texts: Sequence[str]) -> bool:
    """Whether the texts are short, or written without spaces."""
    sample = texts[:: max(1, len(texts) // SAMPLE)]
    lengths = np.array([len(text) for text in sample])
    n_words = sum(len(text.split()) for text in sample)
    return bool(np.median(lengths) < SHORT_TEXT or lengths.sum() > LONG_WORD * n_words)
