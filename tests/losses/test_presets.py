"""The table LOSSES: names and order, the paper's constants, mu from the data, the docstrings."""

from __future__ import annotations

import inspect

import pytest
import torch

from longtail.labels import LabelStats
from longtail.losses import LOSSES, build_loss, list_losses

PAPER = ["bce", "fl", "cb", "r-fl", "ntr-fl", "db-0fl", "cb-ntr", "db"]
ABLATIONS = ["cb-bce", "r-bce", "ntr-bce"]
LATER = ["asl", "hill", "zlpr", "two-way", "dice", "logit-adjusted", "pw-bce", "squared-hinge"]
STATS = LabelStats.from_counts([900, 9, 300], n_samples=1000)
REBALANCED = ["r-fl", "db-0fl", "db", "r-bce"]


def test_names_and_order() -> None:
    assert list_losses() == list(LOSSES) == PAPER + ABLATIONS + LATER
    assert [name for name, row in LOSSES.items() if row.published] == PAPER + ABLATIONS


@pytest.mark.parametrize("name", list_losses())
def test_rows_say_what_they_are(name: str) -> None:
    row = LOSSES[name]
    assert all((row.title, row.formula, row.paper, row.when))
    loss = build_loss(name, STATS)
    assert type(loss) is row.module and loss.n_labels == 3
    assert bool(list(loss.buffers())) == row.needs_stats
    if not row.needs_stats:
        assert type(build_loss(name)) is row.module and build_loss(name).n_labels is None


@pytest.mark.parametrize(("constants", "mu"), [("reuters", 0.9), ("pubmed", 0.05)])
@pytest.mark.parametrize("name", PAPER + ABLATIONS)
def test_the_papers_constants_change_nothing_but_mu(name: str, constants: str, mu: float) -> None:
    plain, published = build_loss(name, STATS), build_loss(name, STATS, constants=constants)
    if name in REBALANCED:
        assert (published.alpha, published.beta, published.mu) == (0.1, 10, mu)
    kept = {key: value for key, value in vars(plain).items() if not key.startswith("_")}
    for key, value in kept.items():
        if key != "mu":
            assert getattr(published, key) == value, key
    for (key, first), second in zip(plain.named_buffers(), published.buffers(), strict=True):
        assert torch.equal(first, second), key


def test_overrides_win_over_rows_and_constants() -> None:
    loss = build_loss("db", STATS, constants="pubmed", mu=0.3, gamma=1, reduction="batchmean")
    assert (loss.mu, loss.gamma, loss.alpha, loss.reduction) == (0.3, 1, 0.1, "batchmean")
    assert build_loss("logit-adjusted", STATS, tau=0.5).kappa == 0.5


PAIRS = LabelStats.from_lists([["a", "b"], ["a", "c"], ["a"]])


@pytest.mark.parametrize(
    ("stats", "mu"),
    [
        # Counts a 3, b 1, c 1. Documents {a, b}: r = 1/4 and 3/4; {a, c}: the same; {a}: r = 1.
        # The mean of r over the five pairs is 3/5, the median 3/4.
        (PAIRS, (3 / 5 + 3 / 4) / 2),
        # Pairs unknown: the mean, exact where every document has a label.
        (LabelStats.from_counts(PAIRS.label_counts, 3), 3 / 5),
        (LabelStats.from_counts([0, 0], 5), 1.0),
        (LabelStats.from_matrix([[0, 0], [0, 0]]), 1.0),
    ],
)
@pytest.mark.parametrize("overrides", [{}, {"mu": "auto"}])
def test_mu_follows_the_data(stats: LabelStats, mu: float, overrides: dict[str, str]) -> None:
    for name in REBALANCED:
        loss = build_loss(name, stats, **overrides)
        assert loss.mu == stats.mu == pytest.approx(mu)
        assert loss(torch.zeros(1, stats.n_labels), torch.zeros(1, stats.n_labels)).isfinite()
    for name in ("bce", "cb", "ntr-fl", "logit-adjusted"):
        # The row has no mu; the module's default is that of Reuters.
        assert build_loss(name, stats, weighting="rebalanced", **overrides).mu == stats.mu
        assert build_loss(name, stats, weighting="rebalanced", mu=0.3).mu == 0.3


@pytest.mark.parametrize("module", sorted({row.module for row in LOSSES.values()}, key=str))
def test_docstrings_follow_the_template(module: type) -> None:
    text = inspect.cleandoc(module.__doc__ or "")
    has_constants = any(row.module is module and row.constants for row in LOSSES.values())
    sections = ["Formula", *(["Args"] if has_constants else []), "Relations"]
    starts = [text.find(f"\n{section}:\n") for section in sections]
    assert -1 not in starts and starts == sorted(starts)
