"""Token ids of texts as two flat arrays: made once, in parallel, and kept by content.

The tokenizers of Hugging Face use all cores; the result is cached under a hash of tokenizer,
length limit and texts, so that a second run or another loss does not tokenise again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from torch import Tensor

from longtail.errors import InputError
from longtail.models.base import IntArray
from longtail.runs import whole_file

# Texts given to the tokenizer at a time, characters read of each, and bytes kept on the disk.
CHUNK = 4096
LEAST_CHARACTERS, CHARACTERS_PER_TOKEN = 100_000, 100
CACHE_BYTES = 2 << 30
# Names of files in the cache: nothing else there is removed.
OURS = re.compile("[0-9a-f]{64}")
Done = Callable[[int, int], None]
# A tokenizer remembers how it last cut a text, so that one thread at a time may use it.
ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class EncodedTokens:
    """Token ids of every text, one after the other; a batch is padded to its longest text only."""

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
        known = places < lengths[:, None]
        found = np.full(known.shape, self.pad, dtype=np.int64)
        found[known] = self.tokens[(starts[:, None] + places)[known]]
        return {
            "input_ids": torch.from_numpy(found),
            "attention_mask": torch.from_numpy(known.astype(np.int64)),
        }


def tokenise(
    tokenizer: Any,
    texts: Sequence[str],
    max_length: int,
    *,
    cache: Path | None = None,
    progress: Done | None = None,
) -> EncodedTokens:
    """The first `max_length` tokens of every text."""
    pad = tokenizer.pad_token_id
    if pad is None:
        raise InputError(
            "the tokenizer has no padding token, which batches need. Give it one and save it to "
            "the encoder's folder: tokenizer.pad_token = tokenizer.eos_token; "
            "tokenizer.save_pretrained(FOLDER)"
        )
    added = tokenizer.num_special_tokens_to_add()
    if max_length <= added:
        # The tokenizer would not cut at all.
        raise InputError(
            f"max_length must be above {added}, as the tokenizer adds {added} tokens of its own to "
            f"each text, got {max_length}."
        )
    with ONE_AT_A_TIME:
        place = None if cache is None else cache / content_key(tokenizer, texts, max_length)
        found = None if place is None else _read(place, len(texts))
        if found is None:
            found = _tokenise(tokenizer, texts, max_length, progress)
            if place is not None:
                _write(place, found)
    return EncodedTokens(found["tokens"], found["offsets"], int(pad), max_length)


def _tokenise(
    tokenizer: Any, texts: Sequence[str], max_length: int, progress: Done | None
) -> dict[str, NDArray[Any]]:
    pieces: list[NDArray[np.int32]] = []
    lengths: list[int] = []
    # A text of megabytes is cut before it is tokenised, far behind what can be read of it.
    longest = max(LEAST_CHARACTERS, CHARACTERS_PER_TOKEN * max_length)
    for start in range(0, len(texts), CHUNK):
        chunk = [_encodable(text[:longest]) for text in texts[start : start + CHUNK]]
        ids = tokenizer(chunk, truncation=True, max_length=max_length)["input_ids"]
        lengths += [len(one) for one in ids]
        pieces += [np.asarray(one, dtype=np.int32) for one in ids]
        if progress is not None:
            progress(min(start + CHUNK, len(texts)), len(texts))
    tokens = np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
    # An empty text with a tokenizer that adds nothing still needs something to look up.
    return {"tokens": tokens if len(tokens) else np.zeros(1, dtype=np.int32), "offsets": offsets}


def _encodable(text: str) -> str:
    """Half a surrogate pair, as in text cut in the middle of an emoji, is no UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return text


def content_key(tokenizer: Any, texts: Sequence[str], max_length: int) -> str:
    """The name of these texts' tokens: the same for the same tokenizer, limit and texts."""
    found = hashlib.sha256()
    core = getattr(tokenizer, "backend_tokenizer", None)
    if core is None:
        described = repr(sorted(tokenizer.get_vocab().items())) + repr(tokenizer)
    else:
        # It remembers how it last cut and padded, which each call sets anew.
        core.no_truncation()
        core.no_padding()
        described = core.to_str()
    side = str(getattr(tokenizer, "truncation_side", ""))
    for piece in (described, side, str(max_length), *texts):
        raw = piece.encode("utf-8", "surrogatepass")
        found.update(len(raw).to_bytes(8, "little"))
        found.update(raw)
    return found.hexdigest()


def _read(place: Path, n_texts: int) -> dict[str, NDArray[Any]] | None:
    """What `_write` wrote, or None where it is missing or damaged."""
    try:
        found = load_file(place)
        os.utime(place)
    except (OSError, SafetensorError):
        return None
    whole = found.keys() >= {"tokens", "offsets"} and len(found["offsets"]) == n_texts + 1
    return found if whole and found["offsets"][-1] <= len(found["tokens"]) else None


def _write(place: Path, found: dict[str, NDArray[Any]]) -> None:
    """A cache that cannot be written is no reason to stop."""
    with contextlib.suppress(OSError, SafetensorError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(place) as temporary:
            save_file(found, temporary)
        _make_room(place.parent)


def _make_room(folder: Path) -> None:
    """Remove what was used longest ago, until the cache is small enough."""
    ours = [path for path in folder.iterdir() if OURS.fullmatch(path.name) and path.is_file()]
    kept = 0
    for path in sorted(ours, key=lambda p: -p.stat().st_mtime):
        kept += path.stat().st_size
        if kept > CACHE_BYTES:
            path.unlink(missing_ok=True)
