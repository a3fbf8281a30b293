"""The words that explanations of any model refer to, and how features are spread over them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import regex
import scipy.sparse as sp
from numpy.typing import NDArray

Spans = NDArray[np.int64]
"""Start and end of each word, (words, 2), in code points."""

# Scripts without spaces between words: each character is a word.
_UNSPACED = (
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}&&[\p{L}\p{N}]]\p{M}*"
)
_SPACED = rf"(?:(?!{_UNSPACED})[\p{{L}}\p{{N}}_]\p{{M}}*)+"
# Runs of other characters are words too, so that every feature has one; spaces as in str.isspace.
_OTHER = r"[^\p{L}\p{N}_\s\x1c-\x1f]+"
_WORD = regex.compile(rf"(?V1){_UNSPACED}|{_SPACED}|{_OTHER}")


def word_spans(text: str) -> Spans:
    """Everything but white space: runs of letters and digits, and runs of other characters."""
    spans = [match.span() for match in _WORD.finditer(text)]
    return np.array(spans, dtype=np.int64).reshape(-1, 2)


class Pieces(NamedTuple):
    """Spans of a text that features are made of, and the share of each in its feature."""

    features: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    shares: NDArray[np.float64]


def spread(pieces: Pieces, words: Spans, n_features: int) -> sp.csr_matrix:
    """Features x words: the share of each piece, spread evenly over the words it overlaps."""
    first = np.searchsorted(words[:, 1], pieces.starts, side="right")
    stop = np.searchsorted(words[:, 0], pieces.ends, side="left")
    touched = np.maximum(stop - first, 0)
    rows, columns = np.repeat(pieces.features, touched), runs(first, touched)
    values = np.repeat(pieces.shares / np.maximum(touched, 1), touched)
    return sp.csr_matrix((values, (rows, columns)), shape=(n_features, len(words)))


def runs(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Concatenated ranges: `lengths` consecutive numbers from each start."""
    before = np.cumsum(lengths) - lengths
    numbers = np.arange(lengths.sum()) + np.repeat(starts - before, lengths)
    return np.asarray(numbers, dtype=np.int64)
