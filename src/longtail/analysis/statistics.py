"""`stats`: what to know about labelled documents before training on them.

Sizes, imbalance, linked labels, duplicates and leaks, and how the other parts differ from the
training part.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtri

from longtail.analysis.measures import (
    IntArray,
    LinkedPair,
    count_labels,
    gini,
    imbalance_ratios,
    js_by_chance,
    js_distance,
    linked_pairs,
    proportion_z,
    scumble,
)
from longtail.data.textdata import TextData
from longtail.errors import InputError
from longtail.labels import label_groups
from longtail.progress import OnProgress, Progress, ignore

QUANTILES = (0.25, 0.33, 0.5, 0.66, 0.75)
MAX_EXAMPLES = 5


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
    words: dict[str, float | None]
    """`mean`, `median`, `q95` and `max` of the length in words, split at white space."""


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
    groups: dict[str, dict[str, Any]]
    """Group -> number of `labels`, their `assignments`, and the `share` of all of these."""
    gini: float | None
    mean_ir: float | None
    max_ir: float | None
    cvir: float | None
    scumble: float
    mu: float
    mu_source: Literal["pairs", "counts"]
    per_label: tuple[dict[str, Any], ...]
    """`name`, `count`, `irlbl` (None without documents) and `group`, in the order of columns."""


@dataclass(frozen=True)
class Duplicates:
    """Copies of texts and ids in one part; texts are compared without case and white space.

    The fields `..._in_train` are None for the training part itself, those of ids without ids.
    """

    copies: int
    """Documents whose text an earlier document of the part has."""
    in_train: int | None
    in_train_same_labels: int | None
    """Those of `in_train` that carry exactly the labels of one of their copies there."""
    examples: tuple[dict[str, Any], ...]
    """`document` and `train_document`, by id or by row, and whether they have the `same_labels`."""
    repeated_ids: int | None
    ids_in_train: int | None


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
    """Labels whose share of documents differs significantly: 5 % error over all labels tested."""
    changes: tuple[dict[str, Any], ...]
    """`label`, its shares of documents `train_share` and `share`, and `z`: the largest |z|."""


@dataclass(frozen=True)
class DataStats:
    """What `stats` measures."""

    parts: dict[str, PartStats]
    labels: TrainLabels
    linked: tuple[LinkedPair, ...]
    duplicates: dict[str, Duplicates]
    drift: dict[str, Drift]
    """By part, without the training part."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON: plain lists, numbers and None."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self), allow_nan=False))
        return plain


def stats(
    parts: Mapping[str, TextData],
    *,
    cuts: tuple[float, float] | None = None,
    n_pairs: int = 10,
    progress: OnProgress = ignore,
) -> DataStats:
    """Measure the parts of a corpus; `train` must be among them.

    Args:
        parts: name -> documents. Label sets may differ; labels are matched by name.
        cuts: head is above the second count, tail below the first; default: terciles.
        n_pairs: how many linked pairs to keep.
        progress: called with the stage that begins.
    """
    if "train" not in parts:
        raise InputError(f"expected a part named 'train', got {', '.join(parts) or 'no parts'}.")
    ordered = {"train": parts["train"]} | {k: v for k, v in parts.items() if k != "train"}
    names = tuple(dict.fromkeys(name for data in ordered.values() for name in data.label_names))
    progress(Progress("labels of train"))
    labels = _train_labels(parts["train"], cuts)
    part_stats, read = {}, {}
    for part, data in ordered.items():
        progress(Progress(f"texts of {part}"))
        read[part], words = _read(data, names)
        part_stats[part] = _part_stats(read[part], words)
    progress(Progress("linked labels"))
    linked = linked_pairs(parts["train"].Y, parts["train"].label_names, n_pairs)
    progress(Progress("duplicates"))
    train = read.pop("train")
    duplicates = {"train": _duplicates(train, None)}
    duplicates |= {part: _duplicates(other, train) for part, other in read.items()}
    progress(Progress("drift"))
    drift = {part: _drift(train.matrix, other.matrix, names) for part, other in read.items()}
    return DataStats(part_stats, labels, linked, duplicates, drift)


class _Part(NamedTuple):
    """A part on the labels of all parts."""

    matrix: sp.csr_matrix
    digests: list[bytes]
    """Of every text, without its white space and case."""
    label_keys: list[bytes]
    ids: tuple[str, ...] | None

    def name(self, row: int) -> str | int:
        return row if self.ids is None else self.ids[row]


def _read(data: TextData, names: tuple[str, ...]) -> tuple[_Part, IntArray]:
    """The part, and the number of words of every text."""
    matrix = data.onto(names)[0].Y
    lengths, digests = [], []
    for text in data.texts:
        words = text.split()
        lengths.append(len(words))
        # JSON may hold half of a surrogate pair, which plain UTF-8 refuses.
        folded = " ".join(words).casefold().encode("utf-8", "surrogatepass")
        digests.append(hashlib.blake2b(folded, digest_size=16).digest())
    # The columns of every row are sorted: equal bytes, equal labels.
    raw = matrix.indices.astype(np.int32).tobytes()
    label_keys = [raw[start:stop] for start, stop in pairwise((matrix.indptr * 4).tolist())]
    return _Part(matrix, digests, label_keys, data.ids), np.array(lengths, dtype=np.int64)


