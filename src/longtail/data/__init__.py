"""Documents in and out: `TextData`, readers and writers of many formats, and splits.

The names load on first use: the command's help needs the options, not scipy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longtail.data.documents import Document as Document
    from longtail.data.documents import ReadOptions as ReadOptions
    from longtail.data.documents import ReadReport as ReadReport
    from longtail.data.formats import FORMATS as FORMATS
    from longtail.data.formats import write_data as write_data
    from longtail.data.sources import iter_texts as iter_texts
    from longtail.data.sources import load_data as load_data
    from longtail.data.sources import read_data as read_data
    from longtail.data.splits import folds as folds
    from longtail.data.splits import folds_by_ids as folds_by_ids
    from longtail.data.splits import paper_split as paper_split
    from longtail.data.splits import split as split
    from longtail.data.splits import split_by_ids as split_by_ids
    from longtail.data.textdata import TextData as TextData

_NAMES = {
    "documents": ("Document", "ReadOptions", "ReadReport"),
    "formats": ("FORMATS", "write_data"),
    "sources": ("iter_texts", "load_data", "read_data"),
    "splits": ("folds", "folds_by_ids", "paper_split", "split", "split_by_ids"),
    "textdata": ("TextData",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'longtail.data' has no attribute {name!r}")
    return getattr(import_module(f"longtail.data.{_MODULES[name]}"), name)
