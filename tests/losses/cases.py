"""Helpers of the loss tests: label statistics with edge cases, batches, forms of targets.

All is made from a seed; nothing is read from outside the repository.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from longtail.labels import LabelStats
from longtail.losses import LOSSES, BalancedLoss, MultiLabelLoss, build_loss

NAMES = list(LOSSES)
BALANCED = [name for name, row in LOSSES.items() if row.module is BalancedLoss]
REDUCTIONS = ("none", "mean", "batchmean", "sum")
N_SAMPLES = 40
EXACT = {"rtol": 1e-9, "atol": 1e-12}


def edge_stats(n_labels: int) -> LabelStats:
    """Counts that cycle through no document, every document, and values between."""
    cycle = [7, 0, N_SAMPLES, 1, 20]
    counts = [cycle[label % len(cycle)] for label in range(n_labels)]
    return LabelStats.from_counts(counts, N_SAMPLES)


def make_loss(name: str, n_labels: int, **overrides: Any) -> MultiLabelLoss:
    return build_loss(name, edge_stats(n_labels), **overrides)


def make_batch(
    n_documents: int, n_labels: int, seed: int = 0, scale: float = 3.0, soft: bool = False
) -> tuple[Tensor, Tensor]:
    """Float64 logits and 0/1 (or soft) targets; the first document of several has no label."""
    generator = torch.Generator().manual_seed(seed)
    shape = (n_documents, n_labels)
    logits = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
    target = (torch.rand(shape, generator=generator) < 0.4).double()
    if n_documents > 1:
        target[0] = 0
    if soft:
        target *= torch.rand(shape, generator=generator, dtype=torch.float64)
    return logits, target


def make_mask(n_documents: int, n_labels: int, share: float = 0.7, seed: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n_documents, n_labels, generator=generator) < share


def loss_and_grad(
    loss: MultiLabelLoss, logits: Tensor, target: Any, **kw: Any
) -> tuple[Tensor, Tensor]:
    """Return the loss and the gradient of its sum at a new leaf."""
    leaf = logits.detach().clone().requires_grad_()
    value = loss(leaf, target, **kw)
    value.sum().backward()
    return value.detach(), leaf.grad


def check_same(loss: MultiLabelLoss, logits: Tensor, first: Any, *forms: Any, **kw: Any) -> None:
    """Check that all forms of the targets give the same loss and gradient."""
    expected = loss_and_grad(loss, logits, first, **kw)
    for form in forms:
        actual = loss_and_grad(loss, logits, form, **kw)
        torch.testing.assert_close(actual, expected, **EXACT)


def to_csr(
    dense: Tensor, values: torch.dtype | None = None, indices: torch.dtype = torch.int64
) -> Tensor:
    """The non-zero elements as a CSR tensor, with values and indices of any type."""
    rows, labels = dense.nonzero(as_tuple=True)
    starts = torch.searchsorted(rows, torch.arange(dense.shape[0] + 1))
    elements = dense[rows, labels].to(values or dense.dtype)
    return csr_tensor(starts.to(indices), labels.to(indices), elements, dense.shape)


def csr_tensor(
    starts: Tensor, labels: Tensor, values: Tensor, shape: Any, checked: bool = True
) -> Tensor:
    with warnings.catch_warnings():
        # torch warns once per process that CSR tensors are in beta, and not checked by default.
        warnings.simplefilter("ignore")
        return torch.sparse_csr_tensor(starts, labels, values, shape, check_invariants=checked)


def to_offsets(dense: Tensor, with_end: bool = True) -> tuple[Tensor, Tensor]:
    """(label_indices, offsets) of 0/1 targets, with or without the last offset."""
    rows, labels = dense.nonzero(as_tuple=True)
    n_documents = dense.shape[0]
    edges = torch.arange(n_documents + 1 if with_end else n_documents)
    return labels, torch.searchsorted(rows, edges)
