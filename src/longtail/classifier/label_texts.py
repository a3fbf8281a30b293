"""Label names or descriptions: additional training documents of rare labels, and the start of an
encoder's head.

For a label with three documents, its name is a fourth text that says what they have in common.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.arguments import LabelTexts
from longtail.data import TextData
from longtail.errors import DataError, InputError, shown
from longtail.metrics.blocks import rows_of
from longtail.runs.files import read_small

NAMES = "names"
# Labels with fewer than LIMIT training documents get COPIES of their text. Cross-fitted on Reuters,
# MiniLM with DB: average precision of the rarest labels 59.5 instead of 46.6. Frequent labels do
# not gain: on the bag, names of all labels cost 0.4 points of micro-F1, names of rare ones 0.2.
LIMIT, COPIES = 50, 2
# Labels that co-occur in more than this share of a label's documents also apply to its text: barley
# is grain. The share is smoothed by one document without the label, so that one or two shared
# documents do not suffice. Cross-fitted on Reuters, bag: micro-F1 90.32 instead of 90.16.
COOCCURRENCE = 0.7
SEPARATORS = re.compile(r"[-_/]+")
# A name has words, unlike a code such as E11.9, if it has three letters in a row, or one non-ASCII.
WORDS = re.compile(r"[^\W\d_]{3}|[^\W\d_\x00-\x7f]")


def check_label_texts(value: Any) -> None:
    """Raise unless the value is None, "names", or texts by label name."""
    if value is None or value == NAMES:
        return
    if not isinstance(value, Mapping) or not all(map(_are_texts, value.values())):
        raise InputError(
            f"label_texts must be {NAMES!r}, or a mapping from label names to a text or a list of "
            f"texts, got {shown(value)}."
        )


def _are_texts(value: Any) -> bool:
    texts = value if isinstance(value, (list, tuple)) else [value]
    return all(isinstance(text, str) for text in texts)


def read_label_texts(value: str, folder: Path = Path()) -> Any:
    """`names`, or the content of a JSON file, with a path relative to `folder`."""
    if value == NAMES:
        return value
    path = folder / value
    try:
        return json.loads(read_small(path))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"label_texts (--label-texts): expected names, or a JSON file such as "
            f'{{"cpi": "consumer prices"}}, but {path} cannot be read: {error}.'
        ) from error


def texts_by_label(label_names: Sequence[str], texts: LabelTexts | None) -> dict[str, list[str]]:
    """The texts of each label that has any."""
    if texts is None:
        return {}
    if isinstance(texts, str):
        texts = {name: SEPARATORS.sub(" ", name) for name in label_names if WORDS.search(name)}
    kept_texts = {}
    for name in label_names:
        value = texts.get(name, ())
        kept = [text for text in ([value] if isinstance(value, str) else value) if text.strip()]
        if kept:
            kept_texts[name] = kept
    return kept_texts


def label_documents(data: TextData, texts: LabelTexts) -> TextData:
    """Documents for each rare label that has texts, with the label columns of `data`.

    As many as the label has texts, and at least COPIES.
    """
    counts = np.asarray(data.Y.sum(axis=0)).ravel()
    texts_of = texts_by_label(data.label_names, texts)
    described = [k for k, name in enumerate(data.label_names) if name in texts_of]
    few = {k: texts_of[data.label_names[k]] for k in described if counts[k] < LIMIT}
    rare, documents = [], []
    for number in range(max([COPIES, *map(len, few.values())])):
        for k, own in few.items():
            if number < max(COPIES, len(own)):
                rare.append(k)
                documents.append(own[number % len(own)])
    ones = sp.csr_matrix(
        (np.ones(len(rare), np.float32), (np.arange(len(rare)), rare)),
        shape=(len(rare), len(data.label_names)),
    )
    ids = tuple(f"label {data.label_names[k]}" for k in rare)
    return TextData(documents, ones, data.label_names, ids)


def note_unknown_labels(data: TextData, texts: Any, note: Callable[[str], None]) -> None:
    """Warn about texts of labels that the data lacks, and if no label name has words."""
    first = repr(data.label_names[0])
    if texts == NAMES and not any(map(WORDS.search, data.label_names)):
        note(f"label_texts: no label name is words, see {first}: nothing is learned from them.")
    known = set(data.label_names)
    unknown = [name for name in texts if name not in known] if isinstance(texts, Mapping) else []
    if unknown:
        shown = f"{', '.join(map(repr, unknown[:3]))}{', ...' * (len(unknown) > 3)}"
        note(
            f"label_texts: {len(unknown)} of {len(texts)} texts are not used, as the data has no "
            f"such label: {shown}. It has, for example, {first}."
        )


def add_cooccurring(part: TextData, n_documents: int) -> TextData:
    """Add co-occurring labels to the label texts, which are the rows after the documents."""
    documents, texts = part.Y[:n_documents], part.Y[n_documents:]
    if not texts.shape[0]:
        return part
    with_label = texts @ documents.T
    counts = np.asarray(with_label.sum(axis=1)).ravel()
    shared = sp.csr_matrix(with_label @ documents)
    smoothed = (counts + 1)[rows_of(shared)]
    shared.data = (shared.data / smoothed > COOCCURRENCE).astype(np.float32)
    extended = texts.maximum(shared)
    extended.eliminate_zeros()
    return dataclasses.replace(part, Y=sp.vstack([documents, extended], format="csr"))
