"""Batches: which documents make one, and how their inputs and targets reach the device."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from longtail.training.encoded import Encoded, EncodedTokens, IntArray

# Batches among which documents are sorted by length: more means less padding and less shuffling.
# At most half of all, or few documents would make the same batches in every epoch.
SORTED_TOGETHER = 50
MIN_PARTS = 2


def epoch_batches(lengths: IntArray, size: int, seed: int, epoch: int) -> list[IntArray]:
    """All documents once, shuffled but of similar length within a batch."""
    order = np.random.default_rng([seed, epoch])
    rows = order.permutation(len(lengths))
    batches: list[IntArray] = []
    together = size * max(1, min(SORTED_TOGETHER, len(rows) // (size * MIN_PARTS)))
    for start in range(0, len(rows), together):
        part = rows[start : start + together]
        part = part[np.argsort(lengths[part], kind="stable")]
        batches += [part[k : k + size] for k in range(0, len(part), size)]
    return [batches[k] for k in order.permutation(len(batches))]


def sorted_batches(lengths: IntArray, size: int) -> list[IntArray]:
    """All documents once, the longest first: a batch that does not fit in memory fails early."""
    rows = np.argsort(-lengths, kind="stable")
    return [rows[k : k + size] for k in range(0, len(rows), size)]


def padded_width(length: int, longest: int) -> int:
    """The width that a batch is padded to: few different ones, so that few graphs are recorded.

    Multiples of 16 up to 256 tokens, then eight steps to each power of two.
    """
    step = max(16, 2 ** (int(length - 1).bit_length() - 4)) if length > 1 else 16
    return min(-(-length // step) * step, max(longest, length))


class Feed(Protocol):
    """Inputs of the network and targets of the loss for some documents."""

    def width(self, rows: IntArray) -> int | None:
        """The width that the batch is padded to; None for a feed without fixed widths."""

    def batch(self, rows: Any, width: int | None) -> tuple[dict[str, Tensor], Any]: ...


class HostFeed:
    """Batches made on the host; targets are flat indices and offsets, never dense rows."""

    def __init__(self, encoded: Encoded, Y: sp.csr_matrix, device: torch.device) -> None:
        self._encoded, self._Y, self._device = encoded, Y, device

    def width(self, rows: IntArray) -> int | None:
        return None

    def batch(self, rows: IntArray, width: int | None) -> tuple[dict[str, Tensor], Any]:
        inputs = {k: v.to(self._device) for k, v in self._encoded.batch(rows).items()}
        part = self._Y[rows]
        indices = torch.from_numpy(part.indices.astype(np.int64))
        offsets = torch.from_numpy(part.indptr.astype(np.int64))
        return inputs, (indices.to(self._device), offsets.to(self._device))


class DeviceFeed:
    """All tokens and labels on the device; a batch is gathered there from row numbers.

    Nothing here waits for the host, so that a CUDA graph can record it.
    """

    def __init__(self, encoded: EncodedTokens, Y: sp.csr_matrix, device: torch.device) -> None:
        self._encoded = encoded
        self._tokens = torch.from_numpy(encoded.tokens).to(device)
        self._starts = torch.from_numpy(encoded.offsets[:-1]).to(device)
        self._lengths = torch.from_numpy(encoded.lengths).to(device)
        self._labels = torch.from_numpy(_label_table(Y)).to(device)
        self._n_labels = int(Y.shape[1])
        self._device = device

    @staticmethod
    def n_bytes(encoded: EncodedTokens, Y: sp.csr_matrix) -> int:
        """Memory on the device."""
        most = int(np.diff(Y.indptr).max(initial=1))
        return int(encoded.tokens.nbytes + 16 * len(encoded) + 8 * most * len(encoded))

    def width(self, rows: IntArray) -> int | None:
        longest = int(self._encoded.lengths[rows].max(initial=1))
        return padded_width(longest, self._encoded.max_length)

    def batch(self, rows: Tensor, width: int | None) -> tuple[dict[str, Tensor], Any]:
        assert width is not None
        places = torch.arange(width, device=self._device)
        mask = places < self._lengths[rows].unsqueeze(1)
        positions = (self._starts[rows].unsqueeze(1) + places).clamp(max=len(self._tokens) - 1)
        tokens = self._tokens[positions].long()
        inputs = {
            "input_ids": torch.where(mask, tokens, self._encoded.pad),
            "attention_mask": mask.long(),
        }
        # The extra column takes the padding of the label table.
        targets = torch.zeros((len(rows), self._n_labels + 1), device=self._device)
        targets.scatter_(1, self._labels[rows], 1.0)
        return inputs, targets[:, :-1]


def make_feed(encoded: Encoded, Y: sp.csr_matrix, device: torch.device) -> Feed:
    """Keep tokens on a GPU with enough memory; otherwise make batches on the host."""
    if device.type == "cuda" and isinstance(encoded, EncodedTokens):
        free, _ = torch.cuda.mem_get_info(device)
        if DeviceFeed.n_bytes(encoded, Y) < free // 4:
            return DeviceFeed(encoded, Y, device)
    return HostFeed(encoded, Y, device)


def _label_table(Y: sp.csr_matrix) -> IntArray:
    """The labels of each document in a row, padded with the number of labels."""
    counts = np.diff(Y.indptr)
    table = np.full((Y.shape[0], max(1, int(counts.max(initial=0)))), Y.shape[1], dtype=np.int64)
    places = np.arange(len(Y.indices)) - np.repeat(Y.indptr[:-1], counts)
    table[np.repeat(np.arange(Y.shape[0]), counts), places] = Y.indices
    return table
