"""Random valid batches for every loss: all forms of targets, extreme logits, masks, weights.

`defect` compares loss and gradients with oracle.py (in float64) within `rounding`, NaN
exactly where a NaN counts. The tests and the attack use the same cases.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from longtail.losses import LOSSES, MultiLabelLoss, build_loss

from .cases import N_SAMPLES, REDUCTIONS, edge_stats, to_csr, to_offsets
from .oracle import Batch, evaluate

SET_WISE = ("zlpr", "two-way", "dice")
FORMS = ("dense", "soft", "tiny soft", "csr", "soft csr", "offsets", "offsets with end")
LOGITS = ("small", "moderate", "large", "1e4", "denormal", "nan")
DTYPES = (torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16)
CSR_DTYPES = (torch.bool, torch.uint8, torch.int64, torch.float16, torch.float32)
LABEL_WEIGHTS = (None, None, (1.0, 0.5, 2.0, 0.0, 3.0), (10.0, 0.25, 1.0, 1.0, 0.3))


@dataclass(frozen=True)
class Case:
    """One call: the loss and its arguments, and the same batch in float64."""

    name: str
    reduction: str
    regime: str
    form: str
    logits: Tensor
    target: Any
    mask: Tensor | None
    sample_weight: Tensor | None
    label_weight: tuple[float, ...] | None
    batch: Any

    @property
    def loss(self) -> MultiLabelLoss:
        dtype = torch.float64 if self.logits.dtype == torch.float64 else torch.float32
        n_labels = self.logits.shape[1]
        return cached_loss(self.name, n_labels, self.reduction, self.label_weight, dtype)


@cache
def cached_loss(
    name: str,
    n_labels: int,
    reduction: str,
    label_weight: tuple[float, ...] | None,
    dtype: torch.dtype,
) -> MultiLabelLoss:
    stats = edge_stats(n_labels) if n_labels else None
    weight = None if label_weight is None else torch.tensor(label_weight[:n_labels])
    return build_loss(name, stats, reduction=reduction, label_weight=weight, dtype=dtype)


def make_case(rng: random.Random, only: str | None = None) -> Case:
    """A valid batch of tiny size for a loss, any if none is named; float64 holds it exactly."""
    arrays = np.random.RandomState(rng.getrandbits(32))
    name, form, regime = rng.choice(list(LOSSES)), rng.choice(FORMS), rng.choice(LOGITS)
    name = only or name
    n_labels = rng.choice((1, 2, 3, 5, 5)) if LOSSES[name].needs_stats else rng.randrange(6)
    shape = (rng.randrange(5), n_labels)
    logits = make_logits(arrays, shape, regime).to(rng.choice(DTYPES))
    dense = make_targets(arrays, shape, form)
    known, mask = np.ones(shape, dtype=bool), None
    if rng.random() < 0.4:
        known = arrays.rand(*shape) < rng.choice((0.0, 0.5, 0.9))
        mask = torch.from_numpy(known)
        # Unknown logits and targets may be anything.
        logits = torch.where(mask | torch.from_numpy(arrays.rand(*shape) < 0.5), logits, torch.nan)
        if not form.startswith("offsets"):
            dense = torch.where(mask, dense, rng.choice((0.0, -100.0)))
    if rng.random() < 0.2:
        logits = logits.t().contiguous().t()
    weight = None
    if rng.random() < 0.4:
        weight = torch.from_numpy(arrays.choice([0.0, 0.25, 1.0, 2.0, 7.0], size=shape[0]))
        weight = weight.to(rng.choice((torch.float32, torch.float64)))
    label_weight = rng.choice(LABEL_WEIGHTS)
    batch = Batch(
        logits.double().numpy(),
        np.where(known, dense.double().numpy(), 0.0),
        known,
        np.ones(shape[0]) if weight is None else weight.double().numpy(),
        np.ones(n_labels)
        if label_weight is None
        else np.array(label_weight[:n_labels], dtype=np.float32).astype(np.float64),
        edge_stats(n_labels).label_counts if n_labels else np.zeros(0),
        N_SAMPLES,
    )
    target = in_form(rng, dense, form)
    reduction = rng.choice(REDUCTIONS)
    return Case(name, reduction, regime, form, logits, target, mask, weight, label_weight, batch)


def make_logits(arrays: np.random.RandomState, shape: tuple[int, int], regime: str) -> Tensor:
    scale = {"small": 1.0, "large": 50.0, "denormal": 1e-40}.get(regime, 6.0)
    logits = scale * arrays.randn(*shape)
    extremes = {"1e4": [1e4, -1e4, 0.0], "nan": [np.nan]}
    if regime in extremes:
        chosen = arrays.choice(extremes[regime], size=shape)
        logits = np.where(arrays.rand(*shape) < 0.3, chosen, logits)
    return torch.from_numpy(logits).float()


def make_targets(arrays: np.random.RandomState, shape: tuple[int, int], form: str) -> Tensor:
    target = (arrays.rand(*shape) < 0.4).astype(np.float64)
    if form.startswith("soft"):
        target *= arrays.rand(*shape)
    if form == "tiny soft":
        # Times the smallest weight 1e-40 keeps four digits in float32, 1e-42 but two.
        target *= arrays.choice([1e-40, 1e-30, 1e-12, 1e-4, 1.0], size=shape)
    return torch.from_numpy(target).float()


def in_form(rng: random.Random, dense: Tensor, form: str) -> Any:
    """Return the targets in the form passed to the loss."""
    signed = bool((dense < 0).any())
    if form == "dense":
        types = (torch.int64, torch.float16, *(() if signed else (torch.bool, torch.uint8)))
        return dense.to(rng.choice(types))
    if form.endswith("soft"):
        return dense.clone()
    if form.startswith("offsets"):
        # In any order: the labels of a document from the last to the first.
        labels, offsets = to_offsets(dense.flip(1), with_end=form.endswith("end"))
        return dense.shape[1] - 1 - labels, offsets
    types = (torch.float32,) if form == "soft csr" or signed else CSR_DTYPES
    return to_csr(dense, rng.choice(types), rng.choice((torch.int32, torch.int64)))


def defect(case: Case, loss: Callable[..., Tensor] | None = None) -> str | None:
    """Return what is wrong with the loss (default: the case's) or its gradient, or None."""
    loss = case.loss if loss is None else loss
    leaf = case.logits.detach().clone().requires_grad_()
    try:
        value = loss(leaf, case.target, mask=case.mask, sample_weight=case.sample_weight)
        value.sum().backward()
    except Exception as error:
        return f"{type(error).__name__} for a valid batch: {str(error)[:80]}"
    return compare(case, value.detach(), leaf.grad)


def compare(case: Case, value: Tensor, grad: Tensor) -> str | None:
    expected, expected_grad = evaluate(case.name, case.batch, case.reduction)
    wide = torch.float64 if case.logits.dtype == torch.float64 else torch.float32
    if value.dtype != wide or tuple(value.shape) != expected.shape:
        return f"loss of {value.dtype} and shape {tuple(value.shape)}"
    if grad.dtype != case.logits.dtype or grad.shape != case.logits.shape:
        return f"gradient of {grad.dtype} and shape {tuple(grad.shape)}"
    # A weight of 0 on a NaN: both 0 and NaN are right.
    outer = case.batch.label_weight[None, :] * case.batch.sample_weight[:, None]
    unsure = (outer == 0) & case.batch.known & np.isnan(case.batch.logits)
    doubt = unsure if case.reduction == "none" and expected.ndim == 2 else unsure.any()
    loose = rounding(case)
    if not agrees(value.double().numpy(), expected, doubt, loose, 1e-6 + loose):
        return f"wrong loss, {case.reduction} of {case.name}"
    has_nan = np.isnan(np.where(case.batch.known, case.batch.logits, 0)).any()
    doubt = unsure | np.isnan(expected_grad) | (case.name in SET_WISE and has_nan)
    scale = 1e-6 * max(1.0, np.abs(expected_grad[np.isfinite(expected_grad)]).max(initial=0))
    rough = loose + {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(grad.dtype, 1e-4)
    actual_grad = grad.double().numpy()
    # A slope that grows with the logit may be beyond float16.
    is_beyond = np.isinf(actual_grad) & (np.abs(expected_grad) > torch.finfo(grad.dtype).max)
    is_beyond &= np.sign(actual_grad) == np.sign(expected_grad)
    if not agrees(actual_grad, expected_grad, doubt | is_beyond, rough, scale + loose):
        return f"wrong gradient, {case.reduction} of {case.name}"
    if not has_nan and grad.isnan().any():
        return f"NaN in the gradient of logits, {case.reduction} of {case.name}"
    if grad[~torch.from_numpy(case.batch.known)].any():
        return f"gradient at a masked element, {case.name}"
    return None


def rounding(case: Case) -> float:
    """Return the relative error of loss and gradient from rounding logits to the loss's type."""
    known = case.batch.logits[case.batch.known & np.isfinite(case.batch.logits)]
    largest = float(np.abs(known).max(initial=1))
    eps = 2e-16 if case.logits.dtype == torch.float64 else 6e-8
    if case.name in ("zlpr", "two-way"):
        # Their sums compare logits: beyond 1e6 float32 has no digits left for the weights.
        return 16 * eps * largest + 1e-9
    return 16 * eps * min(largest, 100.0) + 1e-8


def agrees(actual: Any, expected: Any, doubt: Any, relative: float, absolute: float) -> bool:
    """Equal within tolerance, NaN where expected; doubtful elements may be NaN or anything."""
    with np.errstate(all="ignore"):
        close = np.abs(actual - expected) <= absolute + relative * np.abs(expected)
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected)) | close
    return bool((same | doubt).all())
