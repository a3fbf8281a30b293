"""Tokenization: odd texts, batches of any rows, the cache."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.errors import InputError
from longtail.models import tokens
from longtail.models.tokens import content_key, tokenize
from longtail.training.encoded import EncodedTokens

if TYPE_CHECKING:
    from conftest import Children

Make = Callable[[], Any]
TEXTS = ["copper rose", "", "wheat and tin and zinc fell", "the"]


class Counting:
    """A tokenizer that counts the texts it is called with."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self.n_texts = tokenizer, 0

    def __call__(self, texts: list[str], **settings: Any) -> Any:
        self.n_texts += len(texts)
        return self._tokenizer(texts, **settings)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def lists_of(encoded: EncodedTokens) -> list[list[int]]:
    return [encoded.tokens[a:b].tolist() for a, b in pairwise(encoded.offsets)]


def test_texts_are_truncated(tiny_tokenizer: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = tiny_tokenizer()
    encoded = tokenize(tokenizer, TEXTS, max_length=5)
    expected = [tokenizer(text)["input_ids"] for text in TEXTS]
    # In the middle: the closing token is kept.
    expected[2] = [*expected[2][:4], expected[2][-1]]
    assert lists_of(encoded) == expected and encoded.pad == tokenizer.pad_token_id
    assert len(encoded) == 4 and encoded.lengths.tolist() == [4, 2, 5, 3]
    monkeypatch.setattr(tokens, "CHUNK", 3)
    assert lists_of(tokenize(tokenizer, TEXTS * 5, 5)) == expected * 5


@pytest.mark.parametrize("text", ["copper rose " * 90_000, "x" * 1_000_000], ids=["words", "word"])
def test_a_megabyte_is_truncated_first(tiny_tokenizer: Make, text: str) -> None:
    begin = time.perf_counter()
    lists = lists_of(tokenize(tiny_tokenizer(), ["wheat", text, "zinc"], 16))
    assert time.perf_counter() - begin < 5
    # The texts beside it are not changed.
    assert [len(ids) for ids in lists[::2]] == [3, 3] and 2 <= len(lists[1]) <= 16


def test_half_a_surrogate_pair_is_one_unknown_character(tiny_tokenizer: Make) -> None:
    known = tiny_tokenizer().convert_tokens_to_ids(["[CLS]", "copper", "[UNK]", "rose", "[SEP]"])
    assert lists_of(tokenize(tiny_tokenizer(), ["copper \ud83d rose"], 16)) == [known]


def test_no_tokens_at_all(tiny_tokenizer: Make) -> None:
    """Without any token there is still one to look up."""
    from tokenizers.processors import TemplateProcessing

    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="$A", special_tokens=[])
    encoded = tokenize(tokenizer, ["", ""], 8)
    assert encoded.lengths.tolist() == [0, 0] and len(encoded.tokens) == 1


@given(st.lists(st.text(max_size=30), max_size=6))
def test_any_texts(tiny_tokenizer: Make, texts: list[str]) -> None:
    encoded = tokenize(tiny_tokenizer(), texts, 8)
    assert len(encoded) == len(texts)
    assert all(2 <= length <= 8 for length in encoded.lengths)


id_lists = st.lists(st.lists(st.integers(1, 99), max_size=9), min_size=1, max_size=9)


@given(st.data(), id_lists)
def test_batches_and_selections_of_any_rows(data: st.DataObject, lists: list[list[int]]) -> None:
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    flat = np.array([k for ids in lists for k in ids] or [0], dtype=np.int32)
    encoded = EncodedTokens(flat, offsets, 0, 9)
    rows = np.array(data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=12)), dtype=int)
    selected = encoded.select(rows)
    assert lists_of(selected) == [lists[k] for k in rows]
    width = max([1, *(len(lists[k]) for k in rows)])
    for batch in (encoded.batch(rows), selected.batch(np.arange(len(rows)))):
        assert batch["input_ids"].shape == batch["attention_mask"].shape == (len(rows), width)
        for k, row in enumerate(rows):
            n = len(lists[row])
            assert batch["input_ids"][k].tolist() == lists[row] + [0] * (width - n)
            assert batch["attention_mask"][k].tolist() == [1] * n + [0] * (width - n)


