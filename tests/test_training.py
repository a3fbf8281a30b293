"""The loop: progress, non-finite losses, threads, and sparse targets."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn

from longtail import build_loss
from longtail.errors import InputError, LongtailError
from longtail.training import TrainingConfig, predict_logits, sparse_targets, train


class Points:
    """Documents that are plain vectors."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values.astype(np.float32)

    def __len__(self) -> int:
        return len(self.values)

    def batch(self, rows: np.ndarray) -> dict[str, torch.Tensor]:
        return {"input": torch.from_numpy(self.values[rows])}


def test_it_fits_and_reports_every_step() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(64, 2))
    Y = sp.csr_matrix((points > 0).astype(np.float32))
    network = nn.Linear(2, 2)
    seen: list[tuple[int, int, float]] = []
    config = TrainingConfig(epochs=20, batch_size=16, learning_rate=0.1, device="cpu")
    train(
        network,
        Points(points),
        Y,
        build_loss("bce", reduction="batchmean"),
        config,
        lambda done, total, loss: seen.append((done, total, loss)),
    )
    assert [done for done, _, _ in seen] == list(range(1, 81))
    assert {total for _, total, _ in seen} == {80}
    assert seen[-1][2] < seen[0][2] / 3
    logits = predict_logits(network, Points(points), batch_size=7)
    assert ((logits > 0) == (points > 0)).mean() > 0.97


def test_a_non_finite_loss_stops_with_the_batch_named() -> None:
    points = np.full((4, 2), np.inf)
    with pytest.raises(LongtailError, match=r"became (nan|inf) at step 1 of 1 .*Lower the"):
        train(
            nn.Linear(2, 2),
            Points(points),
            sp.csr_matrix((4, 2), dtype=np.float32),
            build_loss("bce"),
            TrainingConfig(epochs=1, batch_size=4, device="cpu"),
        )


def test_targets_are_flat_indices() -> None:
    Y = sp.csr_matrix(np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0]]))
    labels, offsets = sparse_targets(Y, np.array([2, 1, 0]), torch.device("cpu"))
    assert labels.tolist() == [0, 1, 2]
    assert offsets.tolist() == [0, 1, 1, 3]


@pytest.mark.parametrize(
    "setting", [{"epochs": 0}, {"batch_size": -1}, {"learning_rate": 0.0}, {"device": "gpu"}]
)
def test_unusable_settings_are_refused(setting: dict[str, object]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(setting))} must be"):
        TrainingConfig(**setting)  # type: ignore[arg-type]
