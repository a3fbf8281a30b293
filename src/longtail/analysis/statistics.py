"""`stats`: describe labelled documents before training on them.

Sizes, imbalance, linked labels, duplicates and leaks, and how the other parts differ from the
training part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtri

from longtail.analysis.measures import (
    IntArray,
    count_labels,
    gini,
    imbalance_ratios,
    js_by_chance,
    js_distance,
    linked_pairs,
    proportion_z,
    scumble,
)
from longtail.data.hashes import text_hashes
from longtail.data.textdata import TextData
from longtail.errors import InputError
from longtail.labels import group_cuts, label_groups
from longtail.progress import OnProgress, Progress, ignore

QUANTILES = (0.25, 0.33, 0.5, 0.66, 0.75)
MAX_EXAMPLES = 5


def stats(
    parts: Mapping[str, TextData],
    *,
    cuts: tuple[float, float] | None = None,
    n_pairs: int = 10,
    progress: OnProgress = ignore,
) -> dict[str, Any]:
    """Measure the parts of a corpus, as plain numbers for JSON; `train` must be among them.

    `parts` has for every part the numbers of `documents`, `assignments` and `labels` that occur, of
    documents that are `unlabelled`, `single_label`, `multi_label` and `without_text`, the
    `cardinality` (labels per document, those without labels included), the `density` (that over the
    labels of all parts), `max_labels`, distinct `label_sets`, and the length in `words`.
    `labels` has the counts of the training part and their imbalance, labels without documents
    included in quantiles, groups and Gini: `cuts` (tail: fewer documents than the first; head: more
    than the second), `mu`, and every label as `per_label`, with its IRLbl.
    `linked` are the most linked pairs of labels, see `linked_pairs`.
    `duplicates` has for every part the `copies` of an earlier text, compared without case and white
    space, how many texts are `in_train` and with which labels, `examples`, and the same of ids.
    `drift` compares the labels of every other part with the training part's: new and absent ones,
    the Jensen-Shannon distance, base 2, of the shares of assignments (0 the same, 1 nothing shared)
    beside what a random split would give, how many shares of documents `changed` significantly
    (5 % error over all labels tested), and the largest `changes`, significant or not.
    What cannot be measured, such as a mean over nothing, is None.

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
    return {
        "parts": part_stats,
        "labels": labels,
        "linked": [asdict(pair) for pair in linked],
        "duplicates": duplicates,
        "drift": drift,
    }


class _Part(NamedTuple):
    """A part on the labels of all parts."""

    matrix: sp.csr_matrix
    hashes: list[int]
    """The hash of every text."""
    label_keys: list[bytes]
    ids: tuple[str, ...] | None

    def name(self, row: int) -> str | int:
        return row if self.ids is None else self.ids[row]


def _read(data: TextData, names: tuple[str, ...]) -> tuple[_Part, IntArray]:
    """The part, and the number of words of every text."""
    matrix = data.onto(names)[0].Y
    lengths = [len(text.split()) for text in data.texts]
    hashes = text_hashes(data.texts).tolist()
    # The columns of every row are sorted: equal bytes, equal labels.
    raw = matrix.indices.astype(np.int32).tobytes()
    label_keys = [raw[start:stop] for start, stop in pairwise((matrix.indptr * 4).tolist())]
    return _Part(matrix, hashes, label_keys, data.ids), np.array(lengths, dtype=np.int64)