def test_a_second_run_does_not_tokenize(tiny_tokenizer: Make, tmp_path: Path) -> None:
    first, second = Counting(tiny_tokenizer()), Counting(tiny_tokenizer())
    lists = [lists_of(tokenize(t, TEXTS, 8, cache=tmp_path)) for t in (first, first, second)]
    assert first.n_texts == len(TEXTS) and second.n_texts == 0
    assert lists[0] == lists[1] == lists[2]
    tokenize(second, TEXTS[:1], 8)
    assert len(list(tmp_path.iterdir())) == 1


def test_the_key_depends_on_all_that_matters(
    tiny_tokenizer: Make, children: Children, tiny_bert: Path, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    tokenizer, used = tiny_tokenizer(), tiny_tokenizer()
    used(TEXTS, truncation=True, max_length=3, padding=True)
    assert content_key(used, TEXTS, 8) == content_key(tokenizer, TEXTS, 8)
    larger, other_side = tiny_tokenizer(), tiny_tokenizer()
    larger.add_tokens(["nickel-plated"])
    other_side.truncation_side = "left"
    keys = [
        *(content_key(tokenizer, TEXTS, length) for length in (8, 9)),
        *(content_key(tokenizer, texts, 8) for texts in (TEXTS[::-1], [*TEXTS, ""])),
        *(content_key(tokenizer, [*cut, *TEXTS[1:]], 8) for cut in (("a ", "b"), ("a", " b"))),
        *(content_key(other, TEXTS, 8) for other in (larger, other_side)),
    ]
    assert len(set(keys)) == len(keys)
    # Another process has the same.
    assert children.run("key", out=str(tmp_path)) == 0
    loaded = AutoTokenizer.from_pretrained(tiny_bert)
    assert (tmp_path / "key").read_text() == content_key(loaded, ["copper"], 8)


def test_a_damaged_cache_is_not_used(tiny_tokenizer: Make, tmp_path: Path) -> None:
    whole = lists_of(tokenize(tiny_tokenizer(), TEXTS, 8, cache=tmp_path))
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    tokenize(tiny_tokenizer(), TEXTS * 2, 8, cache=tmp_path)
    other = (tmp_path / content_key(tiny_tokenizer(), TEXTS * 2, 8)).read_bytes()
    for damaged in (b"", b"no safetensors", content[:-5], other):
        file.write_bytes(damaged)
        tokenizer = Counting(tiny_tokenizer())
        assert lists_of(tokenize(tokenizer, TEXTS, 8, cache=tmp_path)) == whole
        assert tokenizer.n_texts == len(TEXTS) and file.read_bytes() == content


def test_a_cache_that_cannot_be_written(tiny_tokenizer: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for cache in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/longtail")):
        assert len(tokenize(tiny_tokenizer(), TEXTS, 8, cache=cache)) == 4


def test_old_tokens_are_evicted(
    tiny_tokenizer: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [content_key(tiny_tokenizer(), [text], 8) for text in TEXTS]
    (tmp_path / "notes.txt").write_bytes(b"mine")
    os.utime(tmp_path / "notes.txt", (0, 0))
    for age, text in enumerate(TEXTS[:3]):
        tokenize(tiny_tokenizer(), [text], 8, cache=tmp_path)
        os.utime(tmp_path / keys[age], (1000 + age, 1000 + age))
    assert {path.name for path in tmp_path.iterdir()} == {*keys[:3], "notes.txt"}
    # Used again, the oldest becomes the newest.
    tokenize(tiny_tokenizer(), TEXTS[:1], 8, cache=tmp_path)
    monkeypatch.setattr(tokens, "CACHE_BYTES", 450)
    tokenize(tiny_tokenizer(), TEXTS[3:], 8, cache=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {keys[0], keys[3], "notes.txt"}


def test_a_tokenizer_that_cannot_be_used(tiny_tokenizer: Make) -> None:
    for max_length in (1, 2):
        # With less than its special tokens it would not truncate at all.
        with pytest.raises(InputError, match=r"max_length must be above 2.*got \d"):
            tokenize(tiny_tokenizer(), TEXTS, max_length)
    assert tokenize(tiny_tokenizer(), TEXTS, 3).lengths.max() == 3
    tokenizer = tiny_tokenizer()
    tokenizer.pad_token = None
    with pytest.raises(InputError, match=r"no padding token.*tokenizer\.pad_token = tokenizer"):
        tokenize(tokenizer, TEXTS, 8)
