"""`label_warnings`: signs of a wrong separator or column, or of one label spelled in several ways,
noticed before training rather than in the results."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

import numpy as np

from longtail.data.textdata import TextData
from longtail.errors import shown

TAB = "\t"
# Separator -> how many names must look joined. Label names rarely contain the first three; both
# parts of some MeSH headings, such as "Education, Nursing", are headings themselves.
SEPARATORS = {";": 1, "|": 1, TAB: 1, ",": 3}
# Minimum share of parts after a separator that also begin a name. It is 7 % for MeSH headings with
# commas; for joined labels 20 % (600 documents) to 80 % (MeSH), and 50 to 99 % (Reuters).
SHARE_OF_PARTS = 0.15
# Labels with a single document: 25 % in 10,000 documents with MeSH headings, 17 % in EURLEX57K.
SHARE_OF_SINGLE, FEWEST_LABELS = 0.9, 10
# + and # distinguish C, C++ and C#; punctuation between digits matters, as in 1.11 and 11.1.
BETWEEN_LETTERS = re.compile(r"(?<=[^\W\d_])(?:[^\w+#]|_)+(?=[^\W\d_])")
PUNCTUATION = re.compile(r"(?<=\w)[^\w+#]+(?=\w)|_+")
LETTER = re.compile(r"[^\W\d_]")


def label_warnings(data: TextData) -> list[str]:
    """Warnings about suspicious labels, each with examples and a remedy."""
    names = data.label_names
    warnings = [_on_every_document(data), _single_documents(data), _nearly_equal(names)]
    return separator_warnings(names) + [warning for warning in warnings if warning]


def separator_warnings(names: Iterable[str]) -> list[str]:
    """The warnings about names that are several labels joined."""
    unique = tuple(dict.fromkeys(names))
    warnings = [_joined(unique, separator) for separator in SEPARATORS]
    return [warning for warning in warnings if warning]


def _joined(names: tuple[str, ...], separator: str) -> str | None:
    """Names that look like several labels: what follows a separator also begins another name."""
    parts = {
        name: [part.strip() for part in name.split(separator) if part.strip()]
        for name in names
        if separator in name
    }
    first = {split[0] for split in parts.values() if split}.union(names)
    is_label = [part in first for split in parts.values() for part in split[1:]]
    joined = [name for name, split in parts.items() if first.intersection(split[1:])]
    if len(joined) < SEPARATORS[separator] or sum(is_label) < SHARE_OF_PARTS * len(is_label):
        return None
    return (
        f"{len(parts)} of {len(names)} label names look like several labels joined by "
        f"{separator!r}, such as {_examples(sorted(joined, key=len))}. If each is several labels, "
        f"set label_separator (--label-separator {'$' * (separator == TAB)}{separator!r})."
    )


def _on_every_document(data: TextData) -> str | None:
    """Labels without a counterexample."""
    counts = np.bincount(data.Y.indices, minlength=len(data.label_names))
    names = [data.label_names[k] for k in np.flatnonzero(counts == len(data))]
    if not names or not len(data):
        return None
    has, it = "has the label", "it"
    if len(names) > 1:
        has, it = f"has {len(names)} labels,", "them"
    return (
        f"every document {has} {_examples(names)}: nothing can be learned about {it}, and every "
        f"text will get {it}. Add documents without {it}."
    )


def _single_documents(data: TextData) -> str | None:
    """Labels that look like ids or free text: nearly all have a single document."""
    counts = np.bincount(data.Y.indices, minlength=len(data.label_names))
    n_single, n_labels = int((counts == 1).sum()), int((counts > 0).sum())
    if n_labels < FEWEST_LABELS or n_single < SHARE_OF_SINGLE * n_labels:
        return None
    examples = _examples(data.label_names[k] for k in np.flatnonzero(counts == 1)[:3])
    return (
        f"{n_single} of {n_labels} labels have one document each ({examples}), too few to learn "
        "from. Check that labels_field (--labels-field) names the field with the labels, and "
        "label_separator (--label-separator) what separates them."
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
        f"punctuation: {examples}. Each is a separate label: if they mean the same, spell them "
        "alike."
    )


def _examples(names: Iterable[str], separator: str = ", ") -> str:
    return separator.join(shown(name, 60) for name in [*names][:3])
