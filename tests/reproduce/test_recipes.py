"""Every recipe can be read and trains; names and settings are checked."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from longtail import Encoder, LongTailClassifier
from longtail.errors import DataError, InputError, UnknownNameError
from longtail.labels import LabelStats
from longtail.losses import LOSSES, build_loss
from longtail.reproduce import (
    find_recipe,
    find_recipes,
    list_recipes,
    read_recipe,
    read_recipes,
    with_encoder,
    with_settings,
)
from longtail.reproduce.cells import read_finished, train_cell
from longtail.reproduce.recipes import describe_model, is_random, plans_of
from longtail.reproduce.run import cells_of

from .cases import documents, run

ROOT = Path(__file__).parents[2]
ROW_FILES = sorted((ROOT / "recipes").glob("*/*.yaml"))
GENERIC = sorted((ROOT / "recipes").glob("*.yaml"))
FILES = [*GENERIC, *ROW_FILES]
ROWS = ["svm", "bce", "fl", "cb", "r-fl", "ntr-fl", "db-0fl", "cb-ntr", "db"]


def named(path: Path) -> str:
    return path.relative_to(ROOT / "recipes").with_suffix("").as_posix()


def test_there_are_recipes_for_the_papers_rows_in_its_order() -> None:
    assert set(list_recipes()) == {path.parent.name for path in ROW_FILES}
    for name in ("newswire", "pubmed", "reuters", "reuters-bag"):
        rows = list(read_recipes(find_recipes(name)))
        assert [row for row in rows if row not in ("svm-balanced", "best")] == ROWS
        assert "svm-balanced" not in rows or rows[1] == "svm-balanced"
        assert "best" not in rows or rows[-1] == "best"


@pytest.mark.parametrize("path", ROW_FILES, ids=named)
def test_the_row_of_a_loss_has_that_loss(path: Path) -> None:
    assert path.stem not in LOSSES or read_recipe(path)["loss"] == path.stem


# Other recipes of a folder differ only in their loss, whose constants are checked below.
TRAINED = [*GENERIC, *(path for path in ROW_FILES if path.stem in ("svm-balanced", "db", "best"))]


@pytest.mark.parametrize("path", TRAINED, ids=named)
def test_recipe_trains_on_a_tiny_corpus(path: Path, tmp_path: Path, tiny_bert: Path) -> None:
    recipe = quick(read_recipe(path))
    if any(plan.kind == "encoder" for plan in plans_of("row", recipe)):
        recipe = with_encoder({"row": recipe}, str(tiny_bert))["row"]
    for plan in plans_of("row", recipe):
        assert plan.kind != "encoder" or plan.model.encoder == str(tiny_bert)
    (cell,) = cells_of({path.stem: recipe}, tmp_path, 1)
    train_cell(cell, documents())
    assert 0 <= read_finished(cell)["evaluation"]["overall"]["micro_f1"] <= 1


def quick(recipe: dict[str, Any]) -> dict[str, Any]:
    """The recipe with one epoch on the CPU."""

    def short(settings: dict[str, Any]) -> dict[str, Any]:
        return {**settings, "epochs": 1, "device": "cpu"} if "epochs" in settings else settings

    if isinstance(recipe.get("model"), list):
        return {**recipe, "device": "cpu", "model": [short(model) for model in recipe["model"]]}
    return {**short(recipe), "device": "cpu"}


@pytest.mark.parametrize("corpus", ["reuters", "pubmed"])
def test_the_constants_are_the_papers(corpus: str) -> None:
    stats = LabelStats.from_counts([50, 5, 2], n_samples=100)
    for row in ROWS[1:]:
        for name in (corpus, *(["reuters-bag"] if corpus == "reuters" else [])):
            recipe = read_recipe(find_recipes(name) / f"{row}.yaml")
            settings = recipe.get("loss_settings", {})
            # The recipe gives exactly the constants that are not zero.
            used = {k: v for k, v in LOSSES[row].constants.items() if v != 0 and k != "weighting"}
            assert set(settings) == set(used), row
            papers = build_loss(row, stats, constants=corpus)
            assert build_loss(row, stats, **settings).extra_repr() == papers.extra_repr()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, False),
        ({"model": "bag", "thresholds": "grid"}, False),
        ({"model": "bag", "folds": 3}, True),
        ({"model": "bag", "hidden": 8}, True),
        ({"model": "encoder"}, True),
        # These draw random folds of the validation documents.
        ({"thresholds": "auto"}, True),
        ({"thresholds": "micromacro"}, True),
    ],
    ids=str,
)
def test_which_rows_use_random_numbers(changes: dict[str, Any], expected: bool) -> None:
    recipe = {"model": "svm", "folds": 1, "thresholds": "global"}
    assert is_random("row", recipe | changes) == expected


def test_descriptions_lie_beside_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "texts.json").write_text('{"cpi": "consumer prices"}')
    (tmp_path / "r.yaml").write_text(
        "label_texts: texts.json\nmodel:\n  - kind: bag\n  - kind: svm\n"
    )
    assert read_recipe(tmp_path / "r.yaml")["label_texts"] == {"cpi": "consumer prices"}


def test_a_seed_in_a_recipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the recipe of db sets random_state"):
        cells_of({"db": {"random_state": 7}}, tmp_path, 2)


def test_another_encoder_reaches_members_too(tmp_path: Path) -> None:
    first = {"kind": "encoder", "encoder": "a", "max_length": 9}
    recipes: dict[str, dict[str, Any]] = {
        "svm": {"model": "svm"},
        "db": {"model": "encoder", "max_length": 9},
        "best": {"model": [first, "encoder", {"kind": "bag", "loss": "db"}]},
    }
    changed = with_encoder(recipes, "c")
    assert changed["svm"] == {"model": "svm"}
    assert changed["db"] == {"model": "encoder", "max_length": 9, "encoder": "c"}
    assert changed["best"]["model"] == [
        {"kind": "encoder", "encoder": "c", "max_length": 9},
        {"kind": "encoder", "encoder": "c"},
        {"kind": "bag", "loss": "db"},
    ]
    assert first["encoder"] == "a", "the recipes themselves are not changed"
    assert describe_model("best", changed["best"]) == "c + TF-IDF with a linear head"
    (tmp_path / "bert").mkdir()
    local = with_encoder({"db": recipes["db"]}, str(tmp_path / "bert"))["db"]
    assert describe_model("db", local) == "bert"
    with pytest.raises(InputError, match="--encoder c has no effect"):
        with_encoder({"svm": recipes["svm"]}, "c")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("los: db\n", r"row.yml .*unknown setting 'los'. Did you mean 'loss'"),
        ("", "expected settings such as"),
        ("loss: [\n", "cannot be read as a recipe"),
        ("model: [bagg]\n", "row.yml cannot be used: .*Did you mean 'bag'"),
        ("model: 3\n", "model must be one of auto, bag, encoder, svm"),
        ("model: [bag, svm]\nC: 3\n", "C: `model` holds models with their own settings"),
        ("model: encoder\nlearning_rate: 1e-4\n", r"got '1e-4'\. In YAML write 1\.0e-4"),
    ],
)
def test_bad_recipes_are_explained(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "row.yml").write_text(text)
    with pytest.raises((InputError, DataError), match=message):
        read_recipes(tmp_path, ["row"])


def test_recipes_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "flat.yaml").write_text("model: bag\nhidden: 8\nngrams: 2\nfolds: 1\n")
    assert read_recipes(tmp_path) == {
        "flat": {"model": "bag", "ngrams": 2, "hidden": 8, "folds": 1}
    }
    with pytest.raises(DataError, match="no recipe for dbb"):
        read_recipes(tmp_path, ["dbb"])
    with pytest.raises(UnknownNameError, match="Did you mean 'reuters'"):
        find_recipes("reuter")
    with pytest.raises(InputError, match=r"the recipe of db cannot be used: .*'dbb'"):
        run({"db": {"loss": "dbb"}}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_recipes_for_any_data_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [path.stem for path in GENERIC] == ["best", "fast", "paper"]
    for path in GENERIC:
        assert find_recipe(path.stem) == find_recipe(path.stem.upper()) == path
    with pytest.raises(UnknownNameError, match=r"no file has this name.*Did you mean 'best'"):
        find_recipe("bes")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("model: svm\n")
    assert read_recipe(find_recipe("mine.yaml")) == {"model": "svm"}
    # `fast` is the default; `paper` has the paper's head, thresholds and training.
    (fast,) = plans_of("fast", read_recipe(find_recipe("fast")))
    assert fast == LongTailClassifier().plans()[0]
    (paper,) = plans_of("paper", read_recipe(find_recipe("paper")))
    assert isinstance(paper.model, Encoder) and paper.model.pooling == "cls"
    assert (paper.loss, paper.folds, paper.training.early_stopping_patience) == ("db", 1, 5)


@pytest.mark.parametrize(
    ("n_documents", "epochs"), [(6_769, 24), (10_647, 15), (100, 30), (1_000_000, 3)]
)
def test_the_number_of_documents_decides_the_epochs_of_best(n_documents: int, epochs: int) -> None:
    """The epochs for Reuters and PubMed are among the best in docs/log.md."""
    recipe = read_recipe(find_recipe("best"))
    encoder, linear = LongTailClassifier.from_settings(recipe).plans(n_documents)
    assert encoder.training.epochs == epochs and linear.training.epochs is None
    given = LongTailClassifier.from_settings({**recipe, "epochs": 2}).plans(n_documents)[0]
    assert given.training.epochs == 2


def test_settings_reach_the_members_of_the_kind_that_has_them() -> None:
    recipe = {"model": ["encoder", {"kind": "bag", "C": 1.0}, "svm"], "folds": 2}
    changed = with_settings(recipe, {"max_length": 9, "class_weight": "balanced", "folds": 3})
    assert changed == {
        "model": [
            {"kind": "encoder", "max_length": 9},
            {"kind": "bag", "C": 1.0},
            {"kind": "svm", "class_weight": "balanced"},
        ],
        "folds": 3,
    }
    with pytest.raises(InputError, match="--min-df: the recipe blends several models"):
        with_settings(recipe, {"min_df": 3})
    assert with_settings(recipe, {"model": "bag", "C": 3}) == {"model": "bag", "C": 3, "folds": 2}


def test_the_wheel_brings_the_recipes(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    build = f"from hatchling.build import build_wheel; build_wheel({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert {f"longtail/recipes/{named(path)}.yaml" for path in FILES} <= inside
    assert "longtail/recipes/reuters/labels.json" in inside
