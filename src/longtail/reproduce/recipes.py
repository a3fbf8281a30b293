"""Recipes: YAML files of flat settings, for any data or one for each row of a table.

They come with the package, or from a file or a folder of the user.
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
# In an installed package, and in a source checkout.
PLACES = (PACKAGE / "recipes", PACKAGE.parents[1] / "recipes")
# The order of the paper; other rows follow.
SVM, *LOSS_ROWS = paper_rows("reuters", "labels")
BALANCED_SVM = "svm-balanced"
# Threshold methods that use no random folds.
WITHOUT_FOLDS = ("grid", "global", "per-label")


def list_recipes() -> dict[str, Path]:
    """The folders of recipes that come with longtail, by name."""
    for place in PLACES:
        folders = {path.parent.name: path.parent for path in sorted(place.glob("*/*.yaml"))}
        if folders:
            return folders
    return {}


def find_recipes(name: str) -> Path:
    """The folder of recipes of a name that comes with longtail, or else of a path."""
    known, folder = list_recipes(), Path(name)
    if not folder.exists() and name not in known:
        raise UnknownNameError("recipes (and no folder is called so):", name, known)
    return known.get(name, folder)


def find_recipe(name: str) -> Path:
    """The file of a recipe for any data by its name, or else of a path."""
    known = {path.stem: path for place in PLACES for path in sorted(place.glob("*.yaml"))}
    if Path(name).is_file():
        return Path(name)
    return known[known_name("recipe (and no file is called so):", name, known)]


def read_recipe(path: Path) -> dict[str, Any]:
    """A recipe is a YAML mapping of flat settings: see `LongTailClassifier.from_settings`."""
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            # A few hundred bytes of nested aliases expand to gigabytes.
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
        # The path of a file of descriptions is relative to the recipe.
        recipe["label_texts"] = read_label_texts(recipe["label_texts"], path.parent)
    try:
        LongTailClassifier.from_settings(recipe)
    except (InputError, UnknownNameError, TypeError) as error:
        raise InputError(f"{path} cannot be used: {error}") from error
    return recipe


def read_recipes(folder: Path, rows: Sequence[str] | None = None) -> dict[str, dict[str, Any]]:
    """The recipes of a folder by row name, all or some of them, the paper's rows first."""
    files = [*folder.glob("*.yaml"), *folder.glob("*.yml")]
    order = {row: place for place, row in enumerate((SVM, BALANCED_SVM, *LOSS_ROWS))}
    files.sort(key=lambda path: (order.get(path.stem, len(order)), path.stem))
    paths = {path.stem: path for path in files}
    missing = [row for row in rows or [] if row not in paths]
    if not paths or missing:
        raise DataError(
            f"no recipe for {', '.join(missing) or 'any row'} in {folder}. "
            f"There are: {', '.join(paths) or 'none'}."
        )
    return {row: read_recipe(path) for row, path in paths.items() if not rows or row in rows}


def with_encoder(
    recipes: Mapping[str, Mapping[str, Any]], encoder: str
) -> dict[str, dict[str, Any]]:
    """The recipes with another encoder wherever one is used, members of a blend included."""
    changed = {
        row: with_settings(recipe, {"encoder": encoder} if _has_encoder(recipe) else {})
        for row, recipe in recipes.items()
    }
    if not any(map(_has_encoder, recipes.values())):
        raise InputError(
            f"--encoder {encoder} has no effect: none of the rows {', '.join(recipes)} has an "
            "encoder. Leave it out, or choose other recipes."
        )
    return changed


def with_settings(recipe: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe with other settings; those of one kind of model reach its members of a blend."""
    models = recipe.get("model")
    if not isinstance(models, list) or "model" in settings:
        return {**recipe, **settings}
    members = [dict(each) if isinstance(each, Mapping) else {KIND: each} for each in models]
    changed = {**recipe, "model": members}
    for name, value in settings.items():
        users = [each for each in members if name in _model_fields(each)]
        if len({each[KIND] for each in users}) == 1:
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


def _model_fields(member: Mapping[str, Any]) -> set[str]:
    """The settings that a member has, beside those that any model has."""
    kind = known_name("model", member.get(KIND, DEFAULT_MODEL), MODELS)
    return field_names(MODELS[kind].settings) - field_names(ModelSettings)


def plans_of(row: str, recipe: Mapping[str, Any]) -> tuple[Plan, ...]:
    """The checked plans of a recipe, one for each member; an error names the row."""
    try:
        return LongTailClassifier.from_settings(recipe).plans()
    except (InputError, UnknownNameError, TypeError) as error:
        raise InputError(f"the recipe of {row} cannot be used: {error}") from error


def is_random(row: str, recipe: Mapping[str, Any]) -> bool:
    """Whether another seed gives another result: not for solved models without any folds."""
    if recipe.get("thresholds", "auto") not in WITHOUT_FOLDS:
        return True
    return any(plan.folds > 1 or plan.model.trains_in_steps for plan in plans_of(row, recipe))


def describe_model(row: str, recipe: Mapping[str, Any]) -> str:
    """The model in a few words, such as the name of its encoder."""
    return " + ".join(dict.fromkeys(plan.model.description for plan in plans_of(row, recipe)))


def _has_encoder(recipe: Mapping[str, Any]) -> bool:
    models = recipe.get("model", DEFAULT_MODEL)
    members = models if isinstance(models, list) else [models]
    dicts = [each if isinstance(each, Mapping) else {KIND: each} for each in members]
    return any("encoder" in _model_fields(each) for each in dicts)
