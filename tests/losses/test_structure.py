"""Sparse targets that point outside the batch are refused before anything follows them.

torch trusts row starts: with wrong ones `repeat_interleave` wrote past its buffer, and the process
died of a corrupted heap some calls later.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from longtail.errors import InputError
from longtail.losses import build_loss
from longtail.losses.structure import find_positions

from .cases import edge_stats, make_batch, make_loss, to_csr, to_offsets

pytestmark = pytest.mark.filterwarnings("ignore:Sparse .* beta:UserWarning")

SHAPE = (3, 5)
STARTS, LABELS, VALUES = [0, 2, 2, 3], [0, 3, 4], [1.0, 1.0, 1.0]
BAD_STARTS = [
    [1, 2, 2, 3], [0, 2, 2, 2], [0, 2, 2, 4], [0, 2, 2, 10**6], [0, 3, 2, 3], [0, -1, 2, 3],
    [0, 10**9, 2, 3], [-5, 2, 2, 3], [3, 2, 2, 0], [0, 0, 0, 0], [1, 3, 3, 4], [0, 2**62, 2, 3],
]  # fmt: skip
BAD_LABELS = [[0, 3, 5], [-1, 3, 4], [0, 10**9, 4], [0, 3, -(2**62)], [2**62, 3, 4]]


def csr(starts: Any, labels: Any, values: Any, shape: tuple[int, ...] = SHAPE) -> Tensor:
    parts = (torch.as_tensor(starts), torch.as_tensor(labels), torch.as_tensor(values))
    return torch.sparse_csr_tensor(*parts, shape, check_invariants=False)


@pytest.mark.parametrize("check_targets", [True, False])
@pytest.mark.parametrize("name", ["db", "bce", "asl", "zlpr", "two-way", "dice"])
def test_starts_and_labels_out_of_range_are_refused(name: str, check_targets: bool) -> None:
    losses = [
        make_loss(name, 5, reduction=reduction, check_targets=check_targets)
        for reduction in ("mean", "none")
    ]
    mask = torch.ones(SHAPE, dtype=torch.bool)
    for loss, known in itertools.product(losses, (None, mask)):
        for starts in BAD_STARTS:
            with pytest.raises(InputError, match=r"crow_indices must rise from 0 to .* \(3\), got"):
                loss(torch.zeros(SHAPE), csr(starts, LABELS, VALUES), mask=known)
            with pytest.raises(InputError, match=r"offsets must rise from 0 to .* \(3\), got"):
                loss(torch.zeros(SHAPE), (torch.tensor(LABELS), torch.tensor(starts)), mask=known)
        for labels in BAD_LABELS:
            with pytest.raises(InputError, match=r"must lie in 0\.\.4 for 5 labels"):
                loss(torch.zeros(SHAPE), csr(STARTS, labels, VALUES), mask=known)
            with pytest.raises(InputError, match=r"must lie in 0\.\.4 for 5 labels"):
                loss(torch.zeros(SHAPE), (torch.tensor(labels), torch.tensor(STARTS)), mask=known)


@pytest.mark.parametrize("check_targets", [True, False])
def test_parts_of_other_sizes_are_refused(check_targets: bool) -> None:
    loss = build_loss("db", edge_stats(5), check_targets=check_targets)
    damaged = [
        (STARTS[:-1], LABELS, VALUES, "crow_indices of shape \\(4,\\)"),
        ([*STARTS, 3], LABELS, VALUES, "crow_indices of shape \\(4,\\)"),
        (STARTS, LABELS[:-1], VALUES, "col_indices of shape \\(3,\\)"),
        (STARTS, LABELS, VALUES[:-1], "col_indices of shape \\(2,\\)"),
        (STARTS, LABELS, [VALUES], "col_indices of shape \\(1,\\)"),
        ([STARTS], [LABELS], [VALUES], "crow_indices of shape \\(4,\\)"),
    ]
    for starts, labels, values, message in damaged:
        with pytest.raises(InputError, match=f"damaged CSR targets: expected {message}"):
            loss(torch.zeros(SHAPE), csr(starts, labels, values))


def test_a_label_listed_twice_is_refused_where_values_are_checked() -> None:
    twice = csr(STARTS, [3, 3, 4], VALUES)
    for name in ("db", "zlpr"):
        with pytest.raises(InputError, match="document 0 lists label 3 twice"):
            make_loss(name, 5)(torch.zeros(SHAPE), twice)
        assert make_loss(name, 5, check_targets=False)(torch.zeros(SHAPE), twice).isfinite()


def test_labels_of_no_document() -> None:
    loss = build_loss("zlpr")
    nothing = torch.zeros(0, dtype=torch.int64)
    assert loss(torch.zeros(0, 5), (nothing, nothing)) == 0
    assert loss(torch.zeros(0, 5), csr([0], nothing, torch.zeros(0), (0, 5))) == 0
    with pytest.raises(InputError, match=r"targets with 2 labels do not fit logits of shape \(0"):
        loss(torch.zeros(0, 5), (torch.tensor([0, 1]), torch.tensor([0])))
    with pytest.raises(InputError, match=r"targets with 2 labels do not fit"):
        loss(torch.zeros(2, 0), (torch.tensor([0, 1]), torch.tensor([0, 1])))


def test_rows_are_those_of_repeat_interleave() -> None:
    generator = torch.Generator().manual_seed(0)
    for n_rows in (1, 2, 7, 40):
        sizes = torch.randint(0, 4, (n_rows,), generator=generator)
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
        labels = torch.arange(int(sizes.sum()))
        found = find_positions(starts, labels, (n_rows, 200), "offsets", True, True)
        assert torch.equal(found.rows, torch.arange(n_rows).repeat_interleave(sizes))


def test_indices_that_are_not_side_by_side() -> None:
    # The kernels address labels by number, whatever their stride.
    logits, dense = make_batch(3, 5, seed=1)
    labels, offsets = to_offsets(dense)
    spread = torch.stack([labels, labels + 100], dim=1)[:, 0]
    loss = make_loss("db", 5)
    assert torch.equal(loss(logits, (spread, offsets)), loss(logits, (labels, offsets)))
    starts = torch.tensor(STARTS)
    found = find_positions(starts, torch.arange(6)[::2], (3, 5), "offsets", True, True)
    assert found.labels.is_contiguous() and found.rows.is_contiguous()


@pytest.mark.parametrize("starts", [STARTS, *BAD_STARTS])
def test_positions_nobody_looks_at_stay_inside(starts: list[int]) -> None:
    for labels in ([0, 3, 4], *BAD_LABELS):
        found = find_positions(
            torch.tensor(starts), torch.tensor(labels), SHAPE, "offsets", False, False
        )
        assert ((found.rows >= 0) & (found.rows < 3)).all()
        assert ((found.labels >= 0) & (found.labels < 5)).all()
        assert found.good is not None
        assert bool(found.good) == (starts == STARTS and labels == LABELS)


@pytest.mark.parametrize("name", ["db", "zlpr"])
def test_compiled_losses_of_bad_positions_are_nan(name: str) -> None:
    # No check that depends on data can raise there; nothing may be read or written outside either.
    torch._dynamo.reset()
    loss = make_loss(name, 5)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    logits = torch.zeros(SHAPE)
    good = (torch.tensor(LABELS), torch.tensor(STARTS))
    torch.testing.assert_close(compiled(logits, good), loss(logits, good))
    for starts in BAD_STARTS:
        assert compiled(logits, (torch.tensor(LABELS), torch.tensor(starts))).isnan()
    for labels in BAD_LABELS:
        assert compiled(logits, (torch.tensor(labels), torch.tensor(STARTS))).isnan()


def test_good_sparse_targets_of_every_index_type() -> None:
    logits, dense = make_batch(4, 5, seed=2)
    for name in ("db", "zlpr"):
        loss = make_loss(name, 5, check_targets=False)
        for indices in (torch.int32, torch.int64):
            torch.testing.assert_close(
                loss(logits, to_csr(dense, indices=indices)), loss(logits, dense)
            )
