"""Steps: compared with a plain torch loop, accumulated, out of memory, in bf16, averaged."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from longtail.errors import LongtailError
from longtail.losses import build_loss
from longtail.progress import Progress
from longtail.runs.workspace import Workspace
from longtail.training import Training, steps
from longtail.training.checkpoints import Checkpoints
from longtail.training.encoded import EncodedTokens, epoch_batches
from longtail.training.interrupt import Stop, StoppedError
from longtail.training.steps import predict_logits
from longtail.training.weights import Weights

from .cases import (
    TokenNetwork,
    documents,
    make_network,
    near,
    same,
    train_tiny,
    trained,
    weights_of,
)


@pytest.mark.parametrize("max_grad_norm", [0.0, 0.05])
def test_it_equals_adamw_in_a_plain_loop(max_grad_norm: float) -> None:
    """Parameter groups, schedule, weight decay and clipping."""
    plain = make_network()
    settings = dict(weight_decay=0.3, head_learning_rate=0.05, warmup_ratio=0.3)
    weights = trained(epochs=3, max_grad_norm=max_grad_norm, **settings)

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
    assert near(weights, weights_of(plain), 1e-6)
    assert not near(weights, weights_of(make_network()), 1e-2)


@pytest.mark.parametrize("reduction", ["batchmean", "mean", "sum"])
@pytest.mark.parametrize("micro_batch", [1, 3, 7])
def test_accumulation_equals_the_whole_batch(reduction: str, micro_batch: int) -> None:
    seen: list[Progress] = []
    # Large gradients are clipped, so that a wrong share would be seen.
    settings: Any = {"epochs": 3, "max_grad_norm": 0.1, "progress": seen.append}
    settings["loss"] = build_loss("bce", reduction=reduction)
    assert near(trained(**settings), trained(micro_batch=micro_batch, **settings), 1e-6)
    losses = [moment.loss for moment in seen]
    assert losses[:9] == pytest.approx(losses[9:], rel=1e-5)


ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    MemoryError(),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory"
    ),
]


class Hungry(TokenNetwork):
    """Runs out of memory with more than `most` documents, and in the calls `failing`."""

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


def predict(network: nn.Module) -> Any:
    return predict_logits(network.eval(), documents()[0])


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_out_of_memory_halves_the_documents(error: BaseException) -> None:
    """The weights equal those of a run that started with parts of that size."""
    notes: list[str] = []
    seen: list[Progress] = []
    weights = trained(Hungry(3, error), note=notes.append, progress=seen.append)
    assert same(weights, trained(micro_batch=2))
    assert notes == [f"out of memory: continuing with {k} documents at a time." for k in (4, 2)]
    assert [moment.done for moment in seen] == list(range(1, 7))


def test_gradients_of_a_failed_step_are_dropped() -> None:
    """The second part of the first batch fails, after the first one has left its gradients."""
    network, data = Hungry(8, failing=(2,)), documents(16)
    weights = trained(network, micro_batch=4, data=data, note=lambda text: None)
    assert same(weights, trained(micro_batch=2, data=data))


def test_one_document_that_does_not_fit() -> None:
    notes: list[str] = []
    for run in (partial(train_tiny, note=notes.append), predict):
        with pytest.raises(
            LongtailError, match=r"a single document does not .* smaller max_length"
        ):
            run(Hungry(0))
    assert len(notes) == 3


@pytest.mark.parametrize("run", [train_tiny, predict])
def test_other_errors_are_raised(run: Callable[[nn.Module], Any]) -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        run(Hungry(3, RuntimeError("mat1 and mat2 shapes cannot be multiplied")))


def test_out_of_memory_halves_prediction_batches() -> None:
    encoded, _ = documents(40)
    hungry = Hungry(5)
    logits = predict_logits(hungry.eval(), encoded)
    expected = predict_logits(make_network().eval(), encoded)
    np.testing.assert_allclose(logits, expected, atol=1e-6)
    # Batches of 40, 20 and 10 fail; then come eight of 5.
    assert hungry.calls == 3 + 8


def test_the_moving_average() -> None:
    """Of the weights after each step; those before the first one have no share in it."""
    network = make_network()
    steps: list[dict[str, Tensor]] = []

    def follow(_: Progress) -> None:
        steps.append({name: value.double() for name, value in weights_of(network).items()})

    train_tiny(network, epochs=4, ema=0.8, progress=follow)
    shares = [0.8**k for k in reversed(range(len(steps)))]
    expected = {
        name: (sum(s * step[name] for s, step in zip(shares, steps, strict=True)) / sum(shares))
        for name in steps[0]
    }
    assert near({k: v.float() for k, v in expected.items()}, weights_of(network), 1e-6)


class Types(TokenNetwork):
    """Records the dtype it computes in; has a buffer and a frozen weight."""

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
    weights = Weights(Types(), ema=0.5)
    saved = weights.tensors(torch.optim.SGD(weights.optimized)).keys() - {"averaged"}
    names = {name.partition(".")[2] for name in saved}
    assert names == {name for name, _ in TokenNetwork().named_parameters()}


def test_a_prediction_on_a_cpu_takes_few_tokens_at_a_time() -> None:
    lengths = [600, 4, 512, 200, 200, 200, 8] + [4] * 200
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    encoded = EncodedTokens(np.zeros(offsets[-1], np.int32), offsets, 0, 1000)
    parts = steps.prediction_batches(encoded, 256)
    assert sorted(np.concatenate(parts).tolist()) == list(range(207))
    sizes = [(len(rows), int(encoded.lengths[rows].max())) for rows in parts]
    assert sizes == [(1, 600), (1, 512), (2, 200), (2, 200), (128, 4), (73, 4)]
    assert len(steps.prediction_batches(encoded, 256, None)) == 1


class Layers:
    """Stands for layers that are compiled."""

    is_compiled = True

    def reset(self) -> None:
        self.is_compiled = False


class Compiled(TokenNetwork):
    """Raises in the forward or backward pass until its layers are no longer compiled."""

    def __init__(self, failing: str) -> None:
        torch.manual_seed(0)
        super().__init__()
        self.failing, self.packed = failing, Layers()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits = super().forward(input_ids, attention_mask)
        if self.packed.is_compiled:
            if self.failing == "forward":
                raise ValueError("no compiler\nfor this machine")
            logits.register_hook(self.fail)
        return logits

    def fail(self, grad: Tensor) -> None:
        raise ValueError("no compiler\nfor this machine")


@pytest.mark.parametrize("failing", ["forward", "backward"])
def test_layers_that_cannot_be_compiled(failing: str) -> None:
    notes: list[str] = []
    weights = trained(Compiled(failing), note=notes.append)
    assert same(weights, trained())
    assert notes == ["continuing with layers that are not compiled: no compiler."]


def test_resuming_with_batches_in_another_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint counts batches; those of packed documents are others."""
    stop, seen, notes = Stop(), list[Progress](), list[str]()

    def stop_at_once(moment: Progress) -> None:
        stop.signal = signal.SIGTERM

    checkpoints = Checkpoints(Workspace.begin(tmp_path / "run", {}), 0)
    with pytest.raises(StoppedError):
        train_tiny(make_network(), checkpoints=checkpoints, progress=stop_at_once, stop=stop)
    saved = checkpoints.load()
    assert saved is not None
    tensors, facts = saved
    assert facts["step"] == 1 and facts["packed"] is False
    for packed, remaining in ((False, 5), (True, 6)):
        changed = tensors, facts | {"packed": packed}
        monkeypatch.setattr(checkpoints, "load", lambda changed=changed: changed)
        seen.clear()
        options = dict(checkpoints=checkpoints, progress=seen.append, note=notes.append)
        train_tiny(make_network(), **options)
        assert len(seen) == remaining
    assert notes == ["resumed on another kind of device: the epoch starts again."]
