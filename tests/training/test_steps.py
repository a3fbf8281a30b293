"""One step: against a plain torch loop, cut into parts, out of memory, in bf16, averaged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from longtail.errors import LongtailError
from longtail.training import Moment, predict_logits
from longtail.training.batches import epoch_batches
from longtail.training.weights import Weights

from .cases import (
    TokenNetwork,
    config,
    documents,
    loss,
    near,
    network,
    same,
    train_tiny,
    weights_of,
)


@pytest.mark.parametrize("clip", [0.0, 0.05])
def test_it_is_adamw_as_everybody_writes_it(clip: float) -> None:
    """Groups, schedule, decay and clipping against a loop without any of our parts."""
    settings = dict(epochs=3, weight_decay=0.3, head_learning_rate=0.05, warmup=0.3, clip=clip)
    made, plain = network(), network()
    train_tiny(made, settings=settings)

    encoded, Y = documents()
    matrices = ["words.weight", "layer.weight"]
    vectors = ["layer.bias", "norm.weight", "norm.bias"]
    named = dict(plain.named_parameters())
    optimizer = torch.optim.AdamW(
        [
            {"params": [named[name] for name in matrices], "lr": 0.01, "weight_decay": 0.3},
            {"params": [named[name] for name in vectors], "lr": 0.01, "weight_decay": 0.0},
            {"params": [named["head.weight"]], "lr": 0.05, "weight_decay": 0.3},
            {"params": [named["head.bias"]], "lr": 0.05, "weight_decay": 0.0},
        ],
        foreach=False,
    )
    rates = config(warmup=0.3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rates.rate(step, 9))
    for epoch in range(3):
        for rows in epoch_batches(encoded.lengths, 8, seed=0, epoch=epoch):
            target = torch.from_numpy(Y[rows].toarray())
            terms = nn.functional.binary_cross_entropy_with_logits(
                plain(**encoded.batch(rows)), target, reduction="none"
            )
            terms.sum(dim=1).mean().backward()
            if clip:
                nn.utils.clip_grad_norm_(plain.parameters(), clip)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    assert near(weights_of(made), weights_of(plain), 1e-6)
    assert not near(weights_of(made), weights_of(network()), 1e-2)


class Sum(nn.Module):
    """Every weight has the gradient 1, so that AdamW moves it by its learning rate exactly."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(2, 2)
        self.norm = nn.LayerNorm(2)
        self.head = nn.Linear(2, 1)
        for parameter in self.parameters():
            nn.init.ones_(parameter)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return torch.stack([p.sum() for p in self.parameters()]).sum().expand(len(input_ids), 1)


class MeanLogit(nn.Module):
    reduction = "batchmean"

    def forward(self, logits: Tensor, targets: Any) -> Tensor:
        return logits.mean()


def test_rates_and_decay_of_every_weight() -> None:
    """Warm-up and fall seen at the weights; only matrices decay; the head has its own rate."""
    made = Sum()
    path: list[dict[str, Tensor]] = [weights_of(made)]
    settings = dict(epochs=2, learning_rate=0.01, head_learning_rate=0.1, weight_decay=0.5)
    train_tiny(
        made,
        settings=settings | {"warmup": 0.5},
        loss=MeanLogit(),
        progress=lambda _: path.append(weights_of(made)),
    )
    rates = [1 / 3, 2 / 3, 1, 1, 2 / 3, 1 / 3]
    for before, after, rate in zip(path[:-1], path[1:], rates, strict=True):
        for name in before:
            peak = 0.1 if name.startswith("head") else 0.01
            decay = 0.5 if name in ("body.weight", "head.weight") else 0.0
            expected = before[name] * (1 - rate * peak * decay) - rate * peak
            torch.testing.assert_close(after[name], expected, rtol=0, atol=1e-6, msg=name)


@pytest.mark.parametrize("reduction", ["batchmean", "mean", "sum"])
@pytest.mark.parametrize("micro", [1, 3, 7])
def test_accumulation_equals_the_whole_batch(reduction: str, micro: int) -> None:
    from longtail.losses import build_loss

    found = []
    for micro_batch in (None, micro):
        made = network()
        # Large gradients are clipped, so that a wrong share would be seen.
        settings = {"epochs": 3, "micro_batch": micro_batch, "clip": 0.1}
        train_tiny(made, settings=settings, loss=build_loss("bce", reduction=reduction))
        found.append(weights_of(made))
    assert near(*found, 1e-6)


ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    MemoryError(),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory"
    ),
]


