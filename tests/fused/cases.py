"""A head, its documents and the plain loss that the fused one must equal."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from longtail.fused import chunks, linear_balanced_loss
from longtail.labels import LabelStats
from longtail.losses import LOSSES, MultiLabelLoss, build_loss
from longtail.losses.base import ElementwiseLoss

from ..losses.cases import edge_stats, to_csr, to_offsets

ELEMENTWISE = [name for name, row in LOSSES.items() if issubclass(row.module, ElementwiseLoss)]
OTHERS = [name for name in LOSSES if name not in ELEMENTWISE]
CHUNK = 32


def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut labels into chunks of 32."""
    monkeypatch.setattr(chunks, "STEP", CHUNK)
    monkeypatch.setattr(chunks, "ELEMENTS", 1)
    monkeypatch.setattr(chunks, "CHUNK_ELEMENTS", 1)


class Case:
    """Float64 features, weight, bias and 0/1 targets; of several documents the first has no label
    and the second has all.
    """

    def __init__(self, n_documents: int = 5, n_labels: int = 70, n_features: int = 6) -> None:
        generator = torch.Generator().manual_seed(n_labels)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64)

        self.head = [normal(n_documents, n_features), normal(n_labels, n_features)]
        self.head.append(normal(n_labels))
        self.dense = (torch.rand(n_documents, n_labels, generator=generator) < 0.1).double()
        if n_documents > 2:
            self.dense[0], self.dense[1] = 0, 1
        self.target: Any = to_offsets(self.dense)
        self.soft = self.dense * torch.rand(self.dense.shape, generator=generator)
        self.mask = torch.rand(self.dense.shape, generator=generator) < 0.7
        self.sample_weight = torch.rand(n_documents, generator=generator)
        self.stats: LabelStats = edge_stats(n_labels)

    def loss(self, name: str, **settings: Any) -> MultiLabelLoss:
        settings = {"reduction": "batchmean", "dtype": torch.float64} | settings
        return build_loss(name, self.stats, **settings)

    def leaves(self, dtype: torch.dtype = torch.float64, bias: bool = True) -> list[Tensor]:
        leaves = [x.to(dtype, copy=True).requires_grad_() for x in self.head]
        return leaves if bias else leaves[:2]

    def plain(self, loss: MultiLabelLoss, leaves: list[Tensor], target: Any, **kw: Any) -> Tensor:
        return loss(F.linear(*leaves), target, **kw)

    def fused(self, loss: MultiLabelLoss, leaves: list[Tensor], target: Any, **kw: Any) -> Tensor:
        features, weight, *bias = leaves
        kw = {"impl": "torch", "reduction": loss.reduction} | kw
        return linear_balanced_loss(features, weight, target, *bias, loss=loss, **kw)

    def check(
        self,
        loss: MultiLabelLoss,
        target: Any = None,
        *,
        bias: bool = True,
        impl: str = "torch",
        **kw: Any,
    ) -> None:
        """Check that value and gradients are those of the plain loss."""
        target = self.target if target is None else target
        results = []
        for compute in (self.plain, partial(self.fused, impl=impl)):
            leaves = self.leaves(bias=bias)
            value = compute(loss, leaves, target, **kw)
            (3 * value).backward()
            results.append([value.detach(), *(leaf.grad for leaf in leaves)])
        torch.testing.assert_close(results[1], results[0], rtol=1e-9, atol=1e-12)


__all__ = ["ELEMENTWISE", "OTHERS", "Case", "small_chunks", "to_csr"]
