"""The paper's tables from recipes: every row for every seed, resumable, with significance.

`reproduce` trains what is missing in a folder and writes tables, claims and figures of what is
there; recipes are YAML files of arguments of LongTailClassifier.
"""

from longtail.reproduce.recipes import (
    find_recipe,
    find_recipes,
    list_recipes,
    read_recipe,
    read_recipes,
    with_encoder,
    with_settings,
)
from longtail.reproduce.run import Event, Reproduced, reproduce

__all__ = [
    "Event",
    "Reproduced",
    "find_recipe",
    "find_recipes",
    "list_recipes",
    "read_recipe",
    "read_recipes",
    "reproduce",
    "with_encoder",
    "with_settings",
]
