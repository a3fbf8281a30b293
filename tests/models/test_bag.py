"""`bag`: linear and hidden heads, saved and loaded, and what words tell about labels."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from longtail.errors import InputError
from longtail.labels import LabelStats
from longtail.losses import build_loss
from longtail.models.bag import BagModel, BagSettings
from longtail.models.information import label_information
from longtail.training.linear import solve_linear

TEXTS = ["copper rose", "gold fell", "copper and gold", "wheat", "wheat and corn", "corn fell"]
LABELS = np.array([[1, 0], [1, 0], [1, 0], [0, 1], [0, 1], [0, 1]], dtype=np.float32)
NAMES = ("metal", "grain")
ODD = ["", "x", "gold " * 200_000, "🙂", "ذهب", "gold\x00", "and the", "zzzz"]


def logits(model: BagModel, texts: list[str]) -> torch.Tensor:
    encoded = model.encode(texts)
    model.network.eval()
    with torch.no_grad():
        found: torch.Tensor = model.network(**encoded.batch(np.arange(len(texts))))
    return found


def trained() -> BagModel:
    model = BagModel(BagSettings(min_df=1))
    model.prepare(TEXTS, NAMES)
    Y = sp.csr_matrix(LABELS)
    loss = build_loss("db", LabelStats.from_matrix(Y), reduction="sum")
    matrix = model.encode(TEXTS).matrix
    model.set_linear(*solve_linear(matrix, Y, loss, 100.0, device=torch.device("cpu")))
    return model


def test_a_linear_head_learns_and_is_its_solution() -> None:
    model = trained()
    bias = torch.tensor([0.5, -2.0])
    found = logits(model, ["copper", "corn"])
    assert found[0, 0] > found[0, 1] and found[1, 1] > found[1, 0]
    model.set_linear(torch.zeros(2, model.encode(TEXTS).matrix.shape[1]), bias)
    assert torch.equal(logits(model, ["copper", ""]), bias.expand(2, 2))


@pytest.mark.parametrize("hidden", [0, 5])
def test_odd_texts_have_finite_logits(hidden: int) -> None:
    model = BagModel(BagSettings(hidden=hidden, min_df=1))
    model.prepare(TEXTS, NAMES)
    assert torch.isfinite(logits(model, ODD)).all()


def test_an_untrained_linear_head_is_zero() -> None:
    model = BagModel(BagSettings(min_df=1))
    model.prepare(TEXTS, NAMES)
    assert model.scale == "logit" and not logits(model, TEXTS).any()


def test_loaded_gives_equal_logits(tmp_path: Path) -> None:
    model = trained()
    model.save(tmp_path)
    again = BagModel(model.settings)
    again.load(tmp_path, len(NAMES))
    assert torch.equal(logits(model, TEXTS + ODD), logits(again, TEXTS + ODD))
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}


def test_encoded_rows_are_those_asked_for() -> None:
    model = trained()
    encoded = model.encode([*TEXTS, ""])
    assert len(encoded) == 7 and encoded.lengths.tolist() == [2, 2, 3, 1, 3, 2, 0]
    rows = np.array([5, 0, 6])
    with torch.no_grad():
        found = model.network(**encoded.batch(rows))
    assert torch.allclose(found, logits(model, [TEXTS[5], TEXTS[0], ""]))


@pytest.mark.parametrize(
    "wrong", [{"hidden": -1}, {"C": 0}, {"dropout": 1.5}, {"ngrams": 0}, {"hashing": -2}]
)
def test_wrong_settings_are_named(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        BagSettings(**wrong)  # type: ignore[arg-type]


def test_every_setting_has_help() -> None:
    for field in dataclasses.fields(BagSettings):
        assert field.metadata["help"], field.name


def test_words_that_tell_labels_weigh_more() -> None:
    """Column 0 is on all documents, column 1 on those of one label, column 2 on a mixture."""
    features = np.zeros((40, 3), dtype=np.float32)
    features[:, 0], features[:20, 1], features[10:30, 2] = 1, 1, 1
    Y = np.zeros((40, 2), dtype=np.float32)
    Y[:20, 0], Y[20:, 1] = 1, 1
    always, tells, mixed = label_information(sp.csr_matrix(features), sp.csr_matrix(Y))
    assert tells > mixed and tells > always


def test_information_keeps_the_energy_and_equals_the_plain_sum() -> None:
    rng = np.random.default_rng(0)
    features = sp.random(50, 30, 0.2, format="csr", random_state=0, dtype=np.float32)
    Y = sp.csr_matrix((rng.random((50, 6)) < [0, 0.02, 0.1, 0.3, 0.9, 1]).astype(np.float32))
    found = label_information(features, Y)
    energy = np.asarray(features.multiply(features).sum(axis=0)).ravel()
    assert (energy * found**2).sum() == pytest.approx(energy.sum(), rel=1e-4)
    present, share = (features.toarray() > 0).astype(float), Y.toarray().mean(axis=0)
    share = np.clip(share, 0.5 / 50, 1 - 0.5 / 51)
    both, df = present.T @ Y.toarray(), present.sum(axis=0)
    p = np.clip((both + 3 * share) / (df[:, None] + 3), 1e-12, 1 - 1e-9)
    told = (p * np.log(p / share) + (1 - p) * np.log((1 - p) / (1 - share))).sum(axis=1)
    plain = np.maximum(told, 1e-3) ** 0.25
    np.testing.assert_allclose(found / found[0], plain / plain[0], rtol=1e-4)
