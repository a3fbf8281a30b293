"""Texts in the form of a network's inputs: token ids, or sparse features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

IntArray = NDArray[np.int64]


class Encoded(Protocol):
    """Texts as inputs of a network: a batch of any rows, as arguments of its forward."""

    @property
    def lengths(self) -> IntArray:
        """The cost of each text: batches are made of similar lengths."""

    def __len__(self) -> int: ...

    def batch(self, rows: IntArray) -> dict[str, Tensor]: ...

    def select(self, rows: IntArray) -> Encoded: ...


@dataclass(frozen=True, eq=False)
class EncodedBags:
    """Sparse features whose rows become the flat inputs of an embedding bag."""

    matrix: sp.csr_matrix

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def lengths(self) -> IntArray:
        lengths: IntArray = np.diff(self.matrix.indptr).astype(np.int64)
        return lengths

    def select(self, rows: IntArray) -> EncodedBags:
        return EncodedBags(self.matrix[rows])

    def batch(self, rows: IntArray) -> dict[str, Tensor]:
        part = self.matrix[rows]
        return {
            "indices": torch.from_numpy(part.indices.astype(np.int64)),
            "offsets": torch.from_numpy(part.indptr[:-1].astype(np.int64)),
            "weights": torch.from_numpy(part.data.astype(np.float32)),
        }


@dataclass(frozen=True, eq=False)
class EncodedTokens:
    """Token ids of all texts, concatenated; a batch is padded to its longest text only."""

    tokens: NDArray[np.int32]
    offsets: IntArray
    pad: int
    max_length: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> IntArray:
        return np.diff(self.offsets)

    def select(self, rows: IntArray) -> EncodedTokens:
        """Some of the texts, in the order of the rows."""
        starts, lengths = self.offsets[rows], self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        places = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        tokens = self.tokens[places] if len(places) else self.tokens[:1]
        return EncodedTokens(tokens, offsets, self.pad, self.max_length)

    def batch(self, rows: IntArray) -> dict[str, Tensor]:
        starts, lengths = self.offsets[rows], self.lengths[rows]
        places = np.arange(max(1, int(lengths.max(initial=0))))
        mask = places < lengths[:, None]
        input_ids = np.full(mask.shape, self.pad, dtype=np.int64)
        input_ids[mask] = self.tokens[(starts[:, None] + places)[mask]]
        return {
            "input_ids": torch.from_numpy(input_ids),
            "attention_mask": torch.from_numpy(mask.astype(np.int64)),
        }
