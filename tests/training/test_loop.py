"""The loop: what it learns, what it reports, which epoch it keeps, and when it refuses to go on."""

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
from longtail.settings import TrainingConfig
from longtail.training import Moment, Validation, predict_logits, train
from longtail.training.devices import device_of

from .cases import (
    N_WORDS,
    TinyModel,
    TokenNetwork,
    config,
    documents,
    loss,
    network,
    same,
    tokens_of,
    train_tiny,
    weights_of,
)


def test_it_learns_and_reports_every_step() -> None:
    encoded, Y = documents(60)
    made, seen = network(), []
    found = train_tiny(
        made,
        settings={"epochs": 40, "learning_rate": 0.03},
        data=(encoded, Y),
        progress=seen.append,
    )
    assert [moment.step for moment in seen] == list(range(1, 321))
    assert [moment.epoch for moment in seen] == [1 + k // 8 for k in range(320)]
    assert {(m.steps, m.epochs, m.fold, m.folds) for m in seen} == {(320, 40, 1, 1)}
    assert all(moment.documents_per_second > 0 for moment in seen)
    assert seen[-1].loss < seen[0].loss / 5
    assert (found.epochs, found.steps, found.best, found.best_epoch) == (40, 320, None, 40)
    logits = predict_logits(made, encoded, batch_size=7)
    assert ((logits > 0) == Y.toarray()).mean() > 0.97
    assert not made.training


def test_the_same_seed_gives_the_same_weights() -> None:
    found = []
    for seed in (0, 0, 1):
        made = network(dropout=0.3)
        train_tiny(made, settings={"seed": seed})
        found.append(weights_of(made))
    assert same(found[0], found[1]) and not same(found[0], found[2])


def test_the_loss_that_is_reported_is_that_of_the_batch() -> None:
    """However it is cut."""
    whole, cut = [], []
    train_tiny(network(), settings={"epochs": 1}, progress=whole.append)
    train_tiny(network(), settings={"epochs": 1, "micro_batch": 3}, progress=cut.append)
    for one, other in zip(whole, cut, strict=True):
        assert one.loss == pytest.approx(other.loss, abs=1e-6)


def test_a_loss_that_is_no_number_names_the_documents() -> None:
    """Word 11 breaks the network; one text has it."""
    made = network()
    with torch.no_grad():
        made.words.weight[11] = math.inf
    texts = [[1, 2], [3], [4, 11], [5]]
    seen: list[Moment] = []
    with pytest.raises(LongtailError) as caught:
        train_tiny(
            made,
            settings={"batch_size": 1, "epochs": 1},
            data=(tokens_of(texts), sp.csr_matrix((4, 3), dtype=np.float32)),
            progress=seen.append,
            describe=lambda row: f"text-{row}",
        )
    said = str(caught.value)
    assert f"the loss became nan at step {len(seen) + 1} of epoch 1, at documents text-2." in said
    assert "Lower the learning rate, now 0.01, or look at these texts." in said


def test_of_many_documents_five_are_named() -> None:
    made = network()
    with torch.no_grad():
        made.words.weight[:] = math.nan
    with pytest.raises(LongtailError, match=r"at documents (\d+, ){4}\d+ and 3 more\. Lower"):
        train_tiny(made, data=documents(8))


def test_nothing_to_train_on() -> None:
    encoded, Y = documents(4)
    for given_to, rows in ((encoded, Y[:2]), (tokens_of([]), Y[:0])):
        with pytest.raises(InputError, match="expected documents to train on and a row of labels"):
            train_tiny(network(), data=(given_to, rows))
    with pytest.raises(InputError, match="at least one document"):
        predict_logits(network(), tokens_of([]))


class Scores:
    """A validation whose scores are given, and the weights at each of them."""

    def __init__(self, made: nn.Module, scores: list[float]) -> None:
        self.made, self.scores = made, scores
        self.weights: list[dict[str, torch.Tensor]] = []
        self.logits: list[np.ndarray] = []

    def validation(self) -> Validation:
        return Validation(documents(5, seed=3)[0], self)

    def __call__(self, logits: np.ndarray) -> float:
        self.weights.append(weights_of(self.made))
        self.logits.append(logits)
        return self.scores[len(self.weights) - 1]


@pytest.mark.parametrize("settings", [{}, {"ema": 0.7}, {"precision": "bf16"}])
def test_the_best_epoch_is_kept(settings: dict[str, Any]) -> None:
    made = network()
    scores = Scores(made, [0.1, 0.5, 0.3, 0.5, 0.2])
    seen: list[Moment] = []
    found = train_tiny(
        made,
        settings={"epochs": 5, **settings},
        validation=scores.validation(),
        progress=seen.append,
    )
    # The first of two equal ones: the second is no better.
    assert (found.best, found.best_epoch, found.epochs) == (0.5, 2, 5)
    if settings.get("precision") == "bf16":
        rounded = {name: value.to(torch.bfloat16) for name, value in made.state_dict().items()}
        assert same(rounded, scores.weights[1])
    else:
        # What was judged then is what predicts now.
        kept = predict_logits(made, documents(5, seed=3)[0])
        np.testing.assert_array_equal(kept, scores.logits[1])
    # With an average, the weights that go on to learn are others.
    assert same(weights_of(made), scores.weights[1]) is not bool(settings)
    assert [moment.best for moment in seen[::3]] == [None, 0.1, 0.5, 0.5, 0.5]


@pytest.mark.parametrize(("patience", "epochs"), [(1, 3), (2, 6), (3, 7), (0, 8)])
def test_patience(patience: int, epochs: int) -> None:
    made = network()
    scores = Scores(made, [0.1, 0.5, 0.4, 0.6, 0.3, 0.2, 0.1, 0.1])
    found = train_tiny(
        made,
        settings={"epochs": 8, "patience": patience},
        validation=scores.validation(),
    )
    assert found.epochs == epochs and found.steps == 3 * epochs
    assert found.best_epoch == (2 if epochs == 3 else 4)
    assert same(weights_of(made), scores.weights[found.best_epoch - 1])


def test_a_score_that_is_no_number_is_never_the_best() -> None:
    made = network()
    scores = Scores(made, [math.nan, 0.2, math.nan])
    found = train_tiny(made, settings={"epochs": 3}, validation=scores.validation())
    assert (found.best, found.best_epoch) == (0.2, 2)


def test_judging_does_not_disturb_the_training() -> None:
    """Neither its random numbers nor its weights, with an average or without."""
    for settings in ({}, {"ema": 0.5}, {"ema": 0.5, "precision": "bf16"}):
        last: list[dict[str, Any]] = []
        for judged in (False, True):
            made = network(dropout=0.3)
            used: list[dict[str, Any]] = []
            train_tiny(
                made,
                settings={"epochs": 3, **settings},
                validation=Scores(made, [0.0, 1.0, 2.0]).validation() if judged else None,
                progress=lambda _, made=made, used=used: used.append(weights_of(made)),
            )
            last.append(used[-1])
        assert same(*last), settings


@given(
    total=st.integers(1, 400),
    warmup=st.floats(0, 1),
    schedule=st.sampled_from(["linear", "cosine", "constant"]),
)
def test_the_schedule_rises_then_falls(total: int, warmup: float, schedule: str) -> None:
    used = TrainingConfig(warmup=warmup, schedule=schedule)
    rates = [used.rate(step, total) for step in range(total)]
    top = int(np.argmax(rates))
    assert all(0 < rate <= 1 for rate in rates) and rates[top] == 1
    assert all(np.diff(rates[: top + 1]) > 0) and all(np.diff(rates[top:]) <= 0)
    if schedule == "constant":
        assert set(rates[top:]) == {1.0}


def test_values_of_the_schedule() -> None:
    linear = TrainingConfig(warmup=0.2, schedule="linear")
    assert [linear.rate(step, 10) for step in range(10)] == pytest.approx(
        [0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]
    )
    cosine = TrainingConfig(warmup=0, schedule="cosine")
    assert [cosine.rate(step, 4) for step in range(4)] == pytest.approx(
        [1, 0.5 + 0.5 * math.cos(math.pi / 4), 0.5, 0.5 - 0.5 * math.cos(math.pi / 4)]
    )


@pytest.mark.parametrize(
    "setting", [{"epochs": 0}, {"batch_size": -1}, {"learning_rate": 0.0}, {"device": "gpu"}]
)
def test_unusable_settings_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(setting))} must be"):
        TrainingConfig(**setting)


