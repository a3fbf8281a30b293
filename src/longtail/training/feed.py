"""Batches on their way to the device: from the host, or gathered from all texts kept there."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from longtail.models.base import Encoded, IntArray
from longtail.models.tokens import EncodedTokens
from longtail.training.batches import padded_width


class Feed(Protocol):
    """Inputs of the network and targets of the loss for some documents."""

    def width(self, rows: IntArray) -> int | None:
        """What the batch is padded to; None where that has no meaning."""

    def batch(self, rows: Any, width: int | None) -> tuple[dict[str, Tensor], Any]: ...


class HostFeed:
    """Batches made on the host; labels travel as flat indices and offsets, never as dense rows."""

    def __init__(self, encoded: Encoded, Y: sp.csr_matrix, device: torch.device) -> None:
        self._encoded, self._Y, self._device = encoded, Y, device

    def width(self, rows: IntArray) -> int | None:
        return None

    def batch(self, rows: IntArray, width: int | None) -> tuple[dict[str, Tensor], Any]:
        inputs = {k: v.to(self._device) for k, v in self._encoded.batch(rows).items()}
        return inputs, sparse_targets(self._Y, rows, self._device)


class DeviceFeed:
    """All tokens and labels live on the device; a batch is gathered there from row numbers.

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
        known = places < self._lengths[rows].unsqueeze(1)
        found = (self._starts[rows].unsqueeze(1) + places).clamp(max=len(self._tokens) - 1)
        tokens = self._tokens[found].long()
        inputs = {
            "input_ids": torch.where(known, tokens, self._encoded.pad),
            "attention_mask": known.long(),
        }
        # One column more takes the padding of the table of labels.
        targets = torch.zeros((len(rows), self._n_labels + 1), device=self._device)
        targets.scatter_(1, self._labels[rows], 1.0)
        return inputs, targets[:, :-1]


def sparse_targets(Y: sp.csr_matrix, rows: IntArray, device: torch.device) -> tuple[Tensor, Tensor]:
    """The labels of some documents as flat indices and offsets, never as dense rows."""
    part = Y[rows]
    indices = torch.from_numpy(part.indices.astype(np.int64))
    offsets = torch.from_numpy(part.indptr.astype(np.int64))
    return indices.to(device), offsets.to(device)


def _label_table(Y: sp.csr_matrix) -> IntArray:
    """The labels of each document in a row, filled up with a number that is no label."""
    counts = np.diff(Y.indptr)
    table = np.full((Y.shape[0], max(1, int(counts.max(initial=0)))), Y.shape[1], dtype=np.int64)
    places = np.arange(len(Y.indices)) - np.repeat(Y.indptr[:-1], counts)
    table[np.repeat(np.arange(Y.shape[0]), counts), places] = Y.indices
    return table
