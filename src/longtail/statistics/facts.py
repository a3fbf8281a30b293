"""What `stats` found: `DataStats` and its parts, ready for JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True)
class Spread:
    """Mean, median, 95 % quantile and maximum; None where there is nothing to measure."""

    mean: float | None
    median: float | None
    q95: float | None
    max: int | None


@dataclass(frozen=True)
class PartStats:
    """One part. `density` is `cardinality` over the labels of all parts together."""

    documents: int
    assignments: int
    labels: int
    """Labels that occur."""
    unlabelled: int
    single_label: int
    multi_label: int
    cardinality: float | None
    """Labels per document, documents without labels included."""
    density: float | None
    max_labels: int
    label_sets: int
    """Distinct sets of labels; the empty one is not counted."""
    without_text: int
    words: Spread
    """Length in words, cut at white space."""


@dataclass(frozen=True)
class Group:
    labels: int
    assignments: int
    share: float | None
    """Of all assignments in the training part."""


@dataclass(frozen=True)
class TrainLabels:
    """The labels of the training part; zero counts take part in quantiles, groups and Gini."""

    labels: int
    unseen: int
    """Labels without a training document."""
    min: int
    max: int
    mean: float
    quantiles: dict[str, float]
    cuts: tuple[float, float]
    """Tail: fewer documents than the first; head: more than the second."""
    groups: dict[str, Group]
    gini: float | None
    mean_ir: float | None
    max_ir: float | None
    cvir: float | None
    scumble: float
    mu: float
    mu_source: Literal["pairs", "counts"]
    per_label: tuple[LabelFacts, ...]
    """Every label in the order of the columns."""


@dataclass(frozen=True)
class LabelFacts:
    """One label: its training documents, IRLbl (None without any) and group."""

    name: str
    count: int
    irlbl: float | None
    group: str


@dataclass(frozen=True)
class LinkedPair:
    """Two labels that share more documents than chance gives them; `a` is the more frequent."""

    a: str
    b: str
    count_a: int
    count_b: int
    shared: int
    p_a_given_b: float
    p_b_given_a: float
    g2: float


@dataclass(frozen=True)
class Leak:
    """A document that also stands in the training part: both ids, or rows where there are none."""

    document: str | int
    train_document: str | int
    same_labels: bool


@dataclass(frozen=True)
class Duplicates:
    """Copies of texts and ids in one part; texts are compared without case and white space.

    The fields `..._in_train` are None for the training part itself, those of ids without ids.
    """

    copies: int
    """Documents whose text an earlier document of the part has."""
    in_train: int | None
    in_train_same_labels: int | None
    """Those of `in_train` that carry the very labels of one of their copies there."""
    examples: tuple[Leak, ...]
    repeated_ids: int | None
    ids_in_train: int | None


@dataclass(frozen=True)
class Change:
    label: str
    train_share: float
    """Of the documents of the part."""
    share: float
    z: float


@dataclass(frozen=True)
class Drift:
    """How the labels of a part differ from those of the training part."""

    new_labels: int
    """Labels that occur here and not in training."""
    new_assignments: int
    new_examples: tuple[str, ...]
    """The most frequent of them."""
    absent_labels: int
    """Labels of the training part that do not occur here."""
    js_distance: float | None
    """Jensen-Shannon, base 2, between the shares of assignments: 0 the same, 1 nothing shared."""
    js_by_chance: float | None
    """What a random split of these sizes would give: small parts always differ."""
    changed: int
    """Labels whose share of documents differs beyond chance: 5 % error over all labels tested."""
    changes: tuple[Change, ...]
    """The labels with the largest |z|, whether or not beyond chance."""


@dataclass(frozen=True)
class DataStats:
    parts: dict[str, PartStats]
    labels: TrainLabels
    linked: tuple[LinkedPair, ...]
    duplicates: dict[str, Duplicates]
    drift: dict[str, Drift]
    """By part, the training part left out."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON: plain lists, numbers and None."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


def _plain(value: Any) -> Any:
    """Tuples to lists, numpy numbers to Python's, and what is not finite to None."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
