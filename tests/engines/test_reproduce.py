"""`reproduce` and `search` on a cluster: the results of one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longtail.errors import InputError
from longtail.reproduce.cells import FINISHED
from longtail.training.engines import RayEngine

from ..reproduce.cases import bags, documents, networks, run
from .conftest import Killer


def results(out: Path) -> dict[str, Any]:
    """What the cells of a reproduction found, without times."""
    cells = {path.parent: json.loads(path.read_text()) for path in out.rglob(FINISHED)}
    found = {}
    for folder, cell in cells.items():
        decisions = np.load(folder / "decisions.npz")["indices"].tolist()
        found[str(folder.relative_to(out))] = cell["evaluation"], cell["recipe"], decisions
    return found


def test_cells(engine: RayEngine, tmp_path: Path) -> None:
    """A worker is killed; a recipe that fails is shown as failed, as without Ray."""
    recipes = {**networks("db"), **bags("bce")}
    recipes["db"] |= {"epochs": 15, "checkpoint_minutes": 0.0}
    recipes["diverges"] = {**networks("db")["db"], "learning_rate": 1e30, "max_grad_norm": 0.0}
    here, _ = run(recipes, tmp_path / "here", seeds=1)
    cell = tmp_path / "there" / "db" / "seed-0"
    lock, state = (cell / "fold-0" / name for name in ("lock", "state.safetensors"))
    with Killer(lock, state, (cell / FINISHED).exists) as killer:
        there, events = run(recipes, tmp_path / "there", seeds=1, engine=engine)
    assert len(killer.killed) == 1
    assert results(tmp_path / "here") == results(tmp_path / "there")
    assert there.failed.keys() == here.failed.keys() == {"diverges (seed 0)"}
    assert sum(event.startswith("done") for event in events) == 2
    _, again = run(recipes, tmp_path / "there", seeds=1)  # only what failed is trained again
    assert {event.split()[1] for event in again} == {"diverges"}


def test_jobs_are_processes_of_this_machine(engine: RayEngine, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Leave out --jobs"):
        run(bags("bce"), tmp_path, jobs=2, engine=engine)


def test_a_search(engine: RayEngine, tmp_path: Path) -> None:
    """The folds of a trial are tasks; trials follow each other, as Optuna chooses them."""
    pytest.importorskip("optuna", reason="needs the extra search")
    from longtail.search import search

    parts, tables = documents(), []
    settings = {"model": "bag", "folds": 2, "thresholds": "global", "device": "cpu"}
    for name, options in (("here", {}), ("there", {"engine": engine})):
        done = search(
            parts["train"], folder=tmp_path / name, settings=settings, trials=8,
            losses=["bce", "db"], progress=None, note=lambda text: None, **options,
        )  # fmt: skip
        tables.append([(each.state, each.value, dict(each.settings)) for each in done.trials])
        assert not list((tmp_path / name).rglob("*.safetensors"))
    assert tables[0] == tables[1]
    assert {state for state, *_ in tables[0]} == {"complete", "pruned"}
