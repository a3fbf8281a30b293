"""Bad input raises a LongtailError that says what was expected, what came, what to do."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from longtail.errors import InputError, LongtailError, UnknownNameError
from longtail.losses import LOSSES, BalancedLoss, build_loss

from .bad_inputs import NOT_NUMBERS, NUMBERS, SETTINGS, bad_batches, bad_positions, pattern
from .cases import NAMES, REDUCTIONS, edge_stats, make_loss, to_csr

STATS = edge_stats(5)
LOGITS = torch.zeros(3, 5)
TARGET = torch.tensor([[1, 0, 0, 1, 0], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0]])


def check_raises(
    call: Callable[[], Any], *words: str, kind: type[LongtailError] = InputError
) -> None:
    with pytest.raises(LongtailError, match=pattern(words)) as caught:
        call()
    assert type(caught.value) is kind
    # As torch and scikit-learn raise.
    assert isinstance(caught.value, ValueError)


# One row of each kind of loss: where labels lie is checked before any maths.
KINDS = pytest.mark.parametrize("name", ["db", "asl", "zlpr", "two-way"])


@pytest.mark.parametrize("reduction", ["none", "mean"])
@KINDS
def test_bad_batches(name: str, reduction: str) -> None:
    loss = make_loss(name, 5, reduction=reduction)
    for arguments, words in bad_batches((3, 5)):
        check_raises(lambda kw=arguments: loss(**kw), *words)


@KINDS
def test_sparse_targets_that_point_outside_are_refused(name: str) -> None:
    # torch trusts row starts: with wrong ones `repeat_interleave` wrote past its buffer, and the
    # process died of a corrupted heap some calls later.
    rng = random.Random(name)
    losses = [make_loss(name, 5, reduction=reduction) for reduction in REDUCTIONS[:2]]
    for _ in range(150):
        _, target, words = bad_positions(rng, (3, 5))
        mask = rng.choice((None, torch.ones(3, 5, dtype=torch.bool)))
        check_raises(lambda y=target, m=mask: rng.choice(losses)(LOGITS, y, mask=m), *words)


@pytest.mark.parametrize("name", ["db", "zlpr"])
def test_unchecked_labels_reach_nothing_outside(name: str) -> None:
    # torch's own index checks apply.
    loss = make_loss(name, 5, check_targets=False)
    for labels, starts in (
        ([0, 3, 5], [0, 2, 2, 3]),
        ([0, 3, 4], [0, 2, 2, 2]),
        ([0, -9, 4], [0, 2, 2, 3]),
    ):
        with pytest.raises(IndexError, match="out of"):
            loss(LOGITS, pair(labels, starts))


def pair(labels: list[int], offsets: list[int], dtype: torch.dtype | None = None) -> Any:
    return torch.tensor(labels, dtype=dtype), torch.tensor(offsets, dtype=dtype)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (pair([0, 3, 3, 1], [0, 1, 3]), ["document 1 lists label 3 twice", "once"]),
        # Unknown elements may hold -100; known ones may not.
        (to_csr(torch.full((3, 5), -100.0)), ["lie in [0, 1], got values from -100"]),
        # Differences of bytes wrap around instead of becoming negative.
        (pair([0, 1], [0, 2, 1], torch.uint8), ["rise from 0", "(2)", "[0, 2, 1, 2]"]),
        (pair([0, 5], [0, 1, 1], torch.uint8), ["0..4 for 5 labels", "from 0 to 5"]),
    ],
)  # fmt: skip
def test_bad_label_indices(target: Any, words: list[str]) -> None:
    for name in ("db", "zlpr"):
        check_raises(lambda n=name: make_loss(n, 5)(LOGITS, target), *words)


def test_labels_of_no_document() -> None:
    loss = build_loss("zlpr")
    nothing = torch.zeros(0, dtype=torch.int64)
    assert loss(torch.zeros(0, 5), (nothing, nothing)) == 0
    assert loss(torch.zeros(0, 5), to_csr(torch.zeros(0, 5))) == 0
    for shape, offsets, words in (((0, 5), [0], "offsets must rise"), ((2, 0), [0, 1], "0..-1")):
        logits, target = torch.zeros(shape), pair([0, 1], offsets)
        check_raises(lambda z=logits, y=target: loss(z, y), words)


@pytest.mark.parametrize(("name", "constant", "bad", "range_"), NUMBERS)
def test_constants_out_of_range(name: str, constant: str, bad: float, range_: str) -> None:
    # In float32 1e300 is infinite, and infinity times 0 NaN; 10**5000 has not even a repr.
    for value in (bad, *NOT_NUMBERS, *([] if constant == "negative_scale" else [None])):
        wanted = f"{constant} must be a number {range_}"
        check_raises(lambda v=value: build_loss(name, STATS, **{constant: v}), wanted, "got ")
    if range_.endswith("at most 1"):
        words = f"{constant} must be below 1, got 1"
        check_raises(lambda: build_loss(name, STATS, **{constant: 1}), words)


@pytest.mark.parametrize("name", ["bce", "db", "asl", "zlpr"])
def test_settings_of_the_wrong_kind(name: str) -> None:
    for (setting, message), values in SETTINGS.items():
        kind = UnknownNameError if message.startswith("unknown") else InputError
        for value in values:
            arguments = {"name": name, "stats": STATS} | {setting: value}
            if setting != "constants" or LOSSES[name].published:
                check_raises(lambda kw=arguments: build_loss(**kw), message, kind=kind)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: build_loss("dbb", STATS), ["unknown loss 'dbb'", "Did you mean 'db'", "Known:"]),
        (lambda: build_loss("db", STATS, constants="reuter"),
         ["unknown set of constants 'reuter'", "Did you mean 'reuters'", "pubmed"]),
        (lambda: build_loss("db", STATS, gama=1),
         ["argument of loss 'db'", "'gama'", "Did you mean", "'gamma'", "Known:"]),
        (lambda: build_loss("zlpr", gamma=1), ["argument of loss 'zlpr'", "'gamma'", "reduction"]),
        (lambda: build_loss("db", STATS, tau=1), ["argument of loss 'db'", "'tau'"]),
        (lambda: build_loss("db", STATS, n_samples=9), ["argument of loss 'db'", "'n_samples'"]),
        (lambda: build_loss("db"), ["needs label_counts and n_samples", "LabelStats.from_matrix"]),
        (lambda: build_loss("bce", weighting="rebalanced"), ["needs label_counts and n_samples"]),
        (lambda: BalancedLoss(mu="auto"), ["mu must be a number", "got 'auto'"]),
        (lambda: BalancedLoss(kappa=0.05), ["needs label_counts and n_samples"]),
        (lambda: BalancedLoss([1], weighting="rebalanced"), ["needs label_counts and n_samples"]),
        (lambda: BalancedLoss([3, 10], 9, kappa=1), ["between 0 and n_samples (9), got 10"]),
        (lambda: BalancedLoss(weighting="balanced"), ["weighting must be one of", "'balanced'"]),
        (lambda: BalancedLoss(weighting=["none"]), ["weighting must be one of none"]),
        (lambda: build_loss("bce", reduction="none").as_hf(),
         ["as_hf needs a reduction to a number", "'mean'"]),
        (lambda: build_loss("bce").as_hf()({"logits": LOGITS}, TARGET.tolist()),
         ["must be a tensor, got list"]),
        (lambda: build_loss("zlpr", label_weight=torch.ones(4))(LOGITS, TARGET),
         ["built for 4 labels", "5 columns"]),
        (lambda: BalancedLoss([1, 2], 9, kappa=1)(LOGITS, TARGET), ["built for 2 labels"]),
        # Only a loss with constants has a device.
        (lambda: make_loss("db", 5)(LOGITS.to("meta"), TARGET),
         ["logits are on meta", "this loss on cpu", "to("]),
    ],
)  # fmt: skip
def test_what_does_not_fit_together(call: Callable[[], Any], words: list[str]) -> None:
    unknown = words[0].startswith(("unknown", "argument"))
    check_raises(call, *words, kind=UnknownNameError if unknown else InputError)


@pytest.mark.parametrize("name", [name for name, row in LOSSES.items() if not row.published])
def test_the_papers_constants_are_for_the_papers_losses(name: str) -> None:
    words = ("constants of 'pubmed'", f"{name!r} has others", "Leave constants out")
    check_raises(lambda: build_loss(name, STATS, constants="pubmed"), *words)


@pytest.mark.parametrize("n_labels", [1, 4])
@pytest.mark.parametrize("name", NAMES)
def test_wrong_number_of_labels(name: str, n_labels: int) -> None:
    # Also losses without counts: the statistics fix the label set.
    logits, target = LOGITS[:, :n_labels], TARGET[:, :n_labels]
    words = ("built for 5 labels", f"{n_labels} columns", "same label set")
    check_raises(lambda: make_loss(name, 5)(logits, target), *words)
    if not LOSSES[name].needs_stats:
        assert build_loss(name)(logits, target).isfinite()


def test_unchecked_targets_are_the_callers_business() -> None:
    loss = build_loss("bce", check_targets=False)
    negative = torch.tensor([1.0, -1.0, 1.0])
    assert loss(LOGITS, TARGET * 2.0).isfinite()
    assert loss(LOGITS, TARGET, sample_weight=negative).isfinite()
    assert loss(LOGITS, pair([3, 3, 4], [0, 2, 2])).isfinite()
    # Shapes are always checked, at no cost.
    check_raises(lambda: loss(LOGITS, TARGET[:2]), "target must be", "of shape (3, 5)")
