"""The head that updates itself: against torch.optim.SGD, and its rounding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from longtail.errors import InputError
from longtail.fused import LinearBalancedLoss
from longtail.fused.sgd import Rates, rounded, sgd_step
from longtail.random_bits import mix

from .cases import Case, small_chunks

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": dict(learning_rate=0.1),
    "momentum": dict(learning_rate=0.1, momentum=0.9),
    "decay": dict(learning_rate=0.05, momentum=0.5, weight_decay=0.1),
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch)


def make_head(
    case: Case, dtype: torch.dtype = torch.float32, **settings: Any
) -> LinearBalancedLoss:
    n_labels, n_features = case.head[1].shape
    settings = dict(loss="db", stats=case.stats, update="in_backward", dtype=dtype) | settings
    torch.manual_seed(0)
    return LinearBalancedLoss(n_features, n_labels, **settings)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("settings", SETTINGS)
def test_update_equals_sgd(settings: str, bias: bool) -> None:
    """Also with another learning rate in each step, and a factor of the loss."""
    case, rates = Case(), SETTINGS[settings]
    head = make_head(case, bias=bias, **rates)
    plain = nn.Linear(*reversed(case.head[1].shape), bias=bias)
    plain.load_state_dict(head.linear.state_dict())
    decayed = {"params": [plain.weight]}
    others = {"params": [plain.bias] if bias else [], "weight_decay": 0.0}
    optimizer = torch.optim.SGD(
        [decayed, others],
        lr=0.0,
        momentum=rates.get("momentum", 0.0),
        weight_decay=rates.get("weight_decay", 0.0),
    )
    loss = case.loss("db", dtype=torch.float32)
    for step in range(5):
        head.learning_rate = rates["learning_rate"] / (step + 1)
        for group in optimizer.param_groups:
            group["lr"] = head.learning_rate
        grads = []
        for compute in (head, lambda x, y, **kw: loss(plain(x), y, **kw)):
            features = (case.head[0] + step).float().requires_grad_()
            value = compute(features, case.target, mask=case.mask)
            (0.5 * value).backward()
            grads.append([value.detach(), features.grad])
        torch.testing.assert_close(*grads, rtol=1e-5, atol=1e-6)
        assert all(parameter.grad is None for parameter in head.parameters())
        optimizer.step()
        optimizer.zero_grad()
        pairs = zip(head.linear.parameters(), plain.parameters(), strict=True)
        for mine, theirs in pairs:
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_it_changes_in_backward_only() -> None:
    case = Case()
    head = make_head(case, learning_rate=0.1)
    features = case.head[0].float().requires_grad_()
    before = head.linear.weight.detach().clone()
    value = head(features, case.target)
    with torch.no_grad():
        head(features, case.target)
    assert torch.equal(head.linear.weight, before)
    value.backward(retain_graph=True)
    assert not torch.equal(head.linear.weight, before)
    after, grad = head.linear.weight.detach().clone(), features.grad
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()
    head.eval()
    head(features, case.target).backward()
    assert torch.equal(head.linear.weight, after) and head.linear.weight.grad is None
    assert grad is not None and torch.equal(
        head.logits(features), F.linear(features, *head.linear.parameters())
    )
    # Fixed features: a linear head on its own.
    head.train()
    head(features.detach(), case.target).backward()
    assert not torch.equal(head.linear.weight, after)


def test_without_update_it_has_gradients() -> None:
    case = Case()
    head = make_head(case, update=None)
    head(case.head[0].float(), case.target).backward()
    assert all(parameter.grad is not None for parameter in head.parameters())
    assert set(dict(head.named_parameters())) == {"linear.weight", "linear.bias"}


def test_a_run_that_is_resumed_takes_the_same_steps() -> None:
    """In bf16, whose rounding is random; and the seed matters."""
    case = Case()

    def train(head: LinearBalancedLoss, steps: int) -> None:
        for _ in range(steps):
            head(case.head[0].bfloat16(), case.target).backward()

    settings: dict[str, Any] = dict(learning_rate=1e-3, momentum=0.9, dtype=torch.bfloat16)
    whole, first, second = (make_head(case, **settings) for _ in range(3))
    train(whole, 4)
    train(first, 2)
    second.load_state_dict(first.state_dict())
    train(second, 2)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name
    third = make_head(case, **settings)
    third.step_number += 1000
    train(third, 4)
    assert not torch.equal(third.linear.weight, whole.linear.weight)


def seed_of(step: int) -> torch.Tensor:
    """The seed of a step, as the head makes it."""
    return mix(torch.tensor([step], dtype=torch.int32), 0)


def test_small_steps_in_bf16_add_up() -> None:
    """2,000 steps of 2^-12: each is 1/32 of the distance of two numbers in bf16."""
    count, step = 4096, 2.0**-12
    weight = torch.ones(count, dtype=torch.bfloat16)
    nearest = weight.clone()
    grad = torch.full((count,), -step)
    for number in range(2000):
        sgd_step(weight, grad, None, Rates(1.0, 0.0, 0.0), 0, seed_of(number))
        nearest += step
    assert torch.equal(nearest, torch.ones_like(nearest))
    # Independent roundings: each adds 2^-7 with a probability of 1/32.
    deviation = 2**-7 * (2000 / 32 * 31 / 32) ** 0.5
    assert abs(float(weight.float().mean()) - 1 - 2000 * step) < 4 * deviation / count**0.5
    assert abs(float(weight.float().std()) / deviation - 1) < 0.1


def test_rounding_is_unbiased_and_to_a_neighbour() -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(200, generator=generator)
    low = (values.view(torch.int32) & -0x10000).view(torch.float32)
    gap = ((values.view(torch.int32) & -0x10000) + 0x10000).view(torch.float32) - low
    total = torch.zeros_like(values)
    n_seeds = 4000
    for seed in range(n_seeds):
        weight = values.to(torch.bfloat16).clone()
        # A step from what bf16 holds to the value.
        change = weight.float() - values
        sgd_step(weight, change, None, Rates(1.0, 0.0, 0.0), 0, seed_of(seed))
        up = (weight.float() - low) / gap
        assert bool(((up == 0) | (up == 1)).all())
        total += up
    share = ((values - low) / gap).clamp(0, 1)
    error = (total / n_seeds - share) / (share * (1 - share) / n_seeds).sqrt().clamp(min=1e-3)
    # 200 standard normals if the bits are fair: the mean square is 1 +- 0.1, the largest about 3.
    assert float(error.abs().max()) < 5 and 0.6 < float(error.square().mean()) < 1.5


def test_rounding_keeps_infinity_and_nan() -> None:
    bits = torch.full((3,), 0xFFFF, dtype=torch.int32)
    quiet = torch.tensor([0x7FFFFFFF], dtype=torch.int32).view(torch.float32)
    values = torch.cat([torch.tensor([float("inf"), float("-inf")]), quiet])
    result = rounded(values, torch.bfloat16, bits)
    assert result[:2].tolist() == [float("inf"), float("-inf")] and bool(result[2].isnan())


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no rate": ({}, "learning_rate must be a number of at least 0, got None"),
    "rate": ({"learning_rate": -1.0}, "learning_rate must be"),
    "momentum": ({"learning_rate": 0.1, "momentum": 1.5}, "momentum must be"),
    "decay": ({"learning_rate": 0.1, "weight_decay": -1.0}, "weight_decay must be"),
    "float16": ({"learning_rate": 0.1, "dtype": torch.float16}, "needs weights in bfloat16"),
    "update": ({"update": "in_forward"}, "update must be one of in_backward"),
    "loss": ({"loss": "dice"}, "needs all logits at once"),
    "labels": ({"learning_rate": 0.1, "n": 5}, "for 70 labels"),
}


@pytest.mark.parametrize("bad", BAD)
def test_errors_say_what_to_do(bad: str) -> None:
    case = Case()
    settings, message = BAD[bad]
    settings = dict(settings)
    n_labels = settings.pop("n", 70)
    with pytest.raises(InputError, match=message):
        LinearBalancedLoss(
            6, n_labels, **{"loss": "db", "stats": case.stats, "update": "in_backward"} | settings
        )


def test_a_wrong_target_leaves_the_head_as_it_was() -> None:
    case = Case()
    head = make_head(case, learning_rate=0.1)
    before = head.linear.weight.detach().clone()
    with pytest.raises(InputError, match="label indices"):
        head(case.head[0].float(), (torch.tensor([70]), torch.tensor([0] * 4 + [1]))).backward()
    assert torch.equal(head.linear.weight, before)


def test_a_frozen_head_stays() -> None:
    head = LinearBalancedLoss(4, 3, loss="bce", update="in_backward", learning_rate=0.1)
    head.linear.requires_grad_(False)
    before = head.linear.weight.clone()
    features = torch.ones(2, 4, requires_grad=True)
    head(features, torch.tensor([[1, 0, 0], [0, 1, 1]])).backward()
    assert torch.equal(head.linear.weight, before) and features.grad is not None


def test_targets_that_change_before_the_update_are_an_error() -> None:
    head = LinearBalancedLoss(4, 30, loss="bce", update="in_backward", learning_rate=0.1)
    labels, offsets = torch.tensor([1, 2]), torch.tensor([0, 1, 2])
    value = head(torch.ones(2, 4), (labels, offsets))
    labels += 5
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


def test_rates_without_an_update_are_refused() -> None:
    with pytest.raises(InputError, match="pass them to your optimizer"):
        LinearBalancedLoss(4, 3, loss="bce", learning_rate=0.1)