class Hungry(TokenNetwork):
    """Has no memory for more than `most` documents, or at the given calls."""

    def __init__(self, most: int, error: BaseException, failing: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.most, self.error, self.failing, self.calls = most, error, failing, 0

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        self.calls += 1
        if len(input_ids) > self.most or self.calls in self.failing:
            raise self.error
        return super().forward(input_ids, attention_mask)


def hungry(most: int, error: BaseException = ERRORS[0], failing: tuple[int, ...] = ()) -> Hungry:
    torch.manual_seed(0)
    return Hungry(most, error, failing)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_out_of_memory_halves_and_goes_on(error: BaseException) -> None:
    """To the weights of a run that had begun with parts of that size."""
    made, small = hungry(3, error), network()
    notes: list[str] = []
    seen: list[Moment] = []
    train_tiny(made, note=notes.append, progress=seen.append)
    train_tiny(small, settings={"micro_batch": 2})
    assert same(weights_of(made), weights_of(small))
    assert notes == [f"out of memory: going on with {k} documents at a time." for k in (4, 2)]
    assert [moment.step for moment in seen] == list(range(1, 7))


def test_gradients_of_a_failed_step_are_forgotten() -> None:
    """The second part of the first batch fails, when the first one has left its gradients."""
    encoded, Y = documents(16)
    made, small = hungry(8, failing=(2,)), network()
    train_tiny(made, settings={"micro_batch": 4}, data=(encoded, Y), note=lambda text: None)
    train_tiny(small, settings={"micro_batch": 2}, data=(encoded, Y))
    assert same(weights_of(made), weights_of(small))


def test_one_document_that_does_not_fit() -> None:
    notes: list[str] = []
    said = r"one document at a time does not fit into memory\. Use a smaller model or read less"
    with pytest.raises(LongtailError, match=said):
        train_tiny(hungry(0), note=notes.append)
    assert len(notes) == 3
    with pytest.raises(LongtailError, match=said):
        predict_logits(hungry(0).eval(), documents()[0])


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        train_tiny(hungry(3, RuntimeError("mat1 and mat2 shapes cannot be multiplied")))


def test_predicting_halves_as_well() -> None:
    encoded, _ = documents(40)
    whole = predict_logits(network().eval(), encoded)
    np.testing.assert_allclose(predict_logits(hungry(5).eval(), encoded), whole, atol=1e-6)


def test_the_average_is_the_one_by_hand() -> None:
    made = network()
    average = {name: value.double() for name, value in weights_of(made).items()}

    def follow(_: Moment) -> None:
        for name, value in weights_of(made).items():
            average[name] = 0.8 * average[name] + 0.2 * value.double()

    train_tiny(made, settings={"epochs": 4, "ema": 0.8}, progress=follow)
    assert near({name: value.float() for name, value in average.items()}, weights_of(made), 1e-6)


class Widths(TokenNetwork):
    """Remembers what it computed in; has a buffer, and a weight that does not learn."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()
        self.register_buffer("angles", torch.tensor([1 / 3]))
        self.fixed = nn.Parameter(torch.tensor([1 / 3]), requires_grad=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits = super().forward(input_ids, attention_mask)
        self.seen |= {logits.dtype}
        assert self.angles.dtype is torch.float32
        return logits


def test_bf16_adds_up_steps_that_bf16_cannot_hold() -> None:
    """Near 1 the next number in bf16 is 0.0078 away: steps of 0.0002 would be lost one by one."""
    found = {}
    for precision in ("fp32", "bf16"):
        torch.manual_seed(0)
        made = Widths()
        nn.init.ones_(made.norm.weight)
        settings = dict(epochs=10, learning_rate=2e-4, schedule="constant", warmup=0.0)
        train_tiny(made, settings=settings | {"precision": precision})
        assert made.seen == {torch.bfloat16 if precision == "bf16" else torch.float32}
        assert {value.dtype for value in made.state_dict().values()} == {torch.float32}
        assert made.angles.item() == made.fixed.item() == torch.tensor(1 / 3).item()
        found[precision] = made.norm.weight.detach() - 1
    # Thirty steps of 0.0002, most of them in one direction.
    assert found["fp32"].abs().max() > 0.004
    assert torch.allclose(found["bf16"], found["fp32"], atol=0.0015)


def test_weights_that_do_not_learn_are_no_part_of_it() -> None:
    made = Widths()
    weights = Weights(made, half=False, ema=0.5)
    assert "fixed" not in weights.names and "angles" not in weights.names
    assert not any(name.endswith("fixed") for name in weights.tensors())


def test_a_model_that_cannot_be_compiled_is_trained_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Uncompilable(nn.Module):
        def forward(self, **inputs: Tensor) -> Tensor:
            raise RuntimeError("no compiler here\nand much more")

    monkeypatch.setattr("longtail.training.loop._compiled", lambda network: Uncompilable())
    made, plain = network(), network()
    notes: list[str] = []
    train_tiny(made, settings={"acceleration": "compile"}, note=notes.append)
    train_tiny(plain)
    assert same(weights_of(made), weights_of(plain))
    assert notes == [
        "torch.compile does not work with this model (no compiler here): going on without it."
    ]


def test_the_loss_is_left_where_it_was_made() -> None:
    """Losses with buffers go along to the device."""
    made = loss()
    train_tiny(network(), loss=made)
    assert all(buffer.device.type == "cpu" for buffer in made.buffers())
