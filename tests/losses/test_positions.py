"""Positions of dense targets, and the buffers that the CPU path keeps between calls."""

from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.losses import analytic, build_loss
from longtail.losses.targets import Targets


@given(
    rows=st.integers(0, 9),
    labels=st.integers(1, 700),
    share=st.sampled_from([0.0, 0.01, 0.5, 1.0]),
    seed=st.integers(0, 99),
    dtype=st.sampled_from([torch.bool, torch.int64, torch.float32]),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_positions_are_those_of_nonzero(
    rows: int, labels: int, share: float, seed: int, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(seed)
    dense = (torch.rand(rows, labels, generator=generator) < share).to(dtype)
    # Columns that are not side by side must not matter.
    for view in (
        dense,
        torch.stack([dense, dense], dim=2)[:, :, 1],
        torch.cat([torch.zeros(1, labels, dtype=dtype), dense])[1:],
    ):
        found = Targets((rows, labels), dense=view).sparse()
        expected = dense.nonzero(as_tuple=True)
        assert torch.equal(found.positions()[0], expected[0])
        assert torch.equal(found.positions()[1], expected[1])


def test_buffers_made_in_inference_mode_serve_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analytic._Workspace, "_kept", threading.local())
    loss = build_loss("fl")
    logits, target = torch.randn(4, 9), torch.zeros(4, 9)
    with torch.inference_mode():
        first = loss(logits, target)
    logits.requires_grad_()
    second = loss(logits, target)
    second.backward()
    assert second.item() == first.item() and logits.grad is not None


def test_kept_buffers_do_not_leak_between_batches_and_threads() -> None:
    loss = build_loss("fl", reduction="sum")
    batches = [torch.randn(3, 5, generator=torch.Generator().manual_seed(k)) for k in range(8)]
    alone = [loss(batch, torch.zeros(3, 5)).item() for batch in batches]
    together: dict[int, float] = {}

    def work(number: int) -> None:
        for _ in range(20):
            together[number] = loss(batches[number], torch.zeros(3, 5)).item()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[number] for number in range(8)] == alone
