"""Search for settings with Optuna: a resumable study on fixed folds; needs the extra `search`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from longtail.errors import MissingExtraError

if TYPE_CHECKING:
    from longtail.search.results import SearchResult
    from longtail.search.study import search

__all__ = ["SearchResult", "check_extra", "search"]


def check_extra() -> None:
    """Raise if Optuna is missing, before any data is read."""
    if find_spec("optuna") is None:
        raise MissingExtraError("the search for settings", "optuna", "search")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'longtail.search' has no attribute {name!r}")
    check_extra()
    from longtail.search import study

    return getattr(study, name)
