"""What the words of a text add to the scores of labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.errors import InputError, printable

Floats64 = NDArray[np.float64]
# Floor of the denominator of relative errors, or rounding would look like an error.
LEAST_DIFFERENCE = 1e-3
# The repr's maximum number of labels, and of words per label; its maximum length.
SHOWN, REPR_LIMIT = 3, 500


class Contributions(NamedTuple):
    """What the words of a text add to the scores of labels."""

    base: Floats64
    """Score of each label without the words, (labels,)."""
    values: Floats64
    """What each word adds, (labels, words)."""


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """What each word of a text adds to the scores of some labels.

    The base of a label and its values sum to its score, up to the error.
    """

    text: str
    words: list[tuple[int, int]]
    """Start and end of each word in the text, in code points."""
    labels: list[str]
    """Label names, by descending score."""
    scores: Floats64
    """As from `decision_function`, (labels,)."""
    values: Floats64
    """What each word adds, (labels, words)."""
    base: Floats64
    """The scores without the words, (labels,)."""

    @property
    def error(self) -> Floats64:
        """Relative error of each label, (labels,).

        0.01: the values miss 1 % of the difference between score and base.
        """
        return relative_error(self.values.sum(axis=1), self.scores - self.base)

    def best(self, label: str | None = None, k: int = 10) -> list[tuple[str, float]]:
        """The k words that add most to the score of a label, by default of the first label."""
        if label is not None and label not in self.labels:
            raise InputError(f"{label!r} is not among the labels explained: {self.labels}.")
        if not self.labels:
            return []
        values = self.values[0 if label is None else self.labels.index(label)]
        order = np.argsort(-values, kind="stable")[:k].tolist()
        return [(self.text[slice(*self.words[n])], float(values[n])) for n in order]

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, for JSON; each label has one value per word."""
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
    """The error of sums of values, relative to the score differences that they explain."""
    least = np.maximum(np.abs(differences), LEAST_DIFFERENCE)
    return np.asarray(np.abs(sums - differences) / least, dtype=np.float64)
