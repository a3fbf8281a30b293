"""Every recipe is read, and names only what exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from longtail.classifier import LongTailClassifier
from longtail.corpora.newswire import load
from longtail.errors import DataError, InputError, UnknownNameError
from longtail.losses import LOSSES
from longtail.models import MODELS
from longtail.reproduce import read_recipe, read_recipes, reproduce

RECIPES = Path(__file__).parents[1] / "recipes"
FILES = sorted(RECIPES.rglob("*.yaml"))


def test_there_are_recipes_for_the_papers_rows() -> None:
    rows = {path.stem for path in FILES if path.parent.name == "newswire"}
    assert rows == {"svm", "bce", "fl", "cb", "r-fl", "ntr-fl", "db-0fl", "cb-ntr", "db"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_recipe_runs_on_a_tiny_corpus(path: Path, tmp_path: Path) -> None:
    recipe = read_recipe(path)
    classifier = LongTailClassifier(**recipe)
    assert classifier.model in MODELS and classifier.loss in LOSSES
    short = {path.stem: recipe}
    found = reproduce(load(n_documents=120, n_labels=8), short, tmp_path)
    assert 0 <= found[path.stem].overall.micro_f1 <= 1


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
    with pytest.raises(DataError, match="no recipe for dbb"):
        read_recipes(tmp_path, ["dbb"])
