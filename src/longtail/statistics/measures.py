"""What a person should know about labelled documents before training on them.

Sizes, imbalance, linked labels, duplicates and leaks, and how the other parts differ from the
training part. numpy and scipy only; every step is sparse.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import ndtri, rel_entr, xlogy

from longtail.data.textdata import TextData
from longtail.errors import InputError
from longtail.labels import FloatArray, label_groups
from longtail.statistics.facts import (
    Change,
    DataStats,
    Drift,
    Duplicates,
    Group,
    LabelFacts,
    Leak,
    LinkedPair,
    PartStats,
    Spread,
    TrainLabels,
)

IntArray = NDArray[np.int64]
Names = tuple[str, ...]
QUANTILES = (0.25, 0.33, 0.5, 0.66, 0.75)
MAX_EXAMPLES = 5
# Label pairs in memory at a time: some 120 MiB with what is computed from them.
BLOCK_ELEMENTS = 1_000_000
# Expected documents from which the normal approximation of a proportion is trusted.
MIN_EXPECTED = 5


def stats(
    parts: Mapping[str, TextData],
    *,
    cuts: tuple[float, float] | None = None,
    n_pairs: int = 10,
    progress: Callable[[str], None] | None = None,
) -> DataStats:
    """Measure the parts of a corpus; `train` must be among them.

    Args:
        parts: name -> documents. Label sets may differ; labels are matched by name.
        cuts: head is above the second count, tail below the first; default: terciles.
        n_pairs: how many linked pairs to keep.
        progress: called with the name of each step as it begins.
    """
    if "train" not in parts:
        raise InputError(f"expected a part named 'train', got {', '.join(parts) or 'no parts'}.")
    say = progress or (lambda step: None)
    ordered = {"train": parts["train"]} | {k: v for k, v in parts.items() if k != "train"}
    names = tuple(dict.fromkeys(name for data in ordered.values() for name in data.label_names))
    train = ordered["train"]
    say("labels of train")
    labels = _train_labels(train, cuts)
    part_stats, marked = {}, {}
    for part, data in ordered.items():
        say(f"texts of {part}")
        matrix = data.onto(names)[0].Y
        words, digests = _read_texts(data.texts)
        marked[part] = _Marked(matrix, digests, _label_keys(matrix), data.ids)
        part_stats[part] = _part_stats(matrix, words, marked[part].label_keys)
    say("linked labels")
    linked = linked_pairs(train.Y, train.label_names, n_pairs)
    say("duplicates")
    own = marked.pop("train")
    duplicates = {"train": _duplicates(own, None)}
    duplicates |= {part: _duplicates(other, own) for part, other in marked.items()}
    say("drift")
    drift = {part: _drift(own.matrix, other.matrix, names) for part, other in marked.items()}
    return DataStats(part_stats, labels, linked, duplicates, drift)


def imbalance_ratios(label_counts: Any) -> FloatArray:
    """IRLbl of Charte et al. 2015: the largest count over each count.

    Labels without documents are left out, as their ratio would be infinite: the result has one
    value per label seen, in order.
    """
    counts = np.asarray(label_counts, dtype=np.float64)
    seen = counts[counts > 0]
    return seen.max() / seen if seen.size else seen


def scumble(Y: sp.csr_matrix) -> float:
    """SCUMBLE of Charte et al. 2015: how much rare and frequent labels share documents, 0 to 1.

    The mean over all documents of 1 - geometric / arithmetic mean of the IRLbl of the document's
    labels. A document without labels mixes nothing and counts as 0, as in the authors' R package.
    """
    counts, ratios = _counts(Y), np.ones(Y.shape[1])
    ratios[counts > 0] = imbalance_ratios(counts)
    per_document = np.maximum(np.diff(Y.indptr), 1)
    arithmetic = np.maximum(Y @ ratios / per_document, 1.0)
    geometric = np.exp(Y @ np.log(ratios) / per_document)
    # Rounding may leave the geometric mean of equal ratios a hair above the arithmetic one.
    return float(np.maximum(1 - geometric / arithmetic, 0).mean())


def gini(label_counts: Any) -> float | None:
    """Gini coefficient of the counts: 0 all equal, near 1 all documents on one label."""
    counts = np.sort(np.asarray(label_counts, dtype=np.float64))
    weights, total = 2 * np.arange(1, counts.size + 1) - counts.size - 1, counts.sum()
    return float(weights @ counts / (counts.size * total)) if total else None


def js_distance(first: Any, second: Any) -> float | None:
    """Jensen-Shannon distance, base 2, of two vectors of counts; None if one of them is empty."""
    p, q = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if not p.sum() or not q.sum():
        return None
    p, q = p / p.sum(), q / q.sum()
    middle = (p + q) / 2
    divergence = (rel_entr(p, middle).sum() + rel_entr(q, middle).sum()) / (2 * math.log(2))
    return math.sqrt(min(1.0, max(0.0, float(divergence))))


def linked_pairs(Y: sp.csr_matrix, names: Names, n_pairs: int = 10) -> tuple[LinkedPair, ...]:
    """The pairs of labels with the strongest positive association, strongest first.

    Ranked by Dunning's log-likelihood ratio G2, so that neither pairs seen once nor labels that
    are merely frequent win. Pairs come in sparse blocks: no labels x labels matrix is built.
    """
    counts, best = _counts(Y), np.zeros((0, 4))
    for a, b, shared in _pair_blocks(Y):
        positive = shared * Y.shape[0] > counts[a] * counts[b]
        a, b, shared = a[positive], b[positive], shared[positive]
        score = log_likelihood_ratio(shared, counts[a], counts[b], Y.shape[0])
        if 0 < n_pairs < score.size:
            # Equal scores stay together until the sort below, which settles them by column.
            strong = score >= np.partition(score, -n_pairs)[-n_pairs]
            a, b, shared, score = a[strong], b[strong], shared[strong], score[strong]
        best = np.vstack([best, np.column_stack([score, a, b, shared])])
        best = best[np.lexsort((best[:, 2], best[:, 1], -best[:, 0]))][: max(0, n_pairs)]
    return tuple(_linked_pair(row, counts, names) for row in best.tolist())


def _linked_pair(row: list[float], counts: FloatArray, names: Names) -> LinkedPair:
    score, *pair, shared = row
    a, b = sorted(map(int, pair), key=lambda label: (-counts[label], label))
    n_a, n_b = int(counts[a]), int(counts[b])
    return LinkedPair(names[a], names[b], n_a, n_b, int(shared), shared / n_b, shared / n_a, score)


def log_likelihood_ratio(shared: Any, count_a: Any, count_b: Any, n_documents: int) -> FloatArray:
    """Dunning's G2 of the 2 x 2 tables of two labels over all documents (natural logarithm)."""
    both, a, b = (np.asarray(value, dtype=np.float64) for value in (shared, count_a, count_b))
    cells = both, a - both, b - both, n_documents - a - b + both
    margins = a, b, n_documents - a, n_documents - b
    total = sum(xlogy(k, k) for k in cells) - sum(xlogy(k, k) for k in margins)
    ratio: FloatArray = np.maximum(2 * (total + xlogy(n_documents, n_documents)), 0)
    return ratio


