"""Every block of README and docs runs, on few documents, or says what it needs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.documents.blocks import PAGES, ROOT, Block, blocks, run, run_line


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory, tiny_bert: Path) -> Path:
    """What pages suppose to be there: tickets, texts, two models, an encoder."""
    folder = tmp_path_factory.mktemp("files")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line in (
            "python examples/tickets/make_tickets.py tickets.csv",
            "python examples/tickets/make_tickets.py new.csv --seed 1 --without-labels",
            "longtail train tickets.csv --label-separator ; --model bag --C 1 --folds 2 --out run",
            "longtail train tickets.csv --label-separator ; --model svm --folds 2 --out other-run",
            "longtail corpus convert tickets.csv --label-separator ; --out tickets.jsonl",
        ):
            run_line(line.replace(";", "';'"), "files")
    (folder / "texts.txt").write_text("my parcel is late\ncharged twice\n", "utf-8")
    (folder / "labels.json").write_text('{"press": "questions of journalists"}\n', "utf-8")
    (folder / "my-recipes").mkdir()
    for loss in ("bce", "db"):
        (folder / "my-recipes" / f"{loss}.yaml").write_text(
            f"{{model: bag, loss: {loss}, C: 10, folds: 1}}", "utf-8"
        )
    shutil.copytree(tiny_bert, folder / "my-encoder")
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_runs(
    page: Path, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "page"
    shutil.copytree(files, folder)
    monkeypatch.chdir(folder)
    names: dict[str, object] = {}
    for block in blocks(page):
        if re.search(r"--out run$", block.text, re.MULTILINE):
            shutil.rmtree("run", ignore_errors=True)
        run(block, names)


@pytest.mark.parametrize(
    ("language", "text", "named"),
    [
        ("sh", "# needs a GPU\nlongtail train x --no-such-flag --out y", "--no-such-flag"),
        ("sh", "torchrun -m longtail train x --no-such-flag  # needs a GPU", "--no-such-flag"),
        ("sh", "longtail evaluate nowhere tickets.csv", "nowhere"),
        ("sh", "make no-such-target", "no-such-target"),
        ("sh", "pip install 'longtail[no-such-extra]'", "no-such-extra"),
        ("sh", "python benchmarks/no_such_file.py", "no_such_file"),
        ("sh", "python benchmarks/debian.py FOLDER --no-such-flag", "--no-such-flag"),
        ("sh", "no-such-program", "no-such-program"),
        ("python", "print(1)  # 2", "page: 2"),
        ("python", "# needs a GPU\nx =", "invalid syntax"),
        ("json", "{", "Expecting"),
        ("", "longtail demo", "say what the block is"),
    ],
)
def test_a_wrong_block_is_noticed(
    language: str, text: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception, match=named):
        run(Block("page", language, text), {})
