"""The losses as torch modules: the balanced loss, whose switches give the paper's rows, and losses
of later papers. All take the arguments of MultiLabelLoss too."""

from __future__ import annotations

from functools import reduce
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from longtail.checks import check_choice
from longtail.errors import InputError
from longtail.labels import LabelStats
from longtail.losses import functional
from longtail.losses.balanced import ElementTerms, weigh
from longtail.losses.base import (
    DocumentLoss,
    ElementwiseLoss,
    MultiLabelLoss,
    element_weight,
    mean_of,
    number,
)
from longtail.losses.closed_form import Batch, SetTerms
from longtail.losses.functional import log_sum
from longtail.losses.targets import Targets

__all__ = [
    "AsymmetricLoss", "BalancedLoss", "DiceLoss", "HillLoss", "MultiLabelLoss",
    "SquaredHingeLoss", "TwoWayLoss", "ZLPRLoss",
]  # fmt: skip
SMALLEST = 1e-6  # the minimum of scales, which must be positive
Weighting = Literal["none", "class-balanced", "rebalanced", "propensity"]


class BalancedLoss(ElementwiseLoss):
    r"""Weight x focal factor x negative-tolerant logits, each optional.

    Formula:
        positives:  w (1-q)^gamma (-log q)               with q = sigmoid(z - v_i)
        negatives:  w (1/lambda) q^gamma (-log(1-q))     with q = sigmoid(lambda (z - v_i))
        shift:      v_i = kappa log(N/n_i - 1)
        weight:     w = 1, or class-balanced (1-cb_beta) / (1-cb_beta^n_i),
                    or rebalanced alpha + sigmoid(beta (r - mu)),
                    r = (1/n_i) / (sum of 1/n_j over the document's labels);
                    propensity is 1 + 2 (ln N - 1) ((b+1) / (n_i+b))^a for positives, 1 otherwise

    Args:
        label_counts, n_samples: training documents per label and in total (see LabelStats).
            Needed unless weighting is "none" and kappa 0.
        weighting: "none", "class-balanced", "rebalanced" or "propensity".
        gamma: focal exponent; 0 switches it off (paper: 2).
        kappa, lambda_: negative-tolerant shift and scale; 0 and 1 switch them off (paper: 0.05, 2).
        cb_beta: growth of the effective number of documents (paper: 0.9).
        alpha, beta, mu: floor, slope and centre of the rebalanced weight (paper: 0.1, 10, and 0.9
            for Reuters, 0.05 for PubMed).
        propensity_a, propensity_b: constants of the propensity model (Jain et al., KDD 2016: 0.55
            and 1.5; 0.5 and 0.4 for Wikipedia, 0.6 and 2.6 for Amazon).
        negative_scale: factor of the negatives; None is 1/lambda, as in the paper. The authors'
            scripts use 1 for NTR-FL only.
        label_weight, reduction, check_targets, dtype: see MultiLabelLoss.

    Relations:
        weighting "none", gamma 0, kappa 0, lambda 1 is `BCEWithLogitsLoss`. The eleven rows from
        `bce` to `db`, `logit-adjusted` and `pw-bce` of LOSSES are this module with different
        switches.

    Example:
        >>> loss = BalancedLoss([900, 9], 1000, weighting="rebalanced", gamma=2, kappa=0.05,
        ...                     lambda_=2, mu=0.9)
        >>> logits, target = torch.zeros(1, 2), torch.tensor([[1.0, 1.0]])
        >>> print(f"{loss(logits, target).item():.4f}")
        0.1106
    """

    shift: Tensor | None
    class_weight: Tensor | None
    inverse_counts: Tensor | None
    positive_weight: Tensor | None

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
        propensity_a: float = 0.55,
        propensity_b: float = 1.5,
        negative_scale: float | None = None,
        dtype: torch.dtype = torch.float32,
        **common: Any,
    ) -> None:
        super().__init__(dtype=dtype, **common)
        check_choice("weighting", weighting, get_args(Weighting))
        self.weighting: Weighting = weighting
        self.gamma = number("gamma", gamma, 0)
        self.kappa = number("kappa", kappa)
        self.lambda_ = number("lambda_", lambda_, SMALLEST)
        self.cb_beta = number("cb_beta", cb_beta, 0, below=1)
        self.alpha, self.beta = number("alpha", alpha, 0), number("beta", beta)
        self.mu = number("mu", mu)
        self.propensity_a = number("propensity_a", propensity_a, 0)
        self.propensity_b = number("propensity_b", propensity_b, SMALLEST)
        self.negative_scale = 1 / self.lambda_
        if negative_scale is not None:
            self.negative_scale = number("negative_scale", negative_scale, 0)
        shift = class_weight = inverse_counts = positive_weight = None
        if weighting != "none" or self.kappa != 0:
            if label_counts is None or n_samples is None:
                raise InputError(
                    "this loss needs label_counts and n_samples: build_loss(name, stats), stats = "
                    "LabelStats.from_matrix(Y), .from_lists(labels) or .from_counts(counts, n)."
                )
            stats = LabelStats.from_counts(label_counts, n_samples)
            counts = torch.tensor(stats.label_counts, dtype=torch.float64)
            if self.kappa != 0:
                shift = functional.negative_tolerant_shift(counts, stats.n_samples, self.kappa)
            if weighting == "class-balanced":
                class_weight = functional.class_balanced_weight(counts, self.cb_beta)
            if weighting == "rebalanced":
                inverse_counts = 1 / counts.clamp(min=0.5)
            if weighting == "propensity":
                positive_weight = functional.propensity_weight(
                    counts, stats.n_samples, self.propensity_a, self.propensity_b
                )
                if not bool(torch.isfinite(positive_weight.to(dtype)).all()):
                    raise InputError(
                        f"propensity_a={self.propensity_a:g} and "
                        f"propensity_b={self.propensity_b:g} give a label an infinite weight. "
                        "Lower the former or raise the latter."
                    )
            self.for_labels(stats.n_labels)
        buffers = {
            "shift": shift,
            "class_weight": class_weight,
            "inverse_counts": inverse_counts,
            "positive_weight": positive_weight,
        }
        for name, value in buffers.items():
            self.register_buffer(name, None if value is None else value.to(dtype))

    def extra_repr(self) -> str:
        more = {
            "rebalanced": ("alpha", "beta", "mu"),
            "class-balanced": ("cb_beta",),
            "propensity": ("propensity_a", "propensity_b"),
        }
        constants = more.get(self.weighting, ())
        names = ("weighting", "gamma", "kappa", "lambda_", *constants, "reduction")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def terms(self, dtype: torch.dtype) -> ElementTerms:
        """Return the switches and per-label tensors of this loss as plain values."""
        # Attributes of modules are slow to read.
        values = self._buffers
        shift, inverse = values["shift"], values["inverse_counts"]
        positive = values["positive_weight"]
        weights = [
            w.to(dtype) for w in (values["class_weight"], values["label_weight"]) if w is not None
        ]
        return ElementTerms(
            "balanced", self.gamma, 0.0, self.lambda_, self.negative_scale,
            shift=None if shift is None else shift.to(dtype),
            label_weight=reduce(torch.mul, weights) if weights else None,
            inverse_counts=None if inverse is None else inverse.to(dtype),
            positive_weight=None if positive is None else positive.to(dtype),
            alpha=self.alpha, beta=self.beta, mu=self.mu,
        )  # fmt: skip

    def document_mass(self, logits: Tensor, targets: Targets, mask: Tensor | None) -> Tensor | None:
        """Return the sum of 1/n over each document's labels; None unless rebalanced."""
        if self.inverse_counts is None:
            return None
        inverse = self.inverse_counts.to(torch.promote_types(logits.dtype, torch.float32))
        return targets.row_sum(inverse.expand(targets.shape), mask)

    def _positive(self, logits: Tensor) -> Tensor:
        return functional.focal_softplus(-logits, self.gamma)

    def _negative(self, logits: Tensor) -> Tensor:
        cost = functional.focal_softplus(logits * self.lambda_, self.gamma)
        return cost if self.negative_scale == 1.0 else cost * self.negative_scale

    def _elements(self, logits: Tensor, batch: Batch) -> Tensor:
        terms, targets = self.terms(logits.dtype), batch.targets
        shifted = logits if terms.shift is None else logits - terms.shift
        values = functional.elementwise(
            shifted, targets, self._positive, self._negative, terms.positive_weight
        )
        if terms.inverse_counts is not None:
            mass = batch.document_mass
            if mass is None:
                mass = self.document_mass(logits, targets, batch.mask)
            assert mass is not None
            values = values * functional.rebalanced_weight(
                terms.inverse_counts, mass, self.alpha, self.beta, self.mu
            )
        return weigh(values, terms.label_weight, batch)