def _pair_blocks(Y: sp.csr_matrix) -> Iterator[tuple[IntArray, IntArray, FloatArray]]:
    """Columns a < b and the documents they share, a bounded number of pairs at a time."""
    matrix = Y.astype(np.float64)
    by_label = matrix.T.tocsr()
    # A label meets at most as many others as its documents have labels, so this bounds its row.
    bounds = np.minimum(by_label @ np.diff(Y.indptr).astype(np.float64), Y.shape[1])
    ends = np.cumsum(bounds)
    start = 0
    while start < Y.shape[1]:
        done = ends[start - 1] if start else 0.0
        stop = max(start + 1, int(np.searchsorted(ends, done + BLOCK_ELEMENTS, side="right")))
        block = (by_label[start:stop] @ matrix).tocoo()
        a, b = block.row.astype(np.int64) + start, block.col.astype(np.int64)
        upper = a < b
        yield a[upper], b[upper], block.data[upper]
        start = stop


@dataclass(frozen=True)
class _Marked:
    """A part on the labels of all parts, with a digest of every text and its labels as bytes."""

    matrix: sp.csr_matrix
    digests: list[bytes]
    label_keys: list[bytes]
    ids: Names | None

    def name(self, row: int) -> str | int:
        return row if self.ids is None else self.ids[row]


def _counts(Y: sp.csr_matrix) -> FloatArray:
    return np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.float64)


