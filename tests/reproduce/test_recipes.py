"""Every recipe is read, names only what exists, and trains."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from longtail.classifier import LongTailClassifier
from longtail.errors import DataError, InputError, UnknownNameError
from longtail.fitting import Plan
from longtail.labels import LabelStats
from longtail.losses import LOSSES, build_loss
from longtail.reproduce import (
    find_recipes,
    list_recipes,
    read_recipe,
    read_recipes,
    with_encoder,
)
from longtail.reproduce.cells import read_finished, train_cell
from longtail.reproduce.recipes import describe_model, plans_of, uses_chance
from longtail.reproduce.run import cells_of

from .cases import documents, run

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "recipes").rglob("*.yaml"))
ROWS = ["svm", "bce", "fl", "cb", "r-fl", "ntr-fl", "db-0fl", "cb-ntr", "db"]


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def test_there_are_recipes_for_the_papers_rows_in_its_order() -> None:
    assert set(list_recipes()) == {path.parent.name for path in FILES}
    for name in ("newswire", "pubmed", "reuters", "reuters-bag"):
        rows = list(read_recipes(find_recipes(name)))
        assert [row for row in rows if row not in ("svm-balanced", "best")] == ROWS
        assert "svm-balanced" not in rows or rows[1] == "svm-balanced"
        assert "best" not in rows or rows[-1] == "best"


@pytest.mark.parametrize("path", FILES, ids=named)
def test_recipe_is_a_plan(path: Path) -> None:
    recipe = read_recipe(path)
    assert all(isinstance(plan, Plan) for plan in LongTailClassifier(**recipe).plans())
    if path.stem in LOSSES:
        assert recipe["loss"] == path.stem


@pytest.mark.parametrize("path", FILES, ids=named)
def test_recipe_trains_on_a_tiny_corpus(path: Path, tmp_path: Path, tiny_bert: Path) -> None:
    recipe = quick(read_recipe(path))
    if any(plan.model == "encoder" for plan in plans_of("row", recipe)):
        recipe = with_encoder({"row": recipe}, str(tiny_bert))["row"]
    for plan in plans_of("row", recipe):
        assert plan.model != "encoder" or plan.model_settings["encoder"] == str(tiny_bert)
    (cell,) = cells_of({path.stem: recipe}, tmp_path, 1)
    train_cell(cell, documents(), {})
    found = read_finished(cell)
    assert found is not None and 0 <= found.evaluation["overall"]["micro_f1"] <= 1


def quick(recipe: dict[str, Any]) -> dict[str, Any]:
    """The recipe, and members of it, for one epoch on a CPU."""

    def short(said: dict[str, Any]) -> dict[str, Any]:
        return {**said, "epochs": 1} if "epochs" in said else said

    changed = {**short(recipe), "device": "cpu"}
    if changed.get("members"):
        changed["members"] = [short(member) for member in changed["members"]]
    return changed


@pytest.mark.parametrize("corpus", ["reuters", "pubmed"])
def test_the_constants_are_the_papers(corpus: str) -> None:
    stats = LabelStats.from_counts([50, 5, 2], n_samples=100)
    for row in ROWS[1:]:
        for name in (corpus, *(["reuters-bag"] if corpus == "reuters" else [])):
            recipe = read_recipe(find_recipes(name) / f"{row}.yaml")
            settings = recipe.get("loss_settings", {})
            # All that differs from zero is written out, nothing more.
            used = {k: v for k, v in LOSSES[row].constants.items() if v != 0 and k != "weighting"}
            assert set(settings) == set(used), row
            ours, theirs = (
                build_loss(row, stats, **settings),
                build_loss(row, stats, constants=corpus),
            )
            assert ours.extra_repr() == theirs.extra_repr()


def test_which_rows_use_random_numbers() -> None:
    alone = {"folds": 1, "thresholds": "global"}
    assert not uses_chance("svm", {"model": "svm", **alone})
    assert not uses_chance("bag", {"model": "bag", "folds": 1, "thresholds": "grid"})
    assert uses_chance("bag", {"model": "bag", **alone, "folds": 3})
    assert uses_chance("bag", {"model": "bag", **alone, "model_settings": {"hidden": 8}})
    assert uses_chance("e", {"model": "encoder", **alone})
    # The seed deals the validation documents among which these choose.
    assert uses_chance("svm", {"model": "svm", "folds": 1, "thresholds": "auto"})
    assert uses_chance("svm", {"model": "svm", "folds": 1, "thresholds": "micromacro"})


def test_descriptions_lie_beside_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "texts.json").write_text('{"cpi": "consumer prices"}')
    (tmp_path / "r.yaml").write_text(
        "label_texts: texts.json\nmembers:\n  - label_texts: texts.json\n  - model: svm\n"
    )
    found = read_recipe(tmp_path / "r.yaml")
    assert found["label_texts"] == {"cpi": "consumer prices"} == found["members"][0]["label_texts"]


def test_a_seed_in_a_recipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the recipe of db says seed: 7, but every row"):
        cells_of({"db": {"seed": 7}}, tmp_path, 2)


def test_another_encoder_reaches_members_too(tmp_path: Path) -> None:
    flat = {"model": "encoder", "encoder": "a"}
    nested = {"model": "encoder", "model_settings": {"encoder": "b", "max_length": 9}}
    recipes: dict[str, dict[str, Any]] = {
        "svm": {"model": "svm"},
        "db": {"model": "encoder", "model_settings": {"max_length": 9}},
        "best": {"members": [flat, nested, {"model": "bag", "loss": "db"}]},
    }
    found = with_encoder(recipes, "c")
    assert found["svm"] == {"model": "svm"}
    assert found["db"]["model_settings"] == {"max_length": 9, "encoder": "c"}
    members = found["best"]["members"]
    assert members[0]["encoder"] == "c" and members[2] == {"model": "bag", "loss": "db"}
    assert members[1]["model_settings"] == {"encoder": "c", "max_length": 9}
    assert flat["encoder"] == "a", "the recipes given stay as they are"
    assert describe_model("best", found["best"]) == "c + TF-IDF with a linear head"
    (tmp_path / "bert").mkdir()
    local = with_encoder({"db": recipes["db"]}, str(tmp_path / "bert"))["db"]
    assert describe_model("db", local) == "bert"
    with pytest.raises(InputError, match="--encoder c would do nothing"):
        with_encoder({"svm": recipes["svm"]}, "c")


def test_bad_recipes_are_explained(tmp_path: Path) -> None:
    (tmp_path / "typo.yaml").write_text("los: db\n")
    with pytest.raises(
        UnknownNameError, match=r"setting in .*typo.yaml 'los'. Did you mean 'loss'"
    ):
        read_recipe(tmp_path / "typo.yaml")
    (tmp_path / "flat.yaml").write_text("hidden: 8\nmodel_settings: {ngrams: 2}\nfolds: 1\n")
    found = read_recipe(tmp_path / "flat.yaml")
    assert found == {"model_settings": {"ngrams": 2, "hidden": 8}, "folds": 1}
    (tmp_path / "empty.yaml").write_text("")
    with pytest.raises(InputError, match="expected settings such as"):
        read_recipe(tmp_path / "empty.yaml")
    (tmp_path / "broken.yaml").write_text("loss: [\n")
    with pytest.raises(DataError, match="cannot be read as a recipe"):
        read_recipe(tmp_path / "broken.yaml")
    (tmp_path / "list.yaml").write_text("model: [bag]\nloss: db\n")
    with pytest.raises(InputError, match=r"the recipe of list cannot be used"):
        run(read_recipes(tmp_path, ["list"]), tmp_path / "out")
    (tmp_path / "number.yaml").write_text("model_settings: 3\nC: 3\n")
    with pytest.raises(InputError, match=r"number.yaml: model_settings must be a mapping, got 3"):
        read_recipe(tmp_path / "number.yaml")
    (tmp_path / "rate.yml").write_text("model: encoder\nlearning_rate: 1e-4\n")
    with pytest.raises(InputError, match=r"got '1e-4'\. In YAML write 1\.0e-4"):
        run(read_recipes(tmp_path, ["rate"]), tmp_path / "out")
    with pytest.raises(InputError, match=r"is a file. Name its folder.*--rows flat"):
        find_recipes(str(tmp_path / "flat.yaml"))
    with pytest.raises(DataError, match="no recipe for dbb"):
        read_recipes(tmp_path, ["dbb"])
    with pytest.raises(UnknownNameError, match="Did you mean 'reuters'"):
        find_recipes("reuter")
    with pytest.raises(InputError, match=r"the recipe of db cannot be used: .*'dbb'"):
        run({"db": {"loss": "dbb"}}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_wheel_brings_the_recipes(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    build = f"from hatchling.build import build_wheel; build_wheel({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert {f"longtail/recipes/{named(path)}.yaml" for path in FILES} <= inside
    assert "longtail/recipes/reuters/labels.json" in inside
