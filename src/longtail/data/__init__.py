"""Documents in and out: `TextData`, readers and writers of many formats, and splits.

The names load on first use: the command's help needs the options, not scipy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longtail.data.collect import read_data
    from longtail.data.documents import Document, ReadOptions, ReadReport
    from longtail.data.formats import FORMATS, list_formats, write_data
    from longtail.data.sources import load_data
    from longtail.data.splits import (
        folds,
        folds_by_ids,
        paper_split,
        random_split,
        split,
        split_by_ids,
    )
    from longtail.data.textdata import TextData

_HOMES = {
    "FORMATS": "formats",
    "Document": "documents",
    "ReadOptions": "documents",
    "ReadReport": "documents",
    "TextData": "textdata",
    "folds": "splits",
    "folds_by_ids": "splits",
    "list_formats": "formats",
    "load_data": "sources",
    "paper_split": "splits",
    "random_split": "splits",
    "read_data": "collect",
    "split": "splits",
    "split_by_ids": "splits",
    "write_data": "formats",
}

__all__ = [
    "FORMATS",
    "Document",
    "ReadOptions",
    "ReadReport",
    "TextData",
    "folds",
    "folds_by_ids",
    "list_formats",
    "load_data",
    "paper_split",
    "random_split",
    "read_data",
    "split",
    "split_by_ids",
    "write_data",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'longtail.data' has no attribute {name!r}")
    return getattr(import_module(f"longtail.data.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
