"""What is known about the labels before training: how often each occurs, and with which others.

`LabelStats` feeds the balancing losses; `label_groups` cuts the labels into head, medium and tail.
numpy and scipy only.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from longtail.checks import check_integer, check_number
from longtail.errors import InputError, shown

FloatArray = NDArray[np.float64]
GROUP_NAMES = ("head", "medium", "tail")
# Above it float64 cannot tell neighbouring counts apart.
MOST_SAMPLES = 2**53


@dataclass(frozen=True, eq=False)
class LabelStats:
    """Counts of every label in the training documents, and what follows from them.

    Make one with `from_matrix`, `from_lists` or `from_counts`; the first two also see which labels
    share documents, which the rebalancing losses use to choose `mu`.

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
    """The rebalancing centre: half the mean plus half the median of r, see `mu_source`."""
    mu_source: Literal["pairs", "counts"] = "counts"
    """`pairs`: mu by the paper's rule. `counts`: the pairs are unknown, mu is the mean of r alone
    (n_samples / total count, exact when every document has a label); the median needs the pairs."""
    matrix: sp.csr_matrix | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        counts = np.array(_numbers(self.label_counts, "label_counts must be numbers"))
        if counts.ndim != 1 or counts.size == 0:
            raise InputError(
                "expected at least one label and one count for each, got label_counts of shape "
                f"{counts.shape}. Check that the documents have labels."
            )
        check_integer("n_samples", self.n_samples, 1)
        if self.n_samples > MOST_SAMPLES:
            raise InputError(f"n_samples must be at most 2**53, got {shown(self.n_samples)}.")
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
        """From the number of training documents of each label: a sequence, or name -> count.

        Without the pairs `mu` falls back to n_samples / total count (see `mu_source`).
        """
        if isinstance(label_counts, Mapping):
            label_names = list(label_counts)
            label_counts = list(label_counts.values())
        stats = cls(label_counts, n_samples, label_names)  # type: ignore[arg-type]
        total = float(stats.label_counts.sum())
        return replace(stats, mu=min(1.0, stats.n_samples / total)) if total > 0 else stats

    @classmethod
    def from_matrix(cls, Y: Any, label_names: Sequence[str] | None = None) -> LabelStats:
        """From a documents x labels indicator matrix: scipy sparse, numpy, or nested lists."""
        matrix = _as_csr(Y)
        counts = np.asarray(matrix.sum(axis=0), dtype=np.float64).ravel()
        mu = _mu_from_pairs(matrix, counts)
        return cls(counts, matrix.shape[0], label_names, mu, "pairs", matrix)  # type: ignore[arg-type]

    @classmethod
    def from_lists(
        cls, labels: Iterable[Iterable[str]], label_names: Sequence[str] | None = None
    ) -> LabelStats:
        """From one list of label names per document; names are sorted unless given."""
        matrix, names = encode_labels(labels, label_names)
        return cls.from_matrix(matrix, names)

    def cooccurrence(self) -> sp.csr_matrix:
        """Documents shared by every two labels: labels x labels, counts on the diagonal."""
        if self.matrix is None:
            raise InputError(
                "co-occurrence needs the documents, but these statistics were made from counts. "
                "Use LabelStats.from_matrix or LabelStats.from_lists."
            )
        return sp.csr_matrix(self.matrix.T @ self.matrix)


class LabelEncoder:
    """Label lists to a sparse matrix, a document at a time: no dense row, four bytes per label.

    With `label_names` given, any other label is an error: nothing is dropped in silence. Without
    them the columns are the labels that were added, sorted by name.

    Example:
        >>> encoder = LabelEncoder()
        >>> for labels in (["wheat"], ["copper", "wheat"]):
        ...     encoder.add(labels)
        >>> matrix, names = encoder.finish()
        >>> names, matrix.toarray().tolist()
        (('copper', 'wheat'), [[0.0, 1.0], [1.0, 1.0]])
    """

    def __init__(self, label_names: Sequence[str] | None = None) -> None:
        self.label_names = None if label_names is None else check_unique(label_names)
        self.index = {name: column for column, name in enumerate(self.label_names or ())}
        self.declared: tuple[str, ...] = ()
        self.columns = array("i")
        self.row_starts = array("q", [0])

    def __len__(self) -> int:
        return len(self.row_starts) - 1

    def declare(self, label_names: Iterable[str]) -> None:
        """Give these labels a column even if no document carries them.

        They keep their order as long as no document brings another label.
        """
        declared = tuple(dict.fromkeys((*self.declared, *_names(label_names))))
        for name in declared:
            self._column(name)
        self.declared = declared

    def add(self, labels: Iterable[str]) -> None:
        """Add one document; a label listed twice counts once."""
        names = dict.fromkeys(_names(labels, f"document {len(self)}: "))
        index = self.index
        if self.label_names is None:
            self.columns.extend([index.setdefault(name, len(index)) for name in names])
        else:
            self.columns.extend([self._column(name) for name in names])
        self.row_starts.append(len(self.columns))

    def _column(self, name: str) -> int:
        if self.label_names is not None and name not in self.index:
            raise InputError(
                f"document {len(self)}: label {name!r} is not one of the {len(self.index)} known "
                "labels. Remove it, or train on documents that have it."
            )
        return self.index.setdefault(name, len(self.index))

    def finish(self) -> tuple[sp.csr_matrix, tuple[str, ...]]:
        """The documents x labels matrix and the names of its columns."""
        columns = np.array(self.columns, dtype=np.int32)
        names = tuple(self.index)
        if self.label_names is None and names:
            names = self.declared if len(self.declared) == len(names) else tuple(sorted(names))
            position = np.empty(len(names), dtype=np.int32)
            position[[self.index[name] for name in names]] = np.arange(len(names))
            columns = position[columns]
        values = np.ones(len(columns), dtype=np.float32)
        starts = np.array(self.row_starts, dtype=np.int64)
        matrix = sp.csr_matrix((values, columns, starts), shape=(len(self), len(names)))
        matrix.sort_indices()
        return matrix, names


