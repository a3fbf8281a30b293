"""What the words of a text add to the scores of labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.errors import InputError, printable

Floats64 = NDArray[np.float64]
# Differences of scores below this count as this, or rounding would look like an error.
LEAST_DIFFERENCE = 1e-3
# Labels, and words of each, in the repr.
SHOWN, REPR_LIMIT = 3, 500


class Contributions(NamedTuple):
    """What a model makes of a text."""

    base: Floats64
    """The score of each label without the words, (labels,)."""
    values: Floats64
    """(labels, words)"""


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """What each word of a text adds to the scores of some labels.

    The base of a label and its values sum to its score, up to the error.
    """

    text: str
    words: list[tuple[int, int]]
    """Beginning and end of each word, in code points of the text."""
    labels: list[str]
    """The best first."""
    scores: Floats64
    """As of `decision_function`, (labels,)."""
    values: Floats64
    """(labels, words)"""
    base: Floats64
    """The scores without the words, (labels,)."""

    @property
    def error(self) -> Floats64:
        """How far base and values are from the scores, relative to what the words add, (labels,).

        0.01: the values miss 1 % of the difference between score and base.
        """
        return relative_error(self.values.sum(axis=1), self.scores - self.base)

    def best(self, label: str | None = None, k: int = 10) -> list[tuple[str, float]]:
        """The k words that add most to the score of a label, without the label of the first."""
        if label is not None and label not in self.labels:
            raise InputError(f"{label!r} is not among the labels explained: {self.labels}.")
        if not self.labels:
            return []
        values = self.values[0 if label is None else self.labels.index(label)]
        order = np.argsort(-values, kind="stable")[:k].tolist()
        return [(self.text[slice(*self.words[n])], float(values[n])) for n in order]

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, for JSON; a label has a value for each word."""
        columns = (self.scores, self.base, self.error, self.values)
        rows = zip(self.labels, *(column.tolist() for column in columns), strict=True)
        fields = ("label", "score", "base", "error", "values")
        return {
            "text": self.text,
            "words": [list(span) for span in self.words],
            "labels": [dict(zip(fields, row, strict=True)) for row in rows],
        }

    def __repr__(self) -> str:
        best = []
        for label in self.labels[:SHOWN]:
            words = [f"{word} {value:+.2f}" for word, value in self.best(label, SHOWN)]
            best.append(f"{label}: {', '.join(words) or 'no words'}")
        more = [f"{len(self.labels) - SHOWN} more"] if len(self.labels) > SHOWN else []
        return printable(f"Explanation({'; '.join([*best, *more])})", REPR_LIMIT)


def relative_error(sums: Floats64, differences: Floats64) -> Floats64:
    """How far sums of values are from the differences of scores that they explain."""
    least = np.maximum(np.abs(differences), LEAST_DIFFERENCE)
    return np.asarray(np.abs(sums - differences) / least, dtype=np.float64)
