"""Losses of later literature as torch modules: asymmetric, Hill, ZLPR, two-way and Dice.

They share reading, masking and reduction with the balanced losses; each adds its own maths only.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from longtail.losses import functional
from longtail.losses.base import DocumentLoss, ElementwiseLoss, mean_of, number
from longtail.losses.functional import ElementCosts
from longtail.losses.targets import Targets


class AsymmetricLoss(ElementwiseLoss):
    r"""Focuses negatives harder than positives and forgets the very easy ones.

    Formula:
        positives:  -(1-p)^g+ log p
        negatives:  -p_m^g- log(1-p_m),  p_m = max(p - m, 0),  p = sigmoid(z)

    Args:
        gamma_positive, gamma_negative: focal exponents g+ and g- (paper: 1 and 4).
        margin: probability m below which a negative costs nothing (paper: 0.05).
        label_weight, reduction, check_targets: see MultiLabelLoss.

    Shape:
        see MultiLabelLoss. The gradient runs through the focal factors too.

    Relations:
        equal exponents and margin 0 give the focal loss `fl`.

    Example:
        >>> loss = AsymmetricLoss()
        >>> print(f"{loss(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]])).item():.4f}")
        0.1855

    Reference:
        Ridnik et al., Asymmetric Loss For Multi-Label Classification, ICCV 2021.
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
        self.gamma_positive = number("gamma_positive", gamma_positive, least=0)
        self.gamma_negative = number("gamma_negative", gamma_negative, least=0)
        self.margin = number("margin", margin, least=0, below=1)

    def _costs(self) -> ElementCosts:
        return ElementCosts(
            lambda logits, labels: functional.asymmetric_positive(logits, self.gamma_positive),
            lambda logits, labels: functional.asymmetric_negative(
                logits, self.gamma_negative, self.margin
            ),
        )


class HillLoss(ElementwiseLoss):
    r"""Doubts very confident negatives: they may be labels that the annotators missed.

    Formula:
        positives:  -(1-p)^gamma log p,  p = sigmoid(z - margin)
        negatives:  (peak - p) p^2,      p = sigmoid(z)

    Args:
        gamma, margin: focal exponent and logit margin of the positives (paper: 2 and 1).
        peak: where the weight of a negative reaches 0 (paper: 1.5).
        label_weight, reduction, check_targets: see MultiLabelLoss.

    Shape:
        see MultiLabelLoss.

    Relations:
        its positives are those of `fl` on z - 1; its negatives are bounded, unlike all of `bce`'s.

    Example:
        >>> loss = HillLoss()
        >>> print(f"{loss(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]])).item():.4f}")
        0.4759

    Reference:
        Zhang et al., Simple and Robust Loss Design for Multi-Label Learning with Missing Labels,
        arXiv:2112.07368.
    """

    def __init__(
        self, *, gamma: float = 2.0, margin: float = 1.0, peak: float = 1.5, **common: Any
    ) -> None:
        super().__init__(**common)
        self.gamma = number("gamma", gamma, least=0)
        self.margin = number("margin", margin)
        # A lower peak would reward confident negatives.
        self.peak = number("peak", peak, least=1)

    def _costs(self) -> ElementCosts:
        return ElementCosts(
            lambda logits, labels: functional.hill_positive(logits, self.gamma, self.margin),
            lambda logits, labels: functional.hill_negative(logits, self.peak),
        )


class ZLPRLoss(DocumentLoss):
    r"""Ranks a document's labels above zero and all others below it.

    Formula:
        log(1 + sum over negatives of e^z) + log(1 + sum over positives of e^-z), per document

    Args:
        label_weight, reduction, check_targets: see MultiLabelLoss; one term per document.

    Shape:
        see MultiLabelLoss. Soft targets weigh the two sums by y and 1 - y.

    Relations:
        the softmax cross-entropy of many labels; its natural threshold is a logit of 0.

    Example:
        >>> loss = ZLPRLoss()
        >>> print(f"{loss(torch.zeros(1, 3), torch.tensor([[1.0, 0.0, 0.0]])).item():.4f}")
        1.7918

    Reference:
        Su et al., ZLPR: A Novel Loss for Multi-label Classification, arXiv:2208.02955.
    """

    def _document_terms(
        self, logits: Tensor, targets: Targets, element_weight: Tensor | None
    ) -> Tensor:
        return functional.zlpr_with_logits(logits, targets, element_weight)


