"""The balanced loss as a torch module: three switches give the paper's rows.

Modules of other losses are in `literature`; all are importable from here.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from longtail.errors import InputError
from longtail.labels import LabelStats
from longtail.losses import functional
from longtail.losses.analytic import balanced_sum, kernels_usable
from longtail.losses.base import ElementwiseLoss, MultiLabelLoss, Reduction, choice, number
from longtail.losses.literature import (
    AsymmetricLoss,
    DiceLoss,
    HillLoss,
    TwoWayLoss,
    ZLPRLoss,
)
from longtail.losses.targets import Targets
from longtail.losses.terms import BalancedTerms, BatchWeights, elements

# A scale must be positive; this stands for "more than 0".
SMALLEST = 1e-6
CONSTANT_NAMES = (
    "gamma", "kappa", "lambda_", "cb_beta", "alpha", "beta", "mu", "negative_scale",
)  # fmt: skip
Weighting = Literal["none", "class-balanced", "rebalanced"]

__all__ = [
    "AsymmetricLoss",
    "BalancedLoss",
    "DiceLoss",
    "HillLoss",
    "MultiLabelLoss",
    "TwoWayLoss",
    "ZLPRLoss",
]


class BalancedLoss(ElementwiseLoss):
    r"""The heart: weight x focal factor x negative-tolerant logits, each of them optional.

    Formula:
        positives:  w (1-q)^gamma (-log q)               with q = sigmoid(z - v_i)
        negatives:  w (1/lambda) q^gamma (-log(1-q))     with q = sigmoid(lambda (z - v_i))
        shift:      v_i = kappa log(N/n_i - 1)
        weight:     w = 1, or class-balanced (1-cb_beta) / (1-cb_beta^n_i),
                    or rebalanced alpha + sigmoid(beta (r - mu)),
                    r = (1/n_i) / (sum of 1/n_j over the document's labels)

    Args:
        label_counts, n_samples: training documents of each label, and of all (see LabelStats).
            Needed unless weighting is "none" and kappa 0.
        weighting: "none", "class-balanced" or "rebalanced".
        gamma: focal exponent; 0 switches it off (paper: 2).
        kappa, lambda_: negative-tolerant shift and scale; 0 and 1 switch them off (paper: 0.05, 2).
        cb_beta: growth of the effective number of documents (paper: 0.9).
        alpha, beta, mu: floor, slope and centre of the rebalanced weight (paper: 0.1, 10, and 0.9
            for Reuters, 0.05 for PubMed).
        negative_scale: factor on negatives; None is 1/lambda, as the paper writes it. The authors'
            scripts use 1 in NTR-FL alone.
        label_weight, reduction, check_targets: see MultiLabelLoss.

    Shape:
        see MultiLabelLoss. Soft targets mix both costs: y * positive + (1 - y) * negative.

    Defined at the edges: a label without a training document counts as half a document; one on
    every document as N minus half in the shift; a document without labels has r = infinity, so a
    rebalanced weight of alpha + 1.

    Relations:
        weighting "none", gamma 0, kappa 0, lambda 1 is `BCEWithLogitsLoss`. The eleven rows from
        `bce` to `db` and `logit-adjusted` of LOSSES are this module with different switches.

    Example:
        >>> loss = BalancedLoss([900, 9], 1000, weighting="rebalanced", gamma=2, kappa=0.05,
        ...                     lambda_=2, mu=0.9)
        >>> logits, target = torch.zeros(1, 2), torch.tensor([[1.0, 1.0]])
        >>> print(f"{loss(logits, target).item():.4f}")
        0.1106

    Reference:
        Huang et al., Balancing Methods for Multi-label Text Classification with Long-Tailed Class
        Distribution, EMNLP 2021.
    """

    shift: Tensor | None
    class_weight: Tensor | None
    inverse_counts: Tensor | None

    def __init__(
        self,
        label_counts: Any = None,
        n_samples: int | None = None,
        *,
        weighting: Weighting = "none",
        gamma: float = 0.0,
        kappa: float = 0.0,
        lambda_: float = 1.0,
        cb_beta: float = 0.9,
        alpha: float = 0.1,
        beta: float = 10.0,
        mu: float = 0.9,
        negative_scale: float | None = None,
        label_weight: Tensor | None = None,
        reduction: Reduction = "mean",
        check_targets: bool = True,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(
            label_weight=label_weight,
            reduction=reduction,
            check_targets=check_targets,
            dtype=dtype,
        )
        self.weighting: Weighting = choice("weighting", weighting, get_args(Weighting))
        self.gamma = number("gamma", gamma, least=0)
        self.kappa = number("kappa", kappa)
        self.lambda_ = number("lambda_", lambda_, least=SMALLEST)
        self.cb_beta = number("cb_beta", cb_beta, least=0, below=1)
        self.alpha, self.beta = number("alpha", alpha, least=0), number("beta", beta)
        self.mu = number("mu", mu)
        self.negative_scale = 1 / self.lambda_
        if negative_scale is not None:
            self.negative_scale = number("negative_scale", negative_scale, least=0)
        counts = None
        if weighting != "none" or self.kappa != 0:
            counts, n_samples = _read_counts(label_counts, n_samples)
        rebalanced = class_balanced = shift = None
        if counts is not None and n_samples is not None:
            if self.kappa != 0:
                shift = functional.negative_tolerant_shift(counts, n_samples, self.kappa)
            if weighting == "class-balanced":
                class_balanced = functional.class_balanced_weight(counts, self.cb_beta)
            if weighting == "rebalanced":
                rebalanced = 1 / counts.clamp(min=0.5)
        for name, buffer in (
            ("shift", shift),
            ("class_weight", class_balanced),
            ("inverse_counts", rebalanced),
        ):
            self.register_buffer(name, None if buffer is None else buffer.to(dtype))
        if counts is not None:
            if self.n_labels not in (None, len(counts)):
                raise InputError(
                    f"label_weight must hold one number for each of the {len(counts)} labels, got "
                    f"{self.n_labels}."
                )
            self.n_labels = len(counts)

    def extra_repr(self) -> str:
        parts = [f"weighting={self.weighting!r}", f"gamma={self.gamma:g}"]
        parts += [f"kappa={self.kappa:g}", f"lambda_={self.lambda_:g}"]
        if self.weighting == "rebalanced":
            parts += [f"alpha={self.alpha:g}", f"beta={self.beta:g}", f"mu={self.mu:.4g}"]
        if self.weighting == "class-balanced":
            parts.append(f"cb_beta={self.cb_beta:g}")
        return ", ".join([*parts, f"reduction={self.reduction!r}"])

    def get_extra_state(self) -> Tensor:
        """The constants, so that a state dict holds the whole loss: mu comes from the data."""
        values = [getattr(self, name) for name in CONSTANT_NAMES]
        return torch.tensor(values, dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        for name, value in zip(CONSTANT_NAMES, state.tolist(), strict=True):
            setattr(self, name, value)

    def terms(self, dtype: torch.dtype) -> BalancedTerms:
        """The switches and per-label tensors of this loss, for the fused computations."""

        def cast(values: Tensor | None) -> Tensor | None:
            return None if values is None else values.to(dtype)

        weight = cast(self.class_weight)
        if self.label_weight is not None:
            own = self.label_weight.to(dtype)
            weight = own if weight is None else weight * own
        return BalancedTerms(
            gamma=self.gamma,
            lambda_=self.lambda_,
            negative_scale=self.negative_scale,
            shift=cast(self.shift),
            label_weight=weight,
            inverse_counts=cast(self.inverse_counts),
            alpha=self.alpha,
            beta=self.beta,
            mu=self.mu,
        )

    def document_mass(self, logits: Tensor, targets: Targets, mask: Tensor | None) -> Tensor | None:
        """Per document the sum of 1/n over its labels; None where nothing is rebalanced."""
        if self.inverse_counts is None:
            return None
        inverse = self.inverse_counts.to(torch.promote_types(logits.dtype, torch.float32))
        if targets.dense is not None and kernels_usable(logits):
            from longtail.losses.kernels import document_mass

            return document_mass(targets.dense, inverse, mask)
        return targets.label_mass(inverse, mask)

    def _fast_loss(
        self, logits: Tensor, targets: Targets, mask: Tensor | None, sample_weight: Tensor | None
    ) -> Tensor | None:
        others = (targets.dense, targets.values, sample_weight)
        if torch.compiler.is_compiling() or any(t is not None and t.requires_grad for t in others):
            return None
        # On the CPU the positions of the labels serve both the masses and the gradient.
        targets = targets if kernels_usable(logits) else targets.sparse()
        weights = BatchWeights(self.document_mass(logits, targets, mask), sample_weight, mask)
        terms = self.terms(torch.promote_types(logits.dtype, torch.float32))
        if mask is None:
            return balanced_sum(logits, targets, terms, weights, self.scale(targets.shape))
        return self.divide(balanced_sum(logits, targets, terms, weights), targets, mask)

    def _elements(
        self, logits: Tensor, targets: Targets, mask: Tensor | None, sample_weight: Tensor | None
    ) -> Tensor:
        terms = self.terms(logits.dtype)
        mass = None
        if terms.inverse_counts is not None:
            mass = targets.label_mass(terms.inverse_counts, mask)
        return elements(logits, targets, terms, BatchWeights(mass, sample_weight, mask))


def _read_counts(label_counts: Any, n_samples: int | None) -> tuple[Tensor, int]:
    if label_counts is None or n_samples is None:
        raise InputError(
            "this loss needs the number of training documents of each label and of all. "
            "Pass label_counts and n_samples, or use build_loss(name, LabelStats...)."
        )
    stats = LabelStats.from_counts(label_counts, n_samples)
    return torch.tensor(stats.label_counts, dtype=torch.float64), stats.n_samples