class AsymmetricLoss(ElementwiseLoss):
    r"""Down-weights easy negatives more than easy positives, and ignores the easiest negatives.

    Formula:
        positives:  -(1-p)^g+ log p
        negatives:  -p_m^g- log(1-p_m),  p_m = max(p - m, 0),  p = sigmoid(z)

    Args:
        gamma_positive, gamma_negative: focal exponents g+ and g- (paper: 1 and 4).
        margin: probability m below which a negative costs nothing (paper: 0.05).

    Relations:
        equal exponents and margin 0 give the focal loss `fl`. The focal factors are differentiated
        too.
    """

    def __init__(
        self,
        *,
        gamma_positive: float = 1.0,
        gamma_negative: float = 4.0,
        margin: float = 0.05,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.gamma_positive = number("gamma_positive", gamma_positive, 0)
        self.gamma_negative = number("gamma_negative", gamma_negative, 0)
        self.margin = number("margin", margin, 0, below=1)

    def terms(self, dtype: torch.dtype) -> ElementTerms:
        return ElementTerms(
            "asymmetric" if self.margin else "two-focal", self.gamma_positive, self.gamma_negative,
            margin=self.margin, label_weight=self.label_weight,
        )  # fmt: skip

    def _positive(self, logits: Tensor) -> Tensor:
        return functional.focal_softplus(-logits, self.gamma_positive)

    def _negative(self, logits: Tensor) -> Tensor:
        return functional.asymmetric_negative(logits, self.gamma_negative, self.margin)


class HillLoss(ElementwiseLoss):
    r"""Limits the loss of confident false positives, which may be missing labels.

    Formula:
        positives:  -(1-p)^gamma log p,  p = sigmoid(z - margin)
        negatives:  (peak - p) p^2,      p = sigmoid(z)

    Args:
        gamma, margin: focal exponent and logit margin of the positives (paper: 2 and 1).
        peak: where the weight of a negative reaches 0 (paper: 1.5).

    Relations:
        its positives are those of `fl` on z - 1; its negatives are bounded, unlike all of `bce`'s.
    """

    def __init__(
        self, *, gamma: float = 2.0, margin: float = 1.0, peak: float = 1.5, **common: Any
    ) -> None:
        super().__init__(**common)
        self.gamma = number("gamma", gamma, 0)
        self.margin = number("margin", margin)
        # A lower peak would reward confident negatives.
        self.peak = number("peak", peak, 1)

    def terms(self, dtype: torch.dtype) -> ElementTerms:
        return ElementTerms(
            "hill", self.gamma, margin=self.margin, peak=self.peak, label_weight=self.label_weight
        )

    def _positive(self, logits: Tensor) -> Tensor:
        return functional.focal_softplus(self.margin - logits, self.gamma)

    def _negative(self, logits: Tensor) -> Tensor:
        probability = torch.sigmoid(logits)
        return (self.peak - probability) * probability**2


class SquaredHingeLoss(ElementwiseLoss):
    r"""The squared hinge of linear SVMs: logits are margins, with a threshold of 0.

    Formula:
        positives:  max(0, 1 - z)^2
        negatives:  max(0, 1 + z)^2

    Relations:
        with `sum` and an L2 penalty of |w|^2 / (2 C) on a linear head, scikit-learn's `LinearSVC`,
        one label against the rest. Elements beyond the margin cost nothing; unlike with `bce`, the
        sigmoid of a logit does not estimate a probability.
    """

    def terms(self, dtype: torch.dtype) -> ElementTerms:
        return ElementTerms("squared-hinge", label_weight=self.label_weight)

    def _positive(self, logits: Tensor) -> Tensor:
        return F.relu(1 - logits) ** 2

    def _negative(self, logits: Tensor) -> Tensor:
        return F.relu(1 + logits) ** 2


class ZLPRLoss(DocumentLoss):
    r"""Ranks a document's labels above zero and all others below it.

    Formula:
        log(1 + sum over negatives of e^z) + log(1 + sum over positives of e^-z), per document

    Relations:
        generalises softmax cross-entropy to several labels; its natural threshold is a logit of 0.
        Soft targets weight the two sums by y and 1 - y.
    """

    def set_terms(self) -> SetTerms:
        return SetTerms(label_weight=self.label_weight)

    def _document_terms(self, logits: Tensor, targets: Targets, weight: Tensor | None) -> Tensor:
        negatives, _ = log_sum(targets, logits, weight, 1, positive=False, plus_one=True)
        positives, _ = log_sum(targets, -logits, weight, 1, positive=True, plus_one=True)
        return negatives + positives


class DiceLoss(DocumentLoss):
    r"""One minus the soft F1 score of each document.

    Formula:
        1 - (2 sum p y + s) / (sum p^2 + sum y^2 + s), p = sigmoid(z), per document

    Args:
        smooth: s, which defines the loss of a document without labels (Li et al.: 1).

    Relations:
        optimises F1 directly; its gradient vanishes for confident errors, so warm up with `bce`.
    """

    def __init__(self, *, smooth: float = 1.0, **common: Any) -> None:
        super().__init__(**common)
        # 0 would divide by zero for a document without labels.
        self.smooth = number("smooth", smooth, SMALLEST)

    def _document_terms(self, logits: Tensor, targets: Targets, weight: Tensor | None) -> Tensor:
        probability = torch.sigmoid(logits)
        weighted = probability if weight is None else probability * weight
        overlap = targets.row_sum(weighted)
        squares = (weighted * probability).sum(dim=1)
        ones = probability.new_ones(1) if weight is None else weight
        target_squares = targets.row_sum(ones.expand(probability.shape), squared=True)
        return 1 - (2 * overlap + self.smooth) / (squares + target_squares + self.smooth)


class TwoWayLoss(DocumentLoss):
    r"""Separates positives from negatives within every document and within every label.

    Formula:
        softplus(T- lse over negatives of z/T-  +  T+ lse over positives of -z/T+)
        mean over documents with a label, plus mean over labels in the batch

    Args:
        positive_temperature, negative_temperature: T+ and T- (paper: 4 and 1).
        reduction: `mean` and `batchmean` are both the formula above; `sum` adds all terms; `none`
            returns the document terms, then the label terms. Label weights multiply the label
            terms, and the elements inside document terms; document weights the other way round.

    Relations:
        within documents it is `zlpr` with temperatures and without the zero; within labels it
        compares the documents of a batch, so use batches with several documents per label.
    """

    compares_documents = True

    def __init__(
        self, *, positive_temperature: float = 4.0, negative_temperature: float = 1.0, **common: Any
    ) -> None:
        super().__init__(**common)
        self.positive_temperature = number("positive_temperature", positive_temperature, 1e-3)
        self.negative_temperature = number("negative_temperature", negative_temperature, 1e-3)

    def set_terms(self) -> SetTerms:
        return SetTerms(
            True, self.negative_temperature, self.positive_temperature,
            self.reduction != "sum", self.label_weight,
        )  # fmt: skip

    def _reduce(self, logits: Tensor, batch: Batch) -> Tensor:
        terms, present = [], []
        outer = (self.label_weight, batch.sample_weight)
        for dim in (1, 0):
            inside, weight = element_weight(logits, outer[1 - dim], dim, batch.mask), outer[dim]
            above, below = -logits / self.positive_temperature, logits / self.negative_temperature
            positives, has_positive = log_sum(batch.targets, above, inside, dim, positive=True)
            negatives, has_rest = log_sum(batch.targets, below, inside, dim, positive=False)
            joint = self.negative_temperature * negatives + self.positive_temperature * positives
            # Keeps a NaN on one side even if the other side is empty.
            counts = (has_positive & has_rest) | joint.isnan()
            values = torch.where(counts, F.softplus(joint), 0.0)
            terms.append(values if weight is None else values * weight.to(values.dtype))
            present.append(has_positive)
        if self.reduction == "none":
            return torch.cat(terms)
        if self.reduction == "sum":
            return terms[0].sum() + terms[1].sum()
        return mean_of(terms[0], present[0]) + mean_of(terms[1], present[1])