def _part_stats(part: _Part, words: IntArray) -> PartStats:
    matrix = part.matrix
    n_documents, n_labels = matrix.shape
    per_document = np.diff(matrix.indptr)
    cardinality = matrix.nnz / n_documents if n_documents else None
    spread: dict[str, float | None] = dict.fromkeys(("mean", "median", "q95", "max"))
    if words.size:
        median, q95 = np.quantile(words, [0.5, 0.95]).tolist()
        spread = dict(mean=float(words.mean()), median=median, q95=q95, max=int(words.max()))
    return PartStats(
        documents=n_documents,
        assignments=int(matrix.nnz),
        labels=int(np.unique(matrix.indices).size),
        unlabelled=int((per_document == 0).sum()),
        single_label=int((per_document == 1).sum()),
        multi_label=int((per_document > 1).sum()),
        cardinality=cardinality,
        density=None if cardinality is None else cardinality / n_labels,
        max_labels=int(per_document.max(initial=0)),
        label_sets=len(set(part.label_keys) - {b""}),
        without_text=int((words == 0).sum()),
        words=spread,
    )


def _train_labels(train: TextData, cuts: tuple[float, float] | None) -> TrainLabels:
    label_stats = train.stats()
    counts = label_stats.label_counts
    low, high = np.quantile(counts, [1 / 3, 2 / 3]).tolist() if cuts is None else cuts
    total, groups = counts.sum(), {}
    group_of = np.empty(counts.size, dtype=object)
    for name, mask in label_groups(counts, (low, high)).items():
        group_of[mask] = name
        assigned = int(counts[mask].sum())
        share = assigned / float(total) if total else None
        groups[name] = {"labels": int(mask.sum()), "assignments": assigned, "share": share}
    ratios = imbalance_ratios(counts)
    mean_ir = float(ratios.mean()) if ratios.size else None
    return TrainLabels(
        labels=counts.size,
        unseen=int((counts == 0).sum()),
        min=int(counts.min()),
        max=int(counts.max()),
        mean=float(counts.mean()),
        quantiles={f"{q:g}": float(np.quantile(counts, q)) for q in QUANTILES},
        cuts=(float(low), float(high)),
        groups=groups,
        gini=gini(counts),
        mean_ir=mean_ir,
        max_ir=float(ratios.max()) if ratios.size else None,
        # A spread needs two labels; ddof=1 is the authors' definition.
        cvir=float(ratios.std(ddof=1)) / mean_ir if mean_ir and ratios.size > 1 else None,
        scumble=scumble(train.Y),
        mu=float(label_stats.mu),
        mu_source=label_stats.mu_source,
        per_label=tuple(
            dict(name=name, count=int(n), irlbl=float(counts.max() / n) if n else None, group=group)
            for name, n, group in zip(train.label_names, counts, group_of, strict=True)
        ),
    )


def _duplicates(part: _Part, train: _Part | None) -> Duplicates:
    copies = len(part.digests) - len(set(part.digests))
    repeated = None if part.ids is None else len(part.ids) - len(set(part.ids))
    if train is None:
        return Duplicates(copies, None, None, (), repeated, None)
    # The first of several copies in training is the one to name: later ones come first here.
    row_of = {digest: row for row, digest in reversed(list(enumerate(train.digests)))}
    pairs = set(zip(train.digests, train.label_keys, strict=True))
    leaked = [row for row, digest in enumerate(part.digests) if digest in row_of]
    same = [(part.digests[row], part.label_keys[row]) in pairs for row in leaked]
    examples = tuple(
        {
            "document": part.name(row),
            "train_document": train.name(row_of[part.digests[row]]),
            "same_labels": equal,
        }
        for row, equal in list(zip(leaked, same, strict=True))[:MAX_EXAMPLES]
    )
    in_train = None
    if part.ids is not None and train.ids is not None:
        in_train = sum(map(set(train.ids).__contains__, part.ids))
    return Duplicates(copies, len(leaked), sum(same), examples, repeated, in_train)


def _drift(train: sp.csr_matrix, other: sp.csr_matrix, names: tuple[str, ...]) -> Drift:
    before, after = count_labels(train), count_labels(other)
    new = np.flatnonzero((after > 0) & (before == 0))
    commonest = new[np.argsort(-after[new], kind="stable")][:MAX_EXAMPLES]
    z = proportion_z(before, train.shape[0], after, other.shape[0])
    tested = np.flatnonzero(np.isfinite(z))
    strongest = tested[np.argsort(-np.abs(z[tested]), kind="stable")][:MAX_EXAMPLES]
    # Bonferroni: with thousands of labels, some differ by two or three deviations by chance alone.
    limit = -ndtri(0.025 / max(1, tested.size))
    old_shares, shares = before / max(1, train.shape[0]), after / max(1, other.shape[0])
    return Drift(
        new_labels=int(new.size),
        new_assignments=int(after[new].sum()),
        new_examples=tuple(names[k] for k in commonest),
        absent_labels=int(((before > 0) & (after == 0)).sum()),
        js_distance=js_distance(before, after),
        js_by_chance=js_by_chance(before, after),
        changed=int((np.abs(z[tested]) > limit).sum()),
        changes=tuple(
            dict(
                label=names[k],
                train_share=float(old_shares[k]),
                share=float(shares[k]),
                z=float(z[k]),
            )
            for k in strongest
        ),
    )
