"""The notebook's code runs from top to bottom, on few documents, and its outputs are kept."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib
import pytest

from tests.documents.blocks import ROOT

NOTEBOOKS = sorted((ROOT / "examples").rglob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    cells = json.loads(path.read_text("utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert "n_documents=2500" in sources[0]
    names: dict[str, object] = {}
    for source in sources:
        exec(
            compile(source.replace("n_documents=2500", "n_documents=400"), path.name, "exec"), names
        )
    assert "<html" in (tmp_path / "report.html").read_text("utf-8")
    matplotlib.pyplot.close("all")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_outputs_are_those_of_one_run(path: Path) -> None:
    notebook = json.loads(path.read_text("utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert not any(output["output_type"] == "error" for output in outputs)
    assert "image/png" in kinds and any("name" in output for output in outputs)
    # Nothing of the machine that it ran on.
    assert "/home/" not in path.read_text("utf-8") and "/work/" not in path.read_text("utf-8")


def test_there_is_a_notebook() -> None:
    assert NOTEBOOKS
