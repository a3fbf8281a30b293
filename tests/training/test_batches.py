"""Batches and feeds: every document once, of similar length, the same on the host as gathered."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from longtail.training.batches import epoch_batches, padded_width, sorted_batches
from longtail.training.feed import DeviceFeed, HostFeed, sparse_targets

from .cases import documents, tokens_of

lengths_of_documents = st.lists(st.integers(0, 600), max_size=300).map(np.array)


@given(lengths_of_documents, st.integers(1, 40), st.integers(0, 5), st.integers(0, 5))
def test_every_document_once_in_every_epoch(
    lengths: np.ndarray, size: int, seed: int, epoch: int
) -> None:
    batches = epoch_batches(lengths, size, seed, epoch)
    rows = np.concatenate(batches) if batches else np.zeros(0)
    assert sorted(rows.tolist()) == list(range(len(lengths)))
    assert len(batches) == -(-len(lengths) // size)
    # All full but one.
    assert sum(len(batch) < size for batch in batches) <= 1
    again = epoch_batches(lengths, size, seed, epoch)
    assert all((one == other).all() for one, other in zip(batches, again, strict=True))


def test_epochs_and_seeds_differ() -> None:
    lengths = np.random.default_rng(0).integers(1, 500, size=200)
    found = [
        [tuple(sorted(batch.tolist())) for batch in epoch_batches(lengths, 8, seed, epoch)]
        for seed, epoch in ((0, 0), (0, 1), (1, 0))
    ]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert found[one] != found[other]
        # Not only in another order: other documents come together.
        assert len(set(found[one]) & set(found[other])) < 3


@pytest.mark.parametrize("n", [400, 7769])
def test_little_is_padding(n: int) -> None:
    """Lengths as of news: most short, a tail of long ones."""
    lengths = np.random.default_rng(1).lognormal(4.5, 0.8, size=n).clip(5, 384).astype(np.int64)

    def padding(batches: list[np.ndarray]) -> float:
        computed = sum(len(rows) * lengths[rows].max() for rows in batches)
        return 1 - lengths.sum() / computed

    shuffled = np.random.default_rng(0).permutation(n)
    at_random = padding([shuffled[k : k + 32] for k in range(0, n, 32)])
    bucketed = padding(epoch_batches(lengths, 32, 0, 0))
    assert at_random > 0.5
    assert bucketed < (0.05 if n > 1000 else 0.3)
    assert padding(sorted_batches(lengths, 32)) <= bucketed


@given(lengths_of_documents, st.integers(1, 40))
def test_predicting_goes_from_long_to_short(lengths: np.ndarray, size: int) -> None:
    batches = sorted_batches(lengths, size)
    rows = np.concatenate(batches) if batches else np.zeros(0, dtype=int)
    assert sorted(rows.tolist()) == list(range(len(lengths)))
    assert (np.diff(lengths[rows]) <= 0).all()


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_width_of_a_batch(length: int, longest: int) -> None:
    longest = max(length, longest)
    width = padded_width(length, longest)
    assert length <= width <= longest
    # At most 15 tokens or an eighth too many.
    assert width - length <= max(15, length // 8)
    assert width == longest or width % 16 == 0


def test_there_are_few_widths() -> None:
    widths = {padded_width(length, 8192) for length in range(1, 8193)}
    assert len(widths) == 16 + 5 * 8
    up_to_384 = {padded_width(length, 384) for length in range(1, 385)}
    assert up_to_384 == {*range(16, 257, 16), *range(288, 385, 32)}


def test_the_width_of_a_longest_text_that_is_no_multiple() -> None:
    """The encoder has no positions beyond it."""
    assert padded_width(500, 510) == 510
    assert padded_width(17, 20) == 20


label_rows = st.lists(st.lists(st.integers(0, 4), unique=True), min_size=1, max_size=12)


@given(st.data(), label_rows)
def test_gathered_on_the_device_as_made_on_the_host(
    data: st.DataObject, labels: list[list[int]]
) -> None:
    n = len(labels)
    texts = data.draw(st.lists(st.lists(st.integers(1, 9), max_size=40), min_size=n, max_size=n))
    rows = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=8)))
    Y = sp.csr_matrix(np.array([[k in one for k in range(5)] for one in labels], dtype=np.float32))
    encoded, cpu = tokens_of(texts, max_length=64), torch.device("cpu")
    host, device = HostFeed(encoded, Y, cpu), DeviceFeed(encoded, Y, cpu)

    width = device.width(rows)
    assert host.width(rows) is None and width is not None
    gathered, dense = device.batch(torch.from_numpy(rows), width)
    made, (indices, offsets) = host.batch(rows, None)
    longest = made["input_ids"].shape[1]
    assert gathered["input_ids"].shape == gathered["attention_mask"].shape == (len(rows), width)
    for name, value in made.items():
        assert torch.equal(gathered[name][:, :longest], value)
        assert not gathered[name][:, longest:].any()
    assert torch.equal(dense, torch.from_numpy(Y[rows].toarray()))
    for k, row in enumerate(rows):
        assert indices[offsets[k] : offsets[k + 1]].tolist() == sorted(labels[row])


def test_what_is_behind_a_text_is_padding_not_the_next_text() -> None:
    encoded = tokens_of([[1, 2], [3]], max_length=64)
    Y = sp.csr_matrix((2, 2), dtype=np.float32)
    feed = DeviceFeed(encoded, Y, torch.device("cpu"))
    inputs, targets = feed.batch(torch.tensor([0, 1]), 4)
    assert inputs["input_ids"].tolist() == [[1, 2, 0, 0], [3, 0, 0, 0]]
    assert inputs["attention_mask"].tolist() == [[1, 1, 0, 0], [1, 0, 0, 0]]
    assert targets.tolist() == [[0, 0], [0, 0]]


def test_the_memory_of_a_feed_is_foretold() -> None:
    encoded, Y = documents(50)
    feed = DeviceFeed(encoded, Y, torch.device("cpu"))
    held = [value for value in vars(feed).values() if isinstance(value, torch.Tensor)]
    assert sum(t.numel() * t.element_size() for t in held) == DeviceFeed.n_bytes(encoded, Y)


def test_targets_are_flat_indices() -> None:
    Y = sp.csr_matrix(np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0]]))
    labels, offsets = sparse_targets(Y, np.array([2, 1, 0]), torch.device("cpu"))
    assert labels.tolist() == [0, 1, 2]
    assert offsets.tolist() == [0, 1, 1, 3]
