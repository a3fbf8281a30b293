"""Label statistics: counts for the balancing losses, and the groups head, medium and tail.

numpy and scipy only.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from longtail.checks import check_integer, check_number
from longtail.errors import InputError, shown

FloatArray = NDArray[np.float64]
GROUP_NAMES = ("head", "medium", "tail")


@dataclass(frozen=True, eq=False, repr=False)
class LabelStats:
    """Label counts of the training documents, and `mu` for the rebalancing losses.

    Build it with `from_matrix` or `from_lists`, which see which labels co-occur, or with
    `from_counts`.

    Example:
        >>> stats = LabelStats.from_lists([["copper"], ["copper", "nickel"], ["copper"]])
        >>> stats.label_names, stats.label_counts.tolist(), stats.n_samples
        (('copper', 'nickel'), [3.0, 1.0], 3)
        >>> round(stats.mu, 4), stats.mu_source
        (0.8125, 'pairs')
    """

    label_counts: FloatArray
    n_samples: int
    label_names: tuple[str, ...] | None = None
    mu: float = 1.0
    """The centre of the rebalanced weight; see `mu_source`."""
    mu_source: Literal["pairs", "counts"] = "counts"
    """`pairs`: the mean of the mean and the median of r over all pairs of a document and a label.
    `counts`: the pairs are unknown, so mu is the mean alone: n_samples / total count, exact if
    every document has a label."""

    def __post_init__(self) -> None:
        counts = np.array(_numbers(self.label_counts, "label_counts must be numbers"))
        if counts.ndim != 1 or counts.size == 0:
            raise InputError(
                "expected at least one label and one count for each, got label_counts of shape "
                f"{counts.shape}. Check that the documents have labels."
            )
        check_integer("n_samples", self.n_samples, 1)
        bad = np.flatnonzero(~((counts >= 0) & (counts <= self.n_samples)))
        if bad.size:
            raise InputError(
                f"the count of a label must lie between 0 and n_samples ({self.n_samples}), got "
                f"{counts[bad[0]]:g} for label {bad[0]}. Count the training documents of each "
                "label, and pass their total number as n_samples."
            )
        check_number("mu", self.mu)
        names = None if self.label_names is None else check_unique(self.label_names)
        if names is not None and len(names) != counts.size:
            raise InputError(
                f"expected {counts.size} label names, one per count, got {len(names)}."
            )
        counts.setflags(write=False)
        object.__setattr__(self, "label_counts", counts)
        object.__setattr__(self, "label_names", names)
        object.__setattr__(self, "n_samples", int(self.n_samples))

    def __repr__(self) -> str:
        sizes = f"{self.n_labels:,} labels, n_samples={self.n_samples}"
        return f"LabelStats({sizes}, mu={self.mu:.4g}, mu_source={self.mu_source!r})"

    @property
    def n_labels(self) -> int:
        return int(self.label_counts.size)

    @classmethod
    def from_counts(
        cls,
        label_counts: Mapping[str, float] | ArrayLike,
        n_samples: int,
        label_names: Sequence[str] | None = None,
    ) -> LabelStats:
        """Build from the number of training documents per label: a sequence, or name -> count."""
        if isinstance(label_counts, Mapping):
            label_names = list(label_counts)
            label_counts = list(label_counts.values())
        stats = cls(label_counts, n_samples, label_names)  # type: ignore[arg-type]
        total = float(stats.label_counts.sum())
        return replace(stats, mu=min(1.0, stats.n_samples / total)) if total > 0 else stats

    @classmethod
    def from_matrix(cls, Y: Any, label_names: Sequence[str] | None = None) -> LabelStats:
        """Build from a documents x labels indicator matrix: scipy sparse, numpy, nested lists."""
        matrix = _as_csr(Y)
        counts = np.asarray(matrix.sum(axis=0), dtype=np.float64).ravel()
        mu = _mu_from_pairs(matrix, counts)
        return cls(counts, matrix.shape[0], label_names, mu, "pairs")  # type: ignore[arg-type]

    @classmethod
    def from_lists(
        cls, labels: Iterable[Iterable[str]], label_names: Sequence[str] | None = None
    ) -> LabelStats:
        """Build from one list of label names per document; names are sorted unless given."""
        matrix, names = encode_labels(labels, label_names)
        return cls.from_matrix(matrix, names)


class LabelEncoder:
    """Encode label lists as a sparse matrix, one document at a time, four bytes per label.

    The columns are the labels seen, sorted by name; see `declare`.
    """

    def __init__(self) -> None:
        self.index: dict[str, int] = {}
        self.declared: tuple[str, ...] = ()
        self.columns = array("i")
        self.row_starts = array("q", [0])

    def __len__(self) -> int:
        return len(self.row_starts) - 1

    def declare(self, label_names: Iterable[str]) -> None:
        """Give these labels a column even if no document has them.

        They keep their order unless a document has an undeclared label.
        """
        self.declared = tuple(dict.fromkeys((*self.declared, *_names(label_names))))
        for name in self.declared:
            self.index.setdefault(name, len(self.index))

    def add(self, labels: Iterable[str]) -> None:
        """Add one document; a label listed twice counts once."""
        names = dict.fromkeys(_names(labels, f"document {len(self)}: "))
        index = self.index
        self.columns.extend([index.setdefault(name, len(index)) for name in names])
        self.row_starts.append(len(self.columns))

    def finish(self) -> tuple[sp.csr_matrix, tuple[str, ...]]:
        """Return the documents x labels matrix and its column names."""
        declared = self.declared
        names = declared if len(declared) == len(self.index) else tuple(sorted(self.index))
        position = np.empty(len(names), dtype=np.int32)
        position[[self.index[name] for name in names]] = np.arange(len(names))
        columns = position[np.array(self.columns, dtype=np.int32)]
        values = np.ones(len(columns), dtype=np.float32)
        starts = np.array(self.row_starts, dtype=np.int64)
        matrix = sp.csr_matrix((values, columns, starts), shape=(len(self), len(names)))
        matrix.sort_indices()
        return matrix, names


def encode_labels(
    labels: Iterable[Iterable[str]], label_names: Sequence[str] | None = None
) -> tuple[sp.csr_matrix, tuple[str, ...]]:
    """Encode label lists as a sparse indicator matrix; return it with its column names.

    Names are sorted unless given; with names given, any other label is an error.
    """
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise InputError(
            f"expected one list of label names per document, got {shown(labels)}. "
            "Write [['copper'], ['copper', 'nickel'], []]."
        )
    encoder = LabelEncoder()
    known = check_unique(() if label_names is None else label_names)
    encoder.declare(known)
    for row, document_labels in enumerate(labels):
        encoder.add(document_labels)
        if label_names is not None and len(encoder.index) > len(known):
            raise InputError(
                f"document {row}: label {[*encoder.index][len(known)]!r} is not one of the "
                f"{len(known)} known labels. Remove it, or train on documents that have it."
            )
    return encoder.finish()


def check_unique(label_names: Iterable[str]) -> tuple[str, ...]:
    """Return the label names as a tuple; raise if one occurs twice."""
    names = _names(label_names)
    if len(set(names)) != len(names):
        repeated = next(name for name, n in Counter(names).items() if n > 1)
        raise InputError(f"the label name {repeated!r} is given twice. Name each label once.")
    return names


def _names(names: Iterable[str], where: str = "") -> tuple[str, ...]:
    """Return the names as a tuple; raise for a single string, which would be read by letters."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InputError(
            f"{where}expected a list of labels, got {shown(names)}. "
            f"Write [{shown(names) if isinstance(names, str) else repr('copper')}]."
        )
    names = tuple(names)
    for name in names:
        if not isinstance(name, str):
            raise InputError(
                f"{where}a label must be a string, got {shown(name)} ({type(name).__name__}). "
                "Convert it with str()."
            )
    return names


