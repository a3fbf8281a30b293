"""`label_warnings`: signs that labels were read with the wrong separator or column, or that one
label is written in several ways; before training rather than in the figures after it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

import numpy as np

from longtail.data.textdata import TextData
from longtail.errors import shown

TAB = "\t"
# Separators, and how many names must be of several labels: few names hold the first three, and
# "Education, Nursing" is one of several MeSH headings of which both parts are headings too.
SEPARATORS = {";": 1, "|": 1, TAB: 1, ",": 3}
# Of the parts after a separator, how many also begin a name: of MeSH headings with commas 7 % do,
# of MeSH headings in one string 20 % (600 documents) to 80 %, of Reuters' topics 50 to 99 %.
SHARE_OF_PARTS = 0.15
# Labels with a single document: 25 % in 10,000 documents with MeSH headings, 17 % in EURLEX57K.
SHARE_OF_ONCE, FEWEST_LABELS = 0.9, 10
# + and # distinguish C, C++ and C#; between digits what is between counts, as in 1.11 and 11.1.
BETWEEN_LETTERS = re.compile(r"(?<=[^\W\d_])(?:[^\w+#]|_)+(?=[^\W\d_])")
PUNCTUATION = re.compile(r"(?<=\w)[^\w+#]+(?=\w)|_+")
LETTER = re.compile(r"[^\W\d_]")


def label_warnings(data: TextData) -> list[str]:
    """Warnings about suspicious labels, each with examples and a remedy."""
    warnings = [_once(data), _nearly_equal(data.label_names)]
    return separator_warnings(data.label_names) + [warning for warning in warnings if warning]


def separator_warnings(names: Iterable[str]) -> list[str]:
    """Those of `label_warnings` about names that are several labels."""
    unique = tuple(dict.fromkeys(names))
    warnings = [_joined(unique, separator) for separator in SEPARATORS]
    return [warning for warning in warnings if warning]


def _joined(names: tuple[str, ...], separator: str) -> str | None:
    """Names that are several labels: what follows a separator in one begins another."""
    parts = {
        name: [part.strip() for part in name.split(separator) if part.strip()]
        for name in names
        if separator in name
    }
    first = {of_name[0] for of_name in parts.values() if of_name}.union(names)
    after = [part in first for of_name in parts.values() for part in of_name[1:]]
    joined = [name for name, of_name in parts.items() if first.intersection(of_name[1:])]
    if len(joined) < SEPARATORS[separator] or sum(after) < SHARE_OF_PARTS * len(after):
        return None
    return (
        f"{len(parts)} of {len(names)} label names hold {separator!r} before what is a label "
        f"elsewhere, such as {_examples(sorted(joined, key=len))}. If each is several labels, set "
        f"label_separator (--label-separator {'$' * (separator == TAB)}{separator!r})."
    )


def _once(data: TextData) -> str | None:
    """Labels of ids or of free text: nearly all of them have one document."""
    counts = np.bincount(data.Y.indices, minlength=len(data.label_names))
    n_once, n_labels = int((counts == 1).sum()), int((counts > 0).sum())
    if n_labels < FEWEST_LABELS or n_once < SHARE_OF_ONCE * n_labels:
        return None
    examples = _examples(data.label_names[k] for k in np.flatnonzero(counts == 1)[:3])
    return (
        f"{n_once} of {n_labels} labels have one document each ({examples}), of which hardly "
        "anything can be learned. Check that labels_field (--labels-field) names the field of the "
        "labels, and label_separator (--label-separator) what is between them."
    )


def _nearly_equal(names: tuple[str, ...]) -> str | None:
    """Names that differ only in case, white space or punctuation."""
    alike: dict[str, list[str]] = {}
    for name in names:
        if LETTER.search(name):  # numbers are codes
            plain = BETWEEN_LETTERS.sub("", unicodedata.normalize("NFKC", name).strip())
            alike.setdefault(PUNCTUATION.sub(" ", plain).casefold(), []).append(name)
    groups = [group for group in alike.values() if len(group) > 1]
    if not groups:
        return None
    examples = "; ".join(_examples(group, " and ") for group in groups[:3])
    return (
        f"{sum(map(len, groups))} label names differ from another only in case, white space or "
        f"punctuation: {examples}. Each is learned as a separate label: if they mean the same, "
        "write them alike."
    )


def _examples(names: Iterable[str], between: str = ", ") -> str:
    return between.join(shown(name, 60) for name in [*names][:3])