def _read_texts(texts: list[str]) -> tuple[IntArray, list[bytes]]:
    """Words of every text, and a digest that white space and case do not change."""
    lengths, digests = [], []
    for text in texts:
        words = text.split()
        lengths.append(len(words))
        # JSON may hold half of a surrogate pair, which plain UTF-8 refuses.
        folded = " ".join(words).casefold().encode("utf-8", "surrogatepass")
        digests.append(hashlib.blake2b(folded, digest_size=16).digest())
    return np.array(lengths, dtype=np.int64), digests


def _label_keys(matrix: sp.csr_matrix) -> list[bytes]:
    """The sorted columns of every row as bytes: equal bytes, equal labels."""
    raw = matrix.indices.astype(np.int32).tobytes()
    return [raw[start:stop] for start, stop in pairwise((matrix.indptr * 4).tolist())]


def _part_stats(matrix: sp.csr_matrix, words: IntArray, label_keys: list[bytes]) -> PartStats:
    n_documents, n_labels = matrix.shape
    per_document = np.diff(matrix.indptr)
    cardinality = matrix.nnz / n_documents if n_documents else None
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
        label_sets=len(set(label_keys) - {b""}),
        without_text=int((words == 0).sum()),
        words=_spread(words),
    )


def _spread(values: IntArray) -> Spread:
    if not values.size:
        return Spread(None, None, None, None)
    median, q95 = np.quantile(values, [0.5, 0.95]).tolist()
    return Spread(float(values.mean()), median, q95, int(values.max()))


def _train_labels(train: TextData, cuts: tuple[float, float] | None) -> TrainLabels:
    found = train.stats()
    counts = found.label_counts
    low, high = np.quantile(counts, [1 / 3, 2 / 3]).tolist() if cuts is None else cuts
    total, groups = counts.sum(), {}
    group_of = np.empty(counts.size, dtype=object)
    for name, mask in label_groups(counts, (low, high)).items():
        group_of[mask] = name
        own = int(counts[mask].sum())
        groups[name] = Group(int(mask.sum()), own, own / float(total) if total else None)
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
        mu=float(found.mu),
        mu_source=found.mu_source,
        per_label=tuple(
            LabelFacts(name, int(n), float(counts.max() / n) if n else None, str(group))
            for name, n, group in zip(train.label_names, counts, group_of, strict=True)
        ),
    )


def _duplicates(part: _Marked, train: _Marked | None) -> Duplicates:
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
        Leak(part.name(row), train.name(row_of[part.digests[row]]), equal)
        for row, equal in list(zip(leaked, same, strict=True))[:MAX_EXAMPLES]
    )
    known = None if part.ids is None or train.ids is None else set(train.ids)
    in_train = None if known is None else sum(identity in known for identity in part.ids or ())
    return Duplicates(copies, len(leaked), sum(same), examples, repeated, in_train)


def _drift(train: sp.csr_matrix, other: sp.csr_matrix, names: Names) -> Drift:
    before, after = _counts(train), _counts(other)
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
        js_by_chance=_js_by_chance(before, after),
        changed=int((np.abs(z[tested]) > limit).sum()),
        changes=tuple(
            Change(names[k], float(old_shares[k]), float(shares[k]), float(z[k])) for k in strongest
        ),
    )


def _js_by_chance(before: FloatArray, after: FloatArray) -> float | None:
    """Mean distance when the assignments of both are shuffled and dealt out again, five times."""
    if not before.sum() or not after.sum():
        return None
    pooled, size = (before + after).astype(np.int64), int(after.sum())
    deal = np.random.default_rng(0).multivariate_hypergeometric
    dealt = deal(pooled, size, size=5, method="marginals")
    return float(np.mean([js_distance(pooled - second, second) for second in dealt]))


def proportion_z(before: FloatArray, n_before: int, after: FloatArray, n_after: int) -> FloatArray:
    """Two-proportion z score of every label's share of documents, positive where it grew.

    NaN where either part would be expected to hold fewer than five documents with the label, or
    without it: for such labels chance alone gives large scores.
    """
    z = np.full(before.shape, np.nan)
    if not n_before or not n_after:
        return z
    pooled = (before + after) / (n_before + n_after)
    use = np.minimum(pooled, 1 - pooled) * min(n_before, n_after) >= MIN_EXPECTED
    deviation = np.sqrt(pooled[use] * (1 - pooled[use]) * (1 / n_before + 1 / n_after))
    z[use] = (after[use] / n_after - before[use] / n_before) / deviation
    return z