def _part_stats(part: _Part, words: IntArray) -> dict[str, Any]:
    matrix = part.matrix
    n_documents, n_labels = matrix.shape
    per_document = np.diff(matrix.indptr)
    cardinality = matrix.nnz / n_documents if n_documents else None
    spread: dict[str, float | None] = dict.fromkeys(("mean", "median", "q95", "max"))
    if words.size:
        median, q95 = np.quantile(words, [0.5, 0.95]).tolist()
        spread = dict(mean=float(words.mean()), median=median, q95=q95, max=int(words.max()))
    return dict(
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


def _train_labels(train: TextData, cuts: tuple[float, float] | None) -> dict[str, Any]:
    label_stats = train.stats()
    counts = label_stats.label_counts
    low, high = group_cuts(counts) if cuts is None else cuts
    total, groups = counts.sum(), {}
    group_of = np.empty(counts.size, dtype=object)
    for name, mask in label_groups(counts, (low, high)).items():
        group_of[mask] = name
        assigned = int(counts[mask].sum())
        share = assigned / float(total) if total else None
        groups[name] = {"labels": int(mask.sum()), "assignments": assigned, "share": share}
    ratios = imbalance_ratios(counts)
    mean_ir = float(ratios.mean()) if ratios.size else None
    return dict(
        labels=counts.size,
        unseen=int((counts == 0).sum()),
        min=int(counts.min()),
        max=int(counts.max()),
        mean=float(counts.mean()),
        quantiles={f"{q:g}": float(np.quantile(counts, q)) for q in QUANTILES},
        cuts=[float(low), float(high)],
        groups=groups,
        gini=gini(counts),
        mean_ir=mean_ir,
        max_ir=float(ratios.max()) if ratios.size else None,
        # A spread needs two labels; ddof=1 is the authors' definition.
        cvir=float(ratios.std(ddof=1)) / mean_ir if mean_ir and ratios.size > 1 else None,
        scumble=scumble(train.Y),
        mu=float(label_stats.mu),
        mu_source=label_stats.mu_source,
        per_label=[
            dict(name=name, count=int(n), irlbl=float(counts.max() / n) if n else None, group=group)
            for name, n, group in zip(train.label_names, counts, group_of, strict=True)
        ],
    )


def _duplicates(part: _Part, train: _Part | None) -> dict[str, Any]:
    in_train = same = ids_in_train = None
    examples = []
    if train is not None:
        # The first of several copies in training is the one to name: later ones come first here.
        row_of = {text: row for row, text in reversed(list(enumerate(train.hashes)))}
        pairs = set(zip(train.hashes, train.label_keys, strict=True))
        leaked = [row for row, text in enumerate(part.hashes) if text in row_of]
        equal = [(part.hashes[row], part.label_keys[row]) in pairs for row in leaked]
        in_train, same = len(leaked), sum(equal)
        for row, same_labels in list(zip(leaked, equal, strict=True))[:MAX_EXAMPLES]:
            names = part.name(row), train.name(row_of[part.hashes[row]])
            example = {"document": names[0], "train_document": names[1]}
            examples.append({**example, "same_labels": same_labels})
        if part.ids is not None and train.ids is not None:
            ids_in_train = sum(map(set(train.ids).__contains__, part.ids))
    return dict(
        copies=len(part.hashes) - len(set(part.hashes)),
        in_train=in_train,
        in_train_same_labels=same,
        examples=examples,
        repeated_ids=None if part.ids is None else len(part.ids) - len(set(part.ids)),
        ids_in_train=ids_in_train,
    )


def _drift(train: sp.csr_matrix, other: sp.csr_matrix, names: tuple[str, ...]) -> dict[str, Any]:
    before, after = count_labels(train), count_labels(other)
    new = np.flatnonzero((after > 0) & (before == 0))
    commonest = new[np.argsort(-after[new], kind="stable")][:MAX_EXAMPLES]
    z = proportion_z(before, train.shape[0], after, other.shape[0])
    tested = np.flatnonzero(np.isfinite(z))
    strongest = tested[np.argsort(-np.abs(z[tested]), kind="stable")][:MAX_EXAMPLES]
    # Bonferroni: with thousands of labels, some differ by two or three deviations by chance alone.
    limit = -ndtri(0.025 / max(1, tested.size))
    old_shares, shares = before / max(1, train.shape[0]), after / max(1, other.shape[0])
    return dict(
        new_labels=int(new.size),
        new_assignments=int(after[new].sum()),
        new_examples=[names[k] for k in commonest],
        absent_labels=int(((before > 0) & (after == 0)).sum()),
        js_distance=js_distance(before, after),
        js_by_chance=js_by_chance(before, after),
        changed=int((np.abs(z[tested]) > limit).sum()),
        changes=[
            dict(
                label=names[k],
                train_share=float(old_shares[k]),
                share=float(shares[k]),
                z=float(z[k]),
            )
            for k in strongest
        ],
    )
