"""Texts as network inputs: token ids or sparse features, in batches, on their device."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.training.packed import BLOCK, Layout, tile_count

IntArray = NDArray[np.int64]
# Documents are sorted by length within pools of SORTED_TOGETHER batches: larger pools mean less
# padding and less shuffling. There are at least MIN_PARTS pools, or few documents would make the
# same batches in every epoch.
SORTED_TOGETHER = 50
MIN_PARTS = 2


class Encoded(Protocol):
    """Encoded texts; `batch` returns any rows of them as keyword arguments of `forward`."""

    @property
    def lengths(self) -> IntArray:
        """Length of each text; batches group texts of similar lengths."""

    def __len__(self) -> int: ...

    def batch(self, rows: IntArray) -> dict[str, Tensor]: ...

    def select(self, rows: IntArray) -> Encoded: ...


@dataclass(frozen=True, eq=False)
class EncodedBags:
    """Sparse features; a batch is the flat input of an embedding bag."""

    matrix: sp.csr_matrix

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def lengths(self) -> IntArray:
        return np.asarray(np.diff(self.matrix.indptr), dtype=np.int64)

    def select(self, rows: IntArray) -> EncodedBags:
        return EncodedBags(self.matrix[rows])

    def batch(self, rows: IntArray) -> dict[str, Tensor]:
        indices, starts, weights = csr_tensors(self.matrix[rows])
        return {"indices": indices, "offsets": starts[:-1], "weights": weights}


def csr_tensors(matrix: sp.csr_matrix, device: torch.device | str = "cpu") -> list[Tensor]:
    """Column indices, row starts (with the end) and float32 values of a sparse matrix."""
    parts = (matrix.indices, np.int64), (matrix.indptr, np.int64), (matrix.data, np.float32)
    return [torch.from_numpy(part.astype(dtype)).to(device) for part, dtype in parts]


@dataclass(frozen=True, eq=False)
class Partial:
    """Unknown document-label pairs and document weights; None: no pair is unknown, all weights
    are 1."""

    unknown: sp.csr_matrix | None = None
    weights: NDArray[np.float64] | None = None

    def known(self, Y: sp.csr_matrix) -> IntArray | None:
        """The number of known labels of each document; None: all labels are known."""
        return None if self.unknown is None else Y.shape[1] - np.diff(self.unknown.indptr)

    def tensors(
        self, device: torch.device, rows: Any = slice(None), labels: Any = slice(None)
    ) -> tuple[Tensor | None, Tensor | None]:
        """The loss's mask of known pairs and its sample weights, for some documents and labels."""
        mask = weights = None
        if self.unknown is not None:
            mask = torch.from_numpy(~self.unknown[rows][:, labels].toarray()).to(device)
        if self.weights is not None:
            weights = torch.from_numpy(self.weights[rows].astype(np.float32)).to(device)
        return mask, weights


WHOLE = Partial()


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
        starts, lengths = self.offsets[rows], self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        places = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        tokens = self.tokens[places] if len(places) else self.tokens[:1]
        return EncodedTokens(tokens, offsets, self.pad, self.max_length)

    def batch(self, rows: IntArray) -> dict[str, Tensor]:
        input_ids, mask = _padded(self.tokens, self.offsets[rows], self.lengths[rows], self.pad)
        return {
            "input_ids": torch.from_numpy(input_ids),
            "attention_mask": torch.from_numpy(mask.astype(np.int64)),
        }

    def packed_batch(self, rows: IntArray, device: torch.device) -> dict[str, Any]:
        """The rows as one sequence, without padding, on the device."""
        part = self.select(rows)
        n_tokens = int(part.offsets[-1])
        lengths = torch.from_numpy(part.lengths).to(device)
        layout = Layout.of(lengths, n_tokens, tile_count(n_tokens, len(rows)))
        return {"input_ids": torch.from_numpy(part.tokens).to(device), "layout": layout}


def _padded(
    flat: NDArray[Any], starts: IntArray, lengths: IntArray, pad: int
) -> tuple[IntArray, NDArray[np.bool_]]:
    """Slices of a flat array as the rows of a padded matrix, and the mask of their values."""
    places = np.arange(max(1, int(lengths.max(initial=0))))
    mask = places < lengths[:, None]
    matrix = np.full(mask.shape, pad, dtype=np.int64)
    matrix[mask] = flat[(starts[:, None] + places)[mask]]
    return matrix, mask


