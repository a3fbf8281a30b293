"""Train every row of a table from its recipe and set the results side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from longtail.classifier import LongTailClassifier
from longtail.data import TextData
from longtail.errors import DataError, InputError
from longtail.evaluation import Evaluation
from longtail.report import to_markdown


def read_recipe(path: Path) -> dict[str, Any]:
    """A recipe is a YAML mapping of LongTailClassifier arguments."""
    import yaml

    try:
        recipe = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(f"{path} cannot be read as a recipe: {error}.") from error
    known = set(LongTailClassifier().get_params())
    if not isinstance(recipe, dict) or not set(recipe) <= known:
        raise InputError(f"{path}: expected keys among {', '.join(sorted(known))}, got {recipe!r}.")
    return recipe


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
