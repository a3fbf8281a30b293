"""Several processes, as torchrun starts them, learn what one learns; see children.py.

The command itself under torchrun: tests/cli/test_torchrun.py.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file

from longtail.errors import InputError
from longtail.training.devices import JOINED
from longtail.training.processes import check_device, together

from .cases import same

if TYPE_CHECKING:
    from conftest import Children

Job = dict[str, Any]


def run_together(
    children: Children, job: str, world: int = 2, whens: Job | None = None, **settings: Any
) -> list[int]:
    """Exit codes of a job in several processes; `whens`: interruptions by rank."""
    store = Path(settings["out"]) / "store"
    store.parent.mkdir(parents=True, exist_ok=True)
    store.unlink(missing_ok=True)
    started = [
        children.start(
            job, rank=k, world=world, store=str(store), when=(whens or {}).get(k, {}), **settings
        )
        for k in range(world)
    ]
    return [children.wait(process) for process in started]


# An epoch has 21 documents: the last batch of 5 is one document, which one process has.
@pytest.mark.parametrize(
    ("world", "job"),
    [
        (2, {}),
        (3, {"training": {"batch_size": 2}}),
        (2, {"training": {"micro_batch": 2}, "loss_settings": {"reduction": "sum"}}),
        (2, {"unknown": True, "loss_settings": {"reduction": "mean"}}),
        (2, {"training": {"precision": "bf16"}}),
    ],
    ids=str,
)
def test_several_processes_learn_what_one_learns(
    children: Children, steady_bert: Path, tmp_path: Path, world: int, job: Job
) -> None:
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    job = {"encoder": str(steady_bert), **job}
    assert children.run("shared", out=str(alone), **job) == 0
    assert run_together(children, "shared", world, out=str(shared), **job) == [0] * world
    expected, result = (load_file(path / "result-0.safetensors") for path in (alone, shared))
    atol = 1e-2 if "precision" in job.get("training", {}) else 1e-5
    for name, value in expected.items():
        # Biases of keys cancel out in the softmax: their gradients are rounding errors.
        if "key.bias" not in name:
            torch.testing.assert_close(result[name], value, rtol=0, atol=atol, msg=name)
    assert len(expected["losses"]) == 10 if world == 2 else 22
    # The others get the fitted model, and report nothing.
    for rank in range(1, world):
        other = load_file(shared / f"result-{rank}.safetensors")
        assert len(other.pop("losses")) == 0
        assert same(other, {name: result[name] for name in other})


@pytest.fixture(scope="module")
def uninterrupted(children: Children, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two processes with dropout, an average of the weights, and early stopping."""
    out: Path = tmp_path_factory.mktemp("uninterrupted")
    assert run_together(children, "train", out=str(out)) == [0, 0]
    facts = json.loads((out / "facts.json").read_text())
    assert 1 < facts["best_epoch"] < facts["epoch"] < 8
    return out


LOST = "another process of this training has ended"


@pytest.mark.parametrize("killed", [0, 1])
def test_one_process_is_killed(
    children: Children, uninterrupted: Path, tmp_path: Path, killed: int
) -> None:
    out, job = tmp_path / "out", {"out": str(tmp_path / "out"), "folder": str(tmp_path / "states")}
    ends = [1, 1]
    ends[killed] = -signal.SIGKILL
    assert run_together(children, "train", whens={killed: {"sharing": 6}}, **job) == ends
    error = (out / ("error" if killed else "error1")).read_text()
    assert error.startswith(LOST) and ("--resume" in error) == bool(killed), error
    assert run_together(children, "train", **job) == [0, 0]
    weights = [load_file(folder / "weights.safetensors") for folder in (uninterrupted, out)]
    assert same(*weights)
    assert (uninterrupted / "facts.json").read_text() == (out / "facts.json").read_text()


def test_a_signal_to_all_saves_and_exits(
    children: Children, uninterrupted: Path, tmp_path: Path
) -> None:
    """The main process ends the others, which do not heed it, after its step."""
    job: Job = {"out": str(tmp_path / "out"), "folder": str(tmp_path / "states")}
    job |= {"signal": "SIGTERM", "training": {"checkpoint_minutes": 60.0}}
    # Twice to the main one, as Ctrl-C comes: again while it saves.
    whens = {0: {"step": 6, "replacing": 1}, 1: {"sharing": 4}}
    assert run_together(children, "train", whens=whens, **job) == [143, 143]
    error = (tmp_path / "out" / "error").read_text()
    assert error == "stopped by SIGTERM. The training so far is saved: resume it with --resume."
    assert run_together(children, "train", **job) == [0, 0]
    out = tmp_path / "out"
    assert same(*(load_file(path / "weights.safetensors") for path in (uninterrupted, out)))


def test_folds(children: Children, tmp_path: Path) -> None:
    """Three folds, one after the other; a process is killed in the second."""
    whole, job = tmp_path / "whole", {"out": str(tmp_path / "out")}
    assert run_together(children, "fit", out=str(whole), folder=str(whole / "folds")) == [0, 0]
    job |= {"folder": str(tmp_path / "folds")}
    killed = run_together(children, "fit", whens={1: {"sharing": 10}}, **job)
    assert killed == [1, -signal.SIGKILL]
    assert run_together(children, "fit", **job) == [0, 0]
    assert same(*(load_file(Path(p) / "weights.safetensors") for p in (whole, job["out"])))


def test_an_encoder_with_code(children: Children, steady_bert: Path, tmp_path: Path) -> None:
    """It is copied by the main process, and run in all."""
    encoder = Path(shutil.copytree(steady_bert, tmp_path / "encoder"))
    (encoder / "own.py").write_text("from transformers import BertModel\nclass Own(BertModel): ...")
    config = json.loads((encoder / "config.json").read_text())
    config |= {"auto_map": {"AutoModel": "own.Own"}, "model_type": "bert"}
    (encoder / "config.json").write_text(json.dumps(config))
    job = {"encoder": str(encoder), "modules": str(tmp_path / "modules")}
    assert run_together(children, "shared", out=str(tmp_path), **job) == [0, 0]


def test_a_step_that_fails_ends_all(children: Children, steady_bert: Path, tmp_path: Path) -> None:
    """While the other process waits for its gradients."""
    job: Job = {"encoder": str(steady_bert), "fails_after": 4}
    assert run_together(children, "shared", out=str(tmp_path), **job) == [1, 1]
    assert (tmp_path / "error").read_text() == "failed within a step"
    assert (tmp_path / "error1").read_text().startswith(LOST)


def test_a_loss_that_compares_documents_is_refused(
    children: Children, steady_bert: Path, tmp_path: Path
) -> None:
    job: Job = {"encoder": str(steady_bert), "loss": "two-way"}
    assert run_together(children, "shared", out=str(tmp_path), **job) == [1, 1]
    for name in ("error", "error1"):
        assert "which several processes do not share" in (tmp_path / name).read_text()


def test_what_a_process_starts_works_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the cells of `longtail reproduce --jobs` do."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv(JOINED, str(os.getppid()))
    assert together(lambda: "done") == "done"


def test_a_process_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "99")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "99")
    check_device(torch.device("cpu"))
    with pytest.raises(InputError, match="99 processes were started on this machine with"):
        check_device(torch.device("cuda"))
