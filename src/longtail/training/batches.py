"""Which documents make a batch: shuffled, yet of similar length, so that little is padding."""

from __future__ import annotations

import numpy as np

from longtail.models.base import IntArray

# Batches among which documents are sorted by length: more means less padding and less shuffling.
# At most half of all, else few documents would make the same batches in every epoch.
SORTED_TOGETHER = 50
LEAST_PARTS = 2


def epoch_batches(lengths: IntArray, size: int, seed: int, epoch: int) -> list[IntArray]:
    """All documents once, in batches of `size`; the same seed and epoch give the same batches."""
    order = np.random.default_rng([seed, epoch])
    rows = order.permutation(len(lengths))
    batches: list[IntArray] = []
    together = size * max(1, min(SORTED_TOGETHER, len(rows) // (size * LEAST_PARTS)))
    for start in range(0, len(rows), together):
        part = rows[start : start + together]
        part = part[np.argsort(lengths[part], kind="stable")]
        batches += [part[k : k + size] for k in range(0, len(part), size)]
    return [batches[k] for k in order.permutation(len(batches))]


def sorted_batches(lengths: IntArray, size: int) -> list[IntArray]:
    """All documents once, the longest first: what does not fit in memory fails at once."""
    rows = np.argsort(-lengths, kind="stable")
    return [rows[k : k + size] for k in range(0, len(rows), size)]


def padded_width(length: int, longest: int) -> int:
    """Tokens that a batch is padded to: few different widths, so that few graphs are recorded.

    Multiples of 16 up to 256 tokens, then eight steps to each power of two.
    """
    step = max(16, 2 ** (int(length - 1).bit_length() - 4)) if length > 1 else 16
    return min(-(-length // step) * step, max(longest, length))
