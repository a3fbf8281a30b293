"""The fused loss against the loss of all logits, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from longtail.errors import InputError, UnknownNameError
from longtail.fused import chunks, linear_balanced_loss
from longtail.fused.chunks import STEP, WEIGHTS, most_logits, spans

from .cases import ELEMENTWISE, OTHERS, Case, small_chunks, to_csr

CPU = torch.device("cpu")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch)


@pytest.mark.parametrize("n_documents", [0, 1, 128, 20_000])
@pytest.mark.parametrize("n_labels", [1, 90, 18_211, 65_536, 670_091])
def test_chunks_cover_the_labels_once(n_documents: int, n_labels: int) -> None:
    for device in (CPU, torch.device("cuda")):
        parts = spans(n_documents, n_labels, 768, device)
        assert [start for start, _ in parts] == [0, *(stop for _, stop in parts[:-1])]
        assert parts[-1][1] == n_labels
        assert all(start % STEP == 0 and start < stop for start, stop in parts)
        widest = max(stop - start for start, stop in parts)
        assert n_documents * widest <= max(most_logits(device), n_documents * STEP)
        assert 768 * widest <= WEIGHTS * most_logits(device)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("reduction", ["mean", "batchmean", "sum"])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_every_loss_equals_the_plain_one(name: str, reduction: str) -> None:
    case = Case()
    generator = torch.Generator().manual_seed(1)
    weight = torch.rand(70, generator=generator, dtype=torch.float64)
    for label_weight in (None, weight):
        loss = case.loss(name, reduction=reduction, label_weight=label_weight)
        case.check(loss)
        case.check(loss, mask=case.mask, sample_weight=case.sample_weight)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ["db", "cb-ntr", "asl"])
@pytest.mark.parametrize(("n_documents", "n_labels"), [(1, 1), (3, 31), (4, 64), (2, 129), (0, 40)])
def test_odd_shapes_and_forms_of_targets(name: str, n_documents: int, n_labels: int) -> None:
    case = Case(n_documents, n_labels)
    loss = case.loss(name)
    for target in (case.dense, case.dense.bool(), to_csr(case.dense), case.soft, to_csr(case.soft)):
        case.check(loss, target)
        case.check(loss, target, mask=case.mask, bias=False)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ["db", "asl"])
def test_masked_targets_and_features_may_be_anything(name: str) -> None:
    case = Case()
    loss = case.loss(name, check_targets=False)
    case.mask[3] = False
    case.dense[3] = -100.0
    case.dense[2, 4], case.mask[2, 4] = float("nan"), False
    case.check(loss, case.dense, mask=case.mask)
    leaves = case.leaves()
    with torch.no_grad():
        leaves[0][3] = 1e200  # its logits are infinite or NaN
    case.fused(loss, leaves, case.dense, mask=case.mask).backward()
    assert bool(leaves[2].grad.isfinite().all())


@pytest.mark.usefixtures("small")
def test_a_fully_masked_batch_is_zero() -> None:
    case = Case()
    case.check(case.loss("db"), mask=torch.zeros_like(case.mask))


def test_auto_takes_chunks_only_where_the_logits_need_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case()
    seen: list[Any] = []
    evaluate = chunks.evaluate
    monkeypatch.setattr("longtail.fused.linear.evaluate", lambda *a: seen.append(1) or evaluate(*a))
    case.check(case.loss("db"), impl="auto")
    assert not seen
    small_chunks(monkeypatch)
    case.check(case.loss("db"), impl="auto")
    assert seen


@pytest.mark.usefixtures("small")
def test_only_wanted_gradients_are_computed() -> None:
    case = Case()
    for number in range(3):
        leaves = case.leaves()
        for other, leaf in enumerate(leaves):
            leaf.requires_grad_(other == number)
        case.fused(case.loss("db"), leaves, case.target).backward()
        assert [leaf.grad is not None for leaf in leaves] == [k == number for k in range(3)]
    with torch.no_grad():
        assert not case.fused(case.loss("db"), case.leaves(), case.target).requires_grad


@pytest.mark.usefixtures("small")
def test_backward_twice_and_guarded() -> None:
    case = Case()
    leaves = case.leaves()
    value = case.fused(case.loss("db"), leaves, case.target)
    first = torch.autograd.grad(value, leaves, retain_graph=True)
    first = [grad.clone() for grad in first]
    second = torch.autograd.grad(2 * value, leaves, retain_graph=True)
    torch.testing.assert_close(list(second), [2 * grad for grad in first])
    with pytest.raises(InputError, match="no second derivative"):
        torch.autograd.grad(value, leaves, create_graph=True)
    value = case.fused(case.loss("db"), leaves, case.target)
    with torch.no_grad():
        leaves[1].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


@pytest.mark.usefixtures("small")
def test_autocast_computes_in_bf16_and_returns_the_types_of_the_inputs() -> None:
    case = Case()
    loss = case.loss("db", dtype=torch.float32)
    results = []
    for compute in (case.plain, case.fused):
        leaves = case.leaves(torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            value = compute(loss, leaves, case.target)
        value.backward()
        assert all(leaf.grad.dtype == torch.float32 for leaf in leaves)
        results.append([value.detach(), *(leaf.grad for leaf in leaves)])
    assert not torch.equal(results[1][1], case_grads(case, loss)[0])
    for fused, plain in zip(results[1], results[0], strict=True):
        atol = 0.02 * float(plain.abs().max())
        torch.testing.assert_close(fused, plain, rtol=0.02, atol=atol)


def case_grads(case: Case, loss: Any) -> list[torch.Tensor]:
    leaves = case.leaves(torch.float32)
    case.fused(loss, leaves, case.target).backward()
    return [leaf.grad for leaf in leaves]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ["db", "asl", "hill"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_loses_no_more_than_the_plain_loss(name: str, dtype: torch.dtype) -> None:
    """The error against float64 of the same rounded head, beside that of the plain loss."""
    case = Case(40, 500, 32)
    case.head = [x.to(dtype).double() for x in case.head]
    exact = errors_and_result(case, name, torch.float64, case.plain)
    fused, plain = (
        [
            float((result.double() - right).norm())
            for result, right in zip(
                errors_and_result(case, name, dtype, compute), exact, strict=True
            )
        ]
        for compute in (case.fused, case.plain)
    )
    # The error of one number is a matter of luck; those of gradients are norms of many.
    assert fused[0] <= 1e-4 * float(exact[0])
    for number in range(1, 4):
        assert fused[number] <= 1.5 * plain[number], number


def errors_and_result(
    case: Case, name: str, dtype: torch.dtype, compute: Any
) -> list[torch.Tensor]:
    wide = torch.promote_types(dtype, torch.float32)
    leaves = case.leaves(dtype)
    value = compute(case.loss(name, dtype=wide), leaves, case.target)
    assert value.dtype == wide
    value.backward()
    return [value.detach(), *(leaf.grad for leaf in leaves)]


def test_a_loss_by_name_and_one_that_is_built_are_the_same() -> None:
    case = Case()
    loss = case.loss("db", reduction="mean")
    value = case.fused(loss, case.leaves(), case.target, reduction="sum")
    named = linear_balanced_loss(
        case.head[0], case.head[1], case.target, case.head[2],
        loss="db", stats=case.stats, reduction="sum",
    )  # fmt: skip
    torch.testing.assert_close(named, value.detach(), rtol=1e-9, atol=0)
    assert loss.reduction == "mean"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.usefixtures("small")
def test_a_compiled_model_takes_the_loss_as_it_is() -> None:
    case = Case()
    loss = case.loss("db")

    @torch.compile(backend="eager")
    def step(features: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return linear_balanced_loss(2 * features, weight, case.target, loss=loss, impl="torch")

    features, weight, _ = case.leaves()
    step(features, weight).backward()
    other, other_weight, _ = case.leaves()
    loss(F.linear(2 * other, other_weight), case.target).backward()
    torch.testing.assert_close([features.grad, weight.grad], [other.grad, other_weight.grad])


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "document loss": ({"loss": "zlpr"}, "needs all logits at once"),
    "unknown loss": ({"loss": "dbb"}, "unknown loss"),
    "no loss": ({"loss": torch.nn.BCEWithLogitsLoss()}, "must be a name of LOSSES or a loss"),
    "none": ({"reduction": "none"}, "reduction must be one of mean, batchmean, sum"),
    "impl": ({"impl": "cuda"}, "impl must be one of auto, torch, triton"),
    "no gpu": ({"impl": "triton"}, "impl='triton' needs"),
    "mask": ({"mask": torch.ones(2, 2, dtype=torch.bool)}, "mask must be"),
    "weights": ({"sample_weight": -torch.ones(5)}, "must be finite and not negative"),
    "slopes": ({"sample_weight": torch.ones(5, requires_grad=True)}, "no gradient of sample"),
    "width": ({"weight": torch.zeros(70, 5, dtype=torch.float64)}, r"weight must be .*\(labels, 6"),
    "labels": ({"weight": torch.zeros(71, 6, dtype=torch.float64), "bias": None}, "for 70 labels"),
    "bias": ({"bias": torch.zeros(71, dtype=torch.float64)}, r"bias must be .*\(70\)"),
    "types": ({"weight": torch.zeros(70, 6)}, "must have one type"),
    "features": ({"features": [[1.0]]}, "features must be"),
    "targets": ({"target": (torch.tensor([70]), torch.tensor([0] * 4 + [1]))}, "label indices"),
}  # fmt: skip


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("bad", BAD)
def test_errors_say_what_to_do(bad: str) -> None:
    case = Case()
    arguments: dict[str, Any] = dict(zip(("features", "weight", "bias"), case.head, strict=True))
    arguments |= {"target": case.target, "loss": "db", "stats": case.stats}
    changes, message = BAD[bad]
    with pytest.raises((InputError, UnknownNameError), match=message):
        linear_balanced_loss(**arguments | changes)


@pytest.mark.parametrize("name", OTHERS)
def test_losses_of_a_whole_document_are_refused(name: str) -> None:
    case = Case()
    with pytest.raises(InputError, match="needs all logits at once"):
        case.fused(case.loss(name), case.leaves(), case.target)
