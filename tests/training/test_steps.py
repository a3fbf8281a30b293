"""One step: against a plain torch loop, in parts, out of memory, in bf16, averaged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from longtail.errors import LongtailError
from longtail.losses import build_loss
from longtail.progress import Progress
from longtail.training import Training
from longtail.training.feed import epoch_batches
from longtail.training.predicting import predict_logits
from longtail.training.weights import Weights

from .cases import TokenNetwork, documents, make_network, near, same, train_tiny, weights_of


@pytest.mark.parametrize("max_grad_norm", [0.0, 0.05])
def test_it_is_adamw_in_a_plain_loop(max_grad_norm: float) -> None:
    """Parameter groups, schedule, weight decay and clipping."""
    network, plain = make_network(), make_network()
    settings = dict(weight_decay=0.3, head_learning_rate=0.05, warmup_ratio=0.3)
    train_tiny(network, epochs=3, max_grad_norm=max_grad_norm, **settings)

    encoded, Y = documents()
    named = dict(plain.named_parameters())
    groups = [
        (["words.weight", "layer.weight"], 0.01, 0.3),
        (["layer.bias", "norm.weight", "norm.bias"], 0.01, 0.0),
        (["head.weight"], 0.05, 0.3),
        (["head.bias"], 0.05, 0.0),
    ]
    optimizer = torch.optim.AdamW(
        [
            {"params": [named[name] for name in names], "lr": rate, "weight_decay": decay}
            for names, rate, decay in groups
        ],
        foreach=False,
    )
    rates = Training(warmup_ratio=0.3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rates.rate(step, 9))
    for epoch in range(3):
        for rows in epoch_batches(encoded.lengths, 8, seed=0, epoch=epoch):
            target = torch.from_numpy(Y[rows].toarray())
            terms = nn.functional.binary_cross_entropy_with_logits(
                plain(**encoded.batch(rows)), target, reduction="none"
            )
            terms.sum(dim=1).mean().backward()
            if max_grad_norm:
                nn.utils.clip_grad_norm_(plain.parameters(), max_grad_norm)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    assert near(weights_of(network), weights_of(plain), 1e-6)
    assert not near(weights_of(network), weights_of(make_network()), 1e-2)


class Sum(nn.Module):
    """Every weight has the gradient 1, so that AdamW moves it by exactly its learning rate."""

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
    """Warm-up and fall; only matrices decay; the head has another rate."""
    network = Sum()
    path: list[dict[str, Tensor]] = [weights_of(network)]
    settings = dict(learning_rate=0.01, head_learning_rate=0.1, weight_decay=0.5, warmup_ratio=0.5)
    train_tiny(
        network,
        loss=MeanLogit(),
        progress=lambda _: path.append(weights_of(network)),
        **settings,
    )
    rates = [1 / 3, 2 / 3, 1, 1, 2 / 3, 1 / 3]
    for before, after, rate in zip(path[:-1], path[1:], rates, strict=True):
        for name in before:
            peak = 0.1 if name.startswith("head") else 0.01
            decay = 0.5 if name in ("body.weight", "head.weight") else 0.0
            expected = before[name] * (1 - rate * peak * decay) - rate * peak
            torch.testing.assert_close(after[name], expected, rtol=0, atol=1e-6, msg=name)


@pytest.mark.parametrize("reduction", ["batchmean", "mean", "sum"])
@pytest.mark.parametrize("micro_batch", [1, 3, 7])
def test_accumulation_equals_the_whole_batch(reduction: str, micro_batch: int) -> None:
    weights, losses = [], []
    for size in (None, micro_batch):
        network, seen = make_network(), []
        # Large gradients are clipped, so that a wrong share would be seen.
        train_tiny(
            network,
            epochs=3,
            micro_batch=size,
            max_grad_norm=0.1,
            loss=build_loss("bce", reduction=reduction),
            progress=seen.append,
        )
        weights.append(weights_of(network))
        losses.append([moment.loss for moment in seen])
    assert near(*weights, 1e-6)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    MemoryError(),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory"
    ),
]


class Hungry(TokenNetwork):
    """Has no memory for more than `most` documents, and at the calls `failing`."""

    def __init__(
        self, most: int, error: BaseException = ERRORS[0], failing: tuple[int, ...] = ()
    ) -> None:
        torch.manual_seed(0)
        super().__init__()
        self.most, self.error, self.failing, self.calls = most, error, failing, 0

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        self.calls += 1
        if len(input_ids) > self.most or self.calls in self.failing:
            raise self.error
        return super().forward(input_ids, attention_mask)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_out_of_memory_halves_the_documents(error: BaseException) -> None:
    """To the weights of a run that had begun with parts of that size."""
    network, small = Hungry(3, error), make_network()
    notes: list[str] = []
    seen: list[Progress] = []
    train_tiny(network, note=notes.append, progress=seen.append)
    train_tiny(small, micro_batch=2)
    assert same(weights_of(network), weights_of(small))
    assert notes == [f"out of memory: continuing with {k} documents at a time." for k in (4, 2)]
    assert [moment.done for moment in seen] == list(range(1, 7))


def test_gradients_of_a_failed_step_are_dropped() -> None:
    """The second part of the first batch fails, after the first one has left its gradients."""
    network, small = Hungry(8, failing=(2,)), make_network()
    train_tiny(network, micro_batch=4, data=documents(16), note=lambda text: None)
    train_tiny(small, micro_batch=2, data=documents(16))
    assert same(weights_of(network), weights_of(small))


def test_one_document_that_does_not_fit() -> None:
    notes: list[str] = []
    message = r"a single document does not fit in memory\. Use a smaller model or a smaller max_le"
    with pytest.raises(LongtailError, match=message):
        train_tiny(Hungry(0), note=notes.append)
    assert len(notes) == 3
    with pytest.raises(LongtailError, match=message):
        predict_logits(Hungry(0).eval(), documents()[0])


def test_other_errors_are_raised() -> None:
    error = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        train_tiny(Hungry(3, error))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        predict_logits(Hungry(3, error).eval(), documents()[0])


def test_predicting_halves_as_well() -> None:
    encoded, _ = documents(40)
    seen: list[Progress] = []
    logits = predict_logits(Hungry(5).eval(), encoded, progress=seen.append)
    expected = predict_logits(make_network().eval(), encoded)
    np.testing.assert_allclose(logits, expected, atol=1e-6)
    assert [(now.done, now.total) for now in seen] == [(k, 40) for k in range(5, 41, 5)]


def test_the_moving_average() -> None:
    network = make_network()
    average = {name: value.double() for name, value in weights_of(network).items()}

    def follow(_: Progress) -> None:
        for name, value in weights_of(network).items():
            average[name] = 0.8 * average[name] + 0.2 * value.double()

    train_tiny(network, epochs=4, ema=0.8, progress=follow)
    expected = {name: value.float() for name, value in average.items()}
    assert near(expected, weights_of(network), 1e-6)


class Types(TokenNetwork):
    """Records the type it computes in; has a buffer, and a weight that is not trained."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__()
        self.seen: set[torch.dtype] = set()
        self.register_buffer("angles", torch.tensor([1 / 3]))
        self.fixed = nn.Parameter(torch.tensor([1 / 3]), requires_grad=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits = super().forward(input_ids, attention_mask)
        self.seen |= {logits.dtype}
        assert self.angles.dtype is torch.float32
        return logits


def test_bf16_adds_up_small_steps() -> None:
    """Near 1 the next number in bf16 is 0.0078 away: steps of 0.0002 would be lost one by one."""
    moved = {}
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        network = Types()
        settings = dict(learning_rate=2e-4, schedule="constant", warmup_ratio=0.0)
        train_tiny(network, epochs=10, precision=precision, **settings)
        assert network.seen == {dtype}
        assert {value.dtype for value in network.state_dict().values()} == {torch.float32}
        assert network.angles.item() == network.fixed.item() == torch.tensor(1 / 3).item()
        moved[precision] = network.norm.weight.detach() - 1
    # Thirty steps of 0.0002, most of them in one direction.
    assert moved["fp32"].abs().max() > 0.004
    assert torch.allclose(moved["bf16"], moved["fp32"], atol=0.0015)


def test_weights_that_are_not_trained_are_not_saved() -> None:
    names = {name.partition(".")[2] for name in Weights(Types(), ema=0.5).tensors()}
    assert names == {name for name, _ in TokenNetwork().named_parameters()}


def test_a_network_that_cannot_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    class Uncompilable(nn.Module):
        def forward(self, **inputs: Tensor) -> Tensor:
            raise RuntimeError("no compiler here\nand much more")

    monkeypatch.setattr(torch, "compile", lambda network, **_: Uncompilable())
    network, plain = make_network(), make_network()
    notes: list[str] = []
    train_tiny(network, acceleration="compile", note=notes.append)
    train_tiny(plain)
    assert same(weights_of(network), weights_of(plain))
    assert notes == [
        "torch.compile does not work with this model (no compiler here): continuing without it."
    ]