def epoch_batches(lengths: IntArray, size: int, seed: int, epoch: int) -> list[IntArray]:
    """The batches of an epoch: every document once, shuffled, with similar lengths in a batch."""
    rng = np.random.default_rng([seed, epoch])
    rows = rng.permutation(len(lengths))
    batches: list[IntArray] = []
    together = size * max(1, min(SORTED_TOGETHER, len(rows) // (size * MIN_PARTS)))
    for start in range(0, len(rows), together):
        part = rows[start : start + together]
        part = part[np.argsort(lengths[part], kind="stable")]
        batches += [part[k : k + size] for k in range(0, len(part), size)]
    return [batches[k] for k in rng.permutation(len(batches))]


def level_batches(lengths: IntArray, size: int, seed: int, epoch: int) -> list[IntArray]:
    """The batches of an epoch: every document once, shuffled, with nearly equal sums of lengths.

    Documents are dealt out from the longest to the shortest, one to each batch at a time: in turn
    at random, and the longest to the batch with the smallest sum. Within a batch long and short
    documents alternate, so that no part has all of the long ones.
    """
    rng = np.random.default_rng([seed, epoch])
    n_batches = -(-len(lengths) // size)
    rows = rng.permutation(len(lengths))
    rows = rows[np.argsort(-lengths[rows], kind="stable")]
    sums = np.zeros(n_batches, dtype=np.int64)
    members = np.full((n_batches, size), -1)
    for turn in range(size):
        dealt = rows[turn * n_batches : (turn + 1) * n_batches]
        at_random = turn % 2 == 0
        order = rng.permutation(n_batches) if at_random else np.argsort(sums, kind="stable")
        members[order[: len(dealt)], turn] = dealt
        sums[order[: len(dealt)]] += lengths[dealt]
    # Turns with their binary digits reversed: even ones first, of these every other one first, ...
    members = members[:, np.argsort([int(f"{turn:032b}"[::-1], 2) for turn in range(size)])]
    return [members[k][members[k] >= 0] for k in rng.permutation(n_batches)]


def sorted_batches(lengths: IntArray, size: int) -> list[IntArray]:
    """Batches of all documents, longest first: one that does not fit in memory fails early."""
    rows = np.argsort(-lengths, kind="stable")
    return [rows[k : k + size] for k in range(0, len(rows), size)]


def padded_width(length: int, longest: int) -> int:
    """The width to pad a batch to; there are few different ones, so that few graphs are recorded.

    Multiples of 16 up to 256 tokens, then eight steps to each power of two.
    """
    step = max(16, 2 ** (int(length - 1).bit_length() - 4)) if length > 1 else 16
    return min(-(-length // step) * step, max(longest, length))


def packed_width(n_tokens: int, expected: float) -> int:
    """The length to pad a packed batch to; nearly always the same for batches of equal sums."""
    usual = -(-int(1.005 * expected + 16) // BLOCK) * BLOCK
    return usual if n_tokens <= usual else -(-n_tokens // 512) * 512


class HostFeed:
    """Makes batches on the host; targets are flat indices and offsets, never dense.

    A batch is the arguments of the network, and those of the loss that follow the logits.
    """

    def __init__(
        self, encoded: Encoded, Y: sp.csr_matrix, device: torch.device, partial: Partial = WHOLE
    ) -> None:
        self._encoded, self._Y, self._device, self._partial = encoded, Y, device, partial

    def width(self, rows: IntArray) -> int | None:
        """The width that a batch is padded to; None: the length of its longest text."""
        return None

    def batch(self, rows: IntArray, width: int | None) -> tuple[dict[str, Tensor], Any]:
        inputs = {k: v.to(self._device) for k, v in self._encoded.batch(rows).items()}
        indices, offsets, _ = csr_tensors(self._Y[rows], self._device)
        return inputs, ((indices, offsets), *self._partial.tensors(self._device, rows))


class DeviceFeed:
    """Holds all tokens and labels on the device and gathers batches there from row numbers.

    Nothing in `batch` synchronises with the host, so that a CUDA graph can record it.

    Args:
        packed: make batches one sequence of documents with a Layout, without padding; the number
            of documents of a batch.
    """

    def __init__(
        self,
        encoded: EncodedTokens,
        Y: sp.csr_matrix,
        device: torch.device,
        partial: Partial = WHOLE,
        packed: int | None = None,
    ) -> None:
        self._encoded, self._device, self._n_labels = encoded, device, int(Y.shape[1])
        self.packed = packed is not None
        # Mean numbers of documents and tokens of the batches of `level_batches`.
        n_batches = -(-len(encoded) // (packed or 1))
        self._level = len(encoded) / n_batches, float(encoded.lengths.sum()) / n_batches
        self._unknown, self._weights = None, Partial(weights=partial.weights).tensors(device)[1]
        if partial.unknown is not None:
            self._unknown = torch.from_numpy(_label_table(partial.unknown)).to(device)
        self._tokens, self._starts, self._lengths, self._labels = (
            torch.from_numpy(part).to(device)
            for part in (encoded.tokens, encoded.offsets[:-1], encoded.lengths, _label_table(Y))
        )

    @staticmethod
    def n_bytes(encoded: EncodedTokens, Y: sp.csr_matrix, partial: Partial = WHOLE) -> int:
        """Device memory that a feed takes, without document weights."""
        tables = [table for table in (Y, partial.unknown) if table is not None]
        most = sum(int(np.diff(table.indptr).max(initial=1)) for table in tables)
        return int(encoded.tokens.nbytes + 16 * len(encoded) + 8 * most * len(encoded))

    def width(self, rows: IntArray) -> int | None:
        lengths = self._encoded.lengths[rows]
        if self.packed:
            n_documents, n_tokens = self._level
            share = len(rows) / n_documents
            is_whole = abs(len(rows) - n_documents) < 1
            return packed_width(int(lengths.sum()), n_tokens * (1 if is_whole else share))
        return padded_width(int(lengths.max(initial=1)), self._encoded.max_length)

    def batch(self, rows: Tensor, width: int | None) -> tuple[dict[str, Any], Any]:
        assert width is not None
        gather = self._gather_packed if self.packed else self._gather_padded
        # The extra column takes the padding of the label table.
        shape = len(rows), self._n_labels + 1
        targets = torch.zeros(shape, dtype=torch.bool, device=self._device)
        targets.scatter_(1, self._labels[rows], True)
        known = None
        if self._unknown is not None:
            known = torch.ones_like(targets)
            known = known.scatter_(1, self._unknown[rows], False)[:, :-1]
        weights = None if self._weights is None else self._weights[rows]
        return gather(rows, width), (targets[:, :-1], known, weights)

    def _gather_padded(self, rows: Tensor, width: int) -> dict[str, Any]:
        places = torch.arange(width, device=self._device)
        mask = places < self._lengths[rows].unsqueeze(1)
        positions = (self._starts[rows].unsqueeze(1) + places).clamp(max=len(self._tokens) - 1)
        input_ids = torch.where(mask, self._tokens[positions].long(), self._encoded.pad)
        return {"input_ids": input_ids, "attention_mask": mask.long()}

    def _gather_packed(self, rows: Tensor, width: int) -> dict[str, Any]:
        # Few numbers of tiles, as the layers are compiled for each.
        layout = Layout.of(self._lengths[rows], width, tile_count(width, -(-len(rows) // 8) * 8))
        inside = layout.document < len(rows)
        owner = rows[layout.document.clamp(max=len(rows) - 1)]
        places = torch.where(inside, self._starts[owner] + layout.position, 0)
        # As int32, which embedding gradients sort in half the time of int64.
        tokens = torch.where(inside, self._tokens[places], self._encoded.pad)
        # Padding may be longer than any document.
        position = torch.where(inside, layout.position, 0)
        return {"input_ids": tokens, "layout": dataclasses.replace(layout, position=position)}


Feed = HostFeed | DeviceFeed


def make_feed(
    encoded: Encoded,
    Y: sp.csr_matrix,
    device: torch.device,
    partial: Partial = WHOLE,
    packed: int | None = None,
) -> Feed:
    """A DeviceFeed for tokens on a GPU with enough memory, otherwise a HostFeed."""
    if device.type == "cuda" and isinstance(encoded, EncodedTokens):
        free, _ = torch.cuda.mem_get_info(device)
        if DeviceFeed.n_bytes(encoded, Y, partial) < free // 4:
            return DeviceFeed(encoded, Y, device, partial, packed)
    return HostFeed(encoded, Y, device, partial)


def _label_table(Y: sp.csr_matrix) -> IntArray:
    """The labels of each document as a row, padded with the number of labels."""
    table, _ = _padded(Y.indices, Y.indptr[:-1], np.diff(Y.indptr), Y.shape[1])
    return table
