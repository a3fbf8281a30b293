"""The losses as torch modules: compile, copy, pickle, move, repeated backward."""

from __future__ import annotations

import copy
import pickle
import shutil
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import torch

from longtail.labels import LabelStats
from longtail.losses import BalancedLoss, MultiLabelLoss, build_loss

from .cases import NAMES, loss_and_grad, make_batch, make_loss, make_mask, to_offsets

N_LABELS = 5
LABEL_WEIGHT = torch.tensor([1.0, 0.5, 2.0, 1.0, 0.25])
CAN_BUILD = (
    shutil.which("g++") is not None and Path(sysconfig.get_path("include"), "Python.h").exists()
)


def check_compiled(name: str, form: str, backend: str) -> None:
    """Dense targets alone, and sparse ones with mask and weights: each path compiled once."""
    torch._dynamo.reset()
    loss = make_loss(name, N_LABELS, label_weight=LABEL_WEIGHT)
    logits, dense = make_batch(3, N_LABELS)
    target: Any = dense.float()
    kw: dict[str, torch.Tensor] = {}
    if form == "offsets":
        target = to_offsets(dense)
        kw["mask"] = make_mask(3, N_LABELS)
        kw["sample_weight"] = torch.tensor([1.0, 2.0, 0.5])
    compiled = torch.compile(loss, fullgraph=True, backend=backend)
    expected = loss_and_grad(loss, logits.float(), target, **kw)
    torch.testing.assert_close(loss_and_grad(compiled, logits.float(), target, **kw), expected)


# The switches of the other balanced rows are covered by bce, cb and db.
@pytest.mark.parametrize(
    ("name", "form"),
    [(name, "dense") for name in NAMES]
    + [
        (name, "offsets")
        for name in ("bce", "cb", "db", "asl", "hill", "zlpr", "two-way", "dice", "squared-hinge")
    ],
)
def test_compiles_as_one_graph(name: str, form: str) -> None:
    check_compiled(name, form, "aot_eager")


@pytest.mark.skipif(not CAN_BUILD, reason="inductor needs g++ and the headers of Python")
def test_compiles_for_several_numbers_of_labels() -> None:
    """From the second number on, the compiler treats shapes as dynamic."""
    for n_labels in (5, 9, 7):
        loss = build_loss("db", LabelStats.from_counts(range(1, n_labels + 1), 20))
        logits = torch.linspace(-2, 2, 3 * n_labels).view(3, n_labels)
        target = torch.eye(3, n_labels)
        compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(logits, target), loss(logits, target))


# Importing torch's own compiler uses its own deprecated decorator.
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("form", ["dense", "offsets"])
def test_compiles_with_inductor(form: str) -> None:
    check_compiled("db", form, "inductor")


def same_loss(first: MultiLabelLoss, second: MultiLabelLoss) -> None:
    logits, target = make_batch(3, N_LABELS)
    expected, expected_grad = loss_and_grad(first, logits, target)
    value, grad = loss_and_grad(second, logits, target)
    assert torch.equal(value, expected) and torch.equal(grad, expected_grad)


@pytest.mark.parametrize("name", NAMES)
def test_copies_and_pickles(name: str) -> None:
    loss = make_loss(name, N_LABELS, label_weight=LABEL_WEIGHT)
    same_loss(loss, copy.deepcopy(loss))
    same_loss(loss, pickle.loads(pickle.dumps(loss)))


@pytest.mark.parametrize("name", NAMES)
def test_moves_and_keeps_the_constants_precision(name: str) -> None:
    loss = make_loss(name, N_LABELS, label_weight=LABEL_WEIGHT)
    reference = copy.deepcopy(loss)
    assert not list(loss.parameters())
    for move in (lambda: loss.to("cpu"), loss.half, loss.bfloat16):
        assert move() is loss
        assert {buffer.dtype for buffer in loss.buffers()} == {torch.float32}
        same_loss(reference, loss)
    assert {buffer.dtype for buffer in loss.double().buffers()} == {torch.float64}
    assert {buffer.dtype for buffer in loss.float().buffers()} == {torch.float32}
    same_loss(reference, loss)


@pytest.mark.parametrize("name", NAMES)
def test_a_second_backward_gives_the_same_gradient(name: str) -> None:
    logits, target = make_batch(3, N_LABELS)
    leaf = logits.requires_grad_()
    value = 3 * make_loss(name, N_LABELS)(leaf, target)
    (first,) = torch.autograd.grad(value, leaf, retain_graph=True)
    kept = first.clone()
    (second,) = torch.autograd.grad(value, leaf, retain_graph=True)
    (tripled,) = torch.autograd.grad(value, leaf, torch.tensor(3.0, dtype=value.dtype))
    assert torch.equal(first, kept)
    torch.testing.assert_close(second, kept)
    torch.testing.assert_close(tripled, 3 * kept)


def test_repr_names_the_switches() -> None:
    text = repr(make_loss("db", N_LABELS, constants="pubmed"))
    assert text.startswith(BalancedLoss.__name__)
    assert "weighting='rebalanced'" in text and "mu=0.05" in text and "reduction='mean'" in text
