"""What holds for every row of LOSSES on every batch: finite numbers, the right types, clean hands.

Shapes from no document to several, one label, all types and forms of targets, documents without
labels, labels of no or every document, logits up to 1e4, masks up to everything.
"""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from longtail.losses import TwoWayLoss

from .cases import (
    NAMES,
    SET_WISE,
    loss_and_grad,
    make_batch,
    make_loss,
    naive_terms,
    sparse_forms,
    to_csr,
)
from .strategies import Batch, any_batches, exact_batches, property_test, random_weights

REDUCTIONS = ["none", "mean", "batchmean", "sum"]


@pytest.mark.parametrize("name", NAMES)
@property_test
@given(batch=any_batches(), reduction=st.sampled_from(REDUCTIONS))
def test_loss_and_gradient_are_finite_and_of_the_right_kind(
    name: str, batch: Batch, reduction: str
) -> None:
    loss = make_loss(name, batch.n_labels, reduction=reduction, label_weight=batch.label_weight)
    value, grad = loss_and_grad(loss, batch.logits, batch.target, **batch.call)
    assert value.isfinite().all() and grad.isfinite().all()
    assert value.dtype == torch.promote_types(batch.logits.dtype, torch.float32)
    assert grad.dtype == batch.logits.dtype
    n_documents, n_labels = batch.logits.shape
    shape: tuple[int, ...] = ()
    if reduction == "none":
        shape = (n_documents, n_labels)
        if isinstance(loss, SET_WISE):
            shape = (n_documents + n_labels if isinstance(loss, TwoWayLoss) else n_documents,)
    assert value.shape == shape


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_known_costs_nothing(name: str, reduction: str) -> None:
    loss = make_loss(name, 5, reduction=reduction)
    empty, grad = loss_and_grad(loss, torch.zeros(0, 5), torch.zeros(0, 5))
    assert empty.sum() == 0 and grad.shape == (0, 5)
    logits, target = make_batch(3, 5)
    unknown, grad = loss_and_grad(loss, logits, target, mask=torch.zeros(3, 5, dtype=torch.bool))
    assert unknown.sum() == 0 and not grad.any()


@pytest.mark.parametrize("name", NAMES)
def test_documents_without_labels_still_push_their_logits_down(name: str) -> None:
    loss = make_loss(name, 5, reduction="sum")
    _, grad = loss_and_grad(loss, torch.zeros(2, 5), torch.zeros(2, 5))
    # Two-way alone compares positives with negatives and has nothing to say here.
    assert (grad == 0).all() if isinstance(loss, TwoWayLoss) else (grad > 0).all()


@pytest.mark.parametrize("name", NAMES)
@property_test
@given(
    batch=any_batches(),
    reduction=st.sampled_from(REDUCTIONS),
    mode=st.sampled_from(["grad", "no_grad", "inference_mode"]),
)
def test_inputs_and_grad_mode_are_left_alone(
    name: str, batch: Batch, reduction: str, mode: str
) -> None:
    loss = make_loss(name, batch.n_labels, reduction=reduction, label_weight=batch.label_weight)
    handed = [batch.logits, *_parts(batch.target), batch.mask, batch.sample_weight]
    tensors = [tensor for tensor in handed if tensor is not None]
    before = [tensor.clone() for tensor in tensors]
    context = {
        "grad": torch.enable_grad(),
        "no_grad": torch.no_grad(),
        "inference_mode": torch.inference_mode(),
    }[mode]
    with context:
        inside = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        logits = batch.logits.requires_grad_(mode == "grad")
        value = loss(logits, batch.target, **batch.call)
        assert inside == (torch.is_grad_enabled(), torch.is_inference_mode_enabled())
    assert value.requires_grad == (mode == "grad")
    if mode == "grad":
        value.sum().backward()
    assert all(torch.equal(new.detach(), old) for new, old in zip(tensors, before, strict=True))
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    assert all(tensor.grad is None for tensor in tensors[1:])


