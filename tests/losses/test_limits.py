"""limits.py, by which the attack judges the losses, against naive.py and against differences."""

from __future__ import annotations

import numpy as np
import pytest

from .cases import NAMES, edge_stats, make_batch
from .limits import LIMITS, Array, Batch
from .naive import NAIVE, Case


def batch_of(name: str, seed: int) -> Batch:
    logits, target = make_batch(4, 5, seed, soft=seed % 2 == 1)
    random = np.random.RandomState(seed)
    stats = edge_stats(5)
    return Batch(
        logits.numpy(),
        0.02 + 0.9 * target.numpy() if seed % 2 else target.numpy(),
        random.rand(4, 5) < 0.8,
        random.rand(4),
        random.rand(5),
        stats.label_counts,
        stats.n_samples,
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", NAMES)
def test_terms_are_those_of_the_naive_formulas(name: str, seed: int) -> None:
    batch = batch_of(name, seed)
    case = Case(
        batch.logits.tolist(),
        batch.targets.tolist(),
        batch.counts.tolist(),
        batch.n_samples,
        batch.label_weight.tolist(),
        batch.sample_weight.tolist(),
        batch.known.astype(float).tolist(),
    )
    with np.errstate(all="ignore"):
        values = LIMITS[name](batch).values
    np.testing.assert_allclose(values, np.array(NAIVE[name](case)), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_derivatives_are_differences(name: str, seed: int) -> None:
    batch = batch_of(name, seed)
    upstream = np.random.RandomState(9).rand(*LIMITS[name](batch).values.shape)
    by_logits, by_targets = LIMITS[name](batch).pull(upstream)

    def value(logits: Array, targets: Array) -> float:
        moved = Batch(
            logits, targets, batch.known, batch.sample_weight, batch.label_weight,
            batch.counts, batch.n_samples,
        )  # fmt: skip
        return float((upstream * LIMITS[name](moved).values).sum())

    step = 1e-6
    for row in range(4):
        for label in range(5):
            move = np.zeros((4, 5))
            move[row, label] = step
            z, y = batch.logits, batch.targets
            slope = (value(z + move, y) - value(z - move, y)) / (2 * step)
            assert by_logits[row, label] == pytest.approx(slope, rel=1e-5, abs=1e-7)
            slope = (value(z, y + move) - value(z, y - move)) / (2 * step)
            assert by_targets[row, label] == pytest.approx(slope, rel=1e-4, abs=1e-6)
