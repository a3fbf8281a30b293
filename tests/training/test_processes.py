"""Two processes, as torchrun starts them, learn what one learns; see children.py."""

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
    """Without dropout, which depends on the documents of a process."""
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
    job = {"encoder": str(steady_bert), "store": str(tmp_path / "store"), **job}
    alone, pair = tmp_path / "alone", tmp_path / "pair"
    assert children.run("shared", rank=0, world=1, out=str(alone), **job) == 0
    processes = [
        children.start("shared", rank=rank, world=2, out=str(pair), **job) for rank in range(2)
    ]
    assert [children.wait(process) for process in processes] == [0, 0]
    expected = load_file(alone / "result-0.safetensors")
    for rank in range(2):
        result = load_file(pair / f"result-{rank}.safetensors")
        for name, value in expected.items():
            # Biases of keys cancel out in the softmax: their gradients are rounding errors.
            if "key.bias" not in name:
                torch.testing.assert_close(result[name], value, rtol=0, atol=1e-5, msg=name)
    # Every process reports the loss of the whole batch; one of them writes checkpoints.
    assert len(expected["losses"]) == 10
    assert (pair / "states" / "state.safetensors").exists()
