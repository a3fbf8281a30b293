"""Recipes: YAML files of flat settings, for any data or one per row of a table.

They come with the package, or from a file or folder of the user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longtail.classifier import LongTailClassifier
from longtail.classifier.label_texts import read_label_texts
from longtail.classifier.plan import Plan
from longtail.errors import DataError, InputError, UnknownNameError, known_name
from longtail.models import DEFAULT_MODEL, KIND, MODELS, ModelSettings
from longtail.report import paper_rows
from longtail.runs.files import read_small
from longtail.settings import field_names

PACKAGE = Path(__file__).parents[1]
# In an installed package and in a source checkout.
PLACES = (PACKAGE / "recipes", PACKAGE.parents[1] / "recipes")
# In the paper's order.
SVM, *LOSS_ROWS = paper_rows("reuters", "labels")
BALANCED_SVM = "svm-balanced"
# Threshold methods that use no folds, and so no random numbers.
WITHOUT_FOLDS = ("grid", "global", "per-label")


def list_recipes() -> dict[str, Path]:
    """Name -> folder of the recipes that come with longtail."""
    for place in PLACES:
        folders = {path.parent.name: path.parent for path in sorted(place.glob("*/*.yaml"))}
        if folders:
            return folders
    return {}


def find_recipes(name: str) -> Path:
    """The folder of recipes with this name, from longtail or else a path."""
    known, folder = list_recipes(), Path(name)
    if not folder.exists() and name not in known:
        raise UnknownNameError("recipes (and no folder has this name):", name, known)
    return known.get(name, folder)


def find_recipe(name: str) -> Path:
    """The file of a recipe for any data: a path, or else a name from longtail."""
    known = {path.stem: path for place in PLACES for path in sorted(place.glob("*.yaml"))}
    if Path(name).is_file():
        return Path(name)
    return known[known_name("recipe (and no file has this name):", name, known)]


def read_recipe(path: Path) -> dict[str, Any]:
    """Read a YAML mapping of flat settings and check it with `LongTailClassifier.from_settings`."""
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            # A few hundred bytes of nested aliases can expand to gigabytes.
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("aliases (*name) are not supported; repeat the settings")
            return super().compose_node(parent, index)

    try:
        recipe = yaml.load(read_small(path), Loader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise DataError(f"{path} cannot be read as a recipe: {error}.") from error
    if not isinstance(recipe, dict):
        raise InputError(f"{path}: expected settings such as `loss: db`, got {recipe!r}.")
    if isinstance(recipe.get("label_texts"), str):
        # Relative to the recipe.
        recipe["label_texts"] = read_label_texts(recipe["label_texts"], path.parent)
    try:
        LongTailClassifier.from_settings(recipe)
    except (InputError, UnknownNameError, TypeError) as error:
        raise InputError(f"{path} cannot be used: {error}") from error
    return recipe


def read_recipes(folder: Path, rows: Sequence[str] | None = None) -> dict[str, dict[str, Any]]:
    """Row -> recipe, for all or the given rows of a folder, the paper's rows first."""
    order = {row: k for k, row in enumerate((SVM, BALANCED_SVM, *LOSS_ROWS))}
    files = [*folder.glob("*.yaml"), *folder.glob("*.yml")]
    files.sort(key=lambda path: (order.get(path.stem, len(order)), path.stem))
    paths = {path.stem: path for path in files}
    missing = [row for row in rows or [] if row not in paths]
    if not paths or missing:
        raise DataError(
            f"no recipe for {', '.join(missing) or 'any row'} in {folder}. "
            f"Rows there: {', '.join(paths) or 'none'}."
        )
    return {row: read_recipe(path) for row, path in paths.items() if not rows or row in rows}


def with_encoder(
    recipes: Mapping[str, Mapping[str, Any]], encoder: str
) -> dict[str, dict[str, Any]]:
    """The recipes with another encoder wherever one is used, including members of a blend."""
    changed = {
        row: with_settings(recipe, {"encoder": encoder} if _has_encoder(recipe) else {})
        for row, recipe in recipes.items()
    }
    if not any(map(_has_encoder, recipes.values())):
        raise InputError(
            f"--encoder {encoder} has no effect: none of the rows {', '.join(recipes)} has an "
            "encoder. Leave it out or choose other recipes."
        )
    return changed


def with_settings(recipe: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe with some settings replaced; in a blend, settings of one kind of model go to its
    members of that kind."""
    if not isinstance(recipe.get("model"), list) or "model" in settings:
        return {**recipe, **settings}
    members = _members(recipe)
    changed = {**recipe, "model": members}
    for name, value in settings.items():
        users = [member for member in members if name in _model_fields(member)]
        if len({member[KIND] for member in users}) == 1:
            for member in users:
                member[name] = value
        elif any(name in _model_fields({KIND: kind}) for kind in MODELS):
            raise InputError(
                f"--{name.replace('_', '-')}: the recipe blends several models. Set {name} in the "
                "model that it is meant for."
            )
        else:
            changed[name] = value
    return changed


def _members(recipe: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A copy of the settings of each model of a recipe."""
    model = recipe.get("model", DEFAULT_MODEL)
    models = model if isinstance(model, list) else [model]
    return [dict(each) if isinstance(each, Mapping) else {KIND: each} for each in models]


def _model_fields(member: Mapping[str, Any]) -> set[str]:
    """The settings of a member that not all kinds of models have."""
    kind = known_name("model", member.get(KIND, DEFAULT_MODEL), MODELS)
    return field_names(MODELS[kind].settings) - field_names(ModelSettings)


def plans_of(row: str, recipe: Mapping[str, Any]) -> tuple[Plan, ...]:
    """The checked plans of a recipe, one per member; errors name the row."""
    try:
        return LongTailClassifier.from_settings(recipe).plans()
    except (InputError, UnknownNameError, TypeError) as error:
        raise InputError(f"the recipe of {row} cannot be used: {error}") from error


def is_random(row: str, recipe: Mapping[str, Any]) -> bool:
    """Whether results depend on the seed; not so for models solved exactly without folds."""
    if recipe.get("thresholds", "auto") not in WITHOUT_FOLDS:
        return True
    return any(plan.folds > 1 or plan.model.trains_in_steps for plan in plans_of(row, recipe))


def describe_model(row: str, recipe: Mapping[str, Any]) -> str:
    """A short description of the model, such as the name of its encoder."""
    return " + ".join(dict.fromkeys(plan.model.description for plan in plans_of(row, recipe)))


def _has_encoder(recipe: Mapping[str, Any]) -> bool:
    return any("encoder" in _model_fields(member) for member in _members(recipe))
