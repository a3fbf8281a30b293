"""The losses as torch modules: checks, weights, masks and reductions around the maths.

All are called as `loss(logits, target, mask=None, sample_weight=None)`; build them by name with
`longtail.build_loss`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from longtail.errors import InputError
from longtail.losses import functional
from longtail.losses.analytic import BalancedTerms, BatchWeights, balanced_sum, kernels_usable
from longtail.losses.functional import ElementCosts
from longtail.losses.targets import Targets, read_targets

Reduction = Literal["none", "mean", "batchmean", "sum"]
Weighting = Literal["none", "class-balanced", "rebalanced"]


class MultiLabelLoss(nn.Module):
    """Base of all losses: reads the batch, asks the subclass for its terms, reduces them.

    Args:
        label_weight: one non-negative weight per label, multiplied into the loss of that label.
        reduction: `mean` over all known elements, as in PyTorch; `batchmean`, the sum over labels
            and the mean over documents, so that the learning rate does not depend on the number of
            labels; `sum`; or `none`.
        check_targets: look at the values of the targets and raise if they are not usable. On a GPU
            the look costs one synchronisation; under torch.compile and CUDA graphs it is skipped.

    Shape:
        logits (documents, labels), floating point. target: the same shape with values in [0, 1], a
        sparse CSR tensor of that shape, or a pair (label_indices, offsets) with the flat label
        indices of all documents and where each document begins. mask: boolean, the same shape,
        False where the label is unknown; such an element neither counts nor gets gradient.
        sample_weight: (documents,).

    An empty batch, or one where every element is masked, has a loss of 0 with zero gradient.
    Half-precision logits are computed, and the loss returned, in float32.
    """

    label_weight: Tensor | None

    def __init__(
        self,
        *,
        label_weight: Tensor | None = None,
        reduction: Reduction = "mean",
        check_targets: bool = True,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        if reduction not in get_args(Reduction):
            raise InputError(
                f"reduction must be one of {', '.join(get_args(Reduction))}, got {reduction!r}."
            )
        self.reduction = reduction
        self.check_targets = check_targets
        self.register_buffer("label_weight", _label_weight(label_weight, dtype))

    def forward(
        self,
        input: Tensor,
        target: Any,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        self._check_logits(input)
        targets = read_targets(input, target, self.check_targets)
        _check_weights(input, mask, sample_weight)
        total: Tensor | None = None
        if self.reduction != "none":
            total = self._fast_sum(input, targets, mask, sample_weight)
        # The kernels give NaN for targets out of range; on a GPU a look at one number is cheaper
        # than a pass over all targets.
        if total is None or not kernels_usable(input) or (targets.unchecked and total.isnan()):
            targets = targets.known(mask)
            targets.check_values()
        if total is not None:
            return self.divide(total, targets, mask)
        logits = input.to(torch.promote_types(input.dtype, torch.float32))
        if mask is not None:
            # A masked logit may be anything, even NaN: it must not reach the maths.
            logits = torch.where(mask, logits, torch.zeros_like(logits))
        return self._reduce(logits, targets, mask, sample_weight)

    def as_hf(self, ignore_index: int | None = -100) -> Callable[..., Tensor]:
        """This loss for `transformers.Trainer(compute_loss_func=loss.as_hf())`.

        The Trainer sums what this returns over the micro-batches of an accumulated step without
        dividing by their number, so each is scaled by its share of the step's elements: the
        gradient is the same however the step is cut (`two-way` looks across documents, and a mean
        over documents with some labels ignored is only near). `ignore_index` marks masked labels.
        """
        if self.reduction == "none":
            raise InputError("as_hf needs a reduction to a number; use 'mean' or 'batchmean'.")

        def compute_loss(
            outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None
        ) -> Tensor:
            logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
            mask = None
            if ignore_index is not None and bool((labels == ignore_index).any()):
                mask = labels != ignore_index
                labels = torch.where(mask, labels, torch.zeros_like(labels))
            loss: Tensor = self(logits, labels, mask=mask)
            if num_items_in_batch is None or self.reduction == "sum":
                return loss
            items = labels.numel() if mask is None else mask.sum()
            # A step in which every label is ignored has no items, and a loss of 0.
            return loss * (items / torch.as_tensor(num_items_in_batch).clamp(min=1))

        return compute_loss

    def _fast_sum(
        self, logits: Tensor, targets: Targets, mask: Tensor | None, sample_weight: Tensor | None
    ) -> Tensor | None:
        """The weighted sum of all elements by a faster way than `_reduce`, where there is one."""
        return None

    def _reduce(
        self, logits: Tensor, targets: Targets, mask: Tensor | None, sample_weight: Tensor | None
    ) -> Tensor:
        raise NotImplementedError

    def divide(self, total: Tensor, targets: Targets, mask: Tensor | None = None) -> Tensor:
        """The sum over elements, divided as the reduction says."""
        if self.reduction == "sum":
            return total
        per_document = self.reduction == "batchmean"
        if mask is None:
            return total / max(1, targets.shape[0] if per_document else _size(targets.shape))
        count = mask.any(dim=1).sum() if per_document else mask.sum()
        return total / count.clamp(min=1)

    def _check_logits(self, logits: Tensor) -> None:
        if not isinstance(logits, Tensor) or not logits.is_floating_point():
            kind = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
            raise InputError(
                f"logits must be a floating-point tensor, got {kind}. Pass the model's raw outputs "
                "(before the sigmoid) first and the targets second."
            )
        if logits.dim() != 2:
            raise InputError(
                f"logits must have the shape (documents, labels), got {tuple(logits.shape)}. "
                "For one document use logits.unsqueeze(0)."
            )
        expected = self._n_labels()
        if expected is not None and logits.shape[1] != expected:
            raise InputError(
                f"this loss was built for {expected} labels, but the logits have "
                f"{logits.shape[1]} columns. Build it from the statistics of the same label set."
            )

        for buffer in self.buffers(recurse=False):
            if buffer.device != logits.device:
                raise InputError(
                    f"the logits are on {logits.device}, this loss on {buffer.device}. "
                    "Move it once with loss.to(logits.device)."
                )

    def _n_labels(self) -> int | None:
        for buffer in self.buffers(recurse=False):
            return int(buffer.shape[0])
        return None

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> MultiLabelLoss:
        """Moves devices and widens, but never rounds the per-label constants to half precision."""
        before = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, old in before.items():
            new = getattr(self, name)
            if torch.finfo(new.dtype).bits < 32:
                setattr(self, name, old.to(new.device))
        return self


class ElementwiseLoss(MultiLabelLoss):
    """A loss with one term per element; subclasses give the costs of positives and negatives."""

    def _costs(self, dtype: torch.dtype) -> ElementCosts:
        raise NotImplementedError

    def _element_weight(
        self, logits: Tensor, targets: Targets, mask: Tensor | None
    ) -> Tensor | None:
        return None if self.label_weight is None else self.label_weight.to(logits.dtype)

    def _reduce(
        self, logits: Tensor, targets: Targets, mask: Tensor | None, sample_weight: Tensor | None
    ) -> Tensor:
        elements = functional.elementwise(logits, targets, self._costs(logits.dtype))
        weight = self._element_weight(logits, targets, mask)
        if weight is not None:
            elements = elements * weight
        if sample_weight is not None:
            elements = elements * sample_weight.to(logits.dtype).unsqueeze(1)
        if mask is not None:
            elements = torch.where(mask, elements, torch.zeros_like(elements))
        return elements if self.reduction == "none" else self.divide(elements.sum(), targets, mask)


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
        0.1242

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
        if weighting not in get_args(Weighting):
            raise InputError(
                f"weighting must be one of {', '.join(get_args(Weighting))}, got {weighting!r}."
            )
        _check_constants(gamma=gamma, lambda_=lambda_, cb_beta=cb_beta)
        self.weighting: Weighting = weighting
        self.gamma, self.kappa, self.lambda_ = float(gamma), float(kappa), float(lambda_)
        self.cb_beta, self.alpha, self.beta = float(cb_beta), float(alpha), float(beta)
        self.mu = float(mu)
        self.negative_scale = 1 / self.lambda_ if negative_scale is None else float(negative_scale)
        counts = None
        if weighting != "none" or kappa != 0:
            counts, n_samples = _read_counts(label_counts, n_samples)
        rebalanced = class_balanced = shift = None
        if counts is not None and n_samples is not None:
            if kappa != 0:
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
        if counts is not None and label_weight is not None and len(label_weight) != len(counts):
            raise InputError(
                f"label_weight must hold one number for each of the {len(counts)} labels, got "
                f"{len(label_weight)}."
            )

    def extra_repr(self) -> str:
        parts = [f"weighting={self.weighting!r}", f"gamma={self.gamma:g}"]
        parts += [f"kappa={self.kappa:g}", f"lambda_={self.lambda_:g}"]
        if self.weighting == "rebalanced":
            parts += [f"alpha={self.alpha:g}", f"beta={self.beta:g}", f"mu={self.mu:.4g}"]
        if self.weighting == "class-balanced":
            parts.append(f"cb_beta={self.cb_beta:g}")
        return ", ".join([*parts, f"reduction={self.reduction!r}"])

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

    def _fast_sum(
        self, logits: Tensor, targets: Targets, mask: Tensor | None, sample_weight: Tensor | None
    ) -> Tensor | None:
        others = (targets.dense, targets.values, sample_weight)
        if torch.compiler.is_compiling() or any(t is not None and t.requires_grad for t in others):
            return None
        # On the CPU the positions of the labels serve both the masses and the gradient.
        targets = targets if kernels_usable(logits) else targets.sparse()
        weights = BatchWeights(self.document_mass(logits, targets, mask), sample_weight, mask)
        dtype = torch.promote_types(logits.dtype, torch.float32)
        return balanced_sum(logits, targets, self.terms(dtype), weights)

    def _costs(self, dtype: torch.dtype) -> ElementCosts:
        shift = None if self.shift is None else self.shift.to(dtype)

        def shift_of(labels: Tensor | None) -> Tensor | float:
            if shift is None:
                return 0.0
            return shift if labels is None else shift[labels]

        return ElementCosts(
            lambda logits, labels: functional.balanced_positive(
                logits, self.gamma, shift_of(labels)
            ),
            lambda logits, labels: functional.balanced_negative(
                logits, self.gamma, shift_of(labels), self.lambda_, self.negative_scale
            ),
        )

    def _element_weight(
        self, logits: Tensor, targets: Targets, mask: Tensor | None
    ) -> Tensor | None:
        terms = self.terms(logits.dtype)
        if terms.inverse_counts is None:
            return terms.label_weight
        mass = targets.label_mass(terms.inverse_counts, mask)
        weight = functional.rebalanced_weight(
            terms.inverse_counts, mass, self.alpha, self.beta, self.mu
        )
        return weight if terms.label_weight is None else weight * terms.label_weight


def _label_weight(label_weight: Any, dtype: torch.dtype) -> Tensor | None:
    if label_weight is None:
        return None
    weight = torch.as_tensor(label_weight, dtype=dtype).detach().clone()
    if weight.dim() != 1 or not bool((torch.isfinite(weight) & (weight >= 0)).all()):
        raise InputError(
            f"label_weight must be one finite, non-negative number per label, got shape "
            f"{tuple(weight.shape)}."
        )
    return weight


def _check_weights(logits: Tensor, mask: Tensor | None, sample_weight: Tensor | None) -> None:
    for name, value in (("mask", mask), ("sample_weight", sample_weight)):
        if value is not None and not isinstance(value, Tensor):
            raise InputError(
                f"{name} must be a tensor, got {type(value).__name__}. Use torch.as_tensor({name})."
            )
    if mask is not None and (mask.dtype != torch.bool or mask.shape != logits.shape):
        raise InputError(
            f"mask must be a boolean tensor of the logits' shape {tuple(logits.shape)}, got "
            f"{tuple(mask.shape)} of {mask.dtype}. Use True where the label is known."
        )
    if sample_weight is not None and tuple(sample_weight.shape) != (logits.shape[0],):
        raise InputError(
            f"sample_weight must hold one number for each of the {logits.shape[0]} documents, got "
            f"shape {tuple(sample_weight.shape)}."
        )


def _check_constants(*, gamma: float, lambda_: float, cb_beta: float) -> None:
    if not gamma >= 0:
        raise InputError(f"gamma must not be negative, got {gamma}. Use 0 to switch it off.")
    if not lambda_ > 0:
        raise InputError(f"lambda_ must be positive, got {lambda_}. Use 1 to switch it off.")
    if not 0 <= cb_beta < 1:
        raise InputError(f"cb_beta must lie in [0, 1), got {cb_beta}. The paper uses 0.9.")


def _read_counts(label_counts: Any, n_samples: int | None) -> tuple[Tensor, int]:
    from longtail.labels import LabelStats

    if label_counts is None or n_samples is None:
        raise InputError(
            "this loss needs the number of training documents of each label and of all. "
            "Pass label_counts and n_samples, or use build_loss(name, LabelStats...)."
        )
    stats = LabelStats.from_counts(label_counts, n_samples)
    return torch.tensor(stats.label_counts, dtype=torch.float64), stats.n_samples


def _size(shape: tuple[int, int]) -> int:
    return shape[0] * shape[1]
