"""The balanced loss as plain values: its switches and per-label tensors, and its elements.

`elements` is the plain form, for autograd and compilers; `analytic` and `kernels` compute the same
faster.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    alpha: float
    beta: float
    mu: float

    @property
    def rebalanced(self) -> bool:
        return self.inverse_counts is not None

    def double(self) -> BalancedTerms:
        """The same in float64."""
        return replace(
            self,
            shift=_double(self.shift),
            label_weight=_double(self.label_weight),
            inverse_counts=_double(self.inverse_counts),
        )

    def columns(self, start: int, stop: int) -> BalancedTerms:
        """The terms of the labels start..stop-1."""

        def cut(values: Tensor | None) -> Tensor | None:
            return None if values is None else values[start:stop]

        return BalancedTerms(
            self.gamma,
            self.lambda_,
            self.negative_scale,
            cut(self.shift),
            cut(self.label_weight),
            cut(self.inverse_counts),
            self.alpha,
            self.beta,
            self.mu,
        )


@dataclass(frozen=True)
class BatchWeights:
    """What weighs the elements of one batch: document masses, document weights, known elements."""

    document_mass: Tensor | None = None
    sample_weight: Tensor | None = None
    mask: Tensor | None = None

    def double(self) -> BatchWeights:
        """The same in float64."""
        return BatchWeights(_double(self.document_mass), _double(self.sample_weight), self.mask)


def _double(values: Tensor | None) -> Tensor | None:
    return None if values is None else values.double()


def elements(
    logits: Tensor, targets: Targets, terms: BalancedTerms, weights: BatchWeights
) -> Tensor:
    """weight * cost of every element, 0 where masked; every derivative exists."""
    found = functional.elementwise(logits, targets, _costs(terms))
    if terms.inverse_counts is not None:
        assert weights.document_mass is not None
        found = found * functional.rebalanced_weight(
            terms.inverse_counts, weights.document_mass, terms.alpha, terms.beta, terms.mu
        )
    if terms.label_weight is not None:
        found = found * terms.label_weight
    if weights.sample_weight is not None:
        found = found * weights.sample_weight.to(found.dtype).unsqueeze(1)
    if weights.mask is not None:
        found = torch.where(weights.mask, found, torch.zeros_like(found))
    return found


def _costs(terms: BalancedTerms) -> ElementCosts:
    def shift_of(labels: Tensor | None) -> Tensor | float:
        if terms.shift is None:
            return 0.0
        return terms.shift if labels is None else terms.shift[labels]

    return ElementCosts(
        lambda logits, labels: functional.balanced_positive(logits, terms.gamma, shift_of(labels)),
        lambda logits, labels: functional.balanced_negative(
            logits, terms.gamma, shift_of(labels), terms.lambda_, terms.negative_scale
        ),
    )
