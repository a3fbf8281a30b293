"""Hypothesis strategies for batches of every shape, type and degenerate kind a loss may meet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import torch
from hypothesis import settings
from torch import Tensor

from .cases import make_batch, to_csr, to_offsets

# The same examples every time: a build must not fail by chance. Nothing is written to disk.
property_test = settings(deadline=None, max_examples=12, database=None, derandomize=True)

LOGIT_DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
HARD_DTYPES = [torch.bool, torch.int64, torch.uint8, *LOGIT_DTYPES]


@dataclass(frozen=True)
class Batch:
    logits: Tensor
    target: Any
    mask: Tensor | None
    sample_weight: Tensor | None
    label_weight: Tensor | None

    @property
    def n_labels(self) -> int:
        return int(self.logits.shape[1])

    @property
    def call(self) -> dict[str, Tensor | None]:
        """The optional arguments of a loss."""
        return {"mask": self.mask, "sample_weight": self.sample_weight}


@st.composite
def any_batches(draw: st.DrawFn) -> Batch:
    """Any shape, type and form of targets, logits up to 1e4, with or without masks and weights."""
    n_documents = draw(st.integers(0, 5))
    n_labels = draw(st.integers(1, 7))
    seed = draw(st.integers(0, 2**16))
    logits, target = make_batch(n_documents, n_labels, seed, draw(st.sampled_from([1.0, 20.0])))
    if draw(st.booleans()):
        signs = torch.randint(0, 3, logits.shape, generator=torch.Generator().manual_seed(seed))
        logits = 1e4 * (signs - 1.0)
    form = draw(st.sampled_from(["hard", "soft", "csr", "soft csr", "offsets", "offsets with end"]))
    return Batch(
        logits.to(draw(st.sampled_from(LOGIT_DTYPES))),
        _in_form(target, form, draw(st.sampled_from(HARD_DTYPES)), seed),
        _mask(draw(st.sampled_from(["none", "some", "whole rows", "everything"])), logits, seed),
        random_weights(n_documents, seed) if draw(st.booleans()) else None,
        random_weights(n_labels, seed + 1) if draw(st.booleans()) else None,
    )


@st.composite
def exact_batches(draw: st.DrawFn, soft: bool = False, scale: float = 3.0) -> Batch:
    """Float64 logits and dense targets: batches on which two ways can be compared to the digit."""
    n_documents, n_labels = draw(st.integers(0, 5)), draw(st.integers(1, 7))
    seed = draw(st.integers(0, 2**16))
    logits, target = make_batch(n_documents, n_labels, seed, scale, soft)
    return Batch(
        logits,
        target,
        _mask(draw(st.sampled_from(["none", "some", "whole rows", "everything"])), logits, seed),
        random_weights(n_documents, seed) if draw(st.booleans()) else None,
        random_weights(n_labels, seed + 1) if draw(st.booleans()) else None,
    )


def _in_form(target: Tensor, form: str, dtype: torch.dtype, seed: int) -> Any:
    if form.startswith("soft"):
        generator = torch.Generator().manual_seed(seed)
        target = target * torch.rand(target.shape, generator=generator)
        dtype = dtype if dtype.is_floating_point else torch.float32
    if form.startswith("offsets"):
        return to_offsets(target, with_end=form == "offsets with end")
    return to_csr(target.to(dtype)) if form.endswith("csr") else target.to(dtype)


def _mask(kind: str, logits: Tensor, seed: int) -> Tensor | None:
    if kind == "none":
        return None
    mask = torch.rand(logits.shape, generator=torch.Generator().manual_seed(seed)) < 0.6
    if kind == "whole rows":
        mask[::2] = False
    return torch.zeros_like(mask) if kind == "everything" else mask


def random_weights(size: int, seed: int) -> Tensor:
    """Weights from 0 to 2, some of them exactly 0."""
    weights = 2 * torch.rand(size, generator=torch.Generator().manual_seed(seed))
    return torch.where(weights < 0.4, 0.0, weights)
