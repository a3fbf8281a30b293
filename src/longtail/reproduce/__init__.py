"""The paper's tables from recipes: every row for every seed, resumable, with significance.

`reproduce` trains what is missing in a folder and writes tables, claims and figures of what is
there; recipes are YAML files of LongTailClassifier arguments.
"""

from longtail.reproduce.recipes import (
    find_recipes,
    list_recipes,
    read_recipe,
    read_recipes,
    with_encoder,
)
from longtail.reproduce.run import Reproduced, reproduce
from longtail.reproduce.summary import Summary

__all__ = [
    "Reproduced",
    "Summary",
    "find_recipes",
    "list_recipes",
    "read_recipe",
    "read_recipes",
    "reproduce",
    "with_encoder",
]
