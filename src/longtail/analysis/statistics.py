"""`stats`: describe a corpus before training on it.

Sizes, imbalance, linked labels, duplicates and leaks, and drift from the training part.
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
    """Measure the parts of a corpus, as plain values for JSON; undefined values are None.

    - `parts`: for each part, numbers of `documents`, `assignments` and `labels` that occur; of
      documents that are `unlabelled`, `single_label`, `multi_label` and `without_text`;
      `cardinality` (mean labels per document), `density` (cardinality / labels of all parts),
      `max_labels`, distinct `label_sets`, and lengths in `words`.
    - `labels`: the counts of the training part and their imbalance. Quantiles, groups and Gini
      include labels without documents. `per_label` has each label with its IRLbl.
    - `linked`: the pairs of `linked_pairs`.
    - `duplicates`: for each part, `copies` of an earlier text, ignoring case and white space; texts
      that are also `in_train`, and how many of them with the same labels; `examples`; the same for
      ids.
    - `drift`: labels of each other part against the training part: new and absent labels; the
      Jensen-Shannon distance, base 2, of the label distributions (0 equal, 1 disjoint) and its
      value for a random split; how many label frequencies `changed` significantly (5 % familywise
      error), and the largest `changes`, significant or not.

    Args:
        parts: name -> documents, `train` among them. Labels are matched by name.
        cuts: tail is below the first count, head above the second; default: terciles.
        n_pairs: number of linked pairs to keep.
        progress: called at the start of each stage.
    """
    if "train" not in parts:
        raise InputError(f"expected a part named 'train', got {', '.join(parts) or 'no parts'}.")
    ordered = {"train": parts["train"]} | {k: v for k, v in parts.items() if k != "train"}
    names = tuple(dict.fromkeys(name for data in ordered.values() for name in data.label_names))
    progress(Progress("labels of train"))
    labels = _train_labels(parts["train"], cuts)
    part_stats, others = {}, {}
    for part, data in ordered.items():
        progress(Progress(f"texts of {part}"))
        others[part] = _read(data, names)
        part_stats[part] = _part_stats(others[part])
    progress(Progress("linked labels"))
    linked = linked_pairs(parts["train"].Y, parts["train"].label_names, n_pairs)
    progress(Progress("duplicates"))
    train = others.pop("train")
    duplicates = {"train": _duplicates(train, None)}
    duplicates |= {part: _duplicates(other, train) for part, other in others.items()}
    progress(Progress("drift"))
    drift = {part: _drift(train.matrix, other.matrix, names) for part, other in others.items()}
    return {
        "parts": part_stats,
        "labels": labels,
        "linked": [asdict(pair) for pair in linked],
        "duplicates": duplicates,
        "drift": drift,
    }


class _Part(NamedTuple):
    """A part, with the labels of all parts as columns."""

    matrix: sp.csr_matrix
    n_words: IntArray
    """Number of words of each text."""
    hashes: list[int]
    """Hash of each text."""
    label_keys: list[bytes]
    """For each document, bytes that are equal for equal sets of labels."""
    ids: tuple[str, ...] | None

    def name(self, row: int) -> str | int:
        return row if self.ids is None else self.ids[row]


def _read(data: TextData, names: tuple[str, ...]) -> _Part:
    matrix = data.onto(names)[0].Y
    n_words = np.array([len(text.split()) for text in data.texts], dtype=np.int64)
    hashes = text_hashes(data.texts).tolist()
    # Columns are sorted within a row.
    raw = matrix.indices.astype(np.int32).tobytes()
    label_keys = [raw[start:stop] for start, stop in pairwise((matrix.indptr * 4).tolist())]
    return _Part(matrix, n_words, hashes, label_keys, data.ids)


def _part_stats(part: _Part) -> dict[str, Any]:
    matrix, words = part.matrix, part.n_words
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
        # ddof=1 is the authors' definition, and needs two labels.
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
        # In reverse, so that the first of several copies in training is named.
        train_row = {text: row for row, text in reversed(list(enumerate(train.hashes)))}
        pairs = set(zip(train.hashes, train.label_keys, strict=True))
        leaked = [row for row, text in enumerate(part.hashes) if text in train_row]
        has_same_labels = [(part.hashes[row], part.label_keys[row]) in pairs for row in leaked]
        in_train, same = len(leaked), sum(has_same_labels)
        examples = [
            {
                "document": part.name(row),
                "train_document": train.name(train_row[part.hashes[row]]),
                "same_labels": same_labels,
            }
            for row, same_labels in zip(leaked[:MAX_EXAMPLES], has_same_labels, strict=False)
        ]
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
    most_frequent = new[np.argsort(-after[new], kind="stable")][:MAX_EXAMPLES]
    z = proportion_z(before, train.shape[0], after, other.shape[0])
    tested = np.flatnonzero(np.isfinite(z))
    strongest = tested[np.argsort(-np.abs(z[tested]), kind="stable")][:MAX_EXAMPLES]
    # Bonferroni: among thousands of labels, some differ by two or three deviations by chance.
    limit = -ndtri(0.025 / max(1, tested.size))
    train_shares, shares = before / max(1, train.shape[0]), after / max(1, other.shape[0])
    return dict(
        new_labels=int(new.size),
        new_assignments=int(after[new].sum()),
        new_examples=[names[k] for k in most_frequent],
        absent_labels=int(((before > 0) & (after == 0)).sum()),
        js_distance=js_distance(before, after),
        js_by_chance=js_by_chance(before, after),
        changed=int((np.abs(z[tested]) > limit).sum()),
        changes=[
            dict(
                label=names[k],
                train_share=float(train_shares[k]),
                share=float(shares[k]),
                z=float(z[k]),
            )
            for k in strongest
        ],
    )