class DiceLoss(DocumentLoss):
    r"""One minus the soft F1 score of each document.

    Formula:
        1 - (2 sum p y + s) / (sum p^2 + sum y^2 + s), p = sigmoid(z), per document

    Args:
        smooth: s, which defines a document without labels (1, as Li et al. suggest).
        label_weight, reduction, check_targets: see MultiLabelLoss; one term per document.

    Shape:
        see MultiLabelLoss.

    Relations:
        optimises F1 directly; its gradient vanishes for confident errors, so warm up with `bce`.

    Example:
        >>> loss = DiceLoss()
        >>> print(f"{loss(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]])).item():.4f}")
        0.2000

    Reference:
        Milletari et al., V-Net, 3DV 2016; Li et al., Dice Loss for Data-imbalanced NLP Tasks,
        ACL 2020.
    """

    def __init__(self, *, smooth: float = 1.0, **common: Any) -> None:
        super().__init__(**common)
        # With 0 a document without labels would divide by zero.
        self.smooth = number("smooth", smooth, least=1e-6)

    def _document_terms(
        self, logits: Tensor, targets: Targets, element_weight: Tensor | None
    ) -> Tensor:
        return functional.dice_with_logits(logits, targets, self.smooth, element_weight)


class TwoWayLoss(DocumentLoss):
    r"""Separates positives from negatives within every document and within every label.

    Formula:
        softplus(T- lse over negatives of z/T-  +  T+ lse over positives of -z/T+)
        mean over documents that have a label, plus mean over labels that the batch has

    Args:
        positive_temperature, negative_temperature: T+ and T- (paper: 4 and 1).
        label_weight, reduction, check_targets: see MultiLabelLoss. `mean` and `batchmean` are both
            the formula above; `sum` adds all terms; `none` gives documents + labels terms, the
            documents first.

    Shape:
        see MultiLabelLoss. Weights of labels multiply the label terms and weigh the elements inside
        the document terms; weights of documents the other way round.

    Relations:
        within documents it is a temperatured `zlpr` without the zero; the second way looks at the
        other documents of the batch, so it wants batches with several documents per label.

    Example:
        >>> loss = TwoWayLoss()
        >>> print(f"{loss(torch.zeros(2, 2), torch.eye(2)).item():.4f}")
        1.3863

    Reference:
        Kobayashi, Two-way Multi-Label Loss, CVPR 2023.
    """

    # Of a document without labels the logits are not looked at.
    hides_infinity = True

    def __init__(
        self,
        *,
        positive_temperature: float = 4.0,
        negative_temperature: float = 1.0,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        least = 1e-3
        self.positive_temperature = number("positive_temperature", positive_temperature, least)
        self.negative_temperature = number("negative_temperature", negative_temperature, least)

    def _reduce(
        self, logits: Tensor, targets: Targets, mask: Tensor | None, sample_weight: Tensor | None
    ) -> Tensor:
        known = None if mask is None else mask.to(logits.dtype)
        ways = []
        outer = (sample_weight, self.label_weight)
        for dim, own, across in ((1, outer[0], outer[1]), (0, outer[1], outer[0])):
            inside = known
            if across is not None:
                spread = across.to(logits.dtype).unsqueeze(1 - dim).expand(logits.shape)
                inside = spread if known is None else spread * known
            terms, present = functional.two_way_with_logits(
                logits, targets, dim, self.positive_temperature, self.negative_temperature, inside
            )
            ways.append((terms if own is None else terms * own.to(terms.dtype), present))
        if self.reduction == "none":
            return torch.cat([terms for terms, _ in ways])
        if self.reduction == "sum":
            return ways[0][0].sum() + ways[1][0].sum()
        return mean_of(*ways[0]) + mean_of(*ways[1])
