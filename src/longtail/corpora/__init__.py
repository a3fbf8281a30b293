"""Named corpora: `load_corpus(name)` gives train, validation and test parts as TextData."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from longtail.corpora import newswire, pubmed, reuters
from longtail.corpora.download import cache_folder
from longtail.data.collect import our_errors
from longtail.data.textdata import TextData
from longtail.errors import InputError, UnknownNameError


@dataclass(frozen=True)
class Corpus:
    """What is known of a corpus, and how it is loaded."""

    name: str
    summary: str
    load: Callable[..., dict[str, TextData]]
    source: str
    licence: str
    files: str | None = None
    """What to place in the cache folder; None for a corpus that is made, not fetched."""


_TABLE = (
    Corpus(
        "newswire",
        "made newswire of Reuters' size: 10,788 documents, 90 labels, 1.24 per document",
        newswire.load,
        "made by longtail from a seed; no download",
        "Apache-2.0",
    ),
    Corpus(
        "newswire-pubmed",
        "made newswire of PubMed's size: 224,897 documents, 18,211 labels, 12.3 per document",
        partial(newswire.load, preset="pubmed"),
        "made by longtail from a seed; no download",
        "Apache-2.0",
    ),
    Corpus(
        "reuters",
        "Reuters-21578, ModApte split, as in the paper: 10,788 documents, 90 labels",
        reuters.load,
        reuters.ARCHIVE.urls[0],
        "Reuters Ltd.; free distribution for research purposes only",
        f"{reuters.ARCHIVE.name}, or NLTK's {reuters.NLTK_ARCHIVE}",
    ),
    Corpus(
        "pubmed",
        "PubMed abstracts with MeSH headings, 2020-2021, by the paper's recipe",
        pubmed.load,
        f"BioASQ Task A (registration), or {pubmed.BASELINE}",
        "courtesy of the U.S. National Library of Medicine; see its terms",
        "BioASQ's allMeSH_2021.json, or MEDLINE files pubmed*.xml.gz",
    ),
)
CORPORA = {corpus.name: corpus for corpus in _TABLE}
# What the callers pass along, not what a user chooses.
_PLUMBING = {"path", "progress", "download_progress", "report"}


def load_corpus(
    name: str, path: str | Path | Sequence[str | Path] | None = None, **settings: Any
) -> dict[str, TextData]:
    """The train, validation and test parts of a corpus.

    Args:
        name: one of `list_corpora()`.
        path: a local copy of its source; default: the cache folder, downloaded if need be.
        settings: of its loader, such as seed for newswire or years for pubmed; `corpus_settings`
            lists them. `progress`, `download_progress` and `report` as in `read_data`.
    """
    corpus = get_corpus(name)
    known = inspect.signature(corpus.load).parameters
    for setting, value in settings.items():
        if setting not in known and setting not in _PLUMBING:
            raise UnknownNameError(f"setting of the corpus {name}", setting, corpus_settings(name))
        if setting not in _PLUMBING:
            _check_setting(name, setting, value)
    if path is not None:
        if "path" not in known:
            raise InputError(f"the corpus {name} is made, not read: it takes no path.")
        settings["path"] = path
    with our_errors(f"the corpus {name}"):
        return corpus.load(**{key: value for key, value in settings.items() if key in known})


def _check_setting(corpus: str, setting: str, value: Any) -> None:
    """Raise if a setting is not of the kind that the loader's signature says."""
    loader = get_corpus(corpus).load
    hint = get_type_hints(getattr(loader, "func", loader))[setting]
    kinds = get_args(hint) or (hint,)
    if get_origin(hint) is Literal:
        fits = value in kinds
    else:
        fits = any(_is_a(value, kind) for kind in kinds)
    if not fits:
        names = " or ".join(k.__name__ if isinstance(k, type) else repr(k) for k in kinds)
        raise InputError(
            f"the setting {setting} of the corpus {corpus} must be {names}, got {value!r}."
        )


def _is_a(value: object, kind: Any) -> bool:
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def get_corpus(name: str) -> Corpus:
    if name not in CORPORA:
        raise UnknownNameError("corpus", name, CORPORA)
    return CORPORA[name]


def corpus_settings(name: str) -> dict[str, Any]:
    """The settings of a corpus and their defaults."""
    parameters = inspect.signature(get_corpus(name).load).parameters
    return {n: p.default for n, p in parameters.items() if n not in _PLUMBING}


def list_corpora() -> list[str]:
    """The names that `load_corpus` knows."""
    return list(CORPORA)


__all__ = [
    "CORPORA",
    "Corpus",
    "cache_folder",
    "corpus_settings",
    "get_corpus",
    "list_corpora",
    "load_corpus",
]
