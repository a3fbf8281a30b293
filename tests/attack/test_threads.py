"""Threads that share a loaded model, some dozens of predictions; thousands in the whole attack."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from longtail import LongTailClassifier
from longtail.training import steps

from .models import TEXTS, fit_kinds, kinds
from .outcome import RIGHT
from .threads import attack_kind


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return fit_kinds(tmp_path_factory.mktemp("kinds"))


@pytest.mark.parametrize("kind", kinds(Path()))
def test_threads_get_the_answers_of_one(kind: str, folders: dict[str, Path]) -> None:
    wrong = [o for o in attack_kind(kind, folders[kind], 120, seed=0) if o.verdict != RIGHT]
    assert not wrong, wrong[:3]


def test_the_judge_can_fail(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A prediction that switches the shared network, as predictions once did, is noticed."""
    predict = steps._predict

    def switching(network: torch.nn.Module, *arguments: object) -> object:
        network.eval()
        try:
            return predict(network, *arguments)  # type: ignore[arg-type]
        finally:
            network.train()
            network(**arguments[0].batch([0]))  # type: ignore[attr-defined]
            network.eval()

    monkeypatch.setattr(steps, "_predict", switching)
    outcomes = attack_kind("encoder", folders["encoder"], 800, seed=0)
    assert any(outcome.verdict != RIGHT for outcome in outcomes)


def test_loaded_and_fitted_networks_stay_in_eval_mode(folders: dict[str, Path]) -> None:
    for kind in ("bag", "bag, hidden layer", "encoder", "encoder, own head", "blend"):
        loaded = LongTailClassifier.from_pretrained(folders[kind], device="cpu")
        for model in loaded.ensemble_.models:
            network = model.network  # type: ignore[attr-defined]
            assert not any(module.training for module in network.modules())
            loaded.predict(TEXTS)
            assert not any(module.training for module in network.modules())