def encode_labels(
    labels: Iterable[Iterable[str]], label_names: Sequence[str] | None = None
) -> tuple[sp.csr_matrix, tuple[str, ...]]:
    """Label lists to a sparse indicator matrix and its column names, see `LabelEncoder`."""
    encoder = LabelEncoder(label_names)
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise InputError(
            f"expected one list of label names per document, got {shown(labels)}. "
            "Write [['copper'], ['copper', 'nickel'], []]."
        )
    for document_labels in labels:
        encoder.add(document_labels)
    return encoder.finish()


def check_unique(label_names: Iterable[str]) -> tuple[str, ...]:
    """Label names as a tuple; raise if a label has two columns."""
    names = _names(label_names)
    if len(set(names)) != len(names):
        repeated = next(name for name, n in Counter(names).items() if n > 1)
        raise InputError(f"the label name {repeated!r} is given twice. Name each label once.")
    return names


def _names(names: Iterable[str], where: str = "") -> tuple[str, ...]:
    """Names as a tuple, or an error: a single string would be read letter by letter."""
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


def label_groups(
    label_counts: ArrayLike, cuts: tuple[float, float] | None = None
) -> dict[str, NDArray[np.bool_]]:
    """Boolean masks of the head, medium and tail labels.

    Tail: count below the first cut; head: count above the second. The cuts default to the terciles
    of the counts, as in the paper.
    """
    counts = _numbers(label_counts, "label counts must be numbers")
    if counts.ndim != 1 or counts.size == 0 or np.isnan(counts).any():
        raise InputError(
            f"expected one count per label, of at least one label, got shape {counts.shape}"
            f"{' with NaN' if np.isnan(counts).any() else ''}."
        )
    limits = np.quantile(counts, [1 / 3, 2 / 3])
    if cuts is not None:
        limits = _numbers(cuts, "cuts must be numbers")
    if limits.shape != (2,) or np.isnan(limits).any():
        raise InputError(f"cuts must be two numbers, got {shown(cuts)}.")
    low, high = limits
    if low > high:
        raise InputError(f"the first cut must not exceed the second, got {low} and {high}.")
    tail, head = counts < low, counts > high
    return {"head": head, "medium": ~(head | tail), "tail": tail}


def _numbers(values: Any, wanted: str, hint: str = "") -> FloatArray:
    """Values as float64, or an error: text is not read as numbers, nor complex ones cut."""
    try:
        raw = np.asarray(values)
        has_text = raw.dtype.kind == "O" and any(isinstance(v, (str, bytes)) for v in raw.flat)
        if raw.dtype.kind not in "biufO" or has_text:
            raise TypeError(f"values of type {raw.dtype}")
        with np.errstate(over="ignore"):
            return raw.astype(np.float64)
    except Exception as error:  # torch and pandas raise theirs
        raise InputError(f"{wanted}, got {shown(values)} ({error}).{hint}") from error


def _as_csr(Y: Any) -> sp.csr_matrix:
    """A float64 copy: the caller's matrix may hold stored zeros, and stays as it is."""
    wanted = "expected a documents x labels matrix of numbers"
    hint = " For lists of label names use LabelStats.from_lists."
    plain = _sound_copy(Y) if sp.issparse(Y) else _numbers(Y, wanted, hint)
    if plain.ndim != 2 or plain.dtype.kind not in "biuf":
        raise InputError(f"{wanted}, got {plain.ndim} dimensions of {plain.dtype}.{hint}")
    matrix = sp.csr_matrix(plain, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if matrix.data.size and not (matrix.data.min() >= 0 and matrix.data.max() <= 1):
        raise InputError(
            f"label indicators must lie in [0, 1], got values from {matrix.data.min():g} to "
            f"{matrix.data.max():g}. For counts use LabelStats.from_counts."
        )
    return matrix


def _sound_copy(matrix: Any) -> Any:
    """A copy of a sparse matrix, or an error if it points outside itself: scipy would follow it."""
    try:
        if matrix.format == "coo":
            return sp.coo_array((matrix.data, matrix.coords), matrix.shape)
        # Of a copy, since scipy's check tidies up the arrays.
        copy = matrix.copy()
        if matrix.format in ("csr", "csc"):
            copy.check_format()
            if (np.diff(copy.indptr) < 0).any():
                raise ValueError("indptr must rise")
        return copy
    except ValueError as error:
        raise InputError(
            f"expected a documents x labels matrix, got a damaged {matrix.format} matrix of shape "
            f"{matrix.shape}: {error}. Build it again."
        ) from error


def _mu_from_pairs(matrix: sp.csr_matrix, counts: FloatArray) -> float:
    """(mean(r) + median(r)) / 2 over all positive pairs, r = (1/n_i) / sum_j (1/n_j)."""
    if matrix.nnz == 0:
        return 1.0
    inverse = np.zeros_like(counts)
    np.divide(1.0, counts, out=inverse, where=counts > 0)
    per_document = matrix @ inverse
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    ratio = inverse[matrix.indices] / per_document[rows]
    return float((ratio.mean() + np.median(ratio)) / 2)
