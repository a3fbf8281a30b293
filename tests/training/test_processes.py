"""Two processes, as `accelerate launch` makes them, learn what one learns; see children.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file

if TYPE_CHECKING:
    from conftest import Children


@pytest.fixture(scope="module")
def steady_bert(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without dropout, which would differ with the share of the documents."""
    folder = tmp_path_factory.mktemp("steady") / "bert"
    shutil.copytree(tiny_bert, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("job", [{}, {"micro": 2}, {"reduction": "sum"}], ids=str)
def test_two_processes_learn_what_one_learns(
    children: Children, steady_bert: Path, tmp_path: Path, job: dict[str, Any]
) -> None:
    job = {"encoder": str(steady_bert), **job}
    alone, pair = tmp_path / "alone", tmp_path / "pair"
    assert children.run("shared", rank=0, world=1, out=str(alone), **job) == 0
    store = str(tmp_path / "store")
    processes = [
        children.start("shared", rank=rank, world=2, out=str(pair), store=store, **job)
        for rank in range(2)
    ]
    assert [children.wait(process) for process in processes] == [0, 0]
    expected = load_file(alone / "found-0.safetensors")
    for rank in range(2):
        found = load_file(pair / f"found-{rank}.safetensors")
        for name, value in expected.items():
            # Keys' biases cancel out in the softmax: their gradients are rounding, made steps.
            if "key.bias" not in name:
                torch.testing.assert_close(found[name], value, rtol=0, atol=1e-5, msg=name)
    # Every process has the loss of the whole batch; one of them has written states.
    assert len(expected["losses"]) == 10
    assert (pair / "states" / "state.safetensors").exists()