def group_cuts(counts: FloatArray) -> tuple[float, float]:
    """Return the terciles of the counts, as in the paper.

    If a third of the labels or more share the lowest count, the first cut lies just above it, so
    that these labels are the tail.
    """
    low, high = np.quantile(counts, [1 / 3, 2 / 3]).tolist()
    lowest = float(counts.min())
    above = counts[counts > lowest]
    if low == lowest and above.size:
        low = (lowest + float(above.min())) / 2
    return low, max(low, high)


def label_groups(
    label_counts: ArrayLike, cuts: tuple[float, float] | None = None
) -> dict[str, NDArray[np.bool_]]:
    """Return Boolean masks of the head, medium and tail labels.

    Tail: count below the first cut; head: count above the second. Default: `group_cuts`.
    """
    counts = _numbers(label_counts, "label counts must be numbers")
    if counts.ndim != 1 or counts.size == 0 or np.isnan(counts).any():
        raise InputError(f"expected one count per label, without NaN, got {shown(label_counts)}.")
    limits = _numbers(group_cuts(counts) if cuts is None else cuts, "cuts must be numbers")
    if limits.shape != (2,) or not limits[0] <= limits[1]:
        raise InputError(f"cuts must be two numbers in ascending order, got {shown(cuts)}.")
    tail, head = counts < limits[0], counts > limits[1]
    return {"head": head, "medium": ~(head | tail), "tail": tail}


def _numbers(values: Any, expected: str, hint: str = "") -> FloatArray:
    """Convert to float64; raise for text and complex numbers, which numpy would convert."""
    try:
        raw = np.asarray(values)
        has_text = raw.dtype.kind == "O" and any(isinstance(v, (str, bytes)) for v in raw.flat)
        if raw.dtype.kind not in "biufO" or has_text:
            raise TypeError(f"values of type {raw.dtype}")
        with np.errstate(over="ignore"):
            return raw.astype(np.float64)
    except Exception as error:  # torch and pandas raise their own
        raise InputError(f"{expected}, got {shown(values)} ({error}).{hint}") from error


def _as_csr(Y: Any) -> sp.csr_matrix:
    """Return a float64 copy without stored zeros; the caller's matrix is not changed."""
    expected = "expected a documents x labels matrix of numbers"
    hint = " For lists of label names use LabelStats.from_lists."
    plain = Y if sp.issparse(Y) else _numbers(Y, expected, hint)
    if plain.ndim != 2 or plain.dtype.kind not in "biuf":
        raise InputError(f"{expected}, got {plain.ndim} dimensions of {plain.dtype}.{hint}")
    matrix = sp.csr_matrix(plain, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if matrix.data.size and not (matrix.data.min() >= 0 and matrix.data.max() <= 1):
        raise InputError(
            f"label indicators must lie in [0, 1], got values from {matrix.data.min():g} to "
            f"{matrix.data.max():g}. For counts use LabelStats.from_counts."
        )
    return matrix


def _mu_from_pairs(matrix: sp.csr_matrix, counts: FloatArray) -> float:
    """(mean(r) + median(r)) / 2 over all positive pairs, r = (1/n_i) / sum_j (1/n_j)."""
    if matrix.nnz == 0:
        return 1.0
    inverse = 1.0 / np.where(counts > 0, counts, 1.0)
    ratio = inverse[matrix.indices] / np.repeat(matrix @ inverse, np.diff(matrix.indptr))
    return float((ratio.mean() + np.median(ratio)) / 2)
