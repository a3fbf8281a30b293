"""Train every row of a table from its recipe and set the results side by side."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from longtail.classifier import LongTailClassifier
from longtail.data import TextData
from longtail.errors import DataError, InputError, UnknownNameError
from longtail.evaluation import Evaluation
from longtail.report import to_markdown
from longtail.settings import MODEL_SETTINGS


def read_recipe(path: Path) -> dict[str, Any]:
    """A recipe is a YAML mapping of LongTailClassifier arguments and settings of its model."""
    import yaml

    try:
        recipe = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(f"{path} cannot be read as a recipe: {error}.") from error
    if not isinstance(recipe, dict):
        raise InputError(f"{path}: expected settings such as `loss: db`, got {recipe!r}.")
    arguments = set(LongTailClassifier().get_params())
    model = recipe.get("model", "bag")
    kind = MODEL_SETTINGS.get(model)
    of_model = {field.name for field in dataclasses.fields(kind)} if kind else set()
    for key in recipe:
        if key not in arguments | of_model:
            raise UnknownNameError(f"setting in {path}", key, arguments | of_model)
    found = {key: value for key, value in recipe.items() if key in arguments}
    flat = {key: value for key, value in recipe.items() if key not in arguments}
    if flat:
        found["model_settings"] = {**(found.get("model_settings") or {}), **flat}
    return found


def read_recipes(folder: Path, rows: Sequence[str] | None = None) -> dict[str, dict[str, Any]]:
    """The recipes of a folder by row name, all or some of them."""
    found = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    missing = [row for row in rows or [] if row not in found]
    if not found or missing:
        raise DataError(
            f"no recipe for {', '.join(missing) or 'any row'} in {folder}. "
            f"Found: {', '.join(found) or 'none'}."
        )
    return {row: read_recipe(found[row]) for row in rows or found}


def reproduce(
    parts: Mapping[str, TextData],
    recipes: Mapping[str, Mapping[str, Any]],
    out: Path,
    started: Callable[[str], None] = lambda row: None,
) -> dict[str, Evaluation]:
    """Train each row, judge it on the test part, write table.md and table.json into `out`."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot write to {out}: {error}. Choose another folder.") from error
    evaluations: dict[str, Evaluation] = {}
    for row, recipe in recipes.items():
        started(row)
        classifier = LongTailClassifier(**recipe)
        classifier.fit(parts["train"], validation=parts["validation"])
        evaluations[row] = classifier.evaluate(parts["test"])
    (out / "table.md").write_text(to_markdown(evaluations), "utf-8")
    plain = {row: evaluation.to_dict() for row, evaluation in evaluations.items()}
    (out / "table.json").write_text(json.dumps(plain, indent=2), "utf-8")
    return evaluations
