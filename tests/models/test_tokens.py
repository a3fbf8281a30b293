"""Tokens of texts: odd texts, batches of any rows, and a cache that tells apart what differs."""

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
from longtail.models import tokens as room
from longtail.models.tokens import EncodedTokens, content_key, tokenise

if TYPE_CHECKING:
    from conftest import Children

Make = Callable[[], Any]
TEXTS = ["copper rose", "", "wheat and tin and zinc fell", "the"]


class Counting:
    """A tokenizer that counts the texts it is given."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self.n_texts = tokenizer, 0

    def __call__(self, texts: list[str], **settings: Any) -> Any:
        self.n_texts += len(texts)
        return self._tokenizer(texts, **settings)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def lists_of(encoded: EncodedTokens) -> list[list[int]]:
    return [encoded.tokens[a:b].tolist() for a, b in pairwise(encoded.offsets)]


def test_the_first_tokens_of_every_text(tiny_tokenizer: Make) -> None:
    tokenizer = tiny_tokenizer()
    encoded = tokenise(tokenizer, TEXTS, max_length=5)
    expected = [tokenizer(text)["input_ids"] for text in TEXTS]
    assert lists_of(encoded)[:2] == expected[:2] and lists_of(encoded)[3] == expected[3]
    # Cut in the middle, with the closing token kept.
    assert lists_of(encoded)[2] == [*expected[2][:4], expected[2][-1]]
    assert len(encoded) == 4 and encoded.lengths.tolist() == [4, 2, 5, 3]
    assert encoded.pad == tokenizer.pad_token_id


def test_more_texts_than_are_given_at_a_time(
    tiny_tokenizer: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tokenise(tiny_tokenizer(), TEXTS * 5, 8)
    monkeypatch.setattr(room, "CHUNK", 3)
    done: list[tuple[int, int]] = []
    parts = tokenise(tiny_tokenizer(), TEXTS * 5, 8, progress=lambda *now: done.append(now))
    assert lists_of(parts) == lists_of(whole)
    assert done == [(k, 20) for k in (3, 6, 9, 12, 15, 18, 20)]


ODD = {
    "empty": "",
    "one character": "a",
    "nul": "copper\x00rose \x00",
    "emoji": "copper 😀👩‍👩‍👧 rose",
    "half an emoji": "copper \ud83d rose",
    "other half": "\ude00",
    "right to left": "نحاس copper שלום",
    "only spaces": " \t\n\u00a0 ",
    "combining": "e\u0301\u0302" * 50,
    "a megabyte": "copper rose " * 90_000,
    "a megabyte without a space": "x" * 1_000_000,
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
def test_odd_texts(tiny_tokenizer: Make, tmp_path: Path, text: str) -> None:
    begin = time.perf_counter()
    encoded = tokenise(tiny_tokenizer(), ["wheat", text, "zinc"], 16, cache=tmp_path)
    assert time.perf_counter() - begin < 5
    lists = lists_of(encoded)
    # The neighbours are as ever.
    assert [len(one) for one in lists[::2]] == [3, 3] and 2 <= len(lists[1]) <= 16
    assert (
        lists_of(tokenise(tiny_tokenizer(), ["wheat", text, "zinc"], 16, cache=tmp_path)) == lists
    )


def test_half_an_emoji_is_one_unknown_character(tiny_tokenizer: Make) -> None:
    known = tiny_tokenizer().convert_tokens_to_ids(["[CLS]", "copper", "[UNK]", "rose", "[SEP]"])
    assert lists_of(tokenise(tiny_tokenizer(), ["copper \ud83d rose"], 16)) == [known]


@given(st.lists(st.text(max_size=30), max_size=6))
def test_any_texts(tiny_tokenizer: Make, texts: list[str]) -> None:
    encoded = tokenise(tiny_tokenizer(), texts, 8)
    assert len(encoded) == len(texts)
    assert all(2 <= length <= 8 for length in encoded.lengths)


id_lists = st.lists(st.lists(st.integers(1, 99), max_size=9), min_size=1, max_size=9)


@given(st.data(), id_lists)
def test_batches_and_selections_of_any_rows(data: st.DataObject, lists: list[list[int]]) -> None:
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64)
    flat = np.array([k for one in lists for k in one] or [0], dtype=np.int32)
    encoded = EncodedTokens(flat, offsets, 0, 9)
    some = st.lists(st.integers(0, len(lists) - 1), max_size=12)
    rows = np.array(data.draw(some), dtype=np.int64)
    chosen = encoded.select(rows)
    assert lists_of(chosen) == [lists[k] for k in rows]
    batch = encoded.batch(rows)
    width = max([1, *(len(lists[k]) for k in rows)])
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (len(rows), width)
    for k, row in enumerate(rows):
        n = len(lists[row])
        assert batch["input_ids"][k].tolist() == lists[row] + [0] * (width - n)
        assert batch["attention_mask"][k].tolist() == [1] * n + [0] * (width - n)
    # A selection of a selection, and batches of it.
    if len(rows):
        again = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=5)), dtype=int)
        twice = chosen.batch(again)["input_ids"]
        once = encoded.batch(rows[again])["input_ids"]
        assert twice.tolist() == once.tolist()


def test_a_second_run_does_not_tokenise(tiny_tokenizer: Make, tmp_path: Path) -> None:
    first, same, fresh = Counting(tiny_tokenizer()), None, Counting(tiny_tokenizer())
    found = tokenise(first, TEXTS, 8, cache=tmp_path)
    same = tokenise(first, TEXTS, 8, cache=tmp_path)
    other = tokenise(fresh, TEXTS, 8, cache=tmp_path)
    assert first.n_texts == len(TEXTS) and fresh.n_texts == 0
    assert lists_of(found) == lists_of(same) == lists_of(other)
    assert len(list(tmp_path.iterdir())) == 1
    tokenise(Counting(tiny_tokenizer()), TEXTS, 8)
    assert len(list(tmp_path.iterdir())) == 1


def test_what_differs_has_another_key(tiny_tokenizer: Make) -> None:
    tokenizer = tiny_tokenizer()
    used = tiny_tokenizer()
    used(TEXTS, truncation=True, max_length=3, padding=True)
    assert content_key(used, TEXTS, 8) == content_key(tokenizer, TEXTS, 8)
    larger, other_side = tiny_tokenizer(), tiny_tokenizer()
    larger.add_tokens(["nickel-plated"])
    other_side.truncation_side = "left"
    keys = [
        content_key(tokenizer, TEXTS, 8),
        content_key(tokenizer, TEXTS, 9),
        content_key(tokenizer, TEXTS[::-1], 8),
        content_key(tokenizer, [*TEXTS, ""], 8),
        content_key(tokenizer, ["copper ", "rose", *TEXTS[1:]], 8),
        content_key(tokenizer, ["copper", " rose", *TEXTS[1:]], 8),
        content_key(larger, TEXTS, 8),
        content_key(other_side, TEXTS, 8),
    ]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("damage", [b"", b"no safetensors", None])
def test_a_damaged_cache_is_not_used(
    tiny_tokenizer: Make, tmp_path: Path, damage: bytes | None
) -> None:
    whole = lists_of(tokenise(tiny_tokenizer(), TEXTS, 8, cache=tmp_path))
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    file.write_bytes(content[:-5] if damage is None else damage)
    tokenizer = Counting(tiny_tokenizer())
    assert lists_of(tokenise(tokenizer, TEXTS, 8, cache=tmp_path)) == whole
    assert tokenizer.n_texts == len(TEXTS) and file.read_bytes() == content


def test_a_cache_of_other_texts_under_this_name_is_not_used(
    tiny_tokenizer: Make, tmp_path: Path
) -> None:
    tokenise(tiny_tokenizer(), TEXTS, 8, cache=tmp_path)
    (file,) = tmp_path.iterdir()
    file.rename(tmp_path / content_key(tiny_tokenizer(), TEXTS * 2, 8))
    assert len(tokenise(tiny_tokenizer(), TEXTS * 2, 8, cache=tmp_path)) == 8


def test_a_cache_that_cannot_be_written_stops_nobody(tiny_tokenizer: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for cache in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/longtail")):
        assert len(tokenise(tiny_tokenizer(), TEXTS, 8, cache=cache)) == 4


def test_old_tokens_make_room(
    tiny_tokenizer: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [content_key(tiny_tokenizer(), [text], 8) for text in TEXTS]
    (tmp_path / "notes.txt").write_bytes(b"mine")
    os.utime(tmp_path / "notes.txt", (0, 0))
    for age, text in enumerate(TEXTS[:3]):
        tokenise(tiny_tokenizer(), [text], 8, cache=tmp_path)
        os.utime(tmp_path / keys[age], (1000 + age, 1000 + age))
    assert {path.name for path in tmp_path.iterdir()} == {*keys[:3], "notes.txt"}
    # Used again, the oldest becomes the newest.
    tokenise(tiny_tokenizer(), TEXTS[:1], 8, cache=tmp_path)
    monkeypatch.setattr(room, "CACHE_BYTES", 450)
    tokenise(tiny_tokenizer(), TEXTS[3:], 8, cache=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {keys[0], keys[3], "notes.txt"}


def test_keys_are_the_same_in_every_process(
    children: Children, tiny_bert: Path, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    assert children.run("key", out=str(tmp_path)) == 0
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    assert (tmp_path / "key").read_text() == content_key(tokenizer, ["copper"], 8)


def test_a_tokenizer_without_padding(tiny_tokenizer: Make) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.pad_token = None
    with pytest.raises(InputError, match=r"no padding token.*tokenizer\.pad_token = tokenizer"):
        tokenise(tokenizer, TEXTS, 8)


def test_room_for_the_tokenizers_own_tokens(tiny_tokenizer: Make) -> None:
    """With less it would not cut at all."""
    for max_length in (1, 2):
        with pytest.raises(InputError, match=r"max_length must be above 2.*got \d"):
            tokenise(tiny_tokenizer(), TEXTS, max_length)
    assert tokenise(tiny_tokenizer(), TEXTS, 3).lengths.max() == 3
