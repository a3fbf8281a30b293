"""Token ids of texts, cached under a hash of tokenizer, maximum length and texts."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from longtail.checks import replace_surrogates
from longtail.errors import InputError
from longtail.runs.files import whole_file
from longtail.training.encoded import EncodedTokens

CHUNK = 4096
"""Texts per call of the tokenizer."""
# Longer texts are cut before tokenization, well behind the last token that is used.
MIN_CHARACTERS, CHARACTERS_PER_TOKEN = 100_000, 100
CACHE_BYTES = 2 << 30
CACHE_NAMES = re.compile("[0-9a-f]{64}")
"""Names of cache files; no other file is evicted."""
# A tokenizer stores its truncation and padding as state: one thread at a time may call it.
TOKENIZER_LOCK = threading.Lock()
Arrays = dict[str, NDArray[Any]]


def tokenize(
    tokenizer: Any, texts: Sequence[str], max_length: int, *, cache: Path | None = None
) -> EncodedTokens:
    """Tokenize texts, truncated to `max_length` tokens."""
    pad = tokenizer.pad_token_id
    if pad is None:
        raise InputError(
            "the tokenizer has no padding token, which batches need. Set one and save it to the "
            "encoder's folder: tokenizer.pad_token = tokenizer.eos_token; "
            "tokenizer.save_pretrained(FOLDER)"
        )
    special = tokenizer.num_special_tokens_to_add()
    if max_length <= special:
        # The tokenizer would not truncate at all.
        raise InputError(
            f"max_length must be above {special}, the number of special tokens added to each text, "
            f"got {max_length}."
        )
    with TOKENIZER_LOCK:
        path = None if cache is None else cache / content_key(tokenizer, texts, max_length)
        arrays = None if path is None else _read(path, len(texts))
        if arrays is None:
            arrays = _tokenize(tokenizer, texts, max_length)
            if path is not None:
                _write(path, arrays)
    return EncodedTokens(arrays["tokens"], arrays["offsets"], int(pad), max_length)


def _tokenize(tokenizer: Any, texts: Sequence[str], max_length: int) -> Arrays:
    pieces: list[NDArray[np.int32]] = []
    longest = _longest(max_length)
    for start in range(0, len(texts), CHUNK):
        chunk = [replace_surrogates(text[:longest]) for text in texts[start : start + CHUNK]]
        ids = tokenizer(chunk, truncation=True, max_length=max_length)["input_ids"]
        pieces += [np.asarray(row, dtype=np.int32) for row in ids]
    # Never empty: if no text has a token, batches still look up one.
    padding = np.zeros(0 if any(map(len, pieces)) else 1, dtype=np.int32)
    offsets = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
    return {"tokens": np.concatenate([*pieces, padding]), "offsets": offsets}


def _longest(max_length: int) -> int:
    return max(MIN_CHARACTERS, CHARACTERS_PER_TOKEN * max_length)


def tokens_of(
    tokenizer: Any, text: str, max_length: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The tokens of one text, as from `tokenize`, and their spans, (tokens, 2).

    Special tokens have empty spans.
    """
    if not tokenizer.is_fast:
        raise InputError(
            f"the tokenizer {type(tokenizer).__name__} does not return offsets, which explanations "
            "need. Use a fast tokenizer: save the encoder with its tokenizer.json."
        )
    with TOKENIZER_LOCK:
        encoding = tokenizer(
            replace_surrogates(text[: _longest(max_length)]),
            truncation=True,
            max_length=max_length,
            return_offsets_mapping=True,
        )
    tokens = np.array(encoding["input_ids"], dtype=np.int64)
    return tokens, np.array(encoding["offset_mapping"], dtype=np.int64).reshape(-1, 2)


def content_key(tokenizer: Any, texts: Sequence[str], max_length: int) -> str:
    """A hash of tokenizer, maximum length and texts."""
    digest = hashlib.sha256()
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        description = repr(sorted(tokenizer.get_vocab().items())) + repr(tokenizer)
    else:
        # State of the last call, which the next call sets again.
        backend.no_truncation()
        backend.no_padding()
        description = backend.to_str()
    side = str(getattr(tokenizer, "truncation_side", ""))
    for piece in (description, side, str(max_length), *texts):
        raw = piece.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return digest.hexdigest()


def _read(path: Path, n_texts: int) -> Arrays | None:
    """Read a cache file; None if it is missing or damaged."""
    try:
        arrays = load_file(path)
        os.utime(path)
    except (OSError, SafetensorError):
        return None
    complete = arrays.keys() >= {"tokens", "offsets"} and len(arrays["offsets"]) == n_texts + 1
    return arrays if complete and arrays["offsets"][-1] <= len(arrays["tokens"]) else None


def _write(path: Path, arrays: Arrays) -> None:
    """Add to the cache; ignore that it cannot be written."""
    with contextlib.suppress(OSError, SafetensorError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as temporary:
            save_file(arrays, temporary)
        _evict(path.parent)


def _evict(folder: Path) -> None:
    """Remove the least recently used files until the cache is small enough."""
    files = [p for p in folder.iterdir() if CACHE_NAMES.fullmatch(p.name) and p.is_file()]
    kept = 0
    for path in sorted(files, key=lambda p: -p.stat().st_mtime):
        kept += path.stat().st_size
        if kept > CACHE_BYTES:
            path.unlink(missing_ok=True)
