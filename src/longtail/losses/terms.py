"""The balanced loss as plain values: its switches and per-label tensors, and its elements.

`elements` is the plain form, for autograd and compilers; `analytic` and `kernels` compute the same
faster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from longtail.losses import functional
from longtail.losses.functional import ElementCosts
from longtail.losses.targets import Targets


@dataclass(frozen=True)
class BalancedTerms:
    """The switches and per-label tensors of one balanced loss, as plain values."""

    gamma: float
    lambda_: float
    negative_scale: float
    shift: Tensor | None
    label_weight: Tensor | None
    inverse_counts: Tensor | None
    """1/n of every label; None where nothing is rebalanced."""
    alpha: float
    beta: float
    mu: float

    def double(self) -> BalancedTerms:
        """The same in float64."""
        return self.map(Tensor.double)

    def columns(self, start: int, stop: int) -> BalancedTerms:
        """The terms of the labels start..stop-1."""
        return self.map(lambda values: values[start:stop])

    def map(self, change: Callable[[Tensor], Tensor]) -> BalancedTerms:
        """The terms with every per-label tensor changed."""
        per_label: dict[str, Any] = {
            name: change(value)
            for name in ("shift", "label_weight", "inverse_counts")
            if (value := getattr(self, name)) is not None
        }
        return replace(self, **per_label)


@dataclass(frozen=True)
class BatchWeights:
    """What weighs the elements of one batch: document masses, document weights, known elements."""

    document_mass: Tensor | None = None
    sample_weight: Tensor | None = None
    mask: Tensor | None = None

    def double(self) -> BatchWeights:
        """The same in float64."""
        mass, weight = self.document_mass, self.sample_weight
        return BatchWeights(
            None if mass is None else mass.double(),
            None if weight is None else weight.double(),
            self.mask,
        )


def elements(
    logits: Tensor, targets: Targets, terms: BalancedTerms, weights: BatchWeights
) -> Tensor:
    """weight * cost of every element, 0 where masked; every derivative exists."""

    def shift(labels: Tensor | None) -> Tensor | float:
        if terms.shift is None:
            return 0.0
        return terms.shift if labels is None else terms.shift[labels]

    costs = ElementCosts(
        lambda logits, labels: functional.balanced_positive(logits, terms.gamma, shift(labels)),
        lambda logits, labels: functional.balanced_negative(
            logits, terms.gamma, shift(labels), terms.lambda_, terms.negative_scale
        ),
    )
    values = functional.elementwise(logits, targets, costs)
    if terms.inverse_counts is not None:
        assert weights.document_mass is not None
        values = values * functional.rebalanced_weight(
            terms.inverse_counts, weights.document_mass, terms.alpha, terms.beta, terms.mu
        )
    return weigh(values, terms.label_weight, weights)


def weigh(values: Tensor, label_weight: Tensor | None, weights: BatchWeights) -> Tensor:
    """Elements times the weights of their label and document, 0 where masked."""
    if label_weight is not None:
        values = values * label_weight.to(values.dtype)
    if weights.sample_weight is not None:
        values = values * weights.sample_weight.to(values.dtype).unsqueeze(1)
    if weights.mask is not None:
        values = torch.where(weights.mask, values, torch.zeros_like(values))
    return values
