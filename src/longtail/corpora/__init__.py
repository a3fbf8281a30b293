"""Named corpora: `load_corpus(name)` gives train, validation and test parts as TextData."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from longtail.corpora import newswire
from longtail.data import TextData
from longtail.errors import UnknownNameError

CORPORA: dict[str, Callable[..., dict[str, TextData]]] = {"newswire": newswire.load}


def load_corpus(name: str, **settings: Any) -> dict[str, TextData]:
    """Load a corpus by name; settings such as n_documents and seed go to its loader."""
    if name not in CORPORA:
        raise UnknownNameError("corpus", name, CORPORA)
    return CORPORA[name](**settings)


def list_corpora() -> list[str]:
    """The names that `load_corpus` knows."""
    return list(CORPORA)


__all__ = ["CORPORA", "list_corpora", "load_corpus"]
