"""Plans: everything is checked before anything is read or trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from longtail.errors import InputError, UnknownNameError
from longtail.fitting import Plan, fingerprint
from longtail.labels import LabelStats
from longtail.settings import TrainingConfig

from .cases import numbered


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"model": "encodr"}, "Did you mean 'encoder'"),
        ({"loss": "dbb"}, "Did you mean 'db"),
        ({"folds": 0}, "folds must be a whole number"),
        ({"folds": True}, "folds must be a whole number"),
        ({"folds": 2, "training": TrainingConfig(patience=1)}, "patience looks at a validation"),
        ({"model_settings": {"max_lenght": 9}}, "Did you mean 'max_length'"),
        ({"model_settings": {"max_length": 0}}, "max_length must be a whole number"),
        ({"loss_settings": {"gama": 1}}, "Did you mean 'gamma'"),
        ({"loss_settings": {"gamma": -1}}, "gamma must be"),
        ({"loss_settings": {"reduction": "none"}}, "training needs a loss that is a number"),
    ],
)
def test_what_cannot_be_fitted_is_found_at_once(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=said):
        Plan(**{"model": "encoder", **wrong})


def test_the_loss_of_a_plan() -> None:
    stats = LabelStats.from_counts([5, 1, 2], n_samples=6)
    loss = Plan("encoder").new_loss(stats)
    assert loss.reduction == "batchmean" and not loss.check_targets and loss.n_labels == 3
    weighted = Plan("encoder", loss="bce", loss_settings={"label_weight": [1.0, 2.0, 3.0]})
    assert weighted.new_loss(stats).label_weight is not None
    with pytest.raises(InputError, match="label_weight must hold one number for each of the 3"):
        Plan("encoder", loss_settings={"label_weight": [1.0]}).new_loss(stats)


def test_weights_of_labels_are_part_of_the_fingerprint() -> None:
    data = numbered(np.eye(3))
    kinds = ([1.0, 2.0, 3.0], np.array([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 3.0]))
    found = {
        fingerprint([Plan("encoder", loss_settings={"label_weight": kind})], data, None)["plan"]
        for kind in (*kinds, [1.0, 2.0, 4.0])
    }
    assert len(found) == 2