@pytest.mark.parametrize("name", NAMES)
@property_test
@given(batch=exact_batches(), seed=st.integers(0, 99), reduction=st.sampled_from(REDUCTIONS))
def test_masked_elements_may_be_anything(
    name: str, batch: Batch, seed: int, reduction: str
) -> None:
    mask = batch.mask if batch.mask is not None else torch.ones_like(batch.logits).bool()
    loss = make_loss(name, batch.n_labels, reduction=reduction, label_weight=batch.label_weight)
    weight = batch.sample_weight
    value, grad = loss_and_grad(loss, batch.logits, batch.target, mask=mask, sample_weight=weight)
    assert not grad[~mask].any()

    def replaced(values: Tensor, choices: list[float]) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        picks = torch.randint(len(choices), values.shape, generator=generator)
        return torch.where(mask, values, torch.tensor(choices, dtype=values.dtype)[picks])

    nan, inf = float("nan"), float("inf")
    logits = replaced(batch.logits, [nan, inf, -inf, 0.0, 1e4])
    target = replaced(batch.target, [0.0, 1.0, 0.5, -100.0, nan])
    for form in (target, to_csr(target)):
        other, other_grad = loss_and_grad(loss, logits, form, mask=mask, sample_weight=weight)
        # Not bit for bit: what is summed when depends on where the targets are not 0.
        torch.testing.assert_close(other, value, rtol=1e-12, atol=1e-15)
        torch.testing.assert_close(other_grad, grad, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", NAMES)
@property_test
@given(batch=exact_batches(soft=True), document=st.integers(0, 4))
def test_a_document_of_weight_two_counts_twice(name: str, batch: Batch, document: int) -> None:
    loss = make_loss(name, batch.n_labels, reduction="none", dtype=torch.float64)
    n_documents = batch.logits.shape[0]
    weight = torch.where(torch.arange(n_documents) == document, 2.0, 1.0)
    plain = loss(batch.logits, batch.target, mask=batch.mask)
    weighted = loss(batch.logits, batch.target, mask=batch.mask, sample_weight=weight)
    factor = weight if plain.dim() == 1 else weight.unsqueeze(1)
    torch.testing.assert_close(
        weighted[:n_documents], (plain[:n_documents] * factor).double(), rtol=1e-12, atol=0.0
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_weight_zero_removes_the_gradient(name: str, reduction: str) -> None:
    logits, target = make_batch(4, 5, seed=3)
    _, grad = loss_and_grad(
        make_loss(name, 5, reduction=reduction, label_weight=torch.tensor([1.0, 0, 2, 0, 1])),
        logits,
        target,
        sample_weight=torch.tensor([1.0, 0.0, 1.0, 0.5]),
    )
    assert not grad[:, [1, 3]].any() and not grad[1].any()
    assert grad[2:, [0, 2, 4]].any()


@pytest.mark.parametrize("name", NAMES)
@property_test
@given(batch=exact_batches(), soft=st.booleans(), seed=st.integers(0, 99))
def test_weights_and_masks_follow_the_formula(
    name: str, batch: Batch, soft: bool, seed: int
) -> None:
    # Element-wise they multiply; set-wise the labels' weights stand inside the sums: see naive.py.
    weight = random_weights(batch.n_labels, seed)
    target = batch.target * 0.7 if soft else batch.target
    loss = make_loss(
        name, batch.n_labels, label_weight=weight, reduction="none", dtype=torch.float64
    )
    expected = naive_terms(name, batch.logits, target, **batch.call, label_weight=weight)
    forms = {"csr": to_csr(target)} if soft else sparse_forms(target)
    for form in (target, *forms.values()):
        actual = loss(batch.logits, form, **batch.call)
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)


def _parts(target: object) -> list[Tensor]:
    if isinstance(target, Tensor):
        if target.layout == torch.sparse_csr:
            return [target.values(), target.col_indices(), target.crow_indices()]
        return [target]
    assert isinstance(target, tuple)
    return list(target)