def test_devices() -> None:
    assert device_of("cpu") == torch.device("cpu")
    with pytest.raises(InputError, match=r"device must be auto, cpu, cuda .*got 'cuda:one'"):
        device_of("cuda:one")
    if not torch.cuda.is_available():
        assert device_of("auto") == torch.device("cpu")
        with pytest.raises(InputError, match=r"no CUDA GPU can be used here\. Use device 'cpu'"):
            device_of("cuda")


def test_accelerators_of_others_are_in_nobodys_way() -> None:
    """Accelerate keeps one precision for a process and refuses another: theirs, ours, theirs."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    kinds: set[torch.dtype] = set()

    class Watching(TokenNetwork):
        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            logits = super().forward(input_ids, attention_mask)
            kinds.add(logits.dtype)
            return logits

    # Whatever another test of this process left behind.
    AcceleratorState._reset_state(reset_partial_state=True)
    train_tiny(Watching(), settings={"epochs": 1})
    theirs = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=4)
    try:
        train_tiny(Watching(), settings={"epochs": 1})
        assert kinds == {torch.float32}
        assert theirs.mixed_precision == "bf16" and theirs.gradient_accumulation_steps == 4
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)


def test_bf16_that_a_model_has_not_is_noted() -> None:
    class Plain(TinyModel):
        half_ready = False

    notes: list[str] = []
    encoded, Y = documents()
    made = network()
    train(Plain(made), encoded, Y, loss(), config(precision="bf16"), note=notes.append)
    assert notes == ["bf16 was asked for, but this model or device has none: computing in float32."]
    assert made.head.weight.dtype is torch.float32


def test_threads_are_as_before() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        counts: list[int] = []
        train_tiny(network(), progress=lambda _: counts.append(torch.get_num_threads()))
        assert set(counts) == {1} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_words_are_known() -> None:
    """The documents of these tests use the whole vocabulary."""
    assert set(documents(60)[0].tokens.tolist()) == set(range(1, N_WORDS))
