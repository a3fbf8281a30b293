"""Recipes: YAML files of LongTailClassifier arguments, one for each row of a table.

They come with the package, lie in a source checkout, or in a folder of the user's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longtail.classifier import LongTailClassifier
from longtail.errors import DataError, InputError, UnknownNameError
from longtail.fitting import Plan
from longtail.fitting.label_texts import read_label_texts
from longtail.report import paper_rows
from longtail.runs import read_small
from longtail.settings import MODEL_SETTINGS

PACKAGE = Path(__file__).parents[1]
# Of an installed package, and of a source checkout.
PLACES = (PACKAGE / "recipes", PACKAGE.parents[1] / "recipes")
# The paper's order, in which rows are trained and shown; others follow.
SVM, *LOSS_ROWS = paper_rows("reuters", "labels")
BALANCED_SVM = "svm-balanced"
# Ways to choose thresholds that look at all validation documents at once.
WITHOUT_FOLDS = ("grid", "global", "per-label")
ROW_ORDER = (SVM, BALANCED_SVM, *LOSS_ROWS)


def list_recipes() -> dict[str, Path]:
    """The folders of recipes that come with longtail, by name."""
    for place in PLACES:
        found = {path.parent.name: path.parent for path in sorted(place.glob("*/*.yaml"))}
        if found:
            return found
    return {}


def find_recipes(name: str) -> Path:
    """The folder of recipes of a name that comes with longtail, or else of a path."""
    known = list_recipes()
    if name in known:
        return known[name]
    place = Path(name)
    if place.is_file():
        raise InputError(
            f"--recipes {name} is a file. Name its folder, and this row of it: --recipes "
            f"{place.parent} --rows {place.stem}."
        )
    if not place.exists():
        raise UnknownNameError("recipes (and no folder is called so):", name, known)
    return place


def read_recipe(path: Path) -> dict[str, Any]:
    """A recipe is a YAML mapping of LongTailClassifier arguments and settings of its model."""
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            # A few hundred bytes of aliases of aliases stand for gigabytes.
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("aliases (*name) are not supported; repeat the settings")
            return super().compose_node(parent, index)

    try:
        recipe = yaml.load(read_small(path), Loader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise DataError(f"{path} cannot be read as a recipe: {error}.") from error
    if not isinstance(recipe, dict):
        raise InputError(f"{path}: expected settings such as `loss: db`, got {recipe!r}.")
    arguments = set(LongTailClassifier().get_params())
    model = recipe.get("model", "bag")
    kind = MODEL_SETTINGS.get(model) if isinstance(model, str) else None
    of_model = {field.name for field in dataclasses.fields(kind)} if kind else set()
    for key in recipe:
        if key not in arguments | of_model:
            raise UnknownNameError(f"setting in {path}", key, arguments | of_model)
    found = {key: value for key, value in recipe.items() if key in arguments}
    flat = {key: value for key, value in recipe.items() if key not in arguments}
    if flat:
        own = found.get("model_settings") or {}
        if not isinstance(own, dict):
            raise InputError(f"{path}: model_settings must be a mapping, got {own!r}.")
        found["model_settings"] = {**own, **flat}
    members = found.get("members")
    for said in (found, *(members if isinstance(members, list) else [])):
        # A file of descriptions lies beside the recipe that names it.
        if isinstance(said, dict) and isinstance(said.get("label_texts"), str):
            said["label_texts"] = read_label_texts(said["label_texts"], path.parent)
    return found


def read_recipes(folder: Path, rows: Sequence[str] | None = None) -> dict[str, dict[str, Any]]:
    """The recipes of a folder by row name, all or some of them, the paper's rows first."""
    files = [path for end in ("*.yaml", "*.yml") for path in folder.glob(end)]
    found = {path.stem: path for path in sorted(files, key=_place)}
    missing = [row for row in rows or [] if row not in found]
    if not found or missing:
        raise DataError(
            f"no recipe for {', '.join(missing) or 'any row'} in {folder}. "
            f"Found: {', '.join(found) or 'none'}."
        )
    return {row: read_recipe(path) for row, path in found.items() if not rows or row in rows}


def with_encoder(
    recipes: Mapping[str, Mapping[str, Any]], encoder: str
) -> dict[str, dict[str, Any]]:
    """The recipes with another encoder wherever one is used, members of a blend included."""
    plans = [plan for row, recipe in recipes.items() for plan in plans_of(row, recipe)]
    if all(plan.model != "encoder" for plan in plans):
        raise InputError(
            f"--encoder {encoder} would do nothing: none of the rows {', '.join(recipes)} has "
            "`model: encoder`. Leave it out, or choose other recipes."
        )
    return {row: _other_encoder(recipe, encoder) for row, recipe in recipes.items()}


def plans_of(row: str, recipe: Mapping[str, Any]) -> tuple[Plan, ...]:
    """The checked plans of a recipe, one for each member; an error names the row."""
    try:
        return LongTailClassifier(**recipe).plans()
    except (InputError, UnknownNameError, TypeError) as error:
        raise InputError(f"the recipe of {row} cannot be used: {error}") from error


def uses_chance(row: str, recipe: Mapping[str, Any]) -> bool:
    """Whether another seed gives another result.

    It does not for solved linear models without folds and with thresholds that need none either.
    """
    if recipe.get("thresholds", "auto") not in WITHOUT_FOLDS:
        return True
    return any(
        plan.folds > 1 or not (plan.model == "svm" or _is_linear(plan))
        for plan in plans_of(row, recipe)
    )


def describe_model(row: str, recipe: Mapping[str, Any]) -> str:
    """What learns: the encoders by their names, of one in a folder the last part of its path."""
    names = []
    for plan in plans_of(row, recipe):
        if plan.model == "encoder":
            name = plan.model_settings.get("encoder", MODEL_SETTINGS["encoder"]().encoder)
            names.append(Path(name).name if Path(name).is_dir() else name)
        elif plan.model == "svm":
            names.append("linear SVM on TF-IDF")
        else:
            head = "a linear head" if _is_linear(plan) else "a hidden layer"
            names.append(f"TF-IDF with {head}")
    return " + ".join(dict.fromkeys(names))


def _is_linear(plan: Plan) -> bool:
    return plan.model == "bag" and not plan.model_settings.get("hidden")


def _place(path: Path) -> tuple[int, str]:
    known = ROW_ORDER.index(path.stem) if path.stem in ROW_ORDER else len(ROW_ORDER)
    return known, path.stem


def _other_encoder(recipe: Mapping[str, Any], encoder: str) -> dict[str, Any]:
    changed = dict(recipe)
    if changed.get("model") == "encoder":
        if "encoder" in changed:
            changed["encoder"] = encoder
        else:
            settings = changed.get("model_settings") or {}
            changed["model_settings"] = {**settings, "encoder": encoder}
    if changed.get("members"):
        changed["members"] = [_other_encoder(member, encoder) for member in changed["members"]]
    return changed
