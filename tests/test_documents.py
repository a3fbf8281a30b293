"""README, docs and tables say what is true: the tree, the figures and the commands exist."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import importlib.util
import json
import re
from pathlib import Path

import pytest
from typer.main import get_command

from longtail.cli import app
from longtail.corpora import CORPORA
from longtail.data import FORMATS, ReadOptions
from longtail.data.splits import SPLITS
from longtail.losses import LOSSES
from longtail.reproduce.recipes import read_recipes, with_encoder

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
RESULTS = (ROOT / "docs" / "results.md").read_text("utf-8")
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def blocks(language: str, page: str = README) -> list[str]:
    """The fenced blocks of one language."""
    parts = re.split(r"^```(\w*)\n", page, flags=re.MULTILINE)
    fenced = list(zip(parts[1::4], parts[2::4], strict=False))
    return [text for name, text in fenced if name == language]


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    assert len(README.splitlines()) <= 150
    for page in (ROOT / "README.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")):
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
            if "commands/" in link:  # made when the site is built, which checks them
                continue
            assert link.startswith("http") or (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_first_example_ends_by_line_15() -> None:
    first = blocks("python")[0]
    assert README[: README.index(first) + len(first)].count("\n") + 1 <= 15


@pytest.mark.parametrize(
    ("file", "folder", "encoder", "names", "groups"),
    [
        ("reuters-minilm", "reuters", "all-minilm-l6-v2", "svm bce db cb-ntr best", "all tail"),
        ("reuters-bag", "reuters-bag", None, "svm bce db ntr-fl best", "all head medium tail"),
        (
            "pubmed-minilm",
            "pubmed",
            "all-minilm-l6-v2",
            "svm svm-balanced bce db best",
            "all head medium tail",
        ),
    ],
)
def test_tables_are_those_of_results_and_results_of_the_recipes(
    file: str, folder: str, encoder: str | None, names: str, groups: str
) -> None:
    rows = json.loads((ROOT / "results" / f"{file}.json").read_text("utf-8"))["rows"]
    table = (README + RESULTS).replace("**", "")
    for name in names.split():
        mean = [rows[name]["mean"][group] for group in groups.split()]
        line = " | ".join(f"{one['micro_f1']:.2f} / {one['macro_f1']:.2f}" for one in mean)
        assert f"| {line} |" in table, name
    recipes = read_recipes(ROOT / "recipes" / folder, list(rows))
    if encoder is not None:
        recipes = with_encoder(recipes, encoder)
    for row in rows:
        assert rows[row]["recipe"] == recipes[row], row


def test_the_tree_is_the_tree() -> None:
    tree = blocks("text", ARCHITECTURE)[0]
    source = ROOT / "src" / "longtail"
    named: set[str] = set()
    inside = ""
    for line in tree.splitlines()[1:]:
        entry = line.split()[0]
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            assert (ROOT / entry).is_dir(), entry
            continue
        inside = inside if depth > 2 else (entry if entry.endswith("/") else "")
        path = source / (inside + entry if depth > 2 else entry)
        assert path.exists(), f"{entry} is in the tree but not in src"
        named.add(path.relative_to(source).as_posix())
    there = {path.name for path in source.iterdir() if path.suffix == ".py" or path.is_dir()}
    there -= {"__init__.py", "__main__.py", "__pycache__"}
    assert there == {name for name in named if "/" not in name}


def test_the_readme_names_every_verb_and_loss_and_targets_that_exist() -> None:
    def named(pattern: str, page: str = README) -> set[str]:
        return set(" ".join(re.findall(pattern, page, re.MULTILINE)).split())

    assert named(r"^longtail (\w+)") == set(get_command(app).commands)  # type: ignore[attr-defined]
    assert named(r"^\| `([^`]+)` \|") <= set(LOSSES)
    targets = named("^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"))
    assert {"demo", "test"} <= named(r"(?:^|`)make ([a-z]+)") <= targets


def test_the_benchmark_rows_are_there() -> None:
    for size in ("32 x 18,211", "128 x 670,091"):
        assert re.search(rf"^\| {re.escape(size)} \|.*\| [\d.]+ \|", RESULTS, flags=re.MULTILINE)


def test_losses_page_is_current() -> None:
    spec = importlib.util.spec_from_file_location("make_losses", ROOT / "docs" / "make_losses.py")
    assert spec is not None and spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    written = (ROOT / "docs" / "losses.md").read_text("utf-8")
    assert written == maker.render(), "docs/losses.md is out of date: run make docs"


def test_the_data_page_names_every_format_option_corpus_and_split() -> None:
    page = (ROOT / "docs" / "data.md").read_text("utf-8")
    for name in [*FORMATS, *CORPORA, *SPLITS]:
        assert f"`{name}`" in page, name
    for field in dataclasses.fields(ReadOptions):
        assert f"`--{field.name.replace('_', '-')}" in page, field.name
    for image in re.findall(r"!\[[^]]*\]\(([^)]*)\)", page):
        assert (ROOT / "docs" / image).is_file(), image


@pytest.mark.parametrize(
    "name",
    [
        "labels", "classifier.estimator", "corpora.newswire", "fused.linear", "fused.module",
        "losses.modules", "losses.presets",
    ],
)  # fmt: skip
def test_docstring_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"longtail.{name}"))
    assert result.attempted > 0 and result.failed == 0


def test_ci_runs_exactly_the_test_command() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert script.strip().splitlines()[-1] == "exec make test"
    assert "make test" in (ROOT / ".github" / "workflows" / "test.yml").read_text("utf-8")


def test_the_torch_pin_satisfies_the_range() -> None:
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    assert '"torch>=2.9"' in (ROOT / "pyproject.toml").read_text("utf-8")
