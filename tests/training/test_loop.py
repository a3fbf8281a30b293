"""The loop: what it learns and reports, which epoch it keeps, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from longtail.errors import InputError, LongtailError
from longtail.progress import Progress
from longtail.training import Training
from longtail.training.devices import device_of
from longtail.training.loop import Validation
from longtail.training.steps import predict_logits

from .cases import (
    N_WORDS,
    documents,
    make_network,
    make_tokens,
    same,
    train_tiny,
    trained,
    weights_of,
)


def test_it_learns_and_reports_every_step() -> None:
    encoded, Y = documents(60)
    assert set(encoded.tokens.tolist()) == set(range(1, N_WORDS))
    network, seen = make_network(), []
    result = train_tiny(
        network, epochs=40, learning_rate=0.03, data=(encoded, Y), progress=seen.append
    )
    assert [moment.done for moment in seen] == list(range(1, 321))
    assert [moment.epoch for moment in seen] == [1 + k // 8 for k in range(320)]
    assert {(m.total, m.epochs, m.fold, m.folds) for m in seen} == {(320, 40, 1, 1)}
    assert all(moment.documents_per_second > 0 for moment in seen)
    assert seen[-1].loss < seen[0].loss / 5
    assert (result.epoch, result.step, result.best) == (40, 0, None)
    logits = predict_logits(network, encoded, batch_size=7)
    assert ((logits > 0) == Y.toarray()).mean() > 0.97
    assert not network.training


def test_the_same_seed_gives_the_same_weights() -> None:
    first, again, other = (trained(make_network(dropout=0.3), seed=seed) for seed in (0, 0, 1))
    assert same(first, again) and not same(first, other)


def test_a_loss_that_is_not_finite_names_the_documents() -> None:
    """Word 11 breaks the network; one text has it."""
    network, seen = make_network(), []
    with torch.no_grad():
        network.words.weight[11] = math.inf
    with pytest.raises(LongtailError) as caught:
        train_tiny(
            network,
            batch_size=1,
            epochs=1,
            data=(make_tokens([[1, 2], [3], [4, 11], [5]]), sp.csr_matrix((4, 3), dtype="f4")),
            progress=seen.append,
            describe=lambda row: f"text-{row}",
        )
    step = f"the loss became nan at step {len(seen) + 1} of epoch 1, at documents text-2."
    assert step in str(caught.value)
    assert "Lower the learning rate, now 0.01, or check these texts." in str(caught.value)
    with torch.no_grad():
        network.words.weight[:] = math.nan
    with pytest.raises(LongtailError, match=r"at documents (\d+, ){4}\d+ and 3 more\. Lower"):
        train_tiny(network, data=documents(8))


def test_a_network_with_dropout_does_not_predict() -> None:
    encoded, _ = documents(4)
    with pytest.raises(InputError, match=r"training mode, with dropout. Call network\.eval"):
        predict_logits(make_network(), encoded)


class Scores:
    """A validation with fixed scores, which records weights and logits at each of them."""

    def __init__(self, network: nn.Module, scores: list[float]) -> None:
        self.network, self.scores = network, scores
        self.weights: list[dict[str, torch.Tensor]] = []
        self.logits: list[np.ndarray] = []
        self.validation = Validation(documents(5, seed=3)[0], self)

    def __call__(self, logits: np.ndarray) -> float:
        self.weights.append(weights_of(self.network))
        self.logits.append(logits)
        return self.scores[len(self.weights) - 1]


@pytest.mark.parametrize("settings", [{}, {"ema": 0.7}, {"precision": "bf16"}])
def test_the_best_epoch_is_kept(settings: dict[str, Any]) -> None:
    network = make_network()
    scores = Scores(network, [0.1, 0.5, 0.3, 0.5, 0.2])
    seen: list[Progress] = []
    result = train_tiny(
        network, epochs=5, validation=scores.validation, progress=seen.append, **settings
    )
    # The first of two equal ones.
    assert (result.best, result.best_epoch, result.epoch) == (0.5, 2, 5)
    if settings.get("precision") == "bf16":
        rounded = {name: value.to(torch.bfloat16) for name, value in network.state_dict().items()}
        assert same(rounded, scores.weights[1])
    else:
        # The weights that were evaluated are those that predict now.
        kept = predict_logits(network, scores.validation.encoded)
        np.testing.assert_array_equal(kept, scores.logits[1])
    assert [moment.best for moment in seen[::3]] == [None, 0.1, 0.5, 0.5, 0.5]


FALLING = [0.1, 0.5, 0.4, 0.6, 0.3, 0.2, 0.1, 0.1]


@pytest.mark.parametrize(
    ("scores", "patience", "best_epoch", "epochs"),
    [
        (FALLING, 1, 2, 3),
        (FALLING, 2, 4, 6),
        (FALLING, 3, 4, 7),
        (FALLING, 0, 4, 8),
        ([math.nan, 0.2, math.nan], 0, 2, 3),
    ],
)
def test_early_stopping(scores: list[float], patience: int, best_epoch: int, epochs: int) -> None:
    network = make_network()
    scored = Scores(network, scores)
    settings = {"epochs": len(scores), "early_stopping_patience": patience}
    result = train_tiny(network, validation=scored.validation, **settings)
    assert (result.epoch, result.best_epoch) == (epochs, best_epoch)
    assert result.best == scores[best_epoch - 1]
    assert same(weights_of(network), scored.weights[best_epoch - 1])


@pytest.mark.parametrize("settings", [{}, {"ema": 0.5}, {"ema": 0.5, "precision": "bf16"}])
def test_validation_does_not_change_the_training(settings: dict[str, Any]) -> None:
    """It changes neither random numbers nor weights."""
    last: list[dict[str, Any]] = []
    for validates in (False, True):
        network, path = make_network(dropout=0.3), []
        train_tiny(
            network,
            epochs=3,
            validation=Scores(network, [0.0, 1.0, 2.0]).validation if validates else None,
            progress=lambda _, network=network, path=path: path.append(weights_of(network)),
            **settings,
        )
        last.append(path[-1])
    assert same(*last)


@given(
    total=st.integers(1, 400),
    warmup_ratio=st.floats(0, 1),
    schedule=st.sampled_from(["linear", "cosine", "constant"]),
)
def test_the_schedule_rises_then_falls(total: int, warmup_ratio: float, schedule: str) -> None:
    training = Training(warmup_ratio=warmup_ratio, schedule=schedule)
    rates = [training.rate(step, total) for step in range(total)]
    top = int(np.argmax(rates))
    assert all(0 < rate <= 1 for rate in rates) and rates[top] == 1
    assert all(np.diff(rates[: top + 1]) > 0) and all(np.diff(rates[top:]) <= 0)
    if schedule == "constant":
        assert set(rates[top:]) == {1.0}


def test_values_of_the_schedule() -> None:
    linear = Training(warmup_ratio=0.2, schedule="linear")
    expected = [0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]
    assert [linear.rate(step, 10) for step in range(10)] == pytest.approx(expected)
    cosine = Training(warmup_ratio=0, schedule="cosine")
    expected = [0.5 + 0.5 * math.cos(math.pi * step / 4) for step in range(4)]
    assert [cosine.rate(step, 4) for step in range(4)] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"epochs": 0}, "epochs must be"),
        ({"batch_size": -1}, "batch_size must be"),
        ({"micro_batch": 0}, "micro_batch must be"),
        ({"learning_rate": 0.0}, "learning_rate must be"),
        ({"warmup_ratio": 1.1}, "warmup_ratio must be"),
        ({"max_grad_norm": -1}, "max_grad_norm must be"),
        ({"ema": 1.0}, "ema must be"),
        ({"early_stopping_patience": -1}, "early_stopping_patience must be"),
        ({"schedule": "cubic"}, "schedule must be one of linear, cosine, constant"),
        ({"precision": "fp16"}, "precision must be one of"),
        ({"deterministic": 1}, "deterministic must be"),
        ({"early_stopping_metric": "macro_f1"}, "no effect without early_stopping_patience"),
        ({"device": "gpu"}, "device must be auto, cpu, cuda or a GPU"),
        ({"device": "cuda:one"}, "device must be auto, cpu, cuda or a GPU"),
        ({"acceleration": "compile"}, "acceleration must be one of auto, off"),
    ],
)
def test_wrong_settings_are_named(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Training(**setting)


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert device_of("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert device_of("auto") == torch.device("cpu")
    with pytest.raises(InputError, match=r"'cuda' needs a CUDA GPU.* Use 'cpu'"):
        device_of("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_of("auto") == torch.device("cuda") and device_of("cuda:1").index == 1
    with pytest.raises(InputError, match=r"'cuda:2' does not exist: expected cuda:0 to cuda:1"):
        device_of("cuda:2")


def test_missing_bf16_is_noted() -> None:
    notes: list[str] = []
    weights = trained(precision="bf16", bf16=False, note=notes.append)
    assert notes == ["this model or device does not support bf16: computing in float32."]
    assert same(weights, trained())


def test_the_number_of_threads_is_restored() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        counts: list[int] = []
        train_tiny(make_network(), progress=lambda _: counts.append(torch.get_num_threads()))
        assert set(counts) == {1} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
