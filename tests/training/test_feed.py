"""Batches and feeds: every document once, of similar length, the same on the host and gathered."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from longtail.training.encoded import (
    DeviceFeed,
    HostFeed,
    epoch_batches,
    level_batches,
    packed_width,
    padded_width,
    sorted_batches,
)

from .cases import documents, make_tokens

CPU = torch.device("cpu")
text_lengths = st.lists(st.integers(0, 600), max_size=300).map(
    lambda lengths: np.array(lengths, dtype=np.int64)
)


@given(text_lengths, st.integers(1, 40), st.integers(0, 5), st.integers(0, 5))
def test_batches_have_every_document_once(
    lengths: np.ndarray, size: int, seed: int, epoch: int
) -> None:
    shuffled, ordered = epoch_batches(lengths, size, seed, epoch), sorted_batches(lengths, size)
    level = level_batches(lengths, size, seed, epoch)
    for batches in (level, shuffled, ordered):
        rows = np.concatenate(batches) if batches else np.zeros(0, dtype=int)
        assert sorted(rows.tolist()) == list(range(len(lengths)))
        assert len(batches) == -(-len(lengths) // size)
        if batches is level:
            sizes = [len(batch) for batch in batches]
            assert max(sizes, default=0) - min(sizes, default=0) <= 1
        else:
            assert sum(len(batch) < size for batch in batches) <= 1
    # For predictions the longest come first.
    assert (np.diff(lengths[rows]) <= 0).all()
    again = epoch_batches(lengths, size, seed, epoch)
    assert all((first == second).all() for first, second in zip(shuffled, again, strict=True))


@pytest.mark.parametrize("make", [epoch_batches, level_batches])
def test_epochs_and_seeds_differ(make: Callable[..., list[np.ndarray]]) -> None:
    lengths = np.random.default_rng(0).integers(1, 500, size=200)
    sets = [
        {tuple(sorted(batch.tolist())) for batch in make(lengths, 8, seed, epoch)}
        for seed, epoch in ((0, 0), (0, 1), (1, 0))
    ]
    # Not only in another order: other documents share a batch.
    assert all(len(sets[a] & sets[b]) < 3 for a, b in ((0, 1), (0, 2), (1, 2)))


@pytest.mark.parametrize(("n", "most"), [(400, 0.3), (7769, 0.05)])
def test_there_is_little_padding(n: int, most: float) -> None:
    """Lengths as in news: most texts are short, with a tail of long ones."""
    lengths = np.random.default_rng(1).lognormal(4.5, 0.8, size=n).clip(5, 384).astype(np.int64)

    def padding(batches: list[np.ndarray]) -> float:
        computed = sum(len(rows) * lengths[rows].max() for rows in batches)
        return 1 - lengths.sum() / computed

    shuffled = np.random.default_rng(0).permutation(n)
    assert padding([shuffled[k : k + 32] for k in range(0, n, 32)]) > 0.5
    bucketed = padding(epoch_batches(lengths, 32, 0, 0))
    assert padding(sorted_batches(lengths, 32)) <= bucketed < most


def test_level_batches_have_equal_sums() -> None:
    """So that one graph serves all batches: lengths as in news."""
    lengths = np.random.default_rng(1).lognormal(4.5, 0.8, size=7001).clip(5, 512).astype(np.int64)
    widths = set()
    for epoch in range(3):
        for rows in level_batches(lengths, 32, 0, epoch):
            n_tokens = int(lengths[rows].sum())
            widths.add(packed_width(n_tokens, lengths.mean() * 32))
            assert n_tokens <= max(widths)
            halves = [int(lengths[part].sum()) for part in (rows[:16], rows[16:])]
            assert max(halves) < 1.3 * min(halves)
    (width,) = widths
    assert width < 1.03 * lengths.mean() * 32


@given(st.integers(1, 100_000), st.integers(1, 100_000))
def test_packed_width(n_tokens: int, expected: int) -> None:
    width = packed_width(n_tokens, expected)
    assert n_tokens <= width and width % 64 == 0
    assert width <= max(n_tokens + 512, 1.01 * expected + 80)


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_width_of_a_batch(length: int, longest: int) -> None:
    longest = max(length, longest)
    width = padded_width(length, longest)
    # Never beyond the longest text, as the encoder has no positions there.
    assert length <= width <= longest
    assert width - length <= max(15, length // 8)
    assert width == longest or width % 16 == 0


def test_there_are_few_widths() -> None:
    assert len({padded_width(length, 8192) for length in range(1, 8193)}) == 16 + 5 * 8
    up_to_384 = {padded_width(length, 384) for length in range(1, 385)}
    assert up_to_384 == {*range(16, 257, 16), *range(288, 385, 32)}


label_rows = st.lists(st.lists(st.integers(0, 4), unique=True), min_size=1, max_size=12)


@given(st.data(), label_rows)
def test_device_feed_equals_host_feed(data: st.DataObject, labels: list[list[int]]) -> None:
    n = len(labels)
    texts = data.draw(st.lists(st.lists(st.integers(1, 9), max_size=40), min_size=n, max_size=n))
    rows = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=8)))
    Y = sp.csr_matrix(np.array([[k in row for k in range(5)] for row in labels], dtype=np.float32))
    encoded = make_tokens(texts, max_length=64)
    host, device = HostFeed(encoded, Y, CPU), DeviceFeed(encoded, Y, CPU)

    width = device.width(rows)
    assert host.width(rows) is None and width is not None
    gathered, (dense, *_) = device.batch(torch.from_numpy(rows), width)
    inputs, ((indices, offsets), *_) = host.batch(rows, None)
    longest = inputs["input_ids"].shape[1]
    assert gathered["input_ids"].shape == gathered["attention_mask"].shape == (len(rows), width)
    for name, value in inputs.items():
        assert torch.equal(gathered[name][:, :longest], value)
        # Behind a text is padding, not the next text.
        assert not gathered[name][:, longest:].any()
    assert torch.equal(dense, torch.from_numpy(Y[rows].toarray()))
    for k, row in enumerate(rows):
        assert indices[offsets[k] : offsets[k + 1]].tolist() == sorted(labels[row])


def test_memory_of_a_device_feed() -> None:
    encoded, Y = documents(50)
    feed = DeviceFeed(encoded, Y, CPU)
    tensors = [value for value in vars(feed).values() if isinstance(value, torch.Tensor)]
    assert sum(t.numel() * t.element_size() for t in tensors) == DeviceFeed.n_bytes(encoded, Y)
