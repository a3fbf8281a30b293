"""`longtail export`, and an exported run in the other verbs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from longtail.cli.reading import MEMORY
from longtail.runs.model import CONFIG_FILE, seal

from .conftest import Command


def test_an_exported_run_works_like_the_trained_one(
    longtail: Command, trained: Path, folder: Path, tmp_path: Path
) -> None:
    run, out = Path(shutil.copytree(trained, tmp_path / "run")), tmp_path / "onnx"
    memory = '{"data": "a.csv", "options": {"text_field": "body"}}'
    (run / MEMORY).write_text(memory)
    done = longtail.ok("export", run, "--to", "onnx", "--out", out)
    assert "On 64 generated texts: scores differ by at most" in done.out
    assert "100.0% get the same labels." in done.out and f"longtail predict {out} DATA" in done.out
    assert (out / MEMORY).read_text() == memory and not list(out.rglob("model.safetensors"))
    (run / MEMORY).unlink()

    again = ("export", run, "--to", "onnx", "--out", out)
    longtail.fails("holds an exported model. Replace it with --overwrite", *again)
    done = longtail.ok(*again, "--overwrite", "--check", folder)
    assert f"texts of {folder}: scores differ by at most" in done.out
    assert "(+0.00 / +0.00)" in done.out and not (out / MEMORY).exists()

    data = (folder / "test.jsonl", "--without-text")
    expected = longtail.ok("predict", run, *data).out
    assert expected and longtail.ok("predict", out, *data, "--engine", "onnx").out == expected
    assert longtail.ok("predict", out, *data).out == expected
    figures = [longtail.ok("evaluate", r, folder, "--json").out for r in (run, out)]
    assert figures[0] == figures[1]


def test_conflicting_flags(longtail: Command, trained: Path, tmp_path: Path) -> None:
    out, exported = tmp_path / "out", Path(shutil.copytree(trained, tmp_path / "exported"))
    config = json.loads((exported / CONFIG_FILE).read_text("utf-8"))
    (exported / CONFIG_FILE).write_text(json.dumps(seal(config | {"engine": "onnx"})), "utf-8")

    def fails(message: str, run: Path, to: str, *flags: object) -> None:
        longtail.fails(message, "export", run, "--to", to, "--out", out, *flags)

    fails("--int8 belongs to --to onnx", trained, "hf", "--int8")
    fails("--check belongs to --to onnx", trained, "hf", "--check", "newswire")
    fails("transformers cannot load this model", trained, "hf")
    fails("no such file or folder: x.csv", trained, "onnx", "--check", "x.csv")
    fails("was exported to ONNX and has no weights for torch", exported, "onnx")
    fails("holds no longtail model", tmp_path, "onnx")
    assert not out.exists()
    itself = ("export", trained, "--to", "onnx", "--overwrite", "--out")
    longtail.fails("is the run itself", *itself, trained)
    other = shutil.copytree(trained, tmp_path / "other")
    longtail.fails("holds a trained model. Choose another folder", *itself, other)


def test_wrong_engines(longtail: Command, trained: Path) -> None:
    message = f"{trained} was not exported to ONNX. Export it, then use the exported folder: "
    longtail.fails(message, "predict", trained, "--engine", "onnx")
    longtail.fails("engine must be one of torch, onnx", "predict", trained, "--engine", "jax")
